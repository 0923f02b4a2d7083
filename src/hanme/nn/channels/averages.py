"""SeHGNN's channels: features and labels at the ends of metapaths, averaged step by step.

A metapath is here a sequence of node types. An average is a product of sparse matrices, embedded
by a matrix of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise, product
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hanme.common.arrays import take_rows
from hanme.errors import HanmeError
from hanme.graph.cache import GraphCache
from hanme.graph.chain import checked_roots
from hanme.graph.features import to_scipy, to_torch
from hanme.graph.metapath import EdgeType, Metadata
from hanme.nn.batch import Batch
from hanme.nn.channels.base import Channels, Task
from hanme.nn.parts import Projection, features_of, some, sparse_product

TypePath = tuple[str, ...]

MOST_PATHS = 1000
"""Maximum number of metapaths: each is a channel with weights of its own."""

MOST_WORK = 2**26
"""Multiplications that are tried to see whether a product is smaller than its factors."""


class AverageChannels(Channels):
    """Base class. A subclass sets ``what`` is averaged, and writes `widths` and `averages`.

    Sequences have at most ``hops`` steps and do not pass through the types ``without``.
    """

    what: ClassVar[str]

    def __init__(
        self,
        task: Task,
        out_channels: int,
        *,
        hops: int = 2,
        without: Sequence[str] = (),
        dropout: float = 0.0,
    ) -> None:
        super().__init__(task, out_channels)
        widths = self.widths(task, _type_paths(task.metadata, task.target, hops, without))
        self.paths, self.labels, self.dropout = list(widths), task.labels, dropout
        self.edge_types = task.metadata[1]
        self.names = [f"{self.what} of {'-'.join(path)}" for path in widths]
        self.embed = nn.ModuleList(Embedding(width, out_channels) for width in widths.values())
        self._graph: GraphCache[list[list[Tensor]]] = GraphCache()
        self._roots: GraphCache[list[list[Tensor]]] = GraphCache()

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return the sequences that count, and the size of what is averaged along each."""
        raise NotImplementedError

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return what is embedded of each sequence, as the factors of a product."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> list[Tensor]:
        """Return the vectors along each sequence, ``[R, out_channels]``."""
        vectors = []
        for (*others, last), lin in zip(self.averages(batch), self.embed, strict=True):
            x: Tensor = lin(last)
            for factor in reversed(others):  # F_1 (F_2 ... (F_n W)): the last is the widest
                x = sparse_product(factor, x)
            vectors.append(F.dropout(x, self.dropout, self.training))
        return vectors

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return all ways to walk along the sequences."""
        joining = {
            pair: [e for e in self.edge_types if (e[0], e[2]) == pair]
            for path in self.paths
            for pair in pairwise(path)
        }
        return [w for path in self.paths for w in product(*(joining[p] for p in pairwise(path)))]


class FeatureChannels(AverageChannels):
    r"""A channel per sequence of node types, the first the root itself: :math:`A_1 \cdots A_L X E`.

    The features at its end are averaged step by step towards the root.
    """

    what = "features"

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return all sequences, and the size of the features at their ends."""
        return {path: task.width(path[-1]) for path in paths}

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return averaged features; those of the last roots are cached."""
        x, links, roots = batch.x_dict, batch.edge_index_dict, batch.roots
        used = [*links.values(), *x.values()]
        every = self._graph.get(used, lambda: _average_features(x, links, self.paths))
        if roots is None:
            return every
        asked = checked_roots(roots, every[0][0].size(0))
        return self._roots.get([*used, roots], lambda: [_reached(some, asked) for some in every])


class LabelChannels(AverageChannels):
    r"""A channel per sequence of node types back to the target: :math:`(A - \mathrm{diag} A) Y E`.

    The labels that the model may see are averaged step by step towards the root, without the
    root's own.
    """

    what = "labels"

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return the sequences that return to the target, and the number of labels."""
        return {p: task.labels for p in paths if len(p) > 1 and p[-1] == task.target}

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return averaged labels."""
        x, links, labels = batch.x_dict, batch.edge_index_dict, batch.labels
        if not self.paths:
            return []
        if labels is None or labels.dim() != 2 or labels.size(1) != self.labels:
            given = "none" if labels is None else list(labels.shape)
            raise HanmeError(
                f"Expected `labels` to be the labels that the model may see, [N, {self.labels}], "
                f"such as Graph.training_labels, but got {given}"
            )
        every = self._graph.get(
            [*links.values(), labels],
            lambda: [[y] for y in _average_labels(x, links, self.paths, labels)],
            tuple(values.size(0) for values in x.values()),
        )
        return [[some(average, batch.roots)] for (average,) in every]


class Embedding(Projection):
    """A matrix without a bias; its numbers are as large for a wide input as for a narrow one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draw the weights anew, once their size is known."""
        if not is_lazy(self.weight):
            nn.init.uniform_(self.weight, -0.5, 0.5)


def _type_paths(
    metadata: Metadata, target: str, hops: int, without: Sequence[str]
) -> list[TypePath]:
    """Return all sequences of linked node types from ``target`` on, of at most ``hops`` hops."""
    for t in (target, *without):
        if t not in metadata[0]:
            raise HanmeError(f"unknown node type {t!r}; there are {', '.join(metadata[0])}")
    joined = dict.fromkeys((a, b) for a, _, b in metadata[1] if not {a, b} & set(without))
    frontier: list[TypePath] = [(target,)]
    paths = list(frontier)
    for _ in range(hops):
        frontier = [(*path, b) for path in frontier for a, b in joined if a == path[-1]]
        paths += frontier
        if len(paths) > MOST_PATHS:
            raise HanmeError(
                f"Expected at most {MOST_PATHS} metapaths, but {target} has more of up to {hops} "
                "hops; fewer hops would do, or leaving node types out with `without`"
            )
    return paths


def _average_features(
    x_dict: Mapping[str, Tensor], links: Mapping[EdgeType, Tensor], paths: Sequence[TypePath]
) -> list[list[Tensor]]:
    """Average the features at the end of each path towards its root, for all roots.

    Each average is a product of factors A_1 ... A_L X, multiplied out as far as that makes it
    smaller: an average over many hops is full of small numbers, its factors are sparse.
    """
    x = {path[-1]: features_of(x_dict, path[-1]) for path in paths}
    sparse = {t: to_scipy(values) for t, values in x.items()}
    means = _means(x_dict, links, paths)
    factors = [[*(means[pair] for pair in pairwise(path)), sparse[path[-1]]] for path in paths]
    device = next(iter(x.values())).device
    return [[to_torch(factor).to(device) for factor in _smallest(given)] for given in factors]


def _average_labels(
    x_dict: Mapping[str, Tensor],
    links: Mapping[EdgeType, Tensor],
    paths: Sequence[TypePath],
    labels: Tensor,
) -> list[Tensor]:
    """Average labels ``[N, C]`` along paths that return to the target, for all roots.

    Each is (A - diag A) Y for A = A_1 ... A_L: what the others' labels say, never a node's own.
    """
    means = _means(x_dict, links, paths)
    y: NDArray[np.float32] = labels.detach().cpu().numpy()
    averages = []
    for path in paths:
        steps = [means[pair] for pair in pairwise(path)]
        half = (len(steps) + 1) // 2
        left: csr_array = reduce(lambda a, b: a @ b, steps[:half])
        if half < len(steps):
            right: csr_array = reduce(lambda a, b: a @ b, steps[half:])
            own = np.asarray(left.multiply(right.T.tocsr()).sum(axis=1)).reshape(-1)
        else:
            own = left.diagonal()
        total: NDArray[np.float32] = reduce(lambda z, step: step @ z, reversed(steps), y)
        averages.append(torch.from_numpy((total - own[:, None] * y).astype(np.float32)))
    return [average.to(labels.device) for average in averages]


def _reached(factors: Sequence[Tensor], roots: Tensor) -> list[Tensor]:
    """Return some rows of a product, without the nodes in between that they do not reach."""
    *others, last = factors
    result = []
    for factor in others:
        rows = take_rows(factor, roots)
        roots, columns = torch.unique(rows.col_indices(), return_inverse=True)
        size = (rows.size(0), roots.numel())
        result.append(torch.sparse_csr_tensor(rows.crow_indices(), columns, rows.values(), size))
    return [*result, take_rows(last, roots)]


def _means(
    x_dict: Mapping[str, Tensor], links: Mapping[EdgeType, Tensor], paths: Sequence[TypePath]
) -> dict[tuple[str, str], csr_array]:
    """Return D^-1 A of each step: over all relations that join two types, each pair once.

    A node without neighbours has a row of zeros. Within one type a node is its own neighbour too,
    as the papers of ACM are for SeHGNN's authors.
    """
    means: dict[tuple[str, str], csr_array] = {}
    for source, end in dict.fromkeys(pair for path in paths for pair in pairwise(path)):
        joined = [pairs.cpu() for e, pairs in links.items() if (e[0], e[2]) == (source, end)]
        shape = features_of(x_dict, source).size(0), features_of(x_dict, end).size(0)
        if source == end:
            joined.append(torch.arange(shape[0]).expand(2, -1))
        row, column = torch.cat(joined, 1).numpy()
        matrix = coo_array((np.ones(len(row), np.float32), (row, column)), shape=shape).tocsr()
        matrix.data[:] = 1  # a pair in several relations counts once
        degree = np.maximum(matrix.sum(axis=1), 1)
        means[source, end] = csr_array(diags_array((1 / degree).astype(np.float32)) @ matrix)
    return means


def _smallest(factors: list[csr_array]) -> list[csr_array]:
    """Return the same product, multiplied out from the right while that leaves fewer numbers."""
    *others, last = factors
    result = [last]
    for factor in reversed(others):
        work = int(np.diff(factor.tocsc().indptr) @ np.diff(result[0].indptr))
        product = factor @ result[0] if work <= MOST_WORK else None
        if product is not None and product.nnz <= factor.nnz + result[0].nnz:
            result[0] = product
        else:
            result.insert(0, factor)
    return result
