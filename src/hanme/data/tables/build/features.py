"""Turn columns into features.

What is learnt of a column (a mean, values, words) comes from all its rows, labelled or not, and
never from labels. It is plain JSON and stays with a run, so that rows that come later get features
of the same kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import coo_array, csr_array, diags_array, hstack

from hanme.common.options import Closed
from hanme.data.tables.read.reader import ColumnRequest, Table, column
from hanme.data.tables.schema.features import (
    CategorySpec,
    DateSpec,
    FeatureSpec,
    NumberSpec,
    TextSpec,
    VectorSpec,
)
from hanme.errors import HanmeError

NUMBERS = 1 << 22
"""How many numbers of vectors are read at a time."""

ROWS_PER_KNOT, FEWEST_KNOTS, MOST_KNOTS = 100, 5, 16
"""A column of numbers has a knot for each so many: at least so many, or none, and at most so many.

On tables of fewer than 500 rows the gain on validation rows was within the noise.
"""

COMMON = 0.5
"""TF-IDF leaves out words that a larger share of the texts has: they say little."""


class FittedNumber(Closed):
    """The mean and standard deviation of a column, and what else its numbers become features by.

    Each knot has a feature that is 1 there and falls to 0 at the knots beside it.
    """

    kind: Literal["number", "date"] = "number"
    mean: float
    std: float = Field(gt=0)
    knots: list[float] = Field(default=[])  # in ascending order
    gaps: bool = False  # whether an empty cell has a feature


class FittedValues(Closed):
    """The values of a column of categories or lists, a feature each."""

    kind: Literal["category", "list"]
    values: list[str]


class FittedWords(Closed):
    """The words of a column of texts, a feature each, and the weight of each word."""

    kind: Literal["tfidf"] = "tfidf"
    words: list[str]
    idf: list[float]


class FittedVector(Closed):
    """The mean and standard deviation of each place of a column of vectors."""

    kind: Literal["vector"] = "vector"
    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]


class FittedHash(Closed):
    """The number of buckets; nothing is learnt from the words."""

    kind: Literal["hash"] = "hash"
    size: int = Field(ge=1)


Fitted = Annotated[
    FittedNumber | FittedValues | FittedWords | FittedHash | FittedVector,
    Field(discriminator="kind"),
]


def wanted(column: str, spec: FeatureSpec) -> ColumnRequest:
    """Return what to read a feature's column as."""
    if isinstance(spec, CategorySpec | TextSpec):
        return ColumnRequest(column, "text")
    return ColumnRequest(column, spec.kind, spec.format if isinstance(spec, DateSpec) else None)


def fit(table: Table, alias: str, spec: FeatureSpec) -> Fitted:
    """Learn what a column needs to become features."""
    match spec:
        case NumberSpec():
            return _fit_number(numbers(table, alias), table, alias)
        case DateSpec():
            dates = numbers(table, alias, "date" + f" as {spec.format}" * bool(spec.format))
            return _fit_number(dates, table, alias).model_copy(update={"kind": "date"})
        case VectorSpec():
            return fit_vectors(table, alias)
        case TextSpec(method="hash"):
            return FittedHash(size=spec.size)
        case TextSpec():
            return _fit_words(table, alias, spec.size)
    items = table.items(alias, getattr(spec, "separator", None))
    values = most_frequent(table, items, spec.size)
    return FittedValues(kind=spec.kind, values=list(values))


def width(fitted: Fitted) -> int:
    """Return how many features a column becomes."""
    match fitted:
        case FittedNumber():
            return 1 + len(fitted.knots) + fitted.gaps
        case FittedValues():
            return len(fitted.values)
        case FittedWords():
            return len(fitted.words)
        case FittedHash():
            return fitted.size
        case FittedVector():
            return len(fitted.mean)


def encode(table: Table, alias: str, spec: FeatureSpec, fitted: Fitted) -> csr_array:
    """Return the rows of a column as features, ``[rows, width]``."""
    match fitted:
        case FittedNumber():
            what = "date" if fitted.kind == "date" else "finite number"
            return _scaled(numbers(table, alias, what), fitted, table, alias)
        case FittedValues():
            items = table.items(alias, getattr(spec, "separator", None))
            matrix = _counts(table, items, fitted.values)
            matrix.data[:] = 1
            return matrix
        case FittedWords():
            matrix = _counts(table, _words(alias), fitted.words)
            return _unit_rows(matrix @ diags_array(np.asarray(fitted.idf, np.float32)))
        case FittedHash():
            found = table.reader.arrays(
                "SELECT row, CAST(md5_number_lower(item) % ? AS INTEGER) AS place "
                f"FROM ({_unnested(table, _words(alias))})",
                fitted.size,
            )
            return _unit_rows(_matrix(found, table.size, fitted.size))
        case FittedVector():
            return encode_vectors(table, alias, fitted)


def numbers(table: Table, alias: str, what: str = "finite number") -> NDArray[np.float64]:
    """Return a column of numbers, NaN for an empty cell; a cell that is no number is refused."""
    values = table.reader.arrays(f"SELECT {alias} FROM {table.sql}")[alias]
    given = np.ma.getdata(values).astype(np.float64)
    empty = np.ma.getmaskarray(values)
    wrong = np.flatnonzero(~np.isfinite(given) & ~empty)
    if wrong.size:
        row = int(wrong[0])
        text = table.reader.original(table, row, alias)
        raise HanmeError(f"{table.place(row, alias)}: {text[:60]!r} is not a {what}")
    return np.where(empty, np.nan, given)


def most_frequent(
    table: Table, items: str, size: int, at_most: int | None = None
) -> dict[str, int]:
    """Return the `size` items that most rows have, with the number of rows.

    Items that more than `at_most` rows have are left out.
    """
    found = table.reader.rows(
        f"SELECT item, count(*) AS n FROM ({_unnested(table, f'list_distinct({items})')}) "
        "GROUP BY item HAVING n <= ? ORDER BY n DESC, item LIMIT ?",
        table.size if at_most is None else at_most,
        size,
    )
    return dict(found)


def placed(table: Table, items: str, values: list[str]) -> dict[str, Any]:
    """Return row and place in `values` of every item that is one of them."""
    return table.reader.arrays(
        f"SELECT row, place FROM ({_unnested(table, items)}) JOIN (SELECT unnest(CAST(? AS "
        "VARCHAR[])) AS item, unnest(range(?)) AS place) USING (item)",
        values,
        len(values),
    )


def _words(alias: str) -> str:
    return rf"regexp_extract_all(lower({alias}), '[\p{{L}}\p{{M}}\p{{N}}]+')"


def _unnested(table: Table, items: str) -> str:
    return f"SELECT rowid AS row, unnest({items}) AS item FROM {table.sql}"


def _fit_number(given: NDArray[np.float64], table: Table, alias: str) -> FittedNumber:
    known = given[~np.isnan(given)]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = (float(known.mean()), float(known.std())) if known.size else (0.0, 1.0)
    if not np.isfinite([mean, std]).all():
        raise HanmeError(f"{table.column_title(alias)}: its numbers are too large")
    gaps = FEWEST_KNOTS * ROWS_PER_KNOT <= known.size < given.size
    return FittedNumber(mean=mean, std=std or 1.0, knots=_knots(known), gaps=gaps)


def _knots(known: NDArray[np.float64]) -> list[float]:
    """Return numbers of the column, as many of the others between each two: more of more rows."""
    count = min(MOST_KNOTS, len(known) // ROWS_PER_KNOT)
    if count < FEWEST_KNOTS:
        return []
    found = np.unique(np.quantile(known, np.linspace(0, 1, count), method="nearest"))
    return list(map(float, found)) if len(found) > 2 else []  # a line says all of two


def _scaled(
    given: NDArray[np.float64], fitted: FittedNumber, table: Table, alias: str
) -> csr_array:
    """Standardise numbers; an empty cell counts as the mean, which becomes 0.

    The features of knots and of empty cells follow.
    """
    with np.errstate(over="ignore"):
        values = ((given - fitted.mean) / fitted.std).astype(np.float32)
    values[np.isnan(given)] = 0
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        row = int(wrong[0])
        raise HanmeError(
            f"{table.place(row, alias)}: {given[row]:g} is too far from the mean "
            f"{fitted.mean:g} to be a feature"
        )
    blocks = [csr_array(values[:, None])]
    if fitted.knots:
        blocks.append(_hats(given, np.asarray(fitted.knots)))
    if fitted.gaps:
        blocks.append(csr_array(np.isnan(given)[:, None].astype(np.float32)))
    return csr_array(hstack(blocks, format="csr", dtype=np.float32))


def _hats(given: NDArray[np.float64], knots: NDArray[np.float64]) -> csr_array:
    """Return how near a number is to each of the two knots around it, ``[rows, knots]``."""
    row = np.flatnonzero(~np.isnan(given))
    value = np.clip(given[row], knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, value, "right") - 1, 0, len(knots) - 2)
    share = (value - knots[left]) / (knots[left + 1] - knots[left])
    data = np.concatenate([1 - share, share]).astype(np.float32)
    place = (np.tile(row, 2), np.concatenate([left, left + 1]))
    found = csr_array((data, place), shape=(len(given), len(knots)))
    found.eliminate_zeros()
    return found


def _fit_words(table: Table, alias: str, size: int) -> FittedWords:
    ((texts,),) = table.reader.rows(f"SELECT count({alias}) FROM {table.sql}")
    at_most = max(1, int(COMMON * texts))
    found = most_frequent(table, _words(alias), size, at_most)
    idf = [float(np.log((1 + texts) / (1 + n)) + 1) for n in found.values()]
    return FittedWords(words=list(found), idf=idf)


def fit_vectors(table: Table, alias: str) -> FittedVector:
    """Learn the mean and standard deviation of each place of a column of vectors."""
    found = table.reader.rows(
        f"SELECT len({alias}) AS size, min(rowid) FROM {table.sql} WHERE {alias} IS NOT NULL "
        "GROUP BY size ORDER BY count(*) DESC, size LIMIT 1"
    )
    if not found:
        return FittedVector(mean=[], std=[])
    size = found[0][0]
    count, mean, square = 0, np.zeros(size), np.zeros(size)
    for begin in range(0, table.size, max(1, NUMBERS // max(1, size))):
        end = min(table.size, begin + max(1, NUMBERS // max(1, size)))
        given = _vectors(table.part(begin, end), alias, size)
        given = given[~np.isnan(given).any(axis=1)]
        if not len(given):
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            # The mean and the sum of squares of both parts together, from those of each.
            change, share = given.mean(axis=0) - mean, len(given) / (count + len(given))
            square += given.var(axis=0) * len(given) + change**2 * count * share
            mean, count = mean + change * share, count + len(given)
    std = np.sqrt(square / max(1, count))
    if not np.isfinite([mean, std]).all():
        raise HanmeError(f"{table.column_title(alias)}: its numbers are too large")
    return FittedVector(mean=mean.tolist(), std=np.where(std > 0, std, 1.0).tolist())


def encode_vectors(table: Table, alias: str, fitted: FittedVector) -> csr_array:
    """Standardise vectors; an empty cell counts as the mean."""
    given = _vectors(table, alias, len(fitted.mean))
    values = (given - np.asarray(fitted.mean)) / np.asarray(fitted.std)
    return csr_array(np.nan_to_num(values).astype(np.float32))


def _vectors(table: Table, alias: str, size: int) -> NDArray[np.float64]:
    """Return a column of vectors, ``[rows, size]``; a row of NaN for an empty cell."""
    given = np.full((table.size, size), np.nan)
    rows = table.reader.arrays(
        f"SELECT rowid AS row, len({alias}) AS size FROM {table.sql} WHERE {alias} IS NOT NULL"
    )
    values = table.reader.arrays(f"SELECT unnest({alias}) AS value FROM {table.sql}")["value"]
    known = np.isfinite(np.ma.getdata(values)) & ~np.ma.getmaskarray(values)
    if (column(rows, "size", 0) != size).any() or not known.all():
        _refuse_vector(table, alias, size)
    given[column(rows, "row", 0)] = np.ma.getdata(values).reshape(-1, size)
    return given


def _refuse_vector(table: Table, alias: str, size: int) -> None:
    ((row, length),) = table.reader.rows(
        f"SELECT rowid, len({alias}) FROM {table.sql} WHERE {alias} IS NOT NULL AND "
        f"(len({alias}) <> ? OR len(list_filter({alias}, lambda x: coalesce(isfinite(x), false))) "
        f"<> len({alias})) ORDER BY rowid LIMIT 1",
        size,
    )
    what = f"{length} numbers, but expected {size}" if length != size else "not all are numbers"
    raise HanmeError(f"{table.place(row, alias)}: {what}")


def _counts(table: Table, items: str, values: list[str]) -> csr_array:
    return _matrix(placed(table, items, values), table.size, len(values))


def _matrix(found: Mapping[str, NDArray[Any]], rows: int, width: int) -> csr_array:
    """Count how often each row has each item; DuckDB finds them in any order."""
    row, place = (column(found, name, 0).astype(np.int32) for name in ("row", "place"))
    ones = np.ones(len(row), np.float32)
    matrix = coo_array((ones, (row, place)), shape=(rows, width)).tocsr()
    matrix.sort_indices()
    return csr_array(matrix)


def _unit_rows(matrix: csr_array) -> csr_array:
    """Scale rows to length 1; a row of zeros stays one."""
    from sklearn.preprocessing import normalize  # which takes longer to import than a cache to open

    return csr_array(normalize(matrix, copy=False)) if matrix.nnz else matrix
