"""Read a user's tables with DuckDB.

Messages count rows from 1, without the header of a CSV file; a line is a line of the file.
"""

from __future__ import annotations

import csv
import glob
import re
import tempfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from hanme.datasets.tables.config import Source
from hanme.datasets.tables.sources import (
    ResolvedSource,
    file_title,
    open_text,
    quoted,
    separator,
    table_format,
    translate,
)
from hanme.errors import HanmeError

MEMORY = "1GB"
"""How much memory DuckDB may take before it uses the disk."""

Kind = Literal["text", "number", "list"]

_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*\))")


@dataclass(frozen=True)
class Table:
    """A table in the reader's database, whose rows are in the order of the files.

    Args:
        sql: Its name in the database, safe to put into SQL.
        size: The number of rows.
        columns: The user's name of each column, by its name in the database.
        kinds: What each column was read as: a list only where the file has lists.
        parts: The title of each file, and the number of rows before it.
        source: Where it comes from.
    """

    sql: str
    size: int
    columns: Mapping[str, str]
    kinds: Mapping[str, Kind]
    parts: Sequence[tuple[str, int]]
    source: ResolvedSource

    def part(self, row: int) -> int:
        """Return the number of the file that a row is from."""
        return bisect_right([before for _, before in self.parts], row) - 1

    def place(self, row: int, alias: str | None = None) -> str:
        """Return ``films.csv row 3, column year`` for a row counted from 0 over all files."""
        title, before = self.parts[self.part(row)]
        place = f"{title} row {row - before + 1}"
        return f"{place}, column {self.columns[alias]}" if alias else place

    def column_title(self, alias: str) -> str:
        """Return ``films.csv, column year``; of several files, the first one's title."""
        return f"{self.parts[0][0]}, column {self.columns[alias]}"


class Reader:
    """A DuckDB database in memory that can read the files of some sources and nothing else.

    No extension is loaded, nothing is written but DuckDB's own temporary files, and a query is a
    SELECT. The content of a table never becomes a part of SQL.
    """

    def __init__(self, sources: Iterable[ResolvedSource], folder: Path) -> None:
        self.folder = folder
        files = {str(path) for source in sources for path in source.files}
        self._files = sorted(files | {glob.escape(path) for path in files})
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        temporary = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hanme-"))
        config = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "python_enable_replacements": False,
            "memory_limit": MEMORY,
            "temp_directory": temporary,
        }
        self.connection = self._stack.enter_context(duckdb.connect(config=config))
        allowed = ", ".join(quoted(path) for path in self._files)
        for statement in (
            f"SET allowed_paths = [{allowed}]",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self.connection.execute(statement)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the result of a statement, a tuple per row."""
        found: list[tuple[Any, ...]] = self.connection.execute(sql, list(values)).fetchall()
        return found

    def arrays(self, sql: str, *values: object) -> dict[str, NDArray[Any]]:
        """Return the result of a statement, an array per column."""
        found: dict[str, NDArray[Any]] = self.connection.execute(sql, list(values)).fetchnumpy()
        return found

    def columns(self, source: ResolvedSource) -> list[str]:
        """Return the names of a table's columns; of several files, those of the first."""
        return next(self._parts(source)).columns

    def _parts(self, source: ResolvedSource) -> Iterator[_Rows]:
        for path in source.files if source.query is None else (None,):
            title = source.title if path is None else file_title(path, self.folder)
            yield _Rows(self.connection, source, path, title)

    def read(self, source: ResolvedSource, columns: Mapping[str, tuple[str, Kind]]) -> Table:
        """Read some columns of a table, in the order of its rows.

        Args:
            source: The table.
            columns: By the name each column gets, the user's column and what to read it as. A text
                that should be a number but is not becomes NaN. A list is read as one where the
                file has lists, else as text.
        """
        self._count += 1
        sql = f"table{self._count}"
        parts: list[tuple[str, int]] = []
        kinds: dict[str, Kind] = {}
        size = 0
        for rows in self._parts(source):
            selected = []
            for alias, (column, kind) in columns.items():
                expression, found = rows.expression(column, kind)
                if kinds.setdefault(alias, found) != found:
                    raise HanmeError(
                        f"{rows.title}: column {column} is a list in some files of {source.title}, "
                        "but not in all"
                    )
                selected.append(f"{expression} AS {alias}")
            verb = f"CREATE TEMP TABLE {sql} AS" if not parts else f"INSERT INTO {sql}"
            statement = f"{verb} SELECT {', '.join(selected)} FROM {rows.sql(columns.values())}"
            rows.execute(statement)
            parts.append((rows.title, size))
            ((size,),) = self.rows(f"SELECT count(*) FROM {sql}")
        if not size:
            raise HanmeError(f"{source.title}: the table is empty")
        names = {alias: column for alias, (column, _) in columns.items()}
        return Table(sql, size, names, kinds, parts, source)

    def original(self, table: Table, row: int, alias: str) -> str:
        """Return the text of a cell as the file has it, for a message."""
        part = table.part(row)
        rows, before = next(islice(self._parts(table.source), part, None)), table.parts[part][1]
        expression, _ = rows.expression(table.columns[alias], "text")
        select = f"SELECT {expression} FROM {rows.sql([(table.columns[alias], 'text')])}"
        found = self.rows(f"{select} LIMIT 1 OFFSET ?", row - before)
        return str(found[0][0])


class _Rows:
    """One file, or a query, as something to select from."""

    def __init__(
        self, connection: Any, source: ResolvedSource, path: Path | None, title: str
    ) -> None:
        self.connection = connection
        self.source = source
        self.path = path
        self.title = title
        self.format = "query" if path is None else table_format(path)
        if self.format == "csv":
            self.columns = _header(path, source.spec, title) if path else []
            self.types = ["VARCHAR"] * len(self.columns)
        else:
            described = self.execute(f"DESCRIBE SELECT * FROM {self.sql()}").fetchall()
            self.columns = [row[0] for row in described]
            if self.format == "json" and self.columns == ["json"]:
                raise HanmeError(f'{title}: no rows such as {{"id": 1, "name": "One"}} in it')
            read_as = _json_type if self.format == "json" else str
            self.types = [read_as(row[1]) for row in described]

    def execute(self, statement: str) -> Any:
        """Run a statement; an error of DuckDB becomes one line."""
        try:
            return self.connection.execute(statement)
        except duckdb.Error as error:
            raise HanmeError(translate(str(error), self.title, self.format)) from None

    def expression(self, column: str, kind: Kind) -> tuple[str, Kind]:
        """Return a column in SQL, and what it is read as."""
        index = self._index(column)
        name = f"c{index}" if self.format == "csv" else _identifier(self.columns[index])
        is_list = self.types[index].endswith("[]")
        if kind == "number":
            if _NUMBERS.fullmatch(self.types[index]):
                return f"CAST({name} AS DOUBLE)", "number"
            # Text that is no number becomes NaN, which is refused where its row is known.
            text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
            number = f"coalesce(TRY_CAST({text} AS DOUBLE), 'nan'::DOUBLE)"
            return f"CASE WHEN {text} IS NOT NULL THEN {number} END", "number"
        if is_list:
            items = f"CAST({name} AS VARCHAR[])"
            text = f"nullif(array_to_string({items}, '|'), '')"
            return (items, "list") if kind == "list" else (text, "text")
        return f"nullif(CAST({name} AS VARCHAR), '')", "text"

    def sql(self, wanted: Iterable[tuple[str, Kind]] = ()) -> str:
        """Return what to select from; the wanted columns of JSON are read as they are written."""
        if self.path is None:
            return f"({(self.source.query or '').rstrip().rstrip(';')}\n)"
        path = quoted(glob.escape(str(self.path)))
        if self.format == "parquet":
            return f"read_parquet({path}, hive_partitioning = false)"
        if self.format == "json":
            typed = {column: self.types[self._index(column)] for column, _ in wanted}
            chosen = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in typed.items())
            columns = f", columns = {{{chosen}}}" if typed else ""
            return f"read_json({path}, sample_size = -1, hive_partitioning = false{columns})"
        spec = self.source.spec
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self.columns)))
        return (
            f"read_csv({path}, auto_detect = false, header = true, columns = {{{columns}}}, "
            f"delim = {quoted(separator(self.path, spec))}, quote = '\"', escape = '\"', "
            f"encoding = '{spec.encoding}', strict_mode = true, hive_partitioning = false)"
        )

    def _index(self, column: str) -> int:
        found = [i for i, name in enumerate(self.columns) if name == column]
        if not found:
            listed = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
            raise HanmeError(f"{self.title}: no column {column!r}; there are {listed}")
        if len(found) > 1:
            raise HanmeError(f"{self.title}: there are {len(found)} columns {column!r}")
        return found[0]


def _json_type(guessed: str) -> str:
    """Return the type to read a column of JSON with, so that values stay as they are written."""
    if guessed.endswith("[]"):
        return "VARCHAR[]"
    return "DOUBLE" if guessed == "DOUBLE" else "VARCHAR"


def _header(path: Path, spec: Source, title: str) -> list[str]:
    """Read the column names of a CSV file; DuckDB would rename a name that is there twice."""
    encoding = "utf-8-sig" if spec.encoding == "utf-8" else spec.encoding
    try:
        # Mistakes below the header are found by DuckDB, which knows the line.
        with open_text(path, encoding) as file:
            rows = csv.reader(file, delimiter=separator(path, spec), strict=True)
            columns = next(rows, [])
    except (UnicodeError, csv.Error, EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title} line 1: no header ({error})") from None
    if not any(columns):
        raise HanmeError(f"{title} line 1: no header")
    if any("\ufffd" in column for column in columns):
        raise HanmeError(f"{title} line 1: the text is not in the encoding {spec.encoding}")
    return columns


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def column(arrays: Mapping[str, NDArray[Any]], name: str, missing: float) -> NDArray[Any]:
    """Return a column of :meth:`Reader.arrays` with a value in place of NULL."""
    values = arrays[name]
    return values.filled(missing) if isinstance(values, np.ma.MaskedArray) else values
