"""Read one file, frame or query as something that DuckDB selects from."""

from __future__ import annotations

import csv
import glob
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import duckdb

from hanme.data.tables.read.interrupt import stoppable
from hanme.data.tables.read.sources import (
    ResolvedSource,
    csv_options,
    open_text,
    quoted,
    separator,
    table_format,
    translate,
)
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

Kind = Literal["text", "number", "list", "joined", "date", "vector"]

_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*\))")
_LIST = re.compile(r".*\[\d*\]", re.DOTALL)


@dataclass
class Rows:
    """One file, a frame, a table of a database, or a query."""

    connection: Any  # the database in memory
    source: ResolvedSource  # what the rows belong to
    path: Path | None  # the file; None if it is none of its own
    title: str  # what messages call it
    at: str = ""  # the rows in SQL, if they are in no file
    schema: str | None = None  # the attached database whose tables a query names

    def __post_init__(self) -> None:
        self.format = "query" if self.path is None else table_format(self.path, self.source.spec)
        if self.format == "csv":
            self.columns = _header(self.path, self.source.spec, self.title) if self.path else []
            self.types = ["VARCHAR"] * len(self.columns)
        else:
            described = self.execute(f"DESCRIBE SELECT * FROM {self.sql()}")
            self.columns = [row[0] for row in described]
            if self.format == "json":
                self._refuse_no_rows([row[1] for row in described])
            read_as = _json_type if self.format == "json" else str
            self.types = [read_as(row[1]) for row in described]

    def _refuse_no_rows(self, types: list[str]) -> None:
        """Refuse JSON that is no list of objects, or one object of objects by their ids."""
        rows = 'rows such as {"id": 1, "name": "One"}'
        keyed = all(type_.startswith("STRUCT") for type_ in types) and len(types) > 1
        if keyed or types[0].startswith("MAP"):
            raise HanmeError(
                f"{self.title}: one object, but expected {rows}; if its keys are ids, "
                "jq 'to_entries | map({id: .key} + .value)' makes rows of it"
            )
        if self.columns == ["json"]:
            marked = self.path is not None and _begins_with_a_mark(self.path)
            why = "; it begins with a byte order mark: save it as UTF-8 without one"
            raise HanmeError(f"{self.title}: no {rows} in it{why * marked}")

    def execute(self, statement: str, where: str | None = None, arrays: bool = False) -> Any:
        """Run a statement and return its rows, or its columns as arrays.

        An error of DuckDB becomes one line, about `where` or these rows.
        """
        try:
            if self.schema is not None:
                self.connection.execute(f"USE {self.schema}")
            fetch = "fetchnumpy" if arrays else "fetchall"
            return stoppable(
                self.connection, lambda: getattr(self.connection.execute(statement), fetch)()
            )
        except duckdb.Error as error:
            form = self.format if where is None else "query"
            raise HanmeError(translate(str(error), where or self.title, form)) from None
        finally:
            if self.schema is not None:
                self.connection.execute("USE memory")

    def expression(self, column: str, kind: Kind, date: str | None = None) -> tuple[str, Kind]:
        """Return a column, by the user's name of it, in SQL, and what it is read as.

        Text is read without the blanks around it, and empty text as NULL: this is the only place
        where ids are normalised, so the two sides of a link always are.
        """
        index = self._index(column)
        name = f"c{index}" if self.format == "csv" else identifier(self.columns[index])
        type_, text = self.types[index], f"CAST({name} AS VARCHAR)"
        if self.source.frame is not None and type_ in ("DOUBLE", "FLOAT"):
            # pandas keeps whole numbers with a gap among them as 3.0
            is_whole = f"{name} = trunc({name}) AND abs({name}) < 1e15"
            text = (
                f"CASE WHEN {is_whole} THEN CAST(CAST({name} AS BIGINT) AS VARCHAR) ELSE {text} END"
            )
        if self.source.spec.empty:
            empty = f"trim({text}) IN ({', '.join(map(quoted, self.source.spec.empty))})"
            name, text = (f"CASE WHEN NOT {empty} THEN {cell} END" for cell in (name, text))
        if kind == "number":
            return _number(name, type_), "number"
        if kind == "date":
            return _date(name, type_, date), "number"
        if kind == "vector":
            return _vector(name, type_), "list"
        if _LIST.fullmatch(type_):
            items = f"list_transform(CAST({name} AS VARCHAR[]), lambda item: trim(item))"
            joined = f"nullif(array_to_string({items}, '|'), '')"
            return (items, "list") if kind == "list" else (joined, "joined")
        return f"nullif(trim({text}), '')", "text"

    def sql(self, wanted: Iterable[str] = ()) -> str:
        """Return what to select from; the wanted columns of JSON are read as they are written."""
        if self.at:
            return self.at
        if self.path is None:
            return f"({(self.source.query or '').rstrip().rstrip(';')}\n)"
        path = quoted(glob.escape(str(self.path)))
        if self.format == "parquet":
            return f"read_parquet({path}, hive_partitioning = false)"
        if self.format == "json":
            typed = {column: self.types[self._index(column)] for column in wanted}
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

    def typed(self) -> str:
        """Return what a condition is asked of: numbers are numbers there, under users' names."""
        if self.format == "csv" and self.path:
            path = quoted(glob.escape(str(self.path)))
            return f"read_csv({path}{csv_options(self.source.spec, self.path)})"
        return self.sql()

    def _index(self, column: str) -> int:
        found = [i for i, name in enumerate(self.columns) if name == column]
        if not found:
            listed = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
            raise HanmeError(f"{self.title}: no column {column!r}; there are {listed}")
        if len(found) > 1:
            raise HanmeError(f"{self.title}: there are {len(found)} columns {column!r}")
        return found[0]


def _number(name: str, type_: str) -> str:
    """Return a column as numbers; text that is none becomes NaN, refused where its row is known."""
    if _NUMBERS.fullmatch(type_):
        return f"CAST({name} AS DOUBLE)"
    text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
    number = f"coalesce(TRY_CAST({text} AS DOUBLE), 'nan'::DOUBLE)"
    return f"CASE WHEN {text} IS NOT NULL THEN {number} END"


def _date(name: str, type_: str, format_: str | None) -> str:
    """Return a column of dates as years: 2004.5 is the middle of 2004. No date becomes NaN."""
    text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
    if format_ is None or type_.startswith(("DATE", "TIMESTAMP")):
        date = f"TRY_CAST({text} AS TIMESTAMP)"
    else:
        date = f"try_strptime({text}, {quoted(format_)})"
    year = f"year({date}) + (dayofyear({date}) - 1) / 366"
    return f"CASE WHEN {text} IS NOT NULL THEN coalesce({year}, 'nan'::DOUBLE) END"


def _vector(name: str, type_: str) -> str:
    """Return a column of several numbers per cell; what is no number becomes NULL in the list.

    A cell with an empty list is an empty cell.
    """
    if _LIST.fullmatch(type_) and _NUMBERS.fullmatch(type_.rpartition("[")[0]):
        return f"nullif(CAST({name} AS DOUBLE[]), [])"
    if _LIST.fullmatch(type_):
        items = f"nullif(CAST({name} AS VARCHAR[]), [])"
    else:
        inner = rf"regexp_replace(CAST({name} AS VARCHAR), '^[\s\[\(]+|[\s\]\)]+$', '', 'g')"
        items = rf"regexp_split_to_array(nullif({inner}, ''), '[\s,;|]+')"
    return f"list_transform({items}, lambda item: TRY_CAST(item AS DOUBLE))"


def _json_type(guessed: str) -> str:
    """Return the type to read a column of JSON with, so that values stay as they are written."""
    return "VARCHAR[]" if guessed.endswith("[]") else "VARCHAR"


def _begins_with_a_mark(path: Path) -> bool:
    with open_text(path, "utf-8") as file:
        return file.read(1) == "\ufeff"


def _header(path: Path, spec: Source, title: str) -> list[str]:
    """Read the column names of a CSV file; DuckDB would rename a name that is there twice."""
    encoding = "utf-8-sig" if spec.encoding == "utf-8" else spec.encoding
    try:
        # Mistakes below the header are found by DuckDB, which knows the line.
        with open_text(path, encoding) as file:
            rows = csv.reader(file, delimiter=separator(path, spec), strict=True)
            columns = next(rows, [])
    except (ValueError, csv.Error, EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title} line 1: no header ({error})") from None
    if not any(columns):
        raise HanmeError(f"{title} line 1: no header")
    if any(odd in column for odd in "\ufffd\0" for column in columns):
        raise HanmeError(f"{title} line 1: the text is not in the encoding {spec.encoding}")
    return columns


def identifier(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
