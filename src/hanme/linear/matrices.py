"""Sparse matrices of one graph, shared by its feature blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.cache import unchanged, versions
from hanme.graph.features import to_scipy, to_torch
from hanme.graph.metapath import EdgeType, Metapath, Walk

Scaling = Literal["plain", "unit"]
Vector = NDArray[np.float32]

MAX_ENTRIES = 2**26
"""Maximum number of entries of a block, or of a product on the way to it: about 0.8 GB."""

CHUNK = 2**22
"""Number of entries of a design matrix that are computed at a time: about 50 MB."""

ROUNDING = 1e-5
"""Relative size below which the remainder of a subtraction is a rounding error of float32 sums."""


class TooLarge(HanmeError):
    """Raised for a product of links that would have more than ``MAX_ENTRIES`` entries."""


class GraphMatrices:
    """Links and features of a graph as sparse matrices, each computed on first use.

    Args:
        graph: The graph.
        idf: Inverse document frequencies of features by node type, of an earlier fit (default:
            those of the graph).
    """

    def __init__(self, graph: Graph, idf: Mapping[str, Vector] | None = None) -> None:
        self.graph, self.idf = graph, dict(idf or {})
        self.blocks: dict[Hashable, DesignMatrix] = {}
        self.too_large: dict[str, None] = {}
        """The blocks that are left out because of their size, in the order they were tried."""
        self._types, self._sources = (graph.target, graph.metadata()), versions(_sources(graph))
        self._links: dict[EdgeType, csr_array] = {}
        self._features: dict[tuple[str, Scaling], csr_array] = {}
        self._returns: dict[Walk, Vector] = {}

    @property
    def note(self) -> str | None:
        """What to tell the user if blocks are left out."""
        if not self.too_large:
            return None
        some = ", ".join(list(self.too_large)[:3]) + (", ..." if len(self.too_large) > 3 else "")
        return (
            f"Linear model: {len(self.too_large)} of the candidate blocks left out, since they "
            f"have more than {MAX_ENTRIES:,} entries: {some}."
        )

    def belong_to(self, graph: Graph) -> bool:
        """Return whether a graph has the same features and links; labels and split may differ."""
        same_types = self._types == (graph.target, graph.metadata())
        return same_types and unchanged(self._sources, versions(_sources(graph)))

    def links(self, path: Metapath) -> list[csr_array]:
        """Return the number of links between each two nodes, a matrix per step of a metapath."""
        for step in path.steps:
            if step not in self._links:
                source, end = self.graph.links[step].cpu().numpy()
                shape = self.graph.sizes[step[0]], self.graph.sizes[step[2]]
                ones = np.ones(len(source), np.float32)
                self._links[step] = csr_array((ones, (source, end)), shape=shape)
        return [self._links[step] for step in path.steps]

    def features(self, node_type: str, scaling: Scaling) -> csr_array:
        """Return the features of a node type; for unit scaling, TF-IDF in rows of length 1."""
        if (node_type, scaling) not in self._features:
            x, size = self.graph.nodes[node_type].x, self.graph.sizes[node_type]
            rows = csr_array((size, 0)) if x is None else to_scipy(x)
            rows = rows.astype(np.float32)
            if scaling == "unit":
                if node_type not in self.idf:  # smoothed as in scikit-learn's TfidfTransformer
                    nodes = np.bincount(rows.indices[rows.data != 0], minlength=rows.shape[1])
                    idf = np.log((1 + size) / (1 + nodes)) + 1
                    self.idf[node_type] = idf.astype(np.float32)
                rows = unit_rows(csr_array(rows * self.idf[node_type][None, :]))
            self._features[node_type, scaling] = rows
        return self._features[node_type, scaling]

    def instances(self, path: Metapath) -> Vector:
        """Return the number of instances of a metapath at each target node."""
        ones = np.ones(self.graph.sizes[path.node_types[-1]], np.float32)
        counts = reduce(lambda z, links: links @ z, reversed(self.links(path)), ones)
        return np.asarray(counts, np.float32)

    def returns(self, path: Metapath) -> Vector:
        """Return the number of instances that end where they start: the diagonal of A_1 ... A_L."""
        if path.steps not in self._returns:
            links = self.links(path)
            if len(links) == 1:
                diagonal: Any = links[0].diagonal()
            else:
                left, right = multiply(links, 2)
                diagonal = left.multiply(right.T.tocsr()).sum(axis=1)
            self._returns[path.steps] = np.asarray(diagonal, np.float32).reshape(-1)
        return self._returns[path.steps]

    def through_neighbours(
        self, path: Metapath, node: int, values: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Sum values at the ends of a node's walks by the first node on their way.

        Walks that return to the node are left out.

        Args:
            path: The metapath.
            node: The target node.
            values: Values of the nodes at its end, ``[N, C]``.

        Returns:
            The numbers of the neighbours, ``[n]``, and for each the sum of the values at the ends,
            with the number of walks as last column, ``[n, C + 1]``.
        """
        first, *others = self.links(path)
        row = csr_array(first[[node]])
        values = np.column_stack([values, np.ones(len(values))]).astype(np.float64)
        own = values[node].copy() if path.node_types[-1] == self.graph.target else None
        returns = np.zeros(len(values))
        returns[node if own is not None else slice(0)] = 1
        for links in reversed(others):
            values, returns = links @ values, links @ returns
        values, returns = values[row.indices], returns[row.indices]
        if own is not None:
            values = values - returns[:, None] * own
        return row.indices, row.data[:, None] * values


def _sources(graph: Graph) -> list[object]:
    """Return the objects that the matrices of a graph are computed from."""
    if graph.stored:
        return [graph.links]
    return [*(nodes.x for nodes in graph.nodes.values()), *graph.links.values()]


@dataclass(frozen=True)
class DesignMatrix:
    """The rows of a block on a graph, computed on request.

    A row is ``scale[i] * (first[i] @ rest - returns[i] * own[i])``. A block leaves out the factors
    that it does not need.

    Args:
        first: Links or columns of the target nodes, ``[N, M]``.
        rest: What lies behind these links, ``[M, D]``; None for the identity.
        own: The target nodes' own columns, ``[N, D]``.
        returns: The number of instances that lead back to each target node, ``[N]``.
        scale: Factor of each row, ``[N]``.
        unit: Whether rows are scaled to length 1.
    """

    first: csr_array
    rest: csr_array | None = None
    own: csr_array | None = None
    returns: Vector | None = None
    scale: Vector | None = None
    unit: bool = False

    def rows(self, nodes: NDArray[np.int64]) -> csr_array:
        """Return the rows of some target nodes, ``[n, D]``."""
        rows = csr_array(self.first[nodes])
        if self.rest is not None:
            rows = csr_array(rows @ self.rest)
        if self.own is not None and self.returns is not None and self.returns[nodes].any():
            rows = subtract(rows, scale_rows(csr_array(self.own[nodes]), self.returns[nodes]))
        if self.scale is not None:
            rows = scale_rows(rows, self.scale[nodes])
        return unit_rows(rows) if self.unit else rows.astype(np.float32)

    def chunks(self, nodes: NDArray[np.int64]) -> Iterator[csr_array]:
        """Yield the rows of some target nodes, about ``CHUNK`` entries at a time."""
        per_node = max(1, self.entries // max(1, self.first.shape[0]))
        parts = min(len(nodes), -(-len(nodes) * per_node // CHUNK))
        return (self.rows(some) for some in np.array_split(nodes, max(1, parts)))

    def times(self, nodes: NDArray[np.int64], weight: Tensor) -> Tensor:
        """Return the rows of some nodes times a matrix ``[D, C]``, as ``[n, C]``."""
        return torch.cat([torch.mm(to_torch(rows), weight) for rows in self.chunks(nodes)])

    @property
    def width(self) -> int:
        """The number of columns."""
        return int((self.first if self.rest is None else self.rest).shape[1])

    @property
    def entries(self) -> int:
        """An upper bound of the number of nonzero entries of all rows."""
        return int(self.first.nnz) if self.rest is None else max_entries(self.first, self.rest)


def multiply(chain: Sequence[csr_array], left: int) -> list[csr_array]:
    """Multiply neighbouring matrices, cheapest product first, until ``left`` of them remain."""
    chain = list(chain)
    while len(chain) > left:
        pairs = list(pairwise(chain))
        too_large = [max_entries(*pair) > MAX_ENTRIES for pair in pairs]
        i = min(range(len(pairs)), key=lambda i: (too_large[i], cost(*pairs[i])))
        if too_large[i]:
            raise TooLarge(f"a product of links has more than {MAX_ENTRIES:,} entries")
        chain[i : i + 2] = [csr_array(chain[i] @ chain[i + 1])]
    return chain


def max_entries(a: csr_array, b: csr_array) -> int:
    """Return an upper bound of the number of entries of a product of sparse matrices."""
    return min(cost(a, b), int(a.shape[0]) * int(b.shape[1]))


def cost(a: csr_array, b: csr_array) -> int:
    """Return the number of multiplications of a product of sparse matrices."""
    return int(np.bincount(a.indices, minlength=a.shape[1]) @ np.diff(b.indptr))


def scale_rows(rows: csr_array, factors: Vector) -> csr_array:
    """Multiply each row by its factor."""
    data = rows.data * np.repeat(factors, np.diff(rows.indptr))
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def unit_rows(rows: csr_array) -> csr_array:
    """Scale rows to length 1; rows of zeros remain."""
    rows = csr_array(rows).astype(np.float32)
    squares = csr_array((rows.data**2, rows.indices, rows.indptr), shape=rows.shape)
    length = np.sqrt(squares.sum(axis=1))
    return scale_rows(rows, (1 / np.where(length > 0, length, 1)).astype(np.float32))


def subtract(rows: csr_array, others: csr_array) -> csr_array:
    """Subtract matrices; rounding errors become 0, since unit scaling would magnify them."""
    rest = csr_array(rows - others)
    return csr_array(rest.multiply(abs(rest) > ROUNDING * abs(others)))


def reciprocal(count: Vector) -> Vector:
    """Return 1 / count, and 0 for a count of 0."""
    return (np.sign(count) / np.maximum(count, 1)).astype(np.float32)
