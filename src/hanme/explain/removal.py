"""A model opened where metapath instances enter it, so that some can be taken out of one node.

A model can be opened that is made of channels, a fusion that weighs their vectors by known β, and a
linear head: its logits are then a sum over channels, and those of metapath channels a sum over
instances. To take instances out of a root is to leave them out of its softmax: the weights of the
others are divided by what remains, and activation, sum over channels and linear layer follow. β is
held fixed. With α the weights of a head, z = Σ_p α(p) e(p) and R the instances taken out,

    z without R = (z - Σ_{p in R} α(p) e(p)) / (1 - Σ_{p in R} α(p)) ,

which needs the instances in R alone. Sums are in double precision; where R holds nearly all the
weight of a head the difference would be lost in rounding, and the rest is summed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.chain import Instances
from hanme.nn import ChannelModel, Model
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels, Traced
from hanme.ops import Constant, PairSigmoid, Problem
from hanme.ops.eager import coefficient, encode
from hanme.training.stacked import Stacked

BLOCK = 1 << 13
"""About how many instances of a root are in the works at one time."""

KEPT = 1 << 25
"""How many numbers of encoded instances a root may keep between two walks; with more it encodes
them again."""

NEARLY_ALL = 0.999
"""The share of a head's weight above which the rest is summed instead of subtracted from all."""


class OpenModel:
    """A trained model on a graph: what is the same for all of its nodes, computed once.

    ``paths`` are the channels that come from instances, by name, and ``beta`` their weights;
    ``others`` is what else is added to the logits, ``[N, C]`` by name: the bias, blocks of the
    linear model, and channels that do not come from instances.

    Args:
        model: A stacked model, or a network alone; a network has channels, a fusion with known
            weights and a linear head.
        graph: The graph.
        weights: The fusion's weights of all channels, to hold instead of those on this graph.
        only: The only node that can be explained then.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: Model | Stacked,
        graph: Graph,
        weights: Sequence[float] | None = None,
        only: int | None = None,
    ) -> None:
        self.model = Stacked.of(model)
        self.only = only
        self.paths: dict[str, Traced] = {}
        self.beta: list[float] = []
        self.weights = list(weights or ())
        self.weight = torch.zeros(len(graph.labels), 0).double()
        nodes = None if only is None else torch.tensor([only])
        self.others = self.model.block_logits(graph, nodes)
        self.logits = sum(self.others.values(), start=torch.zeros(()))
        if self.model.network is not None:
            self._open(self.model.network, self.model.slopes["network"], Batch.of(graph, nodes))
        if only is not None:
            self.logits = Root(self, only).logits[None].float()

    def _open(self, network: Model, slope: float, batch: Batch) -> None:
        """Open the network, whose logits are multiplied by a slope."""
        if not isinstance(network, ChannelModel):
            raise _cannot(network, "it attends to no metapath instances")
        if not isinstance(network.head, nn.Linear):
            raise _cannot(network, f"its head, {type(network.head).__name__}, is not linear")
        training = network.training
        try:
            logits, given = _run(network.train(False), batch)
            traced = [part.trace(batch) for part, _ in given]
        finally:
            network.train(training)
        self.logits = self.logits + slope * logits
        beta = network.fusion.weights([x for _, xs in given for x in xs])
        if beta is None:
            fusion = type(network.fusion).__name__
            why = f"its fusion, {fusion}, is not a weighted sum with known weights"
            raise _cannot(network, why)
        self.weights = self.weights or beta.tolist()
        self.weight = slope * network.head.weight.detach().double()  # [C, K D]
        left = iter(self.weights)
        if network.head.bias is not None:
            bias = slope * network.head.bias.detach().expand_as(logits)
            self.others["bias"] = bias + self.others.get("bias", 0)
        for (part, xs), ways in zip(given, traced, strict=True):
            for i, (name, x) in enumerate(zip(part.names, xs, strict=True)):
                if ways is not None:
                    self.paths[name] = ways[i]
                    self.beta.append(next(left))
                else:
                    self.others[name] = next(left) * (x @ self.weight.float().t())
        if not self.paths:
            raise _cannot(network, "none of its channels attends to metapath instances")

    @torch.no_grad()
    def root(self, node: int, pause: Callable[[], None] = lambda: None) -> Root:
        """Return one node with its instances; what ``pause`` raises between blocks ends it."""
        root = Root(self, node, pause)
        if not torch.allclose(root.logits, self.logits[node].double(), rtol=1e-3, atol=1e-3):
            raise HanmeError("the model does more than its parts: it cannot be explained")
        return root


def _cannot(model: object, why: str) -> HanmeError:
    return HanmeError(
        f"model {type(model).__name__} cannot be explained: {why}; metapath channels, a weighted "
        "sum such as semantic attention and a linear head, as in HANME, HAN and MAGNN, can be"
    )


def _run(model: ChannelModel, batch: Batch) -> tuple[Tensor, list[tuple[Channels, list[Tensor]]]]:
    """Call a model; return the logits, and what each channel gave for them."""
    given: list[tuple[Channels, list[Tensor]]] = []
    watches = [
        part.register_forward_hook(lambda part, _, out: given.append((part, out)))
        for part in model.parts
    ]
    try:
        logits: Tensor = model(batch)
    finally:
        for watch in watches:
            watch.remove()
    return logits, given


class Root:
    """One node, its instances by metapath, and its logits with or without some of them."""

    def __init__(
        self, model: OpenModel, node: int, pause: Callable[[], None] = lambda: None
    ) -> None:
        self.model = model
        self.node = node
        self.ways = list(model.paths.values())
        self.paths = [Path(way.problem, node, pause) for way in self.ways]
        pairs = zip(self.ways, self.paths, strict=True)
        self.active = [way.activation(path.z) for way, path in pairs]
        row = node if model.only is None else 0
        self.others = {name: logits[row].double() for name, logits in model.others.items()}
        self.logits = self._logits(self.active)

    def __len__(self) -> int:
        """Return the number of its instances over all metapaths."""
        return sum(len(path) for path in self.paths)

    def moves(self, path: int, some: Encoded) -> Tensor:
        """Return how far each instance alone moved the logits, with minus without, ``[P, C]``."""
        without = self.ways[path].activation(self.paths[path].without_each(some))
        change = (self.active[path] - without) * self.model.beta[path]
        return change.flatten(1) @ self.model.weight.t()

    def parts(self, path: int, some: Encoded) -> Tensor:
        """Return each instance's part of the logits, ``[P, C]``; all parts and ``others`` add up.

        The activation's output is its input times a factor of each channel (1 or 0 for ReLU), and
        its input is a sum over instances.
        """
        z = self.paths[path].z
        factor = torch.where(z == 0, 0.0, self.active[path] / z) * self.model.beta[path]
        gate = self.model.weight * factor.flatten()
        return (some.weight[..., None] * some.vector).flatten(1) @ gate.t()

    def by_path(self) -> list[Tensor]:
        """Return the part of the logits that comes from each metapath, ``[C]``."""
        pairs = zip(self.model.beta, self.active, strict=True)
        return [self.model.weight @ (beta * z.flatten()) for beta, z in pairs]

    def logits_without(self, numbers: Sequence[Tensor]) -> Tensor:
        """Return the logits without some instances, given by number for each metapath, ``[C]``."""
        given = zip(self.ways, self.paths, self.active, numbers, strict=True)
        return self._logits(
            [
                way.activation(path.without(taken)) if taken.numel() else active
                for way, path, active, taken in given
            ]
        )

    def _logits(self, active: Sequence[Tensor]) -> Tensor:
        logits = torch.zeros_like(next(iter(self.others.values())))
        if active:
            pairs = zip(self.model.beta, active, strict=True)
            mixed = torch.stack([beta * z.flatten() for beta, z in pairs]).sum(0)
            logits = self.model.weight @ mixed
        return sum(self.others.values(), start=logits)


@dataclass(frozen=True)
class Encoded:
    """Some instances of a root: e(p), ``[P, K, D]``, and α(p), ``[P, K]``."""

    instances: Instances
    vector: Tensor
    weight: Tensor


class Path:
    """A root's instances along one metapath, walked a block at a time."""

    def __init__(
        self, problem: Problem, root: int, pause: Callable[[], None] = lambda: None
    ) -> None:
        self.problem = problem
        self.root = root
        self._pause = pause
        self._encoding = _for_root(problem, root)
        self._kept: list[tuple[Instances, Tensor, Tensor]] | None = None
        if len(self) * problem.attention.numel() <= KEPT:
            self._kept = list(self._walk())
        self.top, self.total, self.z = self._attend()

    def __len__(self) -> int:
        return int(self.problem.chain.count()[self.root])

    def blocks(self) -> Iterator[Encoded]:
        """Yield all instances, in the order of their numbers."""
        for instances, vector, score in self._walk():
            yield self._encoded(instances, vector, score)

    def at(self, number: Tensor) -> Encoded:
        """Return the instances with these numbers."""
        if self._kept is not None and len(self._kept) == 1:  # a number is a place in the block
            all_, vector, score = self._kept[0]
            some = Instances(all_.nodes[number], all_.links[number], number)
            return self._encoded(some, vector[number], score[number])
        roots = torch.full_like(number, self.root)
        instances = self.problem.chain.walk(roots, number)
        return self._encoded(instances, *encode(self._encoding, instances))

    def shares(self, some: Encoded) -> Tensor:
        """Return how much of each instance's vector comes from each of its nodes, ``[P, L]``."""
        share = torch.zeros(some.instances.nodes.shape)
        for position in self.problem.positions:
            share[:, position] = coefficient(self.problem, some.instances, position).mean(1)
        return share

    def without_each(self, some: Encoded) -> Tensor:
        """Return z without each instance by itself, ``[P, K, D]``."""
        odds = (some.weight / (1 - some.weight))[..., None]
        z = self.z + odds * (self.z - some.vector)
        for p in (some.weight > NEARLY_ALL).any(1).nonzero().flatten():  # at most one per head
            z[p] = self._attend(some.instances.number[p].view(1))[2]
        return z

    def without(self, number: Tensor) -> Tensor:
        """Return z without the instances with these numbers together, ``[K, D]``."""
        taken = self.at(number)
        share = taken.weight.sum(0)
        if (share > NEARLY_ALL).any():
            return self._attend(number)[2]
        lost = (taken.weight[..., None] * taken.vector).sum(0)
        return (self.z - lost) / (1 - share)[:, None]

    def _walk(self) -> Iterator[tuple[Instances, Tensor, Tensor]]:
        """Yield all instances with e(p) and their scores."""
        if self._kept is not None:
            yield from self._kept
        else:
            for instances in self.problem.chain.blocks(self.root, BLOCK):
                self._pause()
                yield instances, *encode(self._encoding, instances)

    def _encoded(self, instances: Instances, vector: Tensor, score: Tensor) -> Encoded:
        weight = torch.exp(score.double() - self.top) / self.total
        return Encoded(instances, vector.double(), weight)

    def _attend(self, skipped: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the softmax's maximum and sum by head, and z; zeros where no instance is left."""
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
    """Encode alike for one root; where it pays, with the pairs' coefficients in the values.

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
