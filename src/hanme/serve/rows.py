"""The rows of a user's tables behind the nodes, with all of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from hanme.data import is_store, is_tables
from hanme.data.tables.build.graph import GraphSource
from hanme.data.tables.build.load import open_source
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table

MOST_VALUES = 30
"""Maximum number of values of a facet: a list of more is not read."""

MOST_FACETS = 8
"""Maximum number of facets, in the order of the columns: more do not fit beside a table."""


@dataclass(frozen=True)
class Facet:
    """A column of few different values, and the place of each node's value among them, or -1."""

    column: str
    values: list[str]
    codes: NDArray[np.int64]


class TableRows:
    """The rows of node types as they are in the user's tables, read when first requested.

    Cells are text without the blanks around it, None if empty. A node that no table has, but links
    name, has no row. Of a graph that was not made from tables, no node has one.
    """

    def __init__(self, source: GraphSource | None) -> None:
        self.source = source
        self._lock, self._tables = Lock(), dict[str, Table]()
        self._reader: Reader | None = None
        if source is not None:
            self._reader = Reader(source.sources.values(), source.path.parent)
            self._reader.__enter__()  # its files are removed when the process exits

    @classmethod
    def of(cls, name: str | Path) -> TableRows:
        """Find the tables of a data set, given the path of its ``graph.toml``."""
        return cls(open_source(name) if is_tables(name) and not is_store(name) else None)

    def row(self, kind: str, number: int) -> dict[str, str | None]:
        """Return the cells of a node by column."""
        with self._lock:
            table = self._table(kind)
            if table is None or number >= table.size:
                return {}
            ((*cells,),) = table.reader.rows(
                f"SELECT {', '.join(table.columns)} FROM {table.sql} WHERE rowid = ?", number
            )
            return dict(zip(table.columns.values(), cells, strict=True))

    def facets(self, kind: str, size: int) -> list[Facet]:
        """Return the facets of the ``size`` nodes of a type; not its id, name, label or split."""
        with self._lock:
            table = self._table(kind)
            if table is None or self.source is None:
                return []
            spec, found = self.source.config.nodes[kind], []
            known = (spec.id, spec.name, spec.label, spec.split)
            for alias, column in table.columns.items():
                item = f"list_filter([{alias}], lambda item: item IS NOT NULL)"
                values = list(table.most_frequent(item, MOST_VALUES + 1))
                if column in known or not 2 <= len(values) <= MOST_VALUES:
                    continue
                row, place = table.positions(item, values)
                codes = np.full(size, -1, np.int64)
                codes[row] = place
                found.append(Facet(column, values, codes))
            return found[:MOST_FACETS]

    def _table(self, kind: str) -> Table | None:
        """Read all columns of a node type; rows have the numbers of their nodes."""
        if self.source is None or self._reader is None or kind in self._tables:
            return self._tables.get(kind)
        source = self.source.sources.get(f"nodes.{kind}")
        if source is None:
            return None
        names = self._reader.columns(source)
        columns = {f"c{i}": ColumnRequest(n) for i, n in enumerate(names) if names.count(n) == 1}
        spec, table = self.source.config.nodes[kind], self._reader.read(source, columns)
        if spec.duplicates == "first":
            keys = ", ".join(a for a, c in table.columns.items() if spec.id in (None, c))
            first = f"SELECT min(rowid) FROM {table.sql} GROUP BY {keys}"
            table = self._reader.keep(table, f"rowid IN ({first})")
        self._tables[kind] = table
        return table
