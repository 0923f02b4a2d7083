"""Read a user's tables with DuckDB.

Messages count rows from 1, without the header of a CSV file; a line is a line of the file.
"""

from __future__ import annotations

import glob
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from hanme.data.tables.read.databases import attach, copy_sqlite
from hanme.data.tables.read.interrupt import stoppable
from hanme.data.tables.read.scan import Kind, Rows, identifier
from hanme.data.tables.read.sources import (
    ResolvedSource,
    check_end,
    check_query,
    file_title,
    quoted,
    table_format,
    translate,
)
from hanme.errors import HanmeError, one_line

MEMORY = "1GB"
"""How much memory DuckDB may take before it uses the disk."""


class ColumnRequest(NamedTuple):
    """A column to read: the user's name of it, what to read it as, and how dates are written."""

    column: str
    kind: Kind = "text"
    date: str | None = None


@dataclass(frozen=True)
class Table:
    """A table in the reader's database, whose rows are in the order of the files."""

    sql: str  # its name in the database, safe to put into SQL
    size: int  # the number of rows
    columns: Mapping[str, str]  # the user's name of each column, by its name in the database
    kinds: Mapping[str, Kind]  # what each column was read as: a list only where the file has lists
    parts: Sequence[tuple[str, int]]  # the title of each file, and the number of rows before it
    source: ResolvedSource  # where it comes from
    reader: Reader  # whose database it is in
    # the number of each row in the files, where some rows were dropped
    kept: NDArray[np.int64] | None = None

    def file_row(self, row: int) -> tuple[int, int]:
        """Return the number of the file that a row is from, and the row's number there."""
        row = row if self.kept is None else int(self.kept[row])
        part = bisect_right([before for _, before in self.parts], row) - 1
        return part, row - self.parts[part][1]

    def part(self, begin: int, end: int) -> Table:
        """Return some of its rows as a table."""
        rows = f"SELECT t.rowid - {begin} AS rowid, t.* FROM {self.sql} AS t"
        kept = np.arange(begin, end) if self.kept is None else self.kept[begin:end]
        return replace(
            self,
            sql=f"({rows} WHERE t.rowid >= {begin} AND t.rowid < {end})",
            size=end - begin,
            kept=kept,
        )

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

    def place(self, row: int, alias: str | None = None) -> str:
        """Return ``films.csv row 3, column year`` for a row counted from 0 over all files."""
        part, number = self.file_row(row)
        place = f"{self.parts[part][0]} row {number + 1}"
        return f"{place}, column {self.columns[alias]}" if alias else place

    def column_title(self, alias: str) -> str:
        """Return ``films.csv, column year``; of several files, the first one's title."""
        return f"{self.parts[0][0]}, column {self.columns[alias]}"


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

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn an error of DuckDB, such as too little memory, into one line."""
        try:
            yield
        except duckdb.Error as error:
            raise HanmeError(translate(str(error), str(self.folder), "query")) from None

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the result of a statement, a tuple per row."""
        with self._translated():
            found: list[tuple[Any, ...]] = stoppable(
                self.connection, lambda: self.connection.execute(sql, list(values)).fetchall()
            )
        return found

    def arrays(self, sql: str, *values: object) -> dict[str, NDArray[Any]]:
        """Return the result of a statement, an array per column."""
        with self._translated():
            found: dict[str, NDArray[Any]] = stoppable(
                self.connection, lambda: self.connection.execute(sql, list(values)).fetchnumpy()
            )
        return found

    def columns(self, source: ResolvedSource) -> list[str]:
        """Return the names of a table's columns; of several files, those of the first."""
        return next(self._parts(source)).columns

    def _check(self, source: ResolvedSource) -> None:
        for path in () if source.database else set(source.files) - self._checked:
            check_end(path, table_format(path, source.spec), file_title(path, self.folder))
            self._checked.add(path)

    def _parts(self, source: ResolvedSource) -> Iterator[Rows]:
        self._check(source)
        if source.frame is not None:
            yield Rows(self.connection, source, None, source.title, identifier(source.title))
        elif source.database == "sqlite":
            key = (source.files[0], source.query or source.spec.table or "")
            if key not in self._copied:
                self._copied[key] = self._new_name()
                copy_sqlite(self.connection, source, self._copied[key])
            yield Rows(self.connection, source, None, source.title, self._copied[key])
        elif source.database == "duckdb":
            name = self._attached[source.files[0]]
            at = "" if source.query else f"{name}.{identifier(source.spec.table or '')}"
            yield Rows(self.connection, source, None, source.title, at, name)
        elif source.query is not None:
            yield Rows(self.connection, source, None, source.title)
        else:
            for path in source.files:
                yield Rows(self.connection, source, path, file_title(path, self.folder))

    def count_up(self) -> int:
        """Return a number that no table of the database has in its name."""
        self._count += 1
        return self._count

    def _new_name(self) -> str:
        return f"hanme_{self.count_up()}"

    def read(self, source: ResolvedSource, columns: Mapping[str, ColumnRequest]) -> Table:
        """Read some columns of a table, in the order of its rows; ``columns`` names them anew.

        Text that should be a number but is not becomes NaN. A list is read as one where the file
        has lists, else as text.
        """
        sql = self._new_name()
        parts: list[tuple[str, int]] = []
        kinds: dict[str, Kind] = {}
        size = 0
        for rows in self._parts(source):
            selected = []
            for alias, (column, kind, date) in columns.items():
                expression, found = rows.expression(column, kind, date)
                if kinds.setdefault(alias, found) != found:
                    raise HanmeError(
                        f"{rows.title}: column {column} is a list in some files of {source.title}, "
                        "but not in all"
                    )
                selected.append(f"{expression} AS {alias}")
            verb = f"CREATE TEMP TABLE {sql} AS" if not parts else f"INSERT INTO {sql}"
            read = rows.sql(wanted.column for wanted in columns.values())
            ((more,),) = rows.execute(f"{verb} SELECT {', '.join(selected)} FROM {read}")
            parts.append((rows.title, size))
            size += more
        if not size:
            raise HanmeError(f"{source.title}: the table is empty")
        names = {alias: wanted.column for alias, wanted in columns.items()}
        return Table(sql, size, names, kinds, parts, source, self)

    def keep(self, table: Table, where: str) -> Table:
        """Return a table of some of the rows, which know where they were."""
        sql = self._new_name()
        self.rows(
            f"CREATE TEMP TABLE {sql} AS SELECT * FROM {table.sql} WHERE {where} ORDER BY rowid"
        )
        kept = self.arrays(f"SELECT rowid AS row FROM {table.sql} WHERE {where} ORDER BY rowid")
        return replace(table, sql=sql, size=len(kept["row"]), kept=column(kept, "row", 0))

    def numbered(self, table: Table) -> Table:
        """Return a table with a column of ids, which are the numbers of the rows from 1 on."""
        sql = self._new_name()
        number = "CAST(rowid + 1 AS VARCHAR) AS id"
        self.rows(f"CREATE TEMP TABLE {sql} AS SELECT *, {number} FROM {table.sql} ORDER BY rowid")
        self.rows(f"DROP TABLE {table.sql}")
        return replace(table, sql=sql)

    def true(self, table: Table, condition: str, where: str) -> NDArray[np.bool_]:
        """Return for which rows of a table a condition in SQL on the file's columns is true.

        Columns have the names and, in CSV, the numbers of the file. Messages are about ``where``.
        """
        found = []
        for rows in self._parts(table.source):
            statement = f"SELECT CAST(({condition}\n) AS BOOLEAN) AS part FROM {rows.typed()}"
            check_query(statement, where, "one condition, such as year >= 2015")
            answer: dict[str, NDArray[Any]] = rows.execute(statement, where, arrays=True)
            if list(answer) != ["part"]:
                raise HanmeError(f"{where}: it must be one condition, such as year >= 2015")
            found.append(column(answer, "part", 0).astype(np.bool_))
        part = np.concatenate(found)
        part = part if table.kept is None else part[table.kept]
        if len(part) != table.size:
            raise HanmeError(f"{where}: expected a value for each row of {table.source.title}")
        return part

    def original(self, table: Table, row: int, alias: str) -> str:
        """Return the text of a cell as the file has it, for a message."""
        part, number = table.file_row(row)
        rows = next(islice(self._parts(table.source), part, None))
        expression, _ = rows.expression(table.columns[alias], "text")
        select = f"SELECT {expression} FROM {rows.sql([table.columns[alias]])}"
        return str(rows.execute(f"{select} LIMIT 1 OFFSET {number}")[0][0])


def column(arrays: Mapping[str, NDArray[Any]], name: str, missing: float) -> NDArray[Any]:
    """Return a column of :meth:`Reader.arrays` with a value in place of NULL."""
    values = arrays[name]
    return values.filled(missing) if isinstance(values, np.ma.MaskedArray) else values
