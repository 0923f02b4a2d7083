"""Blocks: what a linear model is told of each root, as sparse rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.features import to_scipy, to_torch
from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.channels.forest import Forest

Read = Literal["features", "pairs", "trees", "ids", "labels", "beliefs"]
Scaling = Literal["plain", "unit"]
Vector = NDArray[np.float32]

MOST_NUMBERS = 2**26
"""A block whose rows, or a product on the way to them, would hold more numbers is left out."""

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Numbers times this are spread evenly: a node's part depends on its number alone."""

PARTS = 5
"""A root sees the labels of four parts in five of the others, never of its own part."""

CHUNK = 2**22
"""About how many numbers of rows are made at a time."""

ROUNDING = 1e-5
"""What is left of a number that is taken off, and a smaller share of it, is a rounding error."""

FARTHEST = 3.0
"""Features are cut off here before they are multiplied: a product of two outliers drowns others."""

THIN = 0.1
"""Rows with a smaller share of numbers other than 0 are multiplied as sparse matrices."""


@dataclass(frozen=True)
class Block:
    """One kind of rows, written ``movie-actor:ids:unit`` or ``features:plain``.

    Args:
        path: The metapath to what is read; None for the root itself.
        read: ``"features"``: the mean features at the ends of its instances, without the root's
            own. ``"pairs"``: the products of each two of the root's own features. ``"trees"``: the
            leaves of a forest that it falls into by its own features. ``"ids"``: how many instances
            lead to each node. ``"labels"``: the mean labels at the ends that may be seen, without
            those of the root and all others in its part. ``"beliefs"``: the mean of what is
            believed of the ends, without the root.
        scaling: ``"plain"``, or ``"unit"``: features are weighted by how rare they are (TF-IDF),
            and rows have length 1.
    """

    path: Metapath | None
    read: Read
    scaling: Scaling

    @classmethod
    def parse(cls, text: str, metadata: Metadata) -> Block:
        """Read a block from its text."""
        path, _, rest = text.rpartition(":")[0].rpartition(":")
        read, scaling = (rest, text.rpartition(":")[2])
        own = read not in ("pairs", "trees") or (not path and scaling == "plain")
        if read not in get_args(Read) or scaling not in get_args(Scaling) or not own:
            raise HanmeError(f"block {text!r}: write it as movie-actor:ids:unit or features:plain")
        metapath = Metapath.parse(path, metadata) if path else None
        return cls(metapath, cast("Read", read), cast("Scaling", scaling))

    def __str__(self) -> str:
        where = f"{self.path}:" if self.path else ""
        return f"{where}{self.read}:{self.scaling}"


class Rows:
    """The rows of a block on a graph, made when they are asked for.

    A row is a sum over links of the root, ``first``, of what lies behind them, ``ends``, less what
    leads back to the root, divided by the number of instances where features are averaged.

    Args:
        block: The block.
        target: The type of the roots.
        x_dict: Features by node type.
        links: Links by edge type.
        sizes: The number of nodes by type.
        rarity: How rare each feature is; computed from this graph where it is None.
        labels: The labels that may be seen, as 0 and 1, ``[N, C]``, for blocks that read them.
        numbers: The numbers that the roots have in the graph they were cut out of.
        shared: What blocks of the same graph share: links of relations as matrices, features.
        forest: The trees, for a block of their leaves.
    """

    def __init__(
        self,
        block: Block,
        target: str,
        x_dict: Mapping[str, Tensor],
        links: Mapping[EdgeType, Tensor],
        sizes: Mapping[str, int],
        rarity: Vector | None = None,
        labels: Tensor | None = None,
        numbers: Tensor | None = None,
        shared: dict[Any, Any] | None = None,
        forest: Forest | None = None,
    ) -> None:
        self.block, self.rarity, self.forest = block, rarity, forest
        self.part: NDArray[np.int64] | None = None
        self.first: csr_array | None = None
        self.x: csr_array | None = None
        self.back: Vector | None = None
        self.count: Vector | None = None
        self.steps: list[csr_array] = []
        path, made = block.path, {} if shared is None else shared
        end = path.node_types[-1] if path else target
        if block.read in ("features", "trees"):
            key = (end, block.scaling)
            if key not in made or rarity is not None:
                made[key] = _features(x_dict[end], block.scaling, rarity)
            self.ends: csr_array | None
            self.ends, self.rarity = made[key]
        elif block.read == "pairs":
            x = to_scipy(x_dict[target]).astype(np.float32)
            self.ends = csr_array((x.data.clip(-FARTHEST, FARTHEST), x.indices, x.indptr), x.shape)
        elif block.read == "labels":
            self.part, self.ends = _by_part(labels, numbers, sizes[target])
        else:
            self.ends = None
        if path is None:
            return
        for step in path.steps:
            if step not in made:
                made[step] = _counts(links[step], sizes[step[0]], sizes[step[2]])
        steps = [made[step] for step in path.steps]
        self.first = steps[0]
        if block.read in ("features", "beliefs"):
            self.x, self.count = self.ends, _ones(steps)
            if end == target:
                if path.steps not in made:
                    made[path.steps] = _returns(steps, str(block))
                self.back = made[path.steps]
                self.count = self.count - self.back
        if block.read == "beliefs":
            self.steps = steps
            return
        behind = steps[1:] + ([] if self.ends is None else [self.ends])
        if behind:
            (self.ends,) = _contracted(behind, 1, str(block))

    def reading(self, beliefs: Tensor) -> Rows:
        """Return the rows of a block of beliefs for what is believed of each node, ``[N, C]``."""
        found = copy(self)
        found.x = csr_array(beliefs.cpu().numpy())
        found.ends = reduce(lambda z, step: csr_array(step @ z), self.steps[:0:-1], found.x)
        return found

    def __call__(self, roots: NDArray[np.int64]) -> csr_array:
        """Return the rows of some roots."""
        if self.first is None:
            assert self.ends is not None
            own = csr_array(self.ends[roots])
            if self.forest is not None:
                return self.forest.rows(own)
            return _pairs(own) if self.block.read == "pairs" else own
        rows = csr_array(self.first[roots])
        if self.ends is not None:
            rows = csr_array(rows @ self.ends)
        if self.part is not None:
            rows = _of_others(rows, self.part[roots])
        if self.x is not None and self.back is not None and self.back[roots].any():
            rows = _less(rows, _scaled(csr_array(self.x[roots]), self.back[roots]))
        if self.count is not None:
            rows = _scaled(rows, _share(self.count[roots]))
        return _unit(rows) if self.block.scaling == "unit" else rows.astype(np.float32)

    def row(self, root: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the columns and values of one root's row; a matrix of one row would cost more."""
        if self.part is not None or self.block.read == "pairs":
            row = self(np.array([root]))
            return row.indices, row.data
        if self.first is None:
            assert self.ends is not None
            return _row(self.ends, root)
        columns, values = _row(self.first, root)
        if self.ends is not None:
            begin, end = self.ends.indptr[columns], self.ends.indptr[columns + 1]
            places = np.concatenate([np.arange(0), *map(np.arange, begin, end)])
            given = self.ends.data[places] * np.repeat(values, end - begin)
            total = np.bincount(self.ends.indices[places], given, self.ends.shape[1]) * 1.0
            if self.x is not None and self.back is not None:
                own, x = _row(self.x, root)
                taken = self.back[root] * x
                total[own] -= taken
                total[own[abs(total[own]) <= ROUNDING * abs(taken)]] = 0
            columns = np.flatnonzero(total)
            values = total[columns]
        if self.count is not None:
            values = values * _share(self.count[root])
        if self.block.scaling == "unit":
            values = values / (np.sqrt(values @ values) or 1)
        return columns, values

    def shares(
        self, root: int, weight: NDArray[Any]
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.float64]]:
        """Divide what a row adds to one root's logits among its columns; that of trees by feature.

        Args:
            root: The root.
            weight: The matrix that the row is multiplied by, ``[width, C]``.

        Returns:
            The columns and their shares, ``[columns, C]``.
        """
        if self.forest is not None and self.ends is not None:
            return self.forest.shares(self.ends[[root]].toarray()[0], weight)
        columns, values = self.row(root)
        known = columns < len(weight)
        return columns[known], values[known, None] * weight[columns[known]]

    def times(self, roots: NDArray[np.int64], weight: Tensor) -> Tensor:
        """Return the rows of some roots times a matrix, ``[R, C]``.

        A column that is new since the matrix was fitted adds nothing.
        """
        known = min(self.width, len(weight))
        weight = weight.detach().cpu()[:known]
        return torch.cat(
            [
                torch.mm(to_torch(csr_array(self(some)[:, :known])), weight)
                for some in self.chunks(roots)
            ]
        )

    def transposed_times(self, roots: NDArray[np.int64], matrix: Tensor) -> Tensor:
        """Return the transposed rows of some roots times a matrix of doubles, ``[width, C]``."""
        chunks = self.chunks(roots)
        found = np.zeros((self.width, matrix.size(1)))
        for some, given in zip(chunks, np.array_split(matrix.numpy(), len(chunks)), strict=True):
            found += self(some).T @ given
        return torch.from_numpy(found).float()

    def products(self, roots: NDArray[np.int64]) -> Tensor:
        """Return the products of the rows of some roots with each other, ``[R, R]``, in double.

        Those of pairs are known without them: (Σ_i a_i b_i)² = Σ_i (a_i b_i)² + 2 Σ_i<j ....
        """
        if self.block.read != "pairs":
            return _squares(self(roots))
        assert self.ends is not None
        own = csr_array(self.ends[roots]).astype(np.float64)  # a feature alone leaves exactly 0
        return (_squares(own).square() - _squares(own * own)) / 2

    @property
    def width(self) -> int:
        """The length of a row."""
        if self.forest is not None:
            return self.forest.width
        matrix = self.first if self.ends is None else self.ends
        assert matrix is not None
        if self.block.read == "pairs":
            return int(matrix.shape[1] * (matrix.shape[1] - 1) // 2)
        return int(matrix.shape[1]) if self.part is None else int(matrix.shape[1]) // PARTS - 1

    def numbers(self) -> int:
        """Return about how many numbers the rows of all roots hold, at the most."""
        if self.forest is not None:
            return self._roots() * max(len(self.forest.first), len(self.forest.used))
        if self.first is None:
            assert self.ends is not None
            each = np.diff(self.ends.indptr).astype(np.int64)
            return int((each * (each - 1) // 2 if self.block.read == "pairs" else each).sum())
        if self.ends is None:
            return int(self.first.nnz)
        if self.part is not None:
            return int(self.first.shape[0] * self.ends.shape[1])
        most = _work(self.first, self.ends)
        return int(min(most, self.first.shape[0] * self.ends.shape[1]))

    def chunks(self, roots: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Divide roots so that the rows of each part fit into little memory."""
        each = max(1, self.numbers() // max(1, self._roots()))
        parts = max(1, -(-len(roots) * each // CHUNK))
        return list(np.array_split(roots, min(parts, max(1, len(roots)))))

    def _roots(self) -> int:
        matrix = self.ends if self.first is None else self.first
        assert matrix is not None
        return int(matrix.shape[0])


def _by_part(
    labels: Tensor | None, numbers: Tensor | None, size: int
) -> tuple[NDArray[np.int64], csr_array]:
    """Divide nodes with labels into parts, and put each part's labels into columns of its own.

    Returns:
        Each node's part, -1 without labels, and per node and part its labels and a 1 to count it.
    """
    given = np.zeros((size, 0), np.float32) if labels is None else labels.cpu().numpy()
    seen = np.flatnonzero(given.any(axis=1))
    part = np.full(size, -1, np.int64)
    own = np.arange(size) if numbers is None else numbers.cpu().numpy()
    part[seen] = (own[seen].astype(np.uint64) * SPREAD >> np.uint64(32)) % PARTS
    columns = np.zeros((size, PARTS, given.shape[1] + 1), np.float32)
    columns[seen, part[seen], :-1], columns[seen, part[seen], -1] = given[seen], 1
    return part, csr_array(columns.reshape(size, -1))


def _of_others(rows: csr_array, part: NDArray[np.int64]) -> csr_array:
    """Average the labels of all parts but the root's own: no label comes back to where it is."""
    columns = rows.toarray().reshape(rows.shape[0], PARTS, -1)
    columns[part >= 0, part[part >= 0]] = 0
    total = columns.sum(axis=1)
    return csr_array(total[:, :-1] / (total[:, -1:] + 1))


def _pairs(x: csr_array) -> csr_array:
    """Return the products of each two features i < j of a row, in column j (j - 1) / 2 + i."""
    x.sort_indices()
    each = np.diff(x.indptr)
    before = np.arange(x.nnz) - np.repeat(x.indptr[:-1], each)  # features of the row on the left
    right = np.repeat(np.arange(x.nnz), before)
    left = np.arange(len(right)) - np.repeat(np.cumsum(before) - before, before)
    left += np.repeat(np.repeat(x.indptr[:-1], each), before)
    j = x.indices[right].astype(np.int64)
    columns = j * (j - 1) // 2 + x.indices[left]
    ends = np.concatenate([[0], np.cumsum(before)])[x.indptr]
    size = x.shape[1] * (x.shape[1] - 1) // 2
    return csr_array((x.data[left] * x.data[right], columns, ends), shape=(x.shape[0], size))


def pair(column: int) -> tuple[int, int]:
    """Return the two features, i < j, that a column of pairs multiplies."""
    j = (1 + math.isqrt(1 + 8 * column)) // 2
    return column - j * (j - 1) // 2, j


def _squares(rows: csr_array) -> Tensor:
    """Return rows times rows', of double precision."""
    thin = rows.nnz < THIN * rows.shape[0] * rows.shape[1]
    given = rows.astype(np.float64) if thin else rows.toarray().astype(np.float64)
    found = given @ given.T
    return torch.from_numpy(found.toarray() if thin else found)


def _row(matrix: csr_array, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the columns and values of a row, without a copy."""
    place = slice(*matrix.indptr[number : number + 2])
    return matrix.indices[place], matrix.data[place]


def _counts(edge_index: Tensor, rows: int, columns: int) -> csr_array:
    """Return the number of links between each pair of nodes."""
    source, end = edge_index.cpu().numpy()
    ones = np.ones(len(source), np.float32)
    return csr_array((ones, (source, end)), shape=(rows, columns))


def _ones(steps: list[csr_array]) -> Vector:
    """Return the number of instances of each root."""
    ones = np.ones(steps[-1].shape[1], np.float32)
    return np.asarray(reduce(lambda z, step: step @ z, reversed(steps), ones), np.float32)


def _returns(steps: list[csr_array], what: str) -> Vector:
    """Return how many instances of each root lead back to it: the diagonal of A_1 ... A_L."""
    if len(steps) == 1:
        own: Any = steps[0].diagonal()
        return np.asarray(own, np.float32)
    left, right = _contracted(steps, 2, what)
    return np.asarray(left.multiply(right.T.tocsr()).sum(axis=1), np.float32).reshape(-1)


def _contracted(chain: list[csr_array], left: int, what: str) -> list[csr_array]:
    """Multiply neighbours, those that take the least work first, until so many are left.

    Products that are too large come last of all.
    """
    chain = list(chain)
    while len(chain) > left:
        pairs = list(pairwise(chain))
        i = min(range(len(pairs)), key=lambda i: (_too_large(*pairs[i]), _work(*pairs[i])))
        chain[i : i + 2] = [_product(chain[i], chain[i + 1], what)]
    return chain


def _product(a: csr_array, b: csr_array, what: str) -> csr_array:
    if _too_large(a, b):
        raise TooLarge(what)
    return csr_array(a @ b)


def _too_large(a: csr_array, b: csr_array) -> bool:
    return bool(min(_work(a, b), a.shape[0] * b.shape[1]) > MOST_NUMBERS)


def _work(a: csr_array, b: csr_array) -> int:
    """Return how many multiplications a product of sparse matrices takes."""
    return int(np.bincount(a.indices, minlength=a.shape[1]) @ np.diff(b.indptr))


def _features(
    given: Tensor, scaling: Scaling, rarity: Vector | None
) -> tuple[csr_array, Vector | None]:
    """Return features as a block reads them, and how rare each is if that counts."""
    x = csr_array(to_scipy(given).astype(np.float32))
    if scaling == "plain":
        return x, rarity
    rarity = _rarity(x) if rarity is None else rarity
    return _unit(x * rarity[None, :]), rarity


def _rarity(x: csr_array) -> Vector:
    """Return the inverse document frequency of each column, as scikit-learn smooths it."""
    nodes = np.bincount(x.indices[x.data != 0], minlength=x.shape[1])
    rarity: Vector = (np.log((1 + x.shape[0]) / (1 + nodes)) + 1).astype(np.float32)
    return rarity


def _unit(rows: csr_array) -> csr_array:
    """Scale rows to length 1; a row of zeros stays."""
    rows = csr_array(rows).astype(np.float32)
    squares = csr_array((rows.data**2, rows.indices, rows.indptr), shape=rows.shape)
    length = np.sqrt(squares.sum(axis=1))
    return _scaled(rows, _inverse(np.where(length > 0, length, 1)))


def _share(count: Vector) -> Vector:
    """Return 1 / count; 0 where nothing is left, of which a sum holds rounding errors alone."""
    return (np.sign(count) / np.maximum(count, 1)).astype(np.float32)


def _inverse(values: Vector) -> Vector:
    return (1 / values).astype(np.float32)


def _scaled(rows: csr_array, factors: Vector) -> csr_array:
    """Multiply each row by a factor of its own."""
    data = rows.data * np.repeat(factors, np.diff(rows.indptr))
    return csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def _less(rows: csr_array, taken: csr_array) -> csr_array:
    """Take numbers off; what rounding leaves of them is 0, or it would become rows of length 1."""
    left = csr_array(rows - taken)
    return csr_array(left.multiply(abs(left) > ROUNDING * abs(taken)))


class TooLarge(HanmeError):
    """Raised for a block that would take more memory than it is worth."""

    def __init__(self, what: str) -> None:
        super().__init__(f"block {what}: it would hold more than {MOST_NUMBERS:,} numbers")
