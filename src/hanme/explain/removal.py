"""A model opened where metapath instances enter it, so that some can be taken out of one node.

To take instances out of a root is to leave them out of its softmax: the weights of the others are
divided by what remains, and activation, sum over metapaths and linear layer follow. β is held
fixed. With α the weights of a head, z = Σ_p α(p) e(p) and R the instances taken out,

    z without R = (z - Σ_{p in R} α(p) e(p)) / (1 - Σ_{p in R} α(p)) ,

which needs the instances in R alone. Sums are in double precision; where R holds nearly all the
weight of a head the difference would be lost in rounding, and the rest is summed instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from hanme.chain import Instances
from hanme.errors import HanmeError
from hanme.nn.conv import ACTIVATIONS, HANMEConv
from hanme.ops import Constant, PairSigmoid, Problem
from hanme.ops.eager import encode

BLOCK = 1 << 13
"""About how many instances of a root are in the works at one time."""

KEPT = 1 << 25
"""How many numbers of encoded instances a root may keep between two walks; with more it encodes
them again."""

NEARLY_ALL = 0.999
"""The share of a head's weight above which the rest is summed instead of subtracted from all."""

_MORE = "the model does more than one HANMEConv and one linear layer: it cannot be explained"


class OpenModel:
    """A trained model on a graph: what is the same for all of its nodes, computed once.

    Args:
        model: A model that is a :class:`HANMEConv` ``conv`` and a linear layer ``lin`` for its node
            type ``target``.
        data: The graph.
    """

    def __init__(self, model: Any, data: HeteroData) -> None:
        conv = getattr(model, "conv", None)
        lin = getattr(model, "lin", None)
        if not isinstance(conv, HANMEConv) or not isinstance(lin, nn.Linear):
            raise HanmeError(
                f"model {type(model).__name__}: it attends to no metapath instances, so that there "
                "is nothing to explain it by; a HANMEConv and a linear layer, as in HANME and HAN, "
                "can be explained"
            )
        self.target: str = model.target
        self.logits, self.beta, self.problems = _run(model, conv, data)
        self.activation = ACTIVATIONS[conv.activation]
        self.weight = lin.weight.detach().double().unflatten(1, (conv.heads, -1))  # [C, K, D]
        self.bias: Tensor | float = 0.0 if lin.bias is None else lin.bias.detach()

    @torch.no_grad()
    def root(self, node: int) -> Root:
        """One node with its instances."""
        root = Root(self, node)
        if not torch.allclose(root.logits, self.logits[node].double(), rtol=1e-3, atol=1e-3):
            raise HanmeError(_MORE)
        return root


def _run(
    model: Any, conv: HANMEConv, data: HeteroData
) -> tuple[Tensor, list[float], dict[str, Problem]]:
    """The logits of all nodes, the metapaths' weights β and what the operator was asked."""
    betas: list[Tensor] = []
    watch = conv.semantic.register_forward_hook(lambda _, __, out: betas.append(out[1]))
    training = model.training
    try:
        with torch.no_grad():
            logits = model.train(False)(data)
            problems = conv.problems(data.x_dict, data.edge_index_dict)
    finally:
        model.train(training)
        watch.remove()
    if len(betas) != 1 or betas[0].numel() != len(conv.metapaths):
        raise HanmeError(_MORE)
    return logits, betas[0].tolist(), problems


class Root:
    """One node, its instances by metapath, and its logits with or without some of them."""

    def __init__(self, model: OpenModel, node: int) -> None:
        self.model = model
        self.node = node
        self.paths = [Path(problem, node) for problem in model.problems.values()]
        self.active = [model.activation(path.z) for path in self.paths]
        self.logits = self._logits(self.active)

    def __len__(self) -> int:
        """The number of its instances over all metapaths."""
        return sum(len(path) for path in self.paths)

    def moves(self, path: int, some: Encoded) -> Tensor:
        """How far each instance alone moved the logits: with it minus without it, ``[P, C]``."""
        without = self.model.activation(self.paths[path].without_each(some))
        change = (self.active[path] - without) * self.model.beta[path]
        return torch.einsum("pkd,ckd->pc", change, self.model.weight)

    def parts(self, path: int, some: Encoded) -> Tensor:
        """Each instance's part of the logits, ``[P, C]``; all parts and the bias make the logits.

        The activation's output is its input times a factor of each channel (1 or 0 for ReLU), and
        its input is a sum over instances.
        """
        z = self.paths[path].z
        factor = torch.where(z == 0, 0.0, self.active[path] / z) * self.model.beta[path]
        gate = (self.model.weight * factor).flatten(1)
        return (some.weight[..., None] * some.vector).flatten(1) @ gate.t()

    def logits_without(self, numbers: Sequence[Tensor]) -> Tensor:
        """The logits without some instances, given by number for each metapath, ``[C]``."""
        return self._logits(
            [
                self.model.activation(path.without(taken)) if taken.numel() else active
                for path, active, taken in zip(self.paths, self.active, numbers, strict=True)
            ]
        )

    def _logits(self, active: Sequence[Tensor]) -> Tensor:
        pairs = zip(self.model.beta, active, strict=True)
        mixed = torch.stack([beta * z for beta, z in pairs]).sum(0)
        return torch.einsum("kd,ckd->c", mixed, self.model.weight) + self.model.bias


@dataclass(frozen=True)
class Encoded:
    """Some instances of a root: e(p), ``[P, K, D]``, and α(p), ``[P, K]``."""

    instances: Instances
    vector: Tensor
    weight: Tensor


class Path:
    """A root's instances along one metapath, walked a block at a time."""

    def __init__(self, problem: Problem, root: int) -> None:
        self.problem = problem
        self.root = root
        self._encoding = _for_root(problem, root)
        self._kept: list[tuple[Instances, Tensor, Tensor]] | None = None
        if len(self) * problem.attention.numel() <= KEPT:
            self._kept = list(self._walk())
        self.top, self.total, self.z = self._attend()

    def __len__(self) -> int:
        return int(self.problem.chain.count()[self.root])

    def blocks(self) -> Iterator[Encoded]:
        """All instances, in the order of their numbers."""
        for instances, vector, score in self._walk():
            yield self._encoded(instances, vector, score)

    def at(self, number: Tensor) -> Encoded:
        """The instances with these numbers."""
        if self._kept is not None and len(self._kept) == 1:  # a number is a place in the block
            all_, vector, score = self._kept[0]
            some = Instances(all_.nodes[number], all_.links[number], number)
            return self._encoded(some, vector[number], score[number])
        roots = torch.full_like(number, self.root)
        instances = self.problem.chain.walk(roots, number)
        return self._encoded(instances, *encode(self._encoding, instances))

    def without_each(self, some: Encoded) -> Tensor:
        """z without each instance by itself, ``[P, K, D]``."""
        odds = (some.weight / (1 - some.weight))[..., None]
        z = self.z + odds * (self.z - some.vector)
        for p in (some.weight > NEARLY_ALL).any(1).nonzero().flatten():  # at most one per head
            z[p] = self._attend(some.instances.number[p].view(1))[2]
        return z

    def without(self, number: Tensor) -> Tensor:
        """z without the instances with these numbers together, ``[K, D]``."""
        taken = self.at(number)
        share = taken.weight.sum(0)
        if (share > NEARLY_ALL).any():
            return self._attend(number)[2]
        lost = (taken.weight[..., None] * taken.vector).sum(0)
        return (self.z - lost) / (1 - share)[:, None]

    def _walk(self) -> Iterator[tuple[Instances, Tensor, Tensor]]:
        """All instances with e(p) and their scores."""
        if self._kept is not None:
            yield from self._kept
        else:
            for instances in self.problem.chain.blocks(self.root, BLOCK):
                yield instances, *encode(self._encoding, instances)

    def _encoded(self, instances: Instances, vector: Tensor, score: Tensor) -> Encoded:
        weight = torch.exp(score.double() - self.top) / self.total
        return Encoded(instances, vector.double(), weight)

    def _attend(self, skipped: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The softmax's maximum and sum by head, and z; zeros where no instance is left."""
        attention = self.problem.attention.double()
        top = torch.full_like(attention[:, 0], -torch.inf)
        total, z = torch.zeros_like(top), torch.zeros_like(attention)
        for instances, vector, score in self._walk():
            vector, score = vector.double(), score.double()
            if skipped is not None:
                kept = torch.isin(instances.number, skipped, invert=True)
                vector, score = vector[kept], score[kept]
            if score.numel():
                higher = torch.maximum(top, score.amax(0))
                scale, weight = torch.exp(top - higher), torch.exp(score - higher)
                total = total * scale + weight.sum(0)
                z = z * scale[:, None] + torch.einsum("pk,pkd->kd", weight, vector)
                top = higher
        return top, total, z / total.clamp(min=1e-300)[:, None]


def _for_root(problem: Problem, root: int) -> Problem:
    """The same encodings for one root; where it pays, with the pairs' coefficients in the values.

    For one root a pair's coefficient depends on the node alone: with more instances than nodes it
    is cheaper made once per node.
    """
    pair, chain = problem.coefficients, problem.chain
    if not isinstance(pair, PairSigmoid) or int(chain.count()[root]) < sum(chain.sizes):
        return problem
    values: list[Tensor | None] = []
    for position, value in enumerate(problem.values):
        nodes = torch.arange(chain.sizes[position], device=chain.device)
        c = pair.of(position, torch.full_like(nodes, root), nodes)
        values.append(None if value is None else c[..., None] * value)
    return replace(problem, values=tuple(values), coefficients=Constant((1.0,) * len(values)))
