"""Read tables with DuckDB, which sees only the files of ``graph.toml``."""

from __future__ import annotations

import glob
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from hanme.data.tables.read.databases import attach, copy_sqlite
from hanme.data.tables.read.formats import check_end, file_title, table_format
from hanme.data.tables.read.scan import Kind, Scan
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import (
    check_query,
    identifier,
    interruptible,
    quoted,
    translate,
)
from hanme.errors import HanmeError, one_line

MEMORY = "1GB"
"""Memory that DuckDB may use before it uses the disk: it shares the machine with the graph."""


class ColumnRequest(NamedTuple):
    """A column to read: its name in the file, what to read it as, and the format of its dates."""

    column: str
    kind: Kind = "text"
    date: str | None = None


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


class Reader(ExitStack):
    """A DuckDB database in memory that can read the files of some sources and nothing else.

    No extension is loaded, nothing is written but DuckDB's own temporary files, and a query is a
    SELECT. The content of a table never becomes a part of SQL.
    """

    def __init__(
        self, sources: Iterable[ResolvedSource], folder: Path, work: Path | None = None
    ) -> None:
        super().__init__()
        self.folder, self.work = folder, work
        sources = list(sources)
        files = {str(path) for source in sources for path in source.files}
        self._files = sorted(files | {glob.escape(path) for path in files})
        self._frames = {s.title: s.frame for s in sources if s.frame is not None}
        attached = sorted({s.files[0] for s in sources if s.database == "duckdb"})
        self._attached = {path: f"hanme_db{i}" for i, path in enumerate(attached)}
        self._checked: set[Path] = set()
        self._copied: dict[tuple[Path, str], str] = {}
        self._count = 0
        self.notes: list[str] = []  # what a user should know of how the tables were read

    def __enter__(self) -> Self:
        temporary = self.enter_context(tempfile.TemporaryDirectory(prefix="hanme-", dir=self.work))
        config = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
            "memory_limit": MEMORY,
            "temp_directory": temporary,
        }
        self.connection = self.enter_context(duckdb.connect(config=config))
        self.connection.execute("SET enable_progress_bar = false")  # it goes to standard output
        for path, name in self._attached.items():
            attach(self.connection, path, name)
        allowed = ", ".join(quoted(path) for path in self._files)
        for statement in (
            f"SET allowed_paths = [{allowed}]",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self.connection.execute(statement)
        for name, frame in self._frames.items():
            self._register(name, frame)
        return self

    def _register(self, name: str, frame: Any) -> None:
        try:
            self.connection.register(name, frame)
        except (duckdb.Error, TypeError, ValueError) as error:
            raise HanmeError(
                f"{name}: expected a table of pandas, polars or Arrow, but got "
                f"{type(frame).__name__} ({one_line(error)})"
            ) from None

    def execute(
        self,
        sql: str,
        *values: object,
        fetch: str = "fetchall",
        title: str | None = None,
        form: str = "query",
        schema: str | None = None,
    ) -> Any:
        """Run a statement, in the tables of an attached database if a `schema` is named.

        An error of DuckDB becomes one line about `title` (default: the folder).
        """
        try:
            if schema is not None:
                self.connection.execute(f"USE {schema}")
            return interruptible(
                self.connection,
                lambda: getattr(self.connection.execute(sql, list(values)), fetch)(),
            )
        except duckdb.Error as error:
            raise HanmeError(translate(str(error), title or str(self.folder), form)) from None
        finally:
            if schema is not None:
                self.connection.execute("USE memory")

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the result of a statement, a tuple per row."""
        return list(self.execute(sql, *values))

    def arrays(self, sql: str, *values: object, missing: float = 0) -> list[NDArray[Any]]:
        """Return the result of a statement, an array per column, with `missing` for NULL."""
        return _filled(self.execute(sql, *values, fetch="fetchnumpy"), missing)

    def columns(self, source: ResolvedSource) -> list[str]:
        """Return the names of a table's columns; of several files, those of the first."""
        return next(self._scans(source)).columns

    def _scans(self, source: ResolvedSource) -> Iterator[Scan]:
        """Yield a scan for each file of a source, or one for all of its rows."""
        for path in () if source.database else set(source.files) - self._checked:
            check_end(path, table_format(path, source.spec), file_title(path, self.folder))
            self._checked.add(path)
        relation, schema = "", None
        if source.frame is not None:
            relation = identifier(source.title)
        elif source.database == "sqlite":
            key = (source.files[0], source.query or source.spec.table or "")
            if key not in self._copied:
                self._copied[key] = self.new_name()
                copy_sqlite(self.connection, source, self._copied[key])
            relation = self._copied[key]
        elif source.database == "duckdb":
            schema = self._attached[source.files[0]]
            relation = "" if source.query else f"{schema}.{identifier(source.spec.table or '')}"
        elif source.query is None:
            for path in source.files:
                yield Scan(self, source, file_title(path, self.folder), path)
            return
        yield Scan(self, source, source.title, relation=relation, schema=schema)

    def new_name(self) -> str:
        """Return an unused name for a table of the database."""
        self._count += 1
        return f"hanme_{self._count}"

    def read(self, source: ResolvedSource, columns: Mapping[str, ColumnRequest]) -> Table:
        """Read some columns of a table, in the order of its rows; ``columns`` names them anew.

        Text that should be a number but is not becomes NaN. A list is read as one where the file
        has lists, else as text.
        """
        sql = self.new_name()
        parts: list[tuple[str, int]] = []
        kinds: dict[str, Kind] = {}
        size = 0
        for scan in self._scans(source):
            selected = []
            for alias, (column, kind, date) in columns.items():
                expression, read_as = scan.expression(column, kind, date)
                if kinds.setdefault(alias, read_as) != read_as:
                    raise HanmeError(
                        f"{scan.title}: column {column} is a list in some files of {source.title}, "
                        "but not in all"
                    )
                selected.append(f"{expression} AS {alias}")
            verb = f"CREATE TEMP TABLE {sql} AS" if not parts else f"INSERT INTO {sql}"
            rows = scan.sql(request.column for request in columns.values())
            ((more,),) = scan.execute(f"{verb} SELECT {', '.join(selected)} FROM {rows}")
            parts.append((scan.title, size))
            size += more
        if not size:
            raise HanmeError(f"{source.title}: the table is empty")
        names = {alias: request.column for alias, request in columns.items()}
        return Table(sql, size, names, kinds, parts, source, self)

    def keep(self, table: Table, where: str) -> Table:
        """Return a table of some of the rows, which know where they were."""
        sql = self.new_name()
        self.rows(
            f"CREATE TEMP TABLE {sql} AS SELECT * FROM {table.sql} WHERE {where} ORDER BY rowid"
        )
        (kept,) = self.arrays(f"SELECT rowid AS row FROM {table.sql} WHERE {where} ORDER BY rowid")
        return replace(table, sql=sql, size=len(kept), kept=kept)

    def numbered(self, table: Table) -> Table:
        """Return a table with a column of ids, which are the numbers of the rows from 1 on."""
        sql = self.new_name()
        number = "CAST(rowid + 1 AS VARCHAR) AS id"
        self.rows(f"CREATE TEMP TABLE {sql} AS SELECT *, {number} FROM {table.sql} ORDER BY rowid")
        self.rows(f"DROP TABLE {table.sql}")
        return replace(table, sql=sql)

    def evaluate(self, table: Table, condition: str, where: str) -> NDArray[np.bool_]:
        """Return for which rows of a table a condition in SQL on the columns of the file is true.

        Columns have the names and, in CSV, the numbers of the file. Messages are about ``where``.
        """
        expected, found = "one condition, such as year >= 2015", []
        for scan in self._scans(table.source):
            statement = f"SELECT CAST(({condition}\n) AS BOOLEAN) AS part FROM {scan.typed()}"
            check_query(statement, where, expected)
            answer = scan.execute(statement, where, fetch="fetchnumpy")
            if list(answer) != ["part"]:
                raise HanmeError(f"{where}: it must be {expected}")
            found += _filled(answer, 0)
        part = np.concatenate(found).astype(np.bool_)
        part = part if table.kept is None else part[table.kept]
        if len(part) != table.size:
            raise HanmeError(f"{where}: expected a value for each row of {table.source.title}")
        return part

    def original(self, table: Table, row: int, alias: str) -> str:
        """Return the text of a cell as the file has it, for a message."""
        part, number = table.file_row(row)
        scan = next(islice(self._scans(table.source), part, None))
        expression, _ = scan.expression(table.columns[alias], "text")
        select = f"SELECT {expression} FROM {scan.sql([table.columns[alias]])}"
        return str(scan.execute(f"{select} LIMIT 1 OFFSET {number}")[0][0])


def _filled(arrays: Mapping[str, NDArray[Any]], missing: float) -> list[NDArray[Any]]:
    return [
        values.filled(missing) if isinstance(values, np.ma.MaskedArray) else values
        for values in arrays.values()
    ]
