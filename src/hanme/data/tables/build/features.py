"""Turn columns into features.

What a column needs for that (a mean, values, words) is fitted to all its rows, labelled or not, and
never to labels. It is plain JSON and stays with a run, so that later rows get the same features.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_array, diags_array, hstack

from hanme.common.options import Closed
from hanme.data.tables.read.reader import ColumnRequest, Table
from hanme.data.tables.read.sql import LARGEST, number_sql, quoted
from hanme.data.tables.schema.sections import Feature
from hanme.errors import HanmeError

ROWS_PER_KNOT, MIN_KNOTS, MAX_KNOTS = 100, 5, 16
"""Numbers per knot, and the minimum and maximum number of knots.

On tables of fewer than 500 rows the gain on validation rows was within the noise.
"""

MIN_GAPS = 20
"""Number of empty cells from which a small column has a feature for them: fewer tell little."""

COMMON_WORDS = 0.5
"""TF-IDF leaves out words in a larger share of the texts, which hardly distinguish them."""

MAX_VALUES = 1000
"""Maximum number of values of a category or list, unless ``size`` is set."""

JUNK = 0.01
"""Maximum share of cells in a column of numbers or dates that are something else."""

FARTHEST = 1e15
"""Largest feature: a network squares it, and float32 must hold the sum of many squares."""

CONSTANT = 1e-14
"""Share of the mean up to which a standard deviation is the rounding error of equal numbers."""


class FittedNumber(Closed):
    """Standardise numbers; a missing one counts as the mean. A constant column has zeros.

    Each knot has a feature that is 1 there and falls to 0 at the neighbouring knots.
    """

    kind: Literal["number", "date"] = "number"
    mean: float
    std: float = Field(ge=0)
    knots: list[float] = Field(default=[])  # in ascending order
    gaps: bool = False  # whether an empty cell has a feature

    @classmethod
    def fit(cls, table: Table, alias: str, spec: Feature) -> FittedNumber:
        """Fit a column of numbers, or of dates as years."""
        numbers = _numbers(table, alias, spec)
        known = numbers[~np.isnan(numbers)]
        mean, std = (float(known.mean()), float(known.std())) if known.size else (0.0, 0.0)
        fewest = 1 if known.size >= MIN_KNOTS * ROWS_PER_KNOT else MIN_GAPS
        gaps = known.size > 0 and numbers.size - known.size >= fewest
        kind: Any = spec.kind
        return cls(kind=kind, mean=mean, std=std, knots=_knots(known), gaps=gaps)

    def __len__(self) -> int:
        return 1 + len(self.knots) + self.gaps

    def encode(self, table: Table, alias: str, spec: Feature) -> csr_array:
        """Return the number, its nearness to each knot, and whether it is missing."""
        numbers = _numbers(table, alias, spec)
        rows = np.arange(table.size)
        values = _standardised(table, alias, rows, numbers[:, None], [self.mean], [self.std])
        blocks = [csr_array(values)]
        if self.knots:
            blocks.append(_hats(numbers, np.asarray(self.knots)))
        if self.gaps:
            blocks.append(csr_array(np.isnan(numbers)[:, None].astype(np.float32)))
        return csr_array(hstack(blocks, format="csr", dtype=np.float32))


def _standardised(
    table: Table,
    alias: str,
    rows: NDArray[np.int64],
    numbers: NDArray[np.float64],
    mean: list[float],
    std: list[float],
) -> NDArray[np.float32]:
    """Return the features of numbers in some rows, ``[rows, D]``: finite, and 0 if constant."""
    constant = np.asarray(std) <= CONSTANT * np.abs(mean)
    with np.errstate(over="ignore"):
        values = ((numbers - mean) / np.where(constant, np.inf, std)).astype(np.float32)
    values[np.isnan(numbers)] = 0
    for row, i in np.argwhere(np.abs(values) > FARTHEST)[:1]:
        raise HanmeError(
            f"{table.place(int(rows[row]), alias)}: {numbers[row, i]:g} is too far from the mean "
            f"{mean[i]:g} to be a feature"
        )
    return np.asarray(values)


def cell_sql(alias: str, spec: Feature) -> str:
    """Return SQL for the number of a cell; that of a date is its year, 2004.5 in its middle.

    A number that float32 cannot hold is none: features, trees and networks compute in it.
    """
    if spec.kind == "number":
        number = number_sql(alias, spec.decimal)
        return f"CASE WHEN abs({number}) <= {LARGEST} THEN {number} END"
    date = f"TRY_CAST({alias} AS TIMESTAMP)"
    if spec.format is not None:
        date = f"coalesce(try_strptime({alias}, {quoted(spec.format)}), {date})"
    return f"(year({date}) + (dayofyear({date}) - 1) / 366)"


def _numbers(table: Table, alias: str, spec: Feature) -> NDArray[np.float64]:
    """Return a column of numbers or dates, NaN for an empty cell."""
    (numbers,) = table.reader.arrays(
        f"SELECT {cell_sql(alias, spec)} FROM {table.sql} ORDER BY rowid", missing=np.nan
    )
    return np.asarray(numbers, np.float64)


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

    @classmethod
    def fit(cls, table: Table, alias: str, spec: Feature) -> FittedValues:
        """Choose the most frequent values."""
        values = table.most_frequent(_items(table, alias, spec), spec.size or MAX_VALUES)
        return cls.model_validate({"kind": spec.kind, "values": list(values)})

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, table: Table, alias: str, spec: Feature) -> csr_array:
        """Return 1 for each value of a cell."""
        matrix = table.counts(_items(table, alias, spec), self.values)
        matrix.data[:] = 1
        return matrix


def _items(table: Table, alias: str, spec: Feature) -> str:
    return table.items(alias, spec.separator if spec.kind == "list" else None)


class FittedWords(Closed):
    """TF-IDF: one feature per word, weighted by how rare it is; rows have length 1."""

    kind: Literal["tfidf"] = "tfidf"
    words: list[str]
    idf: list[float]

    @classmethod
    def fit(cls, table: Table, alias: str, spec: Feature) -> FittedWords:
        """Choose the most frequent words."""
        ((texts,),) = table.reader.rows(f"SELECT count({alias}) FROM {table.sql}")
        size, at_least = spec.size or min(max(texts // 4, 1_000), 20_000), 1 if spec.size else 2
        at_most = max(at_least, int(COMMON_WORDS * texts))
        words = table.most_frequent(_words(alias), size, at_least, at_most)
        idf = [float(np.log((1 + texts) / (1 + n)) + 1) for n in words.values()]
        return cls(words=list(words), idf=idf)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, table: Table, alias: str, spec: Feature) -> csr_array:
        """Return the weighted counts of the words of a cell."""
        from sklearn.preprocessing import (
            normalize,
        )  # importing it takes longer than opening a cache

        counts = table.counts(_words(alias), self.words)
        weighted = csr_array(counts @ diags_array(np.asarray(self.idf, np.float32)))
        return csr_array(normalize(weighted, copy=False)) if weighted.nnz else weighted


def _words(alias: str) -> str:
    return rf"regexp_extract_all(lower({alias}), '[\p{{L}}\p{{M}}\p{{N}}]+')"


class FittedVector(Closed):
    """Standardise each number of a vector; a missing vector counts as the mean.

    A constant number has zeros.
    """

    kind: Literal["vector"] = "vector"
    mean: list[float]
    std: list[Annotated[float, Field(ge=0)]]

    def __len__(self) -> int:
        return len(self.mean)

    @classmethod
    def fit(cls, table: Table, alias: str, spec: Feature) -> FittedVector:
        """Fit a column of vectors."""
        rows = table.reader.rows(
            f"SELECT avg(x), stddev_pop(x) FROM (SELECT unnest({alias}) AS x, "
            f"generate_subscripts({alias}, 1) AS i FROM {table.sql}) GROUP BY i ORDER BY i"
        )
        return cls(mean=[mean for mean, _ in rows], std=[std for _, std in rows])

    def encode(self, table: Table, alias: str, spec: Feature) -> csr_array:
        """Return the standardised vectors."""
        row, numbers = table.reader.arrays(
            f"SELECT rowid AS row, unnest({alias}) AS x FROM {table.sql}"
        )
        values = np.zeros((table.size, len(self)), np.float32)
        if len(self):
            vectors = numbers.reshape(-1, len(self))
            rows = row[:: len(self)]
            values[rows] = _standardised(table, alias, rows, vectors, self.mean, self.std)
        return csr_array(values)


Fitted = Annotated[
    FittedNumber | FittedValues | FittedWords | FittedVector, Field(discriminator="kind")
]
FITTED: dict[str, Any] = {
    "number": FittedNumber, "date": FittedNumber, "category": FittedValues, "list": FittedValues,
    "text": FittedWords, "vector": FittedVector,
}  # fmt: skip


def request(column: str, spec: Feature) -> ColumnRequest:
    """Return how to read the column of a feature."""
    return ColumnRequest(column, spec.kind if spec.kind in ("list", "vector") else "text")


def fit(table: Table, alias: str, spec: Feature, run: Fitted | None) -> Fitted:
    """Check the cells of a column, and fit what turns it into features unless a `run` has."""
    if spec.kind in ("number", "date"):
        _check_numbers(table, alias, spec)
    elif spec.kind == "vector":
        _check_vectors(table, alias, None if run is None else len(run))
    fitted: Fitted = FITTED[spec.kind].fit(table, alias, spec) if run is None else run
    return fitted


def _check_numbers(table: Table, alias: str, spec: Feature) -> None:
    """Refuse a column in which more than a few cells are not finite numbers, or not dates."""
    ((filled, wrong, row, text),) = table.reader.rows(
        f"SELECT count({alias}), count(*) FILTER (wrong), min(rowid) FILTER (wrong), "
        f"arg_min({alias}, rowid) FILTER (wrong) FROM (SELECT rowid, {alias}, {alias} IS NOT NULL "
        f"AND {cell_sql(alias, spec)} IS NULL AS wrong FROM {table.sql})"
    )
    expected = (
        "finite number in float32"
        if spec.kind == "number"
        else f"date as {spec.format or '2004-11-12'}"
    )
    if wrong > JUNK * filled:
        raise HanmeError(f"{table.place(row, alias)}: {text[:60]!r} is not a {expected}")
    if wrong:
        table.reader.notes.append(
            f"{table.column_title(alias)}: {wrong:,} of {filled:,} cells count as empty, such as "
            f"{text[:60]!r}, which is not a {expected}"
        )


def _check_vectors(table: Table, alias: str, size: int | None) -> None:
    """Refuse vectors of another length than most have, or with anything but numbers."""
    if size is None:
        ((size,),) = table.reader.rows(f"SELECT mode(len({alias})) FROM {table.sql}")
    wrong = table.reader.rows(
        f"SELECT rowid, len({alias}) FROM {table.sql} WHERE len({alias}) <> $1 OR len(list_filter("
        f"{alias}, lambda x: coalesce(abs(x) <= {LARGEST}, false))) <> $1 ORDER BY rowid LIMIT 1",
        size,
    )
    for row, length in wrong:
        what = f"{length} numbers, but expected {size}"
        what = what if length != size else "not all are finite numbers in float32"
        raise HanmeError(f"{table.place(row, alias)}: {what}")
