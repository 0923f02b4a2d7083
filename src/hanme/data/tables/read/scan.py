"""Select from one file, frame, database table or query, with every column read as text or cast."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hanme.data.tables.read.formats import (
    csv_header,
    csv_options,
    table_format,
    typed_csv_options,
)
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import identifier, quoted
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.data.tables.read.reader import Reader

Kind = Literal["text", "number", "list", "joined", "date", "vector"]

_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN|DECIMAL\(.*\))")
_LIST = re.compile(r".*\[\d*\]", re.DOTALL)


@dataclass
class Scan:
    """What DuckDB selects from for one part of a source, with its columns."""

    reader: Reader
    source: ResolvedSource  # what the rows belong to
    title: str  # what messages call it
    path: Path | None = None  # the file, if it is one
    relation: str = ""  # the rows in SQL, if they are not in a file
    schema: str | None = None  # the attached database whose tables a query names

    def __post_init__(self) -> None:
        spec = self.source.spec
        self.format = "query" if self.path is None else table_format(self.path, spec)
        if self.path is not None and self.format == "csv":
            self.columns = csv_header(self.path, spec, self.title)
            self.types = ["VARCHAR"] * len(self.columns)
            return
        described = self.execute(f"DESCRIBE SELECT * FROM {self.sql()}")
        self.columns, self.types = ([row[i] for row in described] for i in (0, 1))
        if self.format == "json":
            self._refuse_other_json()
            # Cells stay as they are written, whatever type DuckDB would give them.
            self.types = ["VARCHAR[]" if t.endswith("[]") else "VARCHAR" for t in self.types]

    def _refuse_other_json(self) -> None:
        """Refuse JSON that is not a list of objects, such as one object of objects by their ids."""
        keyed = all(t.startswith("STRUCT") for t in self.types) and len(self.types) > 1
        if keyed or self.types[0].startswith("MAP") or self.columns == ["json"]:
            raise HanmeError(
                f'{self.title}: expected rows such as {{"id": 1, "name": "One"}}, without a byte '
                "order mark; jq 'to_entries | map({id: .key} + .value)' makes rows of objects by id"
            )

    def execute(self, statement: str, title: str | None = None, fetch: str = "fetchall") -> Any:
        """Run a statement; an error is about `title`, a query, or else about this part."""
        form = self.format if title is None else "query"
        return self.reader.execute(
            statement, fetch=fetch, title=title or self.title, form=form, schema=self.schema
        )

    def expression(self, column: str, kind: Kind, date: str | None = None) -> tuple[str, Kind]:
        """Return SQL for a column, by its name in the file, and what it is read as.

        Text is read without the blanks around it, and empty text as NULL: this is the only place
        where ids are normalised, so the two sides of a link always are.
        """
        index = self._index(column)
        name = f"c{index}" if self.format == "csv" else identifier(self.columns[index])
        type_, text = self.types[index], f"CAST({name} AS VARCHAR)"
        if self.source.frame is not None and type_ in ("DOUBLE", "FLOAT"):
            # pandas stores integers with a missing value among them as 3.0
            integer = f"{name} = trunc({name}) AND abs({name}) < 1e15"
            text = (
                f"CASE WHEN {integer} THEN CAST(CAST({name} AS BIGINT) AS VARCHAR) ELSE {text} END"
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

    def sql(self, columns: Iterable[str] = ()) -> str:
        """Return what to select from; these `columns` of JSON are read as they are written."""
        if self.relation:
            return self.relation
        if self.path is None:
            return f"({(self.source.query or '').rstrip().rstrip(';')}\n)"
        path = quoted(glob.escape(str(self.path)))
        if self.format == "parquet":
            return f"read_parquet({path}, hive_partitioning = false)"
        if self.format == "json":
            typed = {column: self.types[self._index(column)] for column in columns}
            chosen = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in typed.items())
            selected = f", columns = {{{chosen}}}" if typed else ""
            return f"read_json({path}, sample_size = -1, hive_partitioning = false{selected})"
        named = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self.columns)))
        options = csv_options(self.path, self.source.spec)
        return f"read_csv({path}, auto_detect = false, columns = {{{named}}}, {options})"

    def typed(self) -> str:
        """Return what a condition is evaluated on: numbers are numbers, under the file's names."""
        if self.format == "csv" and self.path:
            path = quoted(glob.escape(str(self.path)))
            return f"read_csv({path}, {typed_csv_options(self.path, self.source.spec)})"
        return self.sql()

    def _index(self, column: str) -> int:
        matches = [i for i, name in enumerate(self.columns) if name == column]
        if not matches:
            listed = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
            raise HanmeError(f"{self.title}: no column {column!r}; expected one of {listed}")
        if len(matches) > 1:
            raise HanmeError(f"{self.title}: {len(matches)} columns are called {column!r}")
        return matches[0]


def _number(name: str, type_: str) -> str:
    """Return SQL for numbers; other text becomes NaN, which is refused where its row is known."""
    if _NUMBERS.fullmatch(type_):
        return f"CAST({name} AS DOUBLE)"
    text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
    number = f"coalesce(TRY_CAST({text} AS DOUBLE), 'nan'::DOUBLE)"
    return f"CASE WHEN {text} IS NOT NULL THEN {number} END"


def _date(name: str, type_: str, format_: str | None) -> str:
    """Return SQL for dates as years: 2004.5 is the middle of 2004. Other text becomes NaN."""
    text = f"nullif(trim(CAST({name} AS VARCHAR)), '')"
    if format_ is None or type_.startswith(("DATE", "TIMESTAMP")):
        date = f"TRY_CAST({text} AS TIMESTAMP)"
    else:
        date = f"try_strptime({text}, {quoted(format_)})"
    year = f"year({date}) + (dayofyear({date}) - 1) / 366"
    return f"CASE WHEN {text} IS NOT NULL THEN coalesce({year}, 'nan'::DOUBLE) END"


def _vector(name: str, type_: str) -> str:
    """Return SQL for lists of numbers, NULL for an empty cell; other text in a list is NULL."""
    if _LIST.fullmatch(type_) and _NUMBERS.fullmatch(type_.rpartition("[")[0]):
        return f"nullif(CAST({name} AS DOUBLE[]), [])"
    if _LIST.fullmatch(type_):
        items = f"nullif(CAST({name} AS VARCHAR[]), [])"
    else:
        inner = rf"regexp_replace(CAST({name} AS VARCHAR), '^[\s\[\(]+|[\s\]\)]+$', '', 'g')"
        items = rf"regexp_split_to_array(nullif({inner}, ''), '[\s,;|]+')"
    return f"list_transform({items}, lambda item: TRY_CAST(item AS DOUBLE))"
