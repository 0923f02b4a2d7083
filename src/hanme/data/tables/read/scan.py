"""Select from one file, frame, database table or query, with every cell read as text."""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hanme.data.tables.read.formats import csv_header, table_format, typed_rows
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import identifier, quoted, text_sql
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.data.tables.read.reader import Reader

Kind = Literal["text", "list", "joined", "vector"]
"""What a column is read as: text; lists where the file has some, which text has joined by ``|``;
lists of numbers."""

FLOATING = ("DOUBLE", "FLOAT")
"""Types of numbers with a fraction, as DuckDB calls them."""

_LIST = re.compile(r"(.*)\[\d*\]", re.DOTALL)


class Scan:
    """One file, or a `relation` of the database, as DuckDB selects from it."""

    def __init__(
        self,
        reader: Reader,
        source: ResolvedSource,
        title: str,
        path: Path | None = None,
        relation: str = "",
    ) -> None:
        self.reader, self.source, self.title = reader, source, title
        self.format = "query" if path is None else table_format(path, source.spec, title)
        self.rows = relation if path is None else typed_rows([path], source.spec, title)
        self.typed_rows = self.rows  # what a condition is evaluated on
        file = quoted(glob.escape(str(path)))
        if path is not None and self.format == "csv":
            self.columns, options = csv_header(path, source.spec, title)
            self.types = self.written = ["VARCHAR"] * len(self.columns)
            named = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(self.columns)))
            self.rows = f"read_csv({file}, auto_detect = false, columns = {{{named}}}, {options})"
            return
        self._describe()
        if self.format == "json":
            self._read_json_as_text(file)

    def _describe(self) -> None:
        described = self.execute(f"DESCRIBE SELECT * FROM {self.typed_rows}")
        self.columns, self.types = ([row[i] for row in described] for i in (0, 1))
        self.written = self.types  # the types in the file; JSON is then read as text

    def _read_json_as_text(self, file: str) -> None:
        """Leave cells as they are written; find records that are nested under a key."""
        lists = [c for c, t in zip(self.columns, self.types, strict=True) if t.endswith(")[]")]
        nested = lists and len(self.execute(f"SELECT 1 FROM {self.rows} LIMIT 2")) == 1
        if nested and len(lists) > 1:
            raise HanmeError(
                f"{self.title}: rows under several keys, {', '.join(lists)}; choose one with "
                f"query = \"SELECT unnest({lists[0]}, max_depth := 2) FROM '{self.title}'\""
            )
        select = f"(SELECT unnest({identifier(lists[0])}, max_depth := 2) FROM " if nested else ""
        if nested:
            self.typed_rows = f"{select}{self.rows})"
            self._describe()
        keyed = all(t.startswith("STRUCT") for t in self.types) and len(self.types) > 1
        if keyed or self.types[0].startswith("MAP") or self.columns == ["json"]:
            raise HanmeError(
                f'{self.title}: expected rows such as {{"id": 1, "name": "One"}}, without a byte '
                "order mark; jq 'to_entries | map({id: .key} + .value)' makes rows of objects by id"
            )
        self.types = ["VARCHAR[]" if t.endswith("[]") else "VARCHAR" for t in self.types]
        pairs = list(zip(self.columns, self.types, strict=True))
        texts = ", ".join(f"{quoted(name)}: '{kind}'" for name, kind in pairs)
        if nested:
            fields = ", ".join(f"{identifier(name)} {kind}" for name, kind in pairs)
            texts = f"{quoted(lists[0])}: {quoted(f'STRUCT({fields})[]')}"
        self.rows = f"read_json({file}, hive_partitioning = false, columns = {{{texts}}})"
        self.rows = f"{select}{self.rows})" if nested else self.rows

    def execute(self, statement: str) -> Any:
        """Run a statement; an error is about this part."""
        return self.reader.execute(statement, title=self.title, form=self.format)

    def cell(self, column: str, kind: Kind) -> tuple[str, Kind]:
        """Return SQL for a column, by its name in the file, and what it is read as.

        Text is read without the blanks around it, and empty text as NULL: this is the only place
        where ids are normalised, so the two sides of a link always are.
        """
        count = self.columns.count(column)
        if not count:
            listed = ", ".join(self.columns[:20]) + (", ..." if len(self.columns) > 20 else "")
            raise HanmeError(f"{self.title}: no column {column!r}; expected one of {listed}")
        if count > 1:
            raise HanmeError(f"{self.title}: {count} columns are called {column!r}")
        index = self.columns.index(column)
        name = f"c{index}" if self.format == "csv" else identifier(column)
        type_, text = self.types[index], text_sql(name, self.written[index] in FLOATING)
        numbers = "lambda item: TRY_CAST(item AS DOUBLE)"
        if is_list := _LIST.fullmatch(type_):
            if kind == "vector":
                items = f"CAST({name} AS {is_list[1]}[])"
                return f"nullif(list_transform({items}, {numbers}), [])", kind
            items = f"list_transform(CAST({name} AS VARCHAR[]), lambda item: trim(item))"
            joined = f"nullif(array_to_string({items}, '|'), '')"
            return (items, "list") if kind == "list" else (joined, "joined")
        text = f"nullif(trim({text}), '')"
        if self.source.spec.empty:
            empty = ", ".join(map(quoted, self.source.spec.empty))
            text = f"CASE WHEN {text} NOT IN ({empty}) THEN {text} END"
        if kind == "vector":
            inner = rf"nullif(regexp_replace({text}, '^[\s\[\(]+|[\s\]\)]+$', '', 'g'), '')"
            return rf"list_transform(regexp_split_to_array({inner}, '[\s,;|]+'), {numbers})", kind
        return text, "text"
