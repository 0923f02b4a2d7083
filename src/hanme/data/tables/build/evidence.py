"""Decide how much one column, id or aggregate tells about the label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hanme.data.tables.read.reader import Table

WRONG = 0.01
"""A column gives the label away if it makes at most this share of the errors of chance.

On 30 public data sets, the strongest honest one makes 3.9 % (the album of a track, its genre).
"""

MIN_ERRORS = 20
"""Errors of chance that are needed to tell: with fewer, a column may fit by accident."""

MIN_NUMBERS = 50
"""The same for numbers, which can be divided in many ways."""

VALUES_PER_LABEL = 3
"""Maximum number of values per label of a copy of the label; more are groups of the same label."""

MIN_ROWS = 5
"""Mean number of rows that a value of a copy has; a rarer one is an accident."""

OFTEN = 0.5
"""Share of a label's rows in which a column that is known only afterwards is filled, or empty;
share of rows whose value another row must have to tell whether such rows have the same label."""

BINS = 100
"""Number of values, or of ranges of numbers, up to which their AUC is computed.

With more, rows with the same value are groups, whose labels are often alike for honest reasons.
"""

BIN_ROWS = 20
"""Minimum mean number of rows per value or range of numbers."""

MAX_ROWS = 500_000
"""Maximum number of labelled rows that are looked at: more change nothing."""


class Evidence(NamedTuple):
    """What a column tells about the label."""

    why: str | None  # why it gives the label away; None if it does not
    auc: float = 0.0  # the AUC that it reaches alone, the mean over labels by frequency


@dataclass(frozen=True)
class Labels:
    """The labels of the rows that may be looked at."""

    rows: NDArray[np.int64]  # the numbers of these rows in the table
    y: NDArray[np.int64]  # the number of each row's label, -1 for a row without
    names: list[str]

    @classmethod
    def read(cls, table: Table, label: str, hidden: NDArray[np.bool_] | None = None) -> Labels:
        """Read the labels of a table, but not those of `hidden` rows.

        Several labels of a row count as one.
        """
        known = f"SELECT DISTINCT CAST({label} AS VARCHAR) AS name FROM {table.sql}"
        names = f"{known} WHERE {label} IS NOT NULL ORDER BY name"
        (y,) = table.reader.arrays(
            f"SELECT n.y FROM {table.sql} AS t LEFT JOIN (SELECT name, row_number() OVER (ORDER BY "
            f"name) - 1 AS y FROM ({names})) AS n ON CAST(t.{label} AS VARCHAR) = n.name "
            "ORDER BY t.rowid",
            missing=-1,
        )
        rows = np.arange(len(y)) if hidden is None else np.flatnonzero((y < 0) | ~hidden)
        rows = thinned(rows, MAX_ROWS)
        return cls(rows, y[rows].astype(np.int64), [name for (name,) in table.reader.rows(names)])

    def some(self, positions: NDArray[np.int64]) -> Labels:
        """Return some of the rows, by their positions."""
        return Labels(self.rows[positions], self.y[positions], self.names)

    def thinned(self, size: int) -> Labels:
        """Return at most `size` of the rows, drawn at random."""
        return self.some(thinned(np.arange(len(self.y)), size))

    def labelled(self) -> Labels:
        """Return the rows with a label."""
        return self.some(np.flatnonzero(self.y >= 0))

    def evidence(
        self, cell: NDArray[np.int64], number: NDArray[np.float64], often: float = OFTEN
    ) -> Evidence:
        """Return what the cells of the rows tell.

        Args:
            cell: A number for each different value, -1 for an empty cell.
            number: The numbers that the cells hold, NaN for other cells.
            often: The share of a label's rows in which a column must be filled, or empty, if that
                alone gives the label away.
        """
        if why := self._by_empty_cells(cell >= 0, often):
            return Evidence(why)
        some = (self.y >= 0) & (cell >= 0)
        values = Values.of(self.y[some], cell[some], number[some])
        why = values.why() if values else None
        if why or values is None:
            return Evidence(why)
        known = self.y >= 0
        return Evidence(
            None, max(values.auc(), _auc(self.y[known], _ranges(cell[known], number[known])))
        )

    def _by_empty_cells(self, filled: NDArray[np.bool_], often: float) -> str | None:
        """Compare the cells that are filled with the labels of their rows."""
        known, labels = self.y >= 0, len(self.names)
        size, total = int(known.sum()), int(filled[known].sum())
        n, others = len(known) - size, int(filled[~known].sum())
        if n >= MIN_ERRORS and others <= WRONG * n and size and total >= OFTEN * size:
            return "filled only in rows with a label"
        rows = np.bincount(self.y[known], minlength=labels)
        rows_filled = np.bincount(self.y[known & filled], minlength=labels)
        forms = {"filled": (rows_filled, total), "empty": (rows - rows_filled, size - total)}
        for label in np.argsort(rows, kind="stable"):
            for what, (here, all_) in forms.items():
                chance, wrong = all_ * (1 - rows[label] / max(size, 1)), all_ - here[label]
                fits = wrong <= WRONG * chance and here[label] >= often * rows[label]
                if fits and chance >= MIN_ERRORS:
                    return f"{what} only where the label is {self.names[label][:40]}"
        return None


@dataclass(frozen=True)
class Values:
    """The rows with a label and a filled cell, counted by value and label."""

    y: NDArray[np.int64]
    cell: NDArray[np.int64]
    number: NDArray[np.float64]
    value: NDArray[np.int64]  # of each pair of a value and a label that occurs, the value
    label: NDArray[np.int64]  # and the label
    n: NDArray[np.int64]  # and the number of rows
    first: NDArray[np.int64]  # a row of each value

    @classmethod
    def of(
        cls, y: NDArray[np.int64], cell: NDArray[np.int64], number: NDArray[np.float64]
    ) -> Values | None:
        """Count rows; None if they have fewer than two labels."""
        labels = int(y.max(initial=-1)) + 1
        if len(y) - np.bincount(y).max(initial=0) < MIN_ERRORS:
            return None
        _, first, value = np.unique(cell, return_index=True, return_inverse=True)
        pair, n = np.unique(value * labels + y, return_counts=True)
        return cls(y, value, number, pair // labels, pair % labels, n, first)

    def why(self) -> str | None:
        """Predict the label by the value, by the segment of a number, by other rows of a value.

        In the order of the numbers, a wrong label makes two more segments of rows with one label.
        """
        rows, values, size = len(self.y), len(self.first), np.bincount(self.value, self.n)
        per_label = np.bincount(self.y)
        labels, chance = int((per_label > 0).sum()), rows - per_label.max()
        order = np.lexsort((self.n, self.value))  # the most frequent label of a value is the last
        last = np.append(self.value[order][1:] != self.value[order][:-1], True)
        best, top = self.label[order][last], self.n[order][last]
        wrong = rows - int(top.sum())
        few = values <= VALUES_PER_LABEL * labels and rows >= MIN_ROWS * values
        if few and wrong <= WRONG * chance:
            return "each of its values has only one label, so it may be a copy of the label"
        x = self.number[self.first]
        if np.isfinite(x).all() and chance >= MIN_NUMBERS:
            steps = 1 + int((np.diff(best[np.argsort(x, kind="stable")]) != 0).sum())
            if wrong + (steps - labels) / 2 <= WRONG * chance:
                return "its numbers tell the labels apart, so it may be known only afterwards"
        # The most frequent label of the other rows of the value: a value that occurs once has none.
        second = np.zeros(values)
        before = np.flatnonzero(~last)
        np.maximum.at(second, self.value[order][before], self.n[order][before])
        others = np.where(self.label == best[self.value], second[self.value], top[self.value])
        several = size[self.value] > 1
        n = np.where(several, self.n, 0)
        chance = n.sum() - np.bincount(self.label, n).max()
        wrong = int(n[others >= self.n - 1].sum())
        if n.sum() >= OFTEN * rows and chance >= MIN_NUMBERS and wrong <= WRONG * chance:
            return "rows with the same value have the same label"
        return None

    def auc(self) -> float:
        """Return the AUC of the value, or of the range of numbers, alone."""
        number = self.number if np.isfinite(self.number).all() else None
        return _auc(self.y, _ranges(self.cell, self.number), number)


def _ranges(cell: NDArray[np.int64], number: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return the values, or ranges of numbers; None if there are too many to have an AUC."""
    _, value = np.unique(cell, return_inverse=True)
    values = int(value.max(initial=-1)) + 1
    if values <= BINS and len(cell) >= BIN_ROWS * values:
        return value
    filled = cell >= 0
    if not np.isfinite(number[filled]).all():
        return None
    bins = min(BINS, int(filled.sum()) // BIN_ROWS)
    ranges = np.full(len(cell), BINS)
    from scipy.stats import rankdata  # predictions do not need it

    ranges[filled] = (rankdata(number[filled], "min") - 1) * bins // max(int(filled.sum()), 1)
    return ranges


def _auc(
    y: NDArray[np.int64],
    value: NDArray[np.int64] | None,
    number: NDArray[np.float64] | None = None,
) -> float:
    """Return the mean AUC of the labels, weighted by frequency; rare labels do not count.

    The score of a row is the label's share among rows with its value in the other half of the rows;
    or its number, if that is better.
    """
    rows = np.bincount(y)
    if value is None or len(rows) > BINS:
        return 0.0
    half = np.random.default_rng(0).integers(0, 2, len(y))
    mine, others, size = 2 * value + half, 2 * value + 1 - half, 2 * (int(value.max()) + 1)
    n, best = np.bincount(mine, minlength=size)[others] + 1, dict[int, float]()
    from scipy.stats import rankdata

    order = None if number is None else rankdata(number)
    for label in map(int, np.flatnonzero((rows >= MIN_ERRORS) & (len(y) - rows >= MIN_ERRORS))):
        of = y == label
        share = (np.bincount(mine, of, size)[others] + rows[label] / len(y)) / n
        best[label] = _rank_auc(rankdata(share), of)
        if order is not None:
            auc = _rank_auc(order, of)
            best[label] = max(best[label], auc, 1 - auc)
    return float(np.average(list(best.values()), weights=rows[list(best)])) if best else 0.0


def _rank_auc(rank: NDArray[np.float64], of: NDArray[np.bool_]) -> float:
    """Return the AUC of ranks from 1 for the rows `of` a label."""
    some = int(of.sum())
    return float((rank[of].sum() - some * (some + 1) / 2) / (some * (len(of) - some)))


def thinned(rows: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return at most `size` of some rows, drawn at random."""
    if len(rows) <= size:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, size, replace=False))
