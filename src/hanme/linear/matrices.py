"""Sparse matrices of one graph, shared by its feature blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import to_scipy
from hanme.graph.metapath import EdgeType, Metapath, Walk

if TYPE_CHECKING:
    from hanme.linear.blocks import DesignMatrix, FeatureBlock

Scaling = Literal["plain", "unit"]
Vector = NDArray[np.float32]

MAX_ENTRIES = 2**26
"""Maximum number of entries of a block, or of a product on the way to it: about 0.8 GB."""

ROUNDING = 1e-5
"""Relative size below which the remainder of a subtraction is a rounding error of float32 sums."""


class TooLarge(HanmeError):
    """Raised for a product of links that would have more than ``MAX_ENTRIES`` entries."""


class GraphMatrices:
    """Links and features of a graph as sparse matrices, each computed on first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._sources = _sources(graph)
        self._links: dict[EdgeType, csr_array] = {}
        self._features: dict[tuple[str, Scaling], tuple[csr_array, Vector | None]] = {}
        self._returns: dict[Walk, Vector] = {}
        self.blocks: dict[str, tuple[Vector | None, DesignMatrix]] = {}

    def belong_to(self, graph: Graph) -> bool:
        """Return whether a graph has the same features and links; labels and split may differ."""
        sources = _sources(graph)
        same = (a is b for a, b in zip(sources, self._sources, strict=False))
        return len(sources) == len(self._sources) and all(same)

    def block(self, block: FeatureBlock, idf: Vector | None = None) -> DesignMatrix:
        """Return the rows of a block; ``idf`` holds the column weights of an earlier fit."""
        known, matrix = self.blocks.get(str(block), (None, None))
        if matrix is None or (idf is not None and known is not idf):
            matrix = block.matrix(self, idf)
            self.blocks[str(block)] = matrix.idf, matrix
        return matrix

    def links(self, path: Metapath) -> list[csr_array]:
        """Return the number of links between each two nodes, a matrix per step of a metapath."""
        for step in path.steps:
            if step not in self._links:
                source, end = self.graph.links[step].cpu().numpy()
                shape = self.graph.sizes[step[0]], self.graph.sizes[step[2]]
                ones = np.ones(len(source), np.float32)
                self._links[step] = csr_array((ones, (source, end)), shape=shape)
        return [self._links[step] for step in path.steps]

    def features(
        self, node_type: str, scaling: Scaling, idf: Vector | None = None
    ) -> tuple[csr_array, Vector | None]:
        """Return the features of a node type, and the inverse document frequencies of TF-IDF."""
        key = node_type, scaling
        if key not in self._features or (idf is not None and self._features[key][1] is not idf):
            x = self.graph.nodes[node_type].x
            size = self.graph.sizes[node_type]
            raw = csr_array((size, 0), dtype=np.float32) if x is None else to_scipy(x)
            self._features[key] = _scaled_features(raw.astype(np.float32), scaling, idf)
        return self._features[key]

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


def _sources(graph: Graph) -> list[object]:
    """Return the objects that the matrices of a graph are computed from."""
    if graph.stored:
        return [graph.links]
    return [*(nodes.x for nodes in graph.nodes.values()), *graph.links.values()]


def _scaled_features(
    x: csr_array, scaling: Scaling, idf: Vector | None
) -> tuple[csr_array, Vector | None]:
    if scaling == "plain":
        return csr_array(x), None
    if idf is None:  # smoothed as in scikit-learn's TfidfTransformer
        nodes = np.bincount(x.indices[x.data != 0], minlength=x.shape[1])
        idf = (np.log((1 + x.shape[0]) / (1 + nodes)) + 1).astype(np.float32)
    return unit_rows(csr_array(x * idf[None, :])), idf


def multiply(chain: Sequence[csr_array], left: int) -> list[csr_array]:
    """Multiply neighbouring matrices, cheapest product first, until ``left`` of them remain."""
    chain = list(chain)
    while len(chain) > left:
        pairs = list(pairwise(chain))
        i = min(range(len(pairs)), key=lambda i: (is_too_large(*pairs[i]), cost(*pairs[i])))
        if is_too_large(*pairs[i]):
            raise TooLarge(f"a product of links has more than {MAX_ENTRIES:,} entries")
        chain[i : i + 2] = [csr_array(chain[i] @ chain[i + 1])]
    return chain


def is_too_large(a: csr_array, b: csr_array) -> bool:
    """Return whether a product may have more than ``MAX_ENTRIES`` entries."""
    return bool(min(cost(a, b), a.shape[0] * b.shape[1]) > MAX_ENTRIES)


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


def rows_at(weight: Tensor, numbers: Tensor) -> Tensor:
    """Return some rows of a matrix, and zeros for numbers beyond its end."""
    known = numbers < len(weight)
    rows = weight.new_zeros(numbers.numel(), weight.size(1))
    rows[known] = weight[numbers[known]]
    return rows
