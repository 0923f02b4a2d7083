"""Smooth predictions over the graph.

This is the smoothing step of Correct and Smooth (Huang et al., "Combining Label Propagation and
Simple Models Out-performs Graph Neural Networks", ICLR 2021), one step of label propagation along
each of several metapaths: a paper that shares authors with database papers is likely a database
paper, whether these are labelled or only predicted to be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor

from hanme.common.options import validated
from hanme.decision.calibration import cross_calibrate
from hanme.graph import Graph
from hanme.graph.cache import unchanged, versions
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.aggregates import Column
from hanme.linear.learner import Contributions, Learner, Part
from hanme.linear.matrices import GraphMatrices, TooLarge, reciprocal
from hanme.linear.selection import walks

MAX_PATHS = 24
"""Maximum number of metapaths to smooth along; short ones come first."""

MAX_LOGITS = 2**22
"""Maximum number of nodes times labels to smooth: the means of all paths take up to 400 MB."""

PRIOR_WIDTH = 0.1
"""Prior standard deviation of slopes, for path means with a mean square of 1. Wider priors cost up
to 7 % loss where neighbours say little."""


class SmoothingSpec(BaseModel):
    """Slopes of smoothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    paths: list[str]  # the metapaths
    slopes: list[float]  # factor of the mean soft label along each metapath
    slope: float  # factor of the node's own logits
    bias: list[float]  # added to the logits, per label
    prior: list[float]  # share of each label among the training nodes, which soft labels are less

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
        matrices: Matrices of the graph at hand, if they are known.
    """

    def __init__(
        self,
        base: Learner,
        paths: Sequence[Metapath],
        spec: SmoothingSpec,
        soft: Tensor | None = None,
        matrices: GraphMatrices | None = None,
    ) -> None:
        self.base, self.paths, self.spec, self._soft = base, paths, spec, soft
        self._matrices = matrices
        self._cached: tuple[GraphMatrices, list[tuple[object, int]], Tensor, Tensor] | None = None

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        own, means = self._parts(graph, nodes)
        return self.spec.slope * own + torch.tensor(self.spec.bias) + sum(means.values())

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block adds to the logits, ``[n, C]`` by name."""
        base = self.base.block_logits(graph, nodes)
        logits = {name: self.spec.slope * values for name, values in base.items()}
        logits["bias"] = logits["bias"] + torch.tensor(self.spec.bias)
        return logits | {f"{p}:predictions": v for p, v in self._parts(graph, nodes)[1].items()}

    def contributions(
        self, graph: Graph, node: int, missing: Collection[Column] = ()
    ) -> Contributions:
        """Return what neighbours, aggregates and own features add to the logits of a node."""
        matrices, soft, _ = self._on(graph)
        parts = []
        for path, slope in zip(self.paths, self.spec.slopes, strict=True):
            numbers, sums = matrices.through_neighbours(path, node, soft.numpy())
            values = slope * sums[:, :-1] / max(sums[:, -1].sum(), 1)
            parts.append(Part(f"{path}:predictions", numbers, values, path.node_types[1]))
        own = self.spec.slope * self.base.contributions(graph, node, missing)
        return own + Contributions(np.array(self.spec.bias), parts)

    def walks(self) -> list[Walk]:
        """Return the walks of the base learner and those to smooth along."""
        return self.base.walks() + [path.steps for path in self.paths]

    def scaled(self, factor: float, shift: Tensor) -> Smoothing:
        """Return the smoothing with logits ``factor`` times its own plus ``shift``, ``[C]``."""
        spec = self.spec.model_copy(
            update={
                "slope": factor * self.spec.slope,
                "slopes": [factor * slope for slope in self.spec.slopes],
                "bias": (factor * torch.tensor(self.spec.bias) + shift).tolist(),
            }
        )
        return Smoothing(self.base, self.paths, spec, matrices=self._matrices)

    def over(self, base: Learner) -> Smoothing:
        """Return the same smoothing of another learner."""
        matrices = self._cached[0] if self._cached else self._matrices
        return Smoothing(base, self.paths, self.spec, matrices=matrices)

    def frozen(self, graph: Graph) -> Smoothing:
        """Return a copy that uses the soft labels of a graph on all of its subgraphs."""
        soft = self._on(graph)[1] if self._soft is None else self._soft
        return Smoothing(self.base.frozen(graph), self.paths, self.spec, soft)

    def grown(self, graph: Graph, new: Tensor) -> Smoothing:
        """Return a frozen copy with soft labels of ``new`` nodes, the last of a larger graph."""
        assert self._soft is not None
        subgraph = graph.subgraph(new, self.base.walks())
        logits = self.base.predict(subgraph, subgraph.roots)
        likely = logits.sigmoid() if graph.multilabel else logits.softmax(1)
        soft = torch.cat([self._soft, (likely - torch.tensor(self.spec.prior)).to(self._soft)])
        return Smoothing(self.base, self.paths, self.spec, soft)

    def aligned_to(self, graph: Graph) -> Smoothing:
        """Return the smoothing of the aligned base learner."""
        return self.over(self.base.aligned_to(graph))

    def _parts(self, graph: Graph, nodes: Tensor | None) -> tuple[Tensor, dict[Metapath, Tensor]]:
        """Return base logits and what each path adds, each ``[n, C]``."""
        matrices, soft, logits = self._on(graph)
        if logits is None:
            own = self.base.predict(graph, nodes)
        else:
            own = logits if nodes is None else logits[nodes]
        slopes = zip(self.paths, self.spec.slopes, strict=True)
        return own, {
            path: slope * path_means(matrices, path, soft, nodes) for path, slope in slopes
        }

    def _on(self, graph: Graph) -> tuple[GraphMatrices, Tensor, Tensor | None]:
        """Return the matrices of a graph, soft labels and, if they are known, base logits.

        Both are of all target nodes, ``[N, C]``, and computed once.
        """
        if self._soft is not None:
            numbers = graph.targets.original_ids
            soft = self._soft if numbers is None else self._soft[numbers]
            return GraphMatrices(graph), soft, None
        cached = self._cached  # another thread may put what it computes of its graph there
        matrices = cached[0] if cached else self._matrices
        labels = versions((graph.y, graph.visible, graph.split.train))
        if matrices is None or not matrices.belong_to(graph):
            matrices, cached = GraphMatrices(graph), None
        if cached is None or not unchanged(cached[1], labels):
            logits = self.base.predict(graph)
            soft = soft_labels(graph, logits, torch.tensor(self.spec.prior))
            self._cached = cached = matrices, labels, soft, logits
        return matrices, *cached[2:]

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the slopes and the state of the base learner."""
        base, tensors = self.base.state()
        return {"kind": "smoothing", "base": base} | self.spec.model_dump(), tensors

    @classmethod
    def from_state(cls, values: Mapping[str, Any], base: Learner, graph: Graph) -> Smoothing:
        """Restore the smoothing of a learner from :meth:`state`."""
        spec = validated(SmoothingSpec, dict(values), "smoothing")
        return cls(base, [Metapath.parse(text, graph.metadata()) for text in spec.paths], spec)


def soft_labels(graph: Graph, logits: Tensor, prior: Tensor) -> Tensor:
    """Return visible labels as 0 and 1, and probabilities elsewhere, less the labels' shares."""
    visible = graph.split.train if graph.visible is None else graph.visible
    likely = logits.sigmoid() if graph.multilabel else logits.softmax(1)
    return torch.where(visible[:, None], graph.label_matrix.float(), likely) - prior


def path_means(
    matrices: GraphMatrices, path: Metapath, soft: Tensor, nodes: Tensor | None = None
) -> Tensor:
    """Return the mean soft label over the ends of a metapath but the node itself, ``[n, C]``."""
    first, *others = matrices.links(path)
    values, returns = soft.numpy(), matrices.returns(path)
    behind = reduce(lambda z, links: links @ z, reversed(others), values)
    some = slice(None) if nodes is None else nodes.numpy()
    total = first[some] @ behind - returns[some, None] * values[some]
    count = matrices.instances(path) - returns
    return torch.from_numpy(total * reciprocal(count[some])[:, None])


def smoothing_paths(graph: Graph, matrices: GraphMatrices) -> list[Metapath]:
    """Return the metapaths to smooth along: one, two and four hops back to the target type.

    Over four hops, only those with a symmetric sequence of several node types.
    """
    if graph.targets.num_nodes * len(graph.labels) > MAX_LOGITS:
        return []
    candidates, paths = list[Metapath](), list[Metapath]()
    for length in (1, 2, 4):
        for path in (Metapath.of(steps, graph.metadata()) for steps in walks(graph, length)):
            types = path.node_types
            symmetric = types == types[::-1] and len(set(types)) > 1
            if types[-1] == graph.target and (length < 4 or symmetric):
                candidates.append(path)
    for path in candidates[:MAX_PATHS]:
        with suppress(TooLarge):
            matrices.returns(path)
            paths.append(path)
    return paths


def label_shares(graph: Graph) -> Tensor:
    """Return the share of each label among the training nodes, ``[C]``."""
    return graph.label_matrix[graph.split.train].float().mean(0)


class Smoothed(NamedTuple):
    """Smoothing that was fitted to nodes that its base learner has not seen.

    Args:
        learner: The learner with smoothing.
        logits: Logits of these nodes, set by set, ``[n, C]``: those of a group have slopes of the
            other groups.
    """

    learner: Smoothing
    logits: Tensor


def fit_smoothing(
    base: Learner,
    graph: Graph,
    matrices: GraphMatrices,
    paths: Sequence[Metapath],
    held_out: Iterable[tuple[Graph, Tensor, Tensor]],
    group: Tensor,
) -> Smoothed:
    """Fit the slopes of smoothing to nodes that the learner has not seen.

    Args:
        base: The learner to smooth.
        graph: The graph.
        matrices: Its matrices.
        paths: The metapaths.
        held_out: Fits of the learner: the graph with the training nodes of the fit, its logits of
            all target nodes ``[N, C]``, and the numbers of nodes that it has not seen.
        group: The group of each of these nodes, ``[n]``, set by set.
    """
    own, means, y = [], [], []
    for fold, logits, nodes in held_out:
        soft = soft_labels(fold, logits, label_shares(fold))
        own.append(logits[nodes])
        means.append(torch.stack([path_means(matrices, path, soft, nodes) for path in paths]))
        y.append(fold.y[nodes])
    by_path = torch.cat(means, 1)
    size = by_path.square().mean((1, 2)).sqrt()
    size[size == 0] = torch.inf
    parts = [torch.cat(own), *(by_path / size[:, None, None])]
    prior = [1.0] + [0.0] * len(paths)
    fit = cross_calibrate(parts, torch.cat(y), group, prior, PRIOR_WIDTH)
    slope, *fitted = fit.slopes
    kept = [i for i, each in enumerate(fitted) if each > 0]
    spec = SmoothingSpec(
        paths=[str(paths[i]) for i in kept],
        slopes=[fitted[i] / float(size[i]) for i in kept],
        slope=slope,
        bias=fit.bias.tolist(),
        prior=label_shares(graph).tolist(),
    )
    return Smoothed(Smoothing(base, [paths[i] for i in kept], spec, matrices=matrices), fit.logits)
