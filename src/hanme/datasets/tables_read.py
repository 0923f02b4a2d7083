"""A user's tables, read with DuckDB into a database of their own.

Rows are counted from 1, the header of a CSV file not counted; a line is a line of the file.
"""

from __future__ import annotations

import csv
import glob
import re
import tempfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import duckdb
import numpy as np
from numpy.typing import NDArray

from hanme.datasets.tables_config import Source
from hanme.datasets.tables_origin import (
    Origin,
    file_title,
    open_text,
    quoted,
    separator,
    table_format,
    translate,
)
from hanme.errors import HanmeError

MEMORY = "1GB"
"""What DuckDB may take before it goes to disk."""

Kind = Literal["text", "number", "list"]

_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*\))")


@dataclass(frozen=True)
class Table:
    """Rows that were read: a table in the reader's database, in the order of the files.

    Args:
        sql: Its name there, safe to put into SQL.
        size: The number of rows.
        columns: The user's name of each column, by the name it has there.
        kinds: What each was read as: a list only where the file has one.
        parts: The title of each file, and the number of rows before it.
    """

    sql: str
    size: int
    columns: Mapping[str, str]
    kinds: Mapping[str, Kind]
    parts: Sequence[tuple[str, int]]

    def place(self, row: int, column: str | None = None) -> str:
        """``films.csv row 3, column year`` for a row counted from 0 over all files."""
        part = bisect_right([before for _, before in self.parts], row) - 1
        title, before = self.parts[part]
        place = f"{title} row {row - before + 1}"
        return f"{place}, column {self.columns[column]}" if column else place


class Reader:
    """A DuckDB database in memory that can read the files of some origins and nothing else.

    No extension is loaded, nothing is written but DuckDB's own temporary files, and a query is a
    SELECT. What is in a table never becomes a part of SQL.
    """

    def __init__(self, origins: Iterable[Origin], folder: Path) -> None:
        self.folder = folder
        files = {str(path) for origin in origins for path in origin.files}
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
        """What a statement gives, a tuple per row."""
        return self.connection.execute(sql, list(values)).fetchall()

    def arrays(self, sql: str, *values: object) -> dict[str, NDArray[Any]]:
        """What a statement gives, an array per column."""
        return self.connection.execute(sql, list(values)).fetchnumpy()

    def columns(self, origin: Origin) -> list[str]:
        """The names of a table's columns, of the first file's where it is several."""
        path = origin.files[0] if origin.query is None else None
        title = origin.title if path is None else file_title(path, self.folder)
        return _Rows(self.connection, origin, path, title).columns

    def read(self, origin: Origin, columns: Mapping[str, tuple[str, Kind]]) -> Table:
        """Reads some columns of a table, in the order of its rows.

        Args:
            origin: The table.
            columns: What is wanted, by the name it gets: the user's column, and what it holds. A
                text that should be a number and is none becomes NaN. A list is taken as one where
                the file has lists, else as text.
        """
        self._count += 1
        sql = f"table{self._count}"
        parts: list[tuple[str, int]] = []
        kinds: dict[str, Kind] = {}
        size = 0
        for path in origin.files if origin.query is None else (None,):
            title = origin.title if path is None else file_title(path, self.folder)
            rows = _Rows(self.connection, origin, path, title)
            selected = []
            for alias, (column, kind) in columns.items():
                expression, found = rows.expression(column, kind)
                if kinds.setdefault(alias, found) != found:
                    raise HanmeError(
                        f"{title}: column {column} is a list here, but not in every file of "
                        f"{origin.title}"
                    )
                selected.append(f"{expression} AS {alias}")
            verb = f"CREATE TEMP TABLE {sql} AS" if not parts else f"INSERT INTO {sql}"
            statement = f"{verb} SELECT {', '.join(selected)} FROM {rows.sql(columns.values())}"
            rows.execute(statement)
            parts.append((title, size))
            ((size,),) = self.rows(f"SELECT count(*) FROM {sql}")
        if not size:
            raise HanmeError(f"{origin.title}: the table is empty")
        return Table(sql, size, {a: c for a, (c, _) in columns.items()}, kinds, parts)

    def original(self, origin: Origin, table: Table, row: int, alias: str) -> str:
        """What the file has in a cell, for a message."""
        part = bisect_right([before for _, before in table.parts], row) - 1
        title, before = table.parts[part]
        path = None if origin.query is not None else origin.files[part]
        rows = _Rows(self.connection, origin, path, title)
        expression, _ = rows.expression(table.columns[alias], "text")
        source = rows.sql([(table.columns[alias], "text")])
        found = self.rows(f"SELECT {expression} FROM {source} LIMIT 1 OFFSET ?", row - before)
        return str(found[0][0])


class _Rows:
    """One file, or a query, as something to select from."""

    def __init__(self, connection: Any, origin: Origin, path: Path | None, title: str) -> None:
        self.connection = connection
        self.origin = origin
        self.path = path
        self.title = title
        self.format = "query" if path is None else table_format(path)
        if self.format == "csv":
            self.columns = _header(path, origin.source, title) if path else []
            self.types = ["VARCHAR"] * len(self.columns)
        else:
            described = self.execute(f"DESCRIBE SELECT * FROM {self.sql()}").fetchall()
            self.columns = [row[0] for row in described]
            if self.format == "json" and self.columns == ["json"]:
                raise HanmeError(f'{title}: no rows such as {{"id": 1, "name": "One"}} in it')
            read_as = _json_type if self.format == "json" else str
            self.types = [read_as(row[1]) for row in described]

    def execute(self, statement: str) -> Any:
        """Runs a statement; what DuckDB has to say becomes one line."""
        try:
            return self.connection.execute(statement)
        except duckdb.Error as error:
            raise HanmeError(translate(str(error), self.title, self.format)) from None

    def expression(self, column: str, kind: Kind) -> tuple[str, Kind]:
        """A column in SQL, and what it was read as."""
        index = self._index(column)
        name = f"c{index}" if self.format == "csv" else _identifier(self.columns[index])
        is_list = self.types[index].endswith("[]")
        if kind == "number":
            if _NUMBERS.fullmatch(self.types[index]):
                return f"CAST({name} AS DOUBLE)", "number"
            # What is no number becomes NaN, which is refused where its row is known.
            text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
            number = f"coalesce(TRY_CAST({text} AS DOUBLE), 'nan'::DOUBLE)"
            return f"CASE WHEN {text} IS NOT NULL THEN {number} END", "number"
        if is_list:
            items = f"CAST({name} AS VARCHAR[])"
            text = f"nullif(array_to_string({items}, '|'), '')"
            return (items, "list") if kind == "list" else (text, "text")
        return f"nullif(CAST({name} AS VARCHAR), '')", "text"

    def sql(self, wanted: Iterable[tuple[str, Kind]] = ()) -> str:
        """What to select from; in JSON the wanted columns are read as they are, not guessed."""
        if self.path is None:
            return f"({(self.origin.query or '').rstrip().rstrip(';')}\n)"
        path = quoted(glob.escape(str(self.path)))
        if self.format == "parquet":
            return f"read_parquet({path}, hive_partitioning = false)"
        if self.format == "json":
            typed = {column: self.types[self._index(column)] for column, _ in wanted}
            chosen = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in typed.items())
            columns = f", columns = {{{chosen}}}" if typed else ""
            return f"read_json({path}, sample_size = -1, hive_partitioning = false{columns})"
        source = self.origin.source
        columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self.columns)))
        return (
            f"read_csv({path}, auto_detect = false, header = true, columns = {{{columns}}}, "
            f"delim = {quoted(separator(self.path, source))}, quote = '\"', escape = '\"', "
            f"encoding = '{source.encoding}', strict_mode = true, hive_partitioning = false)"
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
    """What a column of JSON is read as, by what DuckDB takes it for: as it is written."""
    if guessed.endswith("[]"):
        return "VARCHAR[]"
    return "DOUBLE" if guessed == "DOUBLE" else "VARCHAR"


def _header(path: Path, source: Source, title: str) -> list[str]:
    """The column names of a CSV file: read here, as DuckDB would rename what it finds twice."""
    encoding = "utf-8-sig" if source.encoding == "utf-8" else source.encoding
    try:
        # What is wrong below the header is for DuckDB to find, which knows the line.
        with open_text(path, encoding) as file:
            rows = csv.reader(file, delimiter=separator(path, source), strict=True)
            columns = next(rows, [])
    except (UnicodeError, csv.Error, EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title} line 1: no header ({error})") from None
    if not any(columns):
        raise HanmeError(f"{title} line 1: no header")
    if any("\ufffd" in column for column in columns):
        raise HanmeError(f"{title} line 1: the text is not in the encoding {source.encoding}")
    return columns


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def column(arrays: Mapping[str, NDArray[Any]], name: str, missing: float) -> NDArray[Any]:
    """A column of :meth:`Reader.arrays` with a value in the place of NULL."""
    values = arrays[name]
    return values.filled(missing) if isinstance(values, np.ma.MaskedArray) else values
