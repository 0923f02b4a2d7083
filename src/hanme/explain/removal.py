"""A model opened where metapath instances enter it, so that some can be taken out of one node.

A model can be opened that is made of channels, a fusion that weighs their vectors by known β, and a
linear head: its logits are then a sum over channels, and those of metapath channels a sum over
instances. To take instances out of a root is to leave them out of its softmax: the weights of the
others are divided by what remains, and activation, sum over channels and linear layer follow. β is
held fixed, and so are the coefficients of encodings, also where they depend on other links (the
gate ``"softmax"``). With α the weights of a head, z = Σ_p α(p) e(p) and R the instances taken out,

    z without R = (z - Σ_{p in R} α(p) e(p)) / (1 - Σ_{p in R} α(p)) ,

which needs the instances in R alone. Sums are in double precision; where R holds nearly all the
weight of a head the difference would be lost in rounding, and the rest is summed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import get_ident

import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.chain import Instances
from hanme.graph.features import to_scipy, to_torch
from hanme.linear import Column, Contributions
from hanme.nn import ChannelModel, Model
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels, Traced
from hanme.ops import PathFunction
from hanme.ops.eager import coefficient, encode
from hanme.training.stacked import Stacked

Pause = Callable[[], None]
"""Called before each block of instances; what it raises ends the work."""

BLOCK = 1 << 13
"""About how many instances of a root are encoded at a time."""

KEPT = 1 << 25
"""Maximum number of values of encoded instances that a root keeps; with more it encodes again."""

NEARLY_ALL = 0.999
"""The share of a head's weight above which the rest is summed instead of subtracted from all."""


class OpenModel:
    """A trained model on a graph: what all of its nodes share, computed once.

    ``paths`` are the channels that come from instances, by name, and ``beta`` their weights;
    ``others`` is what else is added to the logits, ``[N, C]`` by name: the bias, blocks of the
    linear model, and channels that do not come from instances.

    Args:
        model: A stacked model, or a network alone; a network has channels, a fusion with known
            weights and a linear head.
        graph: The graph.
        node: Open it for this node alone: ``logits`` and ``others`` then have one row.
        weights: The fusion's weights of all channels, to hold instead of those on this graph.
        missing: Aggregates to take as unknown.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: Model | Stacked,
        graph: Graph,
        node: int | None = None,
        weights: Sequence[float] = (),
        missing: Collection[Column] = (),
    ) -> None:
        self.model, self.graph, self.node = Stacked.of(model), graph, node
        self.bias = torch.zeros(len(graph.labels)).double()  # of the network
        self.channels: list[str] = []  # those that do not come from instances
        self.paths: dict[str, Traced] = {}
        self.beta: list[float] = []
        self.weights, self._held = list(weights), bool(weights)
        self.head = torch.zeros(len(graph.labels), 0).double()
        nodes = None if node is None else torch.tensor([node])
        self.others: dict[str, Tensor] = {}
        if node is None:
            blocks = self.model.block_logits(graph)
        else:
            blocks = _totals(self.model.contributions(graph, node, missing))
        for block, logits in blocks.items():
            name = block.removesuffix(":plain").removesuffix(":unit")
            self.others[name] = self.others.get(name, 0) + logits
        self.logits = sum(self.others.values(), start=torch.zeros(()))
        if self.model.network is not None:
            self._open(self.model.network, self.model.slopes["network"], Batch.of(graph, nodes))

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
        self.head = slope * network.head.weight.detach().double()  # [C, K D]
        if network.head.bias is not None:
            self.bias = slope * network.head.bias.detach().double()
            self.others["bias"] = self.bias.expand_as(logits) + self.others.get("bias", 0)
        left = iter(self.weights)
        for (part, xs), ways in zip(given, traced, strict=True):
            for i, (name, x) in enumerate(zip(part.names, xs, strict=True)):
                if ways is not None:
                    self.paths[name] = ways[i]
                    self.beta.append(next(left))
                else:
                    self.channels.append(name)
                    self.others[name] = next(left) * (x @ self.head.float().t())
        if not self.paths:
            raise _cannot(network, "none of its channels attends to metapath instances")

    @torch.no_grad()
    def root(self, node: int, pause: Pause = lambda: None) -> Root:
        """Return a node with its instances; the one that it is opened for, if there is one."""
        root = Root(self, node if self.node is None else self.node, pause)
        own = self.logits[root.row].double()
        if not self._held and not torch.allclose(root.logits, own, rtol=1e-3, atol=1e-3):
            raise HanmeError("the model does more than its parts: it cannot be explained")
        return root


def open_at(
    frozen: Stacked,
    graph: Graph,
    node: int,
    weights: Sequence[float] = (),
    *,
    row: Tensor | None = None,
    missing: Collection[Column] = (),
) -> OpenModel:
    """Open a frozen model for one node, on the subgraph that it reads for this node.

    The node may get other features, ``row`` ``[F]``, and some aggregates may be ``missing``.
    """
    subgraph = frozen.subgraph(graph, torch.tensor([node]))
    root, targets = int(subgraph.roots), subgraph.targets
    if row is not None and targets.x is not None:
        x = replace_row(targets.x, root, row)
        subgraph = replace(subgraph, nodes=subgraph.nodes | {graph.target: replace(targets, x=x)})
    return OpenModel(frozen, subgraph, root, weights, missing)


def replace_row(x: Tensor, number: int, row: Tensor) -> Tensor:
    """Return features ``[N, F]``, dense or sparse, with another row."""
    if x.layout == torch.strided:
        return x.index_copy(0, torch.tensor([number]), row[None].to(x.dtype))
    given = to_scipy(x)
    rows = [given[:number], csr_array(row[None].numpy()), given[number + 1 :]]
    return to_torch(csr_array(vstack(rows))).to(x.dtype)


def _totals(found: Contributions) -> dict[str, Tensor]:
    """Return what each block and the bias add, ``[1, C]`` by name."""
    total = {"bias": torch.from_numpy(found.bias)[None]}
    for part in found.parts:
        added = torch.from_numpy(part.values.sum(0))[None]
        total[part.block] = total.get(part.block, 0) + added
    return total


def _cannot(model: object, why: str) -> HanmeError:
    return HanmeError(
        f"model {type(model).__name__} cannot be explained: {why}; metapath channels, a weighted "
        "sum such as semantic attention and a linear head, as in HANME, HAN and MAGNN, can be"
    )


def _run(model: ChannelModel, batch: Batch) -> tuple[Tensor, list[tuple[Channels, list[Tensor]]]]:
    """Call a model; return the logits, and the outputs of each channel."""
    given: list[tuple[Channels, list[Tensor]]] = []
    thread = get_ident()

    def keep(part: Channels, _: object, out: list[Tensor]) -> None:
        if get_ident() == thread:  # the server explains several nodes at a time
            given.append((part, out))

    hooks = [part.register_forward_hook(keep) for part in model.parts]
    try:
        logits: Tensor = model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return logits, given


class Root:
    """One node, its instances by metapath, and its logits with or without some of them."""

    def __init__(self, model: OpenModel, node: int, pause: Pause = lambda: None) -> None:
        self.model, self.node, self.row = model, node, node if model.node is None else 0
        self.paths = [
            Path(traced, node, beta, model.head, pause)
            for traced, beta in zip(model.paths.values(), model.beta, strict=True)
        ]
        self.others = {name: rows[self.row].double() for name, rows in model.others.items()}
        self.logits = self.logits_without([torch.empty(0)] * len(self.paths))

    def __len__(self) -> int:
        """Return the number of its instances over all metapaths."""
        return sum(len(path) for path in self.paths)

    def logits_without(self, numbers: Sequence[Tensor]) -> Tensor:
        """Return the logits without some instances, given by number for each metapath, ``[C]``."""
        pairs = zip(self.paths, numbers, strict=True)
        deep = sum((path.logits_without(taken) for path, taken in pairs), torch.zeros(()))
        return sum(self.others.values(), deep)


@dataclass(frozen=True)
class Encoded:
    """Some instances of a root: e(p), ``[P, K, D]``, and α(p), ``[P, K]``."""

    instances: Instances
    vector: Tensor
    weight: Tensor


class Path:
    """A root's instances along one metapath, walked a block at a time; the head is ``[C, K D]``."""

    def __init__(
        self, traced: Traced, root: int, beta: float, head: Tensor, pause: Pause = lambda: None
    ) -> None:
        self.problem, self.activation = traced.problem, traced.activation
        self.root, self.beta, self._head, self._pause = root, beta, beta * head, pause
        self._kept: list[tuple[Instances, Tensor, Tensor]] | None = None
        if len(self) * self.problem.attention.numel() <= KEPT:
            self._kept = list(self._walk())
        self.top, self.total, self.z = self._attend()
        self.logits = self._logits(self.z)

    def __len__(self) -> int:
        return int(self.problem.chain.count()[self.root])

    def blocks(self) -> Iterator[Encoded]:
        """Yield all instances, in the order of their numbers."""
        for instances, vector, score in self._walk():
            yield self._encoded(instances, vector, score)

    def at(self, number: Tensor) -> Encoded:
        """Return the instances with these numbers."""
        instances = self.problem.chain.walk(torch.full_like(number, self.root), number)
        return self._encoded(instances, *encode(self.problem, instances))

    def shares(self, some: Encoded) -> Tensor:
        """Return how much of each instance's vector comes from each of its nodes, ``[P, L]``.

        For a function of the path, that is how far the vector moves without the node's values.
        """
        share, problem = torch.zeros(some.instances.nodes.shape), self.problem
        for position in problem.positions:
            if isinstance(problem.coefficients, PathFunction):
                values = list(problem.values)
                values[position] = torch.zeros_like(problem.value(position))
                without = encode(replace(problem, values=tuple(values)), some.instances)[0]
                share[:, position] = (some.vector - without).norm(dim=-1).mean(1)
            else:
                moved = coefficient(problem, some.instances, position)
                share[:, position] = moved.abs().mean(1)
        return share / share.sum(1, keepdim=True).clamp(min=1e-12)

    def attention(self, some: Encoded) -> Tensor:
        """Return each instance's share of the attention, β α(p), mean over heads, ``[P]``."""
        return self.beta * some.weight.mean(1)

    def parts(self, some: Encoded) -> Tensor:
        """Return each instance's part of the logits, ``[P, C]``; all parts add up to ``logits``.

        The activation's output is its input times a factor of each channel (1 or 0 for ReLU), and
        its input is a sum over instances.
        """
        return self.summands((some.weight[..., None] * some.vector).flatten(1))

    def summands(self, vectors: Tensor) -> Tensor:
        """Return what summands of z add to the logits, ``[n, K D]`` to ``[n, C]``."""
        factor = torch.where(self.z == 0, 0.0, self.activation(self.z) / self.z).flatten()
        return vectors @ (self._head * factor).t()

    def moves(self, some: Encoded) -> Tensor:
        """Return how far each instance alone moves the logits, with minus without, ``[P, C]``."""
        odds = (some.weight / (1 - some.weight))[..., None]
        z = self.z + odds * (self.z - some.vector)
        for p in (some.weight > NEARLY_ALL).any(1).nonzero().flatten():  # at most one per head
            z[p] = self._attend(some.instances.number[p].view(1))[2]
        return self.logits - self._logits(z)

    def logits_without(self, number: Tensor) -> Tensor:
        """Return what it adds to the logits without the instances with these numbers, ``[C]``."""
        if not number.numel():
            return self.logits
        taken = self.at(number)
        share = taken.weight.sum(0)
        if (share > NEARLY_ALL).any():
            return self._logits(self._attend(number)[2])
        lost = (taken.weight[..., None] * taken.vector).sum(0)
        return self._logits((self.z - lost) / (1 - share)[:, None])

    def _logits(self, z: Tensor) -> Tensor:
        """Return what z, ``[..., K, D]``, adds to the logits, ``[..., C]``."""
        return self.activation(z).flatten(-2) @ self._head.t()

    def _walk(self) -> Iterator[tuple[Instances, Tensor, Tensor]]:
        """Yield all instances with e(p) and their scores."""
        if self._kept is not None:
            yield from self._kept
            return
        for instances in self.problem.chain.blocks(self.root, BLOCK):
            self._pause()
            yield instances, *encode(self.problem, instances)

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
