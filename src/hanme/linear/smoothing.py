"""Smooth predictions over the graph.

This is the smoothing step of Correct and Smooth (Huang et al., "Combining Label Propagation and
Simple Models Out-performs Graph Neural Networks", ICLR 2021), one step of label propagation along
each of several metapaths: a paper that shares authors with database papers is likely a database
paper, whether these are labelled or only predicted to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor

from hanme.common.options import validated
from hanme.decision import calibrate
from hanme.decision.calibration import STACKING_WIDTH
from hanme.decision.losses import node_losses
from hanme.graph import Graph
from hanme.graph.metapath import EdgeType, Metapath
from hanme.linear.learner import ColumnContributions, Contributions, Learner
from hanme.linear.matrices import GraphMatrices, TooLarge, reciprocal
from hanme.linear.selection import walks

MAX_PATHS = 24
"""Maximum number of metapaths to smooth along; short ones come first."""

MAX_LOGITS = 2**23
"""Maximum number of nodes times labels to smooth: above, the means of all paths fill the memory."""


class SmoothingSpec(BaseModel):
    """Slopes of smoothing.

    Args:
        paths: The metapaths.
        slopes: Factor of the mean soft label along each metapath.
        slope: Factor of the node's own logits.
        bias: Added to the logits, per label.
        prior: Share of each label among the training nodes; soft labels are relative to it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    paths: list[str]
    slopes: list[float]
    slope: float
    bias: list[float]
    prior: list[float]

    @model_validator(mode="after")
    def _one_slope_per_path(self) -> SmoothingSpec:
        if len(self.slopes) != len(self.paths) or len(self.bias) != len(self.prior):
            raise ValueError(f"{len(self.slopes)} slopes for {len(self.paths)} paths")
        return self


class Smoothing:
    """Add to a learner's logits what is known or predicted of other nodes along metapaths.

    ``logits(v) = slope · base(v) + bias + Σ_P slope_P · mean over the ends u ≠ v of P of s(u)``,
    where the soft label s(u) is u's label where it is visible and else its predicted
    probabilities, less the labels' shares.

    Args:
        base: The learner whose predictions are smoothed.
        paths: The metapaths.
        spec: The slopes.
        soft: Soft labels of all target nodes of a graph, ``[N, C]``, to use on subgraphs of it
            (default: computed on the graph at hand).
    """

    def __init__(
        self,
        base: Learner,
        paths: Sequence[Metapath],
        spec: SmoothingSpec,
        soft: Tensor | None = None,
    ) -> None:
        self.base, self.paths, self.spec, self._soft = base, paths, spec, soft
        self._cached: tuple[GraphMatrices, Tensor, Tensor | None, Tensor, Tensor] | None = None

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        if self._soft is None:  # the base learner has predicted all nodes already
            own = self._on(graph)[1]
            own = own if nodes is None else own[nodes]
        else:
            own = self.base.predict(graph, nodes)
        logits = self.spec.slope * own + torch.tensor(self.spec.bias)
        for _, slope, means in self._means(graph, nodes):
            logits += slope * means
        return logits

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block adds to the logits, ``[n, C]`` by name."""
        base = self.base.block_logits(graph, nodes)
        logits = {name: self.spec.slope * values for name, values in base.items()}
        logits["bias"] = logits["bias"] + torch.tensor(self.spec.bias)
        for path, slope, means in self._means(graph, nodes):
            logits[_block(path)] = slope * means
        return logits

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node."""
        bias = Contributions(np.array(self.spec.bias))
        blocks = [
            ColumnContributions(
                _block(path),
                np.arange(means.size(1)),
                np.diag(slope * means[0].double().numpy()),
                partial(_phrase, graph, path),
            )
            for path, slope, means in self._means(graph, torch.tensor([node]))
        ]
        own = self.spec.slope * self.base.contributions(graph, node)
        return own + bias + Contributions(0 * bias.bias, blocks)

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return the walks of the base learner and those to smooth along."""
        return self.base.walks() + [path.steps for path in self.paths]

    def over(self, base: Learner) -> Smoothing:
        """Return the same smoothing of another learner."""
        return Smoothing(base, self.paths, self.spec, self._soft)

    def frozen(self, graph: Graph) -> Smoothing:
        """Return a copy that uses the soft labels of a graph on all of its subgraphs."""
        return Smoothing(self.base.frozen(graph), self.paths, self.spec, self.soft_labels(graph))

    def aligned_to(self, graph: Graph) -> Smoothing:
        """Return the smoothing of the aligned base learner."""
        return Smoothing(self.base.aligned_to(graph), self.paths, self.spec)

    def soft_labels(self, graph: Graph) -> Tensor:
        """Return the soft labels of all target nodes, ``[N, C]``."""
        if self._soft is not None:
            numbers = graph.targets.original_ids
            return self._soft if numbers is None else self._soft[numbers]
        return self._on(graph)[2]

    def _on(self, graph: Graph) -> tuple[GraphMatrices, Tensor, Tensor]:
        """Return matrices, base logits and soft labels of a graph, computed when first seen."""
        if self._cached is not None:
            matrices, y, visible, logits, soft = self._cached
            if y is graph.y and visible is graph.visible and matrices.belong_to(graph):
                return matrices, logits, soft
        matrices, logits = GraphMatrices(graph), self.base.predict(graph)
        soft = soft_labels(graph, logits, torch.tensor(self.spec.prior))
        self._cached = matrices, graph.y, graph.visible, logits, soft
        return matrices, logits, soft

    def _means(
        self, graph: Graph, nodes: Tensor | None
    ) -> Iterator[tuple[Metapath, float, Tensor]]:
        """Yield paths, their slopes and the mean soft labels along them at some nodes."""
        if self._soft is None:
            matrices, _, soft = self._on(graph)
        else:
            matrices, soft = GraphMatrices(graph), self.soft_labels(graph)
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        for path, slope in zip(self.paths, self.spec.slopes, strict=True):
            yield path, slope, path_means(matrices, path, soft, nodes)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the slopes and the state of the base learner."""
        base, tensors = self.base.state()
        return {"kind": "smoothing", "base": base} | self.spec.model_dump(), tensors

    @classmethod
    def from_state(cls, values: Mapping[str, Any], base: Learner, graph: Graph) -> Smoothing:
        """Restore the smoothing of a learner from :meth:`state`."""
        spec = validated(SmoothingSpec, dict(values), "smoothing")
        paths = [Metapath.parse(text, graph.metadata()) for text in spec.paths]
        return cls(base, paths, spec)


def _block(path: Metapath) -> str:
    return f"{path}:predictions"


def _phrase(graph: Graph, path: Metapath, label: int) -> str:
    via = "-".join(path.node_types[1:-1])
    return f"{graph.labels[label]} among linked {graph.target}" + (f" via {via}" if via else "")


def soft_labels(graph: Graph, logits: Tensor, prior: Tensor) -> Tensor:
    """Return visible labels as 0 and 1, and probabilities elsewhere, less the labels' shares."""
    visible = graph.split.train if graph.visible is None else graph.visible
    likely = logits.sigmoid() if graph.multilabel else logits.softmax(1)
    return torch.where(visible[:, None], graph.label_matrix.float(), likely) - prior


def path_means(matrices: GraphMatrices, path: Metapath, soft: Tensor, nodes: Tensor) -> Tensor:
    """Return the mean soft label over the ends of a metapath but the node itself, ``[n, C]``."""
    first, *others = matrices.links(path)
    values, some = soft.numpy(), nodes.numpy()
    behind = reduce(lambda z, links: links @ z, reversed(others), values)
    returns = matrices.returns(path)
    total = first[some] @ behind - returns[some, None] * values[some]
    count = matrices.instances(path) - returns
    return torch.from_numpy(total * reciprocal(count[some])[:, None])


def smoothing_paths(graph: Graph, matrices: GraphMatrices) -> list[Metapath]:
    """Return the metapaths to smooth along: one, two and four hops back to the target type.

    Over four hops, only those with a symmetric sequence of node types.
    """
    if graph.targets.num_nodes * len(graph.labels) > MAX_LOGITS:
        return []
    paths: list[Metapath] = []
    for path in islice(_candidates(graph), MAX_PATHS):
        try:
            matrices.returns(path)
        except TooLarge:
            continue
        paths.append(path)
    return paths


def _candidates(graph: Graph) -> Iterator[Metapath]:
    for length in (1, 2, 4):
        for steps in walks(graph, length):
            types = [graph.target, *(step[2] for step in steps)]
            symmetric = types == types[::-1] and len(set(types)) > 1
            if types[-1] == graph.target and (length < 4 or symmetric):
                yield Metapath.of(steps, graph.metadata())


class HeldOut(NamedTuple):
    """Nodes that a fit has not seen.

    Args:
        logits: Their logits, ``[n, C]``.
        means: Mean soft labels of others along each path, ``[paths, n, C]``.
        y: Their labels.
    """

    logits: Tensor
    means: Tensor
    y: Tensor

    @classmethod
    def of(
        cls,
        graph: Graph,
        matrices: GraphMatrices,
        paths: Sequence[Metapath],
        logits: Tensor,
        mask: Tensor,
    ) -> HeldOut:
        """Return the nodes under a mask, for logits ``[N, C]`` of a fit to the training nodes."""
        nodes, soft = mask.nonzero().flatten(), soft_labels(graph, logits, label_shares(graph))
        means = torch.stack([path_means(matrices, path, soft, nodes) for path in paths])
        return cls(logits[nodes], means, graph.y[nodes])

    @classmethod
    def joined(cls, parts: Sequence[HeldOut]) -> HeldOut:
        """Return the nodes of several fits together."""
        logits, means, y = zip(*parts, strict=True)
        return cls(torch.cat(logits), torch.cat(means, 1), torch.cat(y))

    def slopes(self) -> tuple[float, list[float], Tensor]:
        """Fit the slope of the logits, the slopes of the paths, and the bias."""
        size = self.means.square().mean((1, 2)).sqrt()
        size[size == 0] = torch.inf
        prior = [1.0] + [0.0] * len(size)
        parts = [self.logits, *(self.means / size[:, None, None])]
        slopes, bias = calibrate(parts, self.y, prior, STACKING_WIDTH)
        return slopes[0], (torch.tensor(slopes[1:]) / size).tolist(), bias

    def loss(self, slope: float, slopes: Sequence[float], bias: Tensor) -> float:
        """Return the total loss under given slopes."""
        logits = slope * self.logits + bias
        logits = logits + torch.einsum("p,pnc->nc", torch.tensor(slopes), self.means)
        return float(node_losses(logits, self.y).sum())


def label_shares(graph: Graph) -> Tensor:
    """Return the share of each label among the training nodes, ``[C]``."""
    return graph.label_matrix[graph.split.train].float().mean(0)


def fit_smoothing(
    base: Learner, graph: Graph, paths: Sequence[Metapath], held_out: HeldOut, check: HeldOut
) -> Smoothing | None:
    """Fit the slopes of smoothing to nodes that the learner has not seen.

    Return None if they do not lower the loss of further nodes: where a split keeps groups or years
    apart, folds do not, and neighbours seem to tell more than they do.

    Args:
        base: The learner to smooth.
        graph: The graph.
        paths: The metapaths.
        held_out: The nodes.
        check: The further nodes.
    """
    slope, slopes, bias = held_out.slopes()
    if check.loss(slope, slopes, bias) >= check.loss(1.0, [0.0] * len(paths), 0 * bias):
        return None
    kept = [i for i, each in enumerate(slopes) if each > 0]
    spec = SmoothingSpec(
        paths=[str(paths[i]) for i in kept],
        slopes=[slopes[i] for i in kept],
        slope=slope,
        bias=bias.tolist(),
        prior=label_shares(graph).tolist(),
    )
    return Smoothing(base, [paths[i] for i in kept], spec)
