"""A table that was read into the reader's database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hanme.data.tables.read.scan import Kind
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import quoted
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.data.tables.read.reader import Reader


@dataclass(frozen=True)
class Table:
    """A table in the reader's database, whose rows are in the order of the files.

    Messages count rows from 1, without the header of a CSV file; a line is a line of the file.
    """

    sql: str  # its name in the database, safe to put into SQL
    size: int  # the number of rows
    columns: Mapping[str, str]  # the name of each column in the file, by its name in the database
    kinds: Mapping[str, Kind]  # what each column was read as: a list only where the file has lists
    parts: Sequence[tuple[str, int]]  # the title of each file, and the number of rows before it
    source: ResolvedSource  # where it comes from
    reader: Reader  # whose database it is in
    kept: NDArray[np.int64] | None = None  # the row of the files of each row, if some were dropped

    def part(self, begin: int, end: int) -> Table:
        """Return the rows from `begin` to `end` as a table."""
        rows = f"SELECT t.rowid - {begin} AS rowid, t.* FROM {self.sql} AS t"
        return replace(
            self,
            sql=f"({rows} WHERE t.rowid >= {begin} AND t.rowid < {end})",
            size=end - begin,
            kept=np.arange(begin, end) if self.kept is None else self.kept[begin:end],
        )

    def file_row(self, row: int) -> tuple[int, int]:
        """Return the number of the file that a row is from, and the row's number there."""
        row = row if self.kept is None else int(self.kept[row])
        part = bisect_right([before for _, before in self.parts], row) - 1
        return part, row - self.parts[part][1]

    def place(self, row: int, alias: str | None = None) -> str:
        """Return ``films.csv row 3, column year`` for a row counted from 0 over all files."""
        part, number = self.file_row(row)
        place = f"{self.parts[part][0]} row {number + 1}"
        return f"{place}, column {self.columns[alias]}" if alias else place

    def column_title(self, alias: str) -> str:
        """Return ``films.csv, column year``; of several files, the first one's title."""
        return f"{self.parts[0][0]}, column {self.columns[alias]}"

    def numbers(self, alias: str, expected: str = "finite number") -> NDArray[np.float64]:
        """Return a column of numbers, NaN for an empty cell; refuse a cell that is not a number."""
        values = self.reader.execute(f"SELECT {alias} FROM {self.sql}", fetch="fetchnumpy")[alias]
        empty = np.ma.getmaskarray(values)
        numbers = np.ma.getdata(values).astype(np.float64)
        wrong = np.flatnonzero(~np.isfinite(numbers) & ~empty)
        if wrong.size:
            row = int(wrong[0])
            text = self.reader.original(self, row, alias)
            raise HanmeError(f"{self.place(row, alias)}: {text[:60]!r} is not a {expected}")
        return np.where(empty, np.nan, numbers)

    def items(self, alias: str, separator: str | None) -> str:
        """Return SQL for the list of values in a cell, without empty ones."""
        if self.kinds[alias] == "list":
            items = alias
        elif separator is None:
            items = f"[{alias}]"
        else:
            parts = f"string_split({alias}, {quoted(separator)})"
            items = f"list_transform({parts}, lambda item: trim(item))"
        return f"list_filter({items}, lambda item: item <> '')"

    def most_frequent(self, items: str, size: int, at_most: int | None = None) -> dict[str, int]:
        """Return the `size` items that occur in most rows, with the number of rows.

        Args:
            items: SQL for the list of items of a row.
            size: The maximum number of items.
            at_most: Leaves out items in more rows than this.
        """
        rows = self.reader.rows(
            f"SELECT item, count(*) AS n FROM (SELECT unnest(list_distinct({items})) AS item FROM "
            f"{self.sql}) GROUP BY item HAVING n <= ? ORDER BY n DESC, item LIMIT ?",
            self.size if at_most is None else at_most,
            size,
        )
        return dict(rows)

    def positions(
        self, items: str, values: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the row of every item that is one of `values`, and its position among these."""
        row, position = self.reader.arrays(
            f"SELECT row, position FROM (SELECT rowid AS row, unnest({items}) AS item FROM "
            f"{self.sql}) JOIN (SELECT unnest(CAST(? AS VARCHAR[])) AS item, unnest(range(?)) AS "
            "position) USING (item)",
            values,
            len(values),
        )
        return row, position
