"""Read tables with DuckDB, which sees only the files of ``graph.toml``."""

from __future__ import annotations

import glob
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import duckdb
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from hanme.data.tables.read.databases import copy_sqlite
from hanme.data.tables.read.formats import check_end, file_title, table_format, typed_rows
from hanme.data.tables.read.scan import Kind, Scan
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import check_query, identifier, quoted, translate
from hanme.errors import HanmeError, one_line

MEMORY = "1GB"
"""Memory that DuckDB may use before it uses the disk: it shares the machine with the graph."""


class ColumnRequest(NamedTuple):
    """A column to read: its name in the file, and what to read it as."""

    column: str
    kind: Kind = "text"


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

    def place(self, row: int, alias: str | None = None) -> str:
        """Return ``films.csv row 3, column year`` for a row counted from 0 over all files."""
        row = row if self.kept is None else int(self.kept[row])
        title, before = self.parts[bisect_right([n for _, n in self.parts], row) - 1]
        place = f"{title} row {row - before + 1}"
        return f"{place}, column {self.columns[alias]}" if alias else place

    def column_title(self, alias: str) -> str:
        """Return ``films.csv, column year``; of several files, the first one's title."""
        return f"{self.parts[0][0]}, column {self.columns[alias]}"

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

    def most_frequent(
        self, items: str, size: int, at_least: int = 1, at_most: int | None = None
    ) -> dict[str, int]:
        """Return the `size` items that occur in most rows, with the number of rows.

        `items` is SQL for the list of items of a row. Items in fewer than `at_least` or more than
        `at_most` rows are left out.
        """
        rows = self.reader.rows(
            f"SELECT item, count(*) AS n FROM (SELECT unnest(list_distinct({items})) AS item FROM "
            f"{self.sql}) GROUP BY item HAVING n BETWEEN ? AND ? ORDER BY n DESC, item LIMIT ?",
            at_least,
            self.size if at_most is None else at_most,
            size,
        )
        return dict(rows)

    def counts(self, items: str, values: list[str]) -> csr_array:
        """Count how often each row has each of `values`, ``[rows, values]``."""
        row, position = self.reader.arrays(
            f"SELECT row, position FROM (SELECT rowid AS row, unnest({items}) AS item FROM "
            f"{self.sql}) JOIN (SELECT unnest(CAST(? AS VARCHAR[])) AS item, unnest(range(?)) AS "
            "position) USING (item)",
            values,
            len(values),
        )
        place = (row.astype(np.int32), position.astype(np.int32))
        ones = np.ones(len(row), np.float32)
        matrix = csr_array(coo_array((ones, place), shape=(self.size, len(values))))
        matrix.sort_indices()
        return matrix


class Reader(ExitStack):
    """A DuckDB database in memory that can read the files of some sources and nothing else.

    No extension is loaded, nothing is written but DuckDB's own temporary files, and a query is a
    SELECT. The content of a table never becomes a part of SQL.
    """

    def __init__(
        self, sources: Iterable[ResolvedSource], folder: Path, work: Path | None = None
    ) -> None:
        super().__init__()
        self.folder, self.work, self._sources = folder, work, list(sources)
        attached = sorted({s.files[0] for s in self._sources if s.database == "duckdb"})
        self._attached = {path: f"hanme_db{i}" for i, path in enumerate(attached)}
        self._checked: set[Path] = set()
        self._copied: dict[object, str] = {}
        self._count = 0
        self.notes: list[str] = []  # what a user should know of how the tables were read

    def __enter__(self) -> Self:
        temporary = self.enter_context(tempfile.TemporaryDirectory(prefix="hanme-", dir=self.work))
        config = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
            "memory_limit": MEMORY,
            "temp_directory": temporary,
        }
        self.connection = self.enter_context(duckdb.connect(config=config))
        self.connection.execute("SET enable_progress_bar = false")  # it goes to standard output
        for path, name in self._attached.items():
            statement = f"ATTACH {quoted(str(path))} AS {name} (READ_ONLY)"
            self.execute(statement, title=str(path), form="a DuckDB file that can be opened")
        files = {str(path) for source in self._sources for path in source.files}
        allowed = ", ".join(map(quoted, sorted(files | set(map(glob.escape, files)))))
        self.connection.execute(f"SET allowed_paths = [{allowed}]")
        self.connection.execute("SET enable_external_access = false")
        self.connection.execute("SET lock_configuration = true")
        for source in self._sources:
            if source.frame is None:
                continue
            try:
                self.connection.register(source.title, source.frame)
            except (duckdb.Error, TypeError, ValueError) as error:
                raise HanmeError(
                    f"{source.title}: expected a table of pandas, polars or Arrow, but got "
                    f"{type(source.frame).__name__} ({one_line(error)})"
                ) from None
        return self

    def execute(
        self,
        sql: str,
        *values: object,
        fetch: str = "fetchall",
        title: str | None = None,
        form: str = "query",
    ) -> Any:
        """Run a statement; an error of DuckDB becomes one line about `title` or the folder."""
        try:
            return getattr(self.connection.execute(sql, list(values)), fetch)()
        except duckdb.Error as error:
            raise HanmeError(translate(str(error), title or str(self.folder), form)) from None

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the result of a statement, a tuple per row."""
        return list(self.execute(sql, *values))

    def arrays(
        self, sql: str, *values: object, missing: float = 0, title: str | None = None
    ) -> list[NDArray[Any]]:
        """Return the result of a statement, an array per column, with `missing` for NULL."""
        found = self.execute(sql, *values, fetch="fetchnumpy", title=title)
        return [np.ma.filled(values, missing) for values in found.values()]

    def columns(self, source: ResolvedSource) -> list[str]:
        """Return the names of a table's columns; of several files, those of the first."""
        return next(self._scans(source)).columns

    def _scans(self, source: ResolvedSource) -> Iterator[Scan]:
        """Yield a scan for each file of a source, or one for all of its rows."""
        for path in () if source.database else set(source.files) - self._checked:
            check_end(path, table_format(path, source.spec), file_title(path, self.folder))
            self._checked.add(path)
        if source.query is None and source.database is None and source.frame is None:
            for path in source.files:
                yield Scan(self, source, file_title(path, self.folder), path)
        else:
            yield Scan(self, source, source.title, relation=self._relation(source))

    def _relation(self, source: ResolvedSource) -> str:
        """Return SQL for rows that are not in a file; the result of a query is copied once."""
        database = self._attached.get(source.files[0]) if source.database else None
        if source.query is None and source.database != "sqlite":
            table = identifier(source.spec.table or "")
            return f"{database}.{table}" if database else table
        key = (source.spec.database, source.query or source.spec.table)
        if key in self._copied:
            return self._copied[key]
        copy = self._copied[key] = self.new_name()
        if source.database == "sqlite":
            copy_sqlite(self.connection, source, copy)
            return copy
        for name, files in source.named.items():
            rows = typed_rows(files, source.spec, source.title)
            view = f"CREATE OR REPLACE TEMP VIEW {identifier(name)} AS SELECT * FROM {rows}"
            self.execute(view, title=source.title)
        self.execute(f"USE {database or 'memory'}")
        try:
            query = (source.query or "").rstrip().rstrip(";")
            self.execute(f"CREATE TEMP TABLE {copy} AS ({query}\n)", title=source.title)
        finally:
            self.execute("USE memory")
        return copy

    def new_name(self) -> str:
        """Return an unused name for a table of the database."""
        self._count += 1
        return f"hanme_{self._count}"

    def read(self, source: ResolvedSource, columns: Mapping[str, ColumnRequest]) -> Table:
        """Read some columns of a table, in the order of its rows; ``columns`` names them anew.

        A list is read as one where the file has lists, else as text.
        """
        sql = self.new_name()
        parts: list[tuple[str, int]] = []
        kinds: dict[str, Kind] = {}
        size = 0
        for scan in self._scans(source):
            selected = []
            for alias, (column, kind) in columns.items():
                cell, kinds[alias] = scan.cell(column, kind)
                selected.append(f"{cell} AS {alias}")
            verb = f"CREATE TEMP TABLE {sql} AS" if not parts else f"INSERT INTO {sql}"
            ((more,),) = scan.execute(f"{verb} SELECT {', '.join(selected)} FROM {scan.rows}")
            parts.append((scan.title, size))
            size += more
        if not size:
            raise HanmeError(f"{source.title}: the table is empty")
        names = {alias: request.column for alias, request in columns.items()}
        return Table(sql, size, names, kinds, parts, source, self)

    def keep(self, table: Table, where: str) -> Table:
        """Return a table of some of the rows, which know where they were."""
        sql, some = self.new_name(), f"FROM {table.sql} WHERE {where} ORDER BY rowid"
        self.rows(f"CREATE TEMP TABLE {sql} AS SELECT * {some}")
        (kept,) = self.arrays(f"SELECT rowid AS row {some}")
        return replace(table, sql=sql, size=len(kept), kept=kept)

    def evaluate(self, table: Table, condition: str, where: str) -> NDArray[np.bool_]:
        """Return for which rows of a table a condition in SQL on the columns of the file is true.

        Columns have the names and, in CSV, the numbers of the file. Messages are about ``where``.
        """
        expected, parts = "one condition, such as year >= 2015", []
        for scan in self._scans(table.source):
            statement = f"SELECT CAST(({condition}\n) AS BOOLEAN) FROM {scan.typed_rows}"
            check_query(statement, where, expected)
            parts.append(self.arrays(statement, title=where))
        fulfilled = np.concatenate([part for (part, *_) in parts]).astype(np.bool_)
        fulfilled = fulfilled if table.kept is None else fulfilled[table.kept]
        if len(fulfilled) != table.size or any(len(part) > 1 for part in parts):
            raise HanmeError(f"{where}: it must be {expected}")
        return fulfilled
