"""Turn columns into features.

What a column needs for that (a mean, values, words) is fitted to all its rows, labelled or not, and
never to labels. It is plain JSON and stays with a run, so that later rows get the same features.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import coo_array, csr_array, diags_array, hstack

from hanme.common.options import Closed
from hanme.data.tables.read.reader import ColumnRequest, Table
from hanme.data.tables.schema.sections import (
    CategorySpec,
    DateSpec,
    FeatureSpec,
    NumberSpec,
    TextSpec,
    VectorSpec,
)
from hanme.errors import HanmeError

ROWS_PER_KNOT, MIN_KNOTS, MAX_KNOTS = 100, 5, 16
"""Numbers per knot, and the minimum and maximum number of knots.

On tables of fewer than 500 rows the gain on validation rows was within the noise.
"""

COMMON_WORDS = 0.5
"""TF-IDF leaves out words in a larger share of the texts, which hardly distinguish them."""

LARGEST = 1e150
"""Largest number in a vector: the square of a larger one overflows."""


class FittedNumber(Closed):
    """Standardise numbers; a missing one counts as the mean.

    Each knot has a feature that is 1 there and falls to 0 at the neighbouring knots.
    """

    kind: Literal["number", "date"] = "number"
    mean: float
    std: float = Field(gt=0)
    knots: list[float] = Field(default=[])  # in ascending order
    gaps: bool = False  # whether an empty cell has a feature

    @classmethod
    def fit(cls, table: Table, alias: str, spec: NumberSpec | DateSpec) -> FittedNumber:
        """Fit a column of numbers, or of dates as years."""
        form = spec.format if isinstance(spec, DateSpec) else None
        expected = f"date as {form}" if form else _EXPECTED[spec.kind]
        numbers = table.numbers(alias, expected)
        known = numbers[~np.isnan(numbers)]
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = (float(known.mean()), float(known.std())) if known.size else (0.0, 1.0)
        if not np.isfinite([mean, std]).all():
            raise HanmeError(f"{table.column_title(alias)}: its numbers are too large")
        gaps = MIN_KNOTS * ROWS_PER_KNOT <= known.size < numbers.size
        return cls(kind=spec.kind, mean=mean, std=std or 1.0, knots=_knots(known), gaps=gaps)

    @property
    def width(self) -> int:
        """The number of features."""
        return 1 + len(self.knots) + self.gaps

    def encode(self, table: Table, alias: str, spec: FeatureSpec) -> csr_array:
        """Return the number, its nearness to each knot, and whether it is missing."""
        numbers = table.numbers(alias, _EXPECTED[self.kind])
        with np.errstate(over="ignore"):
            values = ((numbers - self.mean) / self.std).astype(np.float32)
        values[np.isnan(numbers)] = 0
        wrong = np.flatnonzero(~np.isfinite(values))
        if wrong.size:
            row = int(wrong[0])
            raise HanmeError(
                f"{table.place(row, alias)}: {numbers[row]:g} is too far from the mean "
                f"{self.mean:g} to be a feature"
            )
        blocks = [csr_array(values[:, None])]
        if self.knots:
            blocks.append(_hats(numbers, np.asarray(self.knots)))
        if self.gaps:
            blocks.append(csr_array(np.isnan(numbers)[:, None].astype(np.float32)))
        return csr_array(hstack(blocks, format="csr", dtype=np.float32))


_EXPECTED = {"number": "finite number", "date": "date"}


def _knots(numbers: NDArray[np.float64]) -> list[float]:
    """Return quantiles of the numbers; none where a line through two says the same."""
    count = min(MAX_KNOTS, len(numbers) // ROWS_PER_KNOT)
    if count < MIN_KNOTS:
        return []
    knots = np.unique(np.quantile(numbers, np.linspace(0, 1, count), method="nearest"))
    return list(map(float, knots)) if len(knots) > 2 else []


def _hats(numbers: NDArray[np.float64], knots: NDArray[np.float64]) -> csr_array:
    """Return how near a number is to each of the two knots around it, ``[rows, knots]``."""
    row = np.flatnonzero(~np.isnan(numbers))
    value = np.clip(numbers[row], knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, value, "right") - 1, 0, len(knots) - 2)
    share = (value - knots[left]) / (knots[left + 1] - knots[left])
    data = np.concatenate([1 - share, share]).astype(np.float32)
    place = (np.tile(row, 2), np.concatenate([left, left + 1]))
    matrix = csr_array((data, place), shape=(len(numbers), len(knots)))
    matrix.eliminate_zeros()
    return matrix


class FittedValues(Closed):
    """One feature per value of a category or list."""

    kind: Literal["category", "list"]
    values: list[str]

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.values)

    def encode(self, table: Table, alias: str, spec: FeatureSpec) -> csr_array:
        """Return 1 for each value of a cell."""
        items = table.items(alias, getattr(spec, "separator", None))
        matrix = _counts(*table.positions(items, self.values), (table.size, self.width))
        matrix.data[:] = 1
        return matrix


class FittedWords(Closed):
    """TF-IDF: one feature per word, weighted by how rare it is; rows have length 1."""

    kind: Literal["tfidf"] = "tfidf"
    words: list[str]
    idf: list[float]

    @classmethod
    def fit(cls, table: Table, alias: str, size: int) -> FittedWords:
        """Choose the most frequent words."""
        ((texts,),) = table.reader.rows(f"SELECT count({alias}) FROM {table.sql}")
        words = table.most_frequent(_words(alias), size, max(1, int(COMMON_WORDS * texts)))
        idf = [float(np.log((1 + texts) / (1 + n)) + 1) for n in words.values()]
        return cls(words=list(words), idf=idf)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.words)

    def encode(self, table: Table, alias: str, spec: FeatureSpec) -> csr_array:
        """Return the weighted counts of the words of a cell."""
        counts = _counts(*table.positions(_words(alias), self.words), (table.size, self.width))
        return _unit_rows(counts @ diags_array(np.asarray(self.idf, np.float32)))


class FittedHash(Closed):
    """All words, counted in buckets; rows have length 1. Nothing is fitted."""

    kind: Literal["hash"] = "hash"
    size: int = Field(ge=1)

    @property
    def width(self) -> int:
        """The number of features."""
        return self.size

    def encode(self, table: Table, alias: str, spec: FeatureSpec) -> csr_array:
        """Return the number of words of a cell in each bucket."""
        row, bucket = table.reader.arrays(
            "SELECT row, CAST(md5_number_lower(word) % ? AS INTEGER) FROM (SELECT rowid AS row, "
            f"unnest({_words(alias)}) AS word FROM {table.sql})",
            self.size,
        )
        return _unit_rows(_counts(row, bucket, (table.size, self.size)))


class FittedVector(Closed):
    """Standardise each number of a vector; a missing vector counts as the mean."""

    kind: Literal["vector"] = "vector"
    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]

    @classmethod
    def fit(cls, table: Table, alias: str) -> FittedVector:
        """Fit a column of vectors of the most frequent length."""
        known = f"FROM {table.sql} WHERE {alias} IS NOT NULL"
        lengths = table.reader.rows(
            f"SELECT len({alias}) AS n {known} GROUP BY n ORDER BY count(*) DESC, n LIMIT 1"
        )
        _check_vectors(table, alias, lengths[0][0] if lengths else 0)
        rows = table.reader.rows(
            f"SELECT avg(x), stddev_pop(x) FROM (SELECT unnest({alias}) AS x, "
            f"generate_subscripts({alias}, 1) AS i {known}) GROUP BY i ORDER BY i"
        )
        return cls(mean=[mean for mean, _ in rows], std=[std or 1.0 for _, std in rows])

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.mean)

    def encode(self, table: Table, alias: str, spec: FeatureSpec) -> csr_array:
        """Return the standardised vectors."""
        _check_vectors(table, alias, self.width)
        row, numbers = table.reader.arrays(
            f"SELECT rowid AS row, unnest({alias}) AS x FROM {table.sql}"
        )
        values = np.zeros((table.size, self.width), np.float32)
        if self.width:
            vectors = numbers.reshape(-1, self.width)
            values[row[:: self.width]] = (vectors - self.mean) / self.std
        return csr_array(values)


def _check_vectors(table: Table, alias: str, size: int) -> None:
    """Refuse a vector of another length, or with anything but numbers."""
    wrong = table.reader.rows(
        f"SELECT rowid, len({alias}) FROM {table.sql} WHERE {alias} IS NOT NULL AND (len({alias}) "
        f"<> ? OR len(list_filter({alias}, lambda x: coalesce(abs(x) < {LARGEST}, false))) <> ?) "
        "ORDER BY rowid LIMIT 1",
        size,
        size,
    )
    for row, length in wrong:
        what = f"{length} numbers, but expected {size}" if length != size else "not all are numbers"
        raise HanmeError(f"{table.place(row, alias)}: {what}")


Fitted = Annotated[
    FittedNumber | FittedValues | FittedWords | FittedHash | FittedVector,
    Field(discriminator="kind"),
]


def request(column: str, spec: FeatureSpec) -> ColumnRequest:
    """Return how to read the column of a feature."""
    if isinstance(spec, CategorySpec | TextSpec):
        return ColumnRequest(column, "text")
    return ColumnRequest(column, spec.kind, spec.format if isinstance(spec, DateSpec) else None)


def fit(table: Table, alias: str, spec: FeatureSpec) -> Fitted:
    """Fit what turns a column into features."""
    match spec:
        case NumberSpec() | DateSpec():
            return FittedNumber.fit(table, alias, spec)
        case VectorSpec():
            return FittedVector.fit(table, alias)
        case TextSpec(method="hash"):
            return FittedHash(size=spec.size)
        case TextSpec():
            return FittedWords.fit(table, alias, spec.size)
    items = table.items(alias, getattr(spec, "separator", None))
    return FittedValues(kind=spec.kind, values=list(table.most_frequent(items, spec.size)))


def _words(alias: str) -> str:
    return rf"regexp_extract_all(lower({alias}), '[\p{{L}}\p{{M}}\p{{N}}]+')"


def _counts(
    row: NDArray[np.integer], position: NDArray[np.integer], shape: tuple[int, int]
) -> csr_array:
    """Count how often each row has each item, which DuckDB returns in any order."""
    ones = np.ones(len(row), np.float32)
    place = (row.astype(np.int32), position.astype(np.int32))
    matrix = csr_array(coo_array((ones, place), shape=shape).tocsr())
    matrix.sort_indices()
    return matrix


def _unit_rows(matrix: csr_array) -> csr_array:
    """Scale rows to length 1; a row of zeros stays one."""
    from sklearn.preprocessing import normalize  # importing it takes longer than opening a cache

    return csr_array(normalize(matrix, copy=False)) if matrix.nnz else matrix
