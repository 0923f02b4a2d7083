"""Read the rows of node types, and number their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from hanme.data.tables.build.features import Fitted, request
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import ColumnLinks, NodeTable
from hanme.errors import HanmeError


class NodeIds:
    """The ids of a node type and their numbers, as a table in the reader's database."""

    def __init__(self, reader: Reader, kind: str, table: Table | None) -> None:
        self.reader, self.kind, self.sql = reader, kind, reader.new_name()
        self.table = table  # its rows; None for a type whose nodes are the ids that relations name
        self.size = 0 if table is None else table.size
        ids = "SELECT ''::VARCHAR AS id, 0::BIGINT AS node WHERE false"
        if table is not None:
            ids = f"SELECT id, rowid::BIGINT AS node FROM {table.sql}"
        reader.rows(f"CREATE TEMP TABLE {self.sql} AS {ids}")

    def add(self, select: str, *values: object) -> None:
        """Add new ids in the order of their rows; `select` has the columns id and row."""
        self.reader.rows(
            f"INSERT INTO {self.sql} SELECT id, {self.size} + row_number() OVER (ORDER BY first, "
            f"id) - 1 FROM (SELECT id, min(row) AS first FROM ({select}) WHERE id IS NOT NULL "
            f"AND id NOT IN (SELECT id FROM {self.sql}) GROUP BY id)",
            *values,
        )
        ((self.size,),) = self.reader.rows(f"SELECT count(*) FROM {self.sql}")

    def texts(self, size: int, *, names: bool = False) -> Iterator[NDArray[Any]]:
        """Yield the ids by number, `size` at a time; or the names of the table, if not empty."""
        for begin in range(0, self.size, size):
            text, join = "i.id", ""
            if names and self.table is not None:
                part = self.table.part(begin, begin + size).sql
                join = f"LEFT JOIN {part} AS t ON i.node - {begin} = t.rowid"
                text = "coalesce(t.name, i.id)"
            some = f"WHERE i.node >= {begin} AND i.node < {begin + size} ORDER BY i.node"
            yield from self.reader.arrays(f"SELECT {text} FROM {self.sql} AS i {join} {some}")

    def features(
        self, spec: NodeTable, fitted: Mapping[str, Fitted], size: int
    ) -> Iterator[csr_array]:
        """Yield the features of the nodes, `size` at a time; ids without a row get zeros."""
        assert self.table is not None
        aliases = feature_aliases(spec)
        for begin in range(0, self.table.size, size):
            part = self.table.part(begin, min(begin + size, self.table.size))
            blocks = [one.encode(part, aliases[c], spec.features[c]) for c, one in fitted.items()]
            yield csr_array(hstack(blocks, format="csr", dtype=np.float32))
        width = sum(map(len, fitted.values()))
        for begin in range(self.table.size, self.size, size):
            yield csr_array((min(size, self.size - begin), width), dtype=np.float32)


def feature_aliases(nodes: NodeTable) -> dict[str, str]:
    """Return the name in the database of each column that becomes features."""
    return {column: f"feature{i}" for i, column in enumerate(sorted(nodes.features))}


def link_aliases(config: GraphConfig, name: str) -> list[str]:
    """Return the names in the database of the columns of a relation."""
    columns = getattr(config.relations[name], "columns", [])
    return [f"link{list(config.relations).index(name)}_{i}" for i in range(len(columns))]


def read_nodes(reader: Reader, source: ResolvedSource, config: GraphConfig, kind: str) -> Table:
    """Read the table of a node type, one row per node, with the columns of its relations."""
    nodes = config.nodes[kind]
    columns = {a: request(c, nodes.features[c]) for c, a in feature_aliases(nodes).items()}
    named = {"id": nodes.id, "name": nodes.name, "split": nodes.split}
    columns |= {alias: ColumnRequest(name) for alias, name in named.items() if name is not None}
    if nodes.label is not None:
        columns["label"] = ColumnRequest(nodes.label, "list")
    for name, relation in config.relations.items():
        if isinstance(relation, ColumnLinks) and config.edge_types[name][0][0] == kind:
            requests = [ColumnRequest(column, "list") for column in relation.columns]
            columns |= zip(link_aliases(config, name), requests, strict=True)
    if nodes.id is not None:
        return _unique(reader.read(source, columns), nodes, kind, "id")
    cells = {f"cell{i}": ColumnRequest(c) for i, c in enumerate(reader.columns(source))}
    if nodes.duplicates == "first" or not columns:
        columns |= cells
    table = reader.read(source, columns)
    reader.rows(f"ALTER TABLE {table.sql} ADD COLUMN id VARCHAR")
    reader.rows(f"UPDATE {table.sql} SET id = CAST(rowid + 1 AS VARCHAR)")
    if nodes.duplicates == "first":
        return _unique(table, nodes, kind, ", ".join(cells))
    return table


def _unique(table: Table, nodes: NodeTable, kind: str, key: str) -> Table:
    """Refuse or drop rows with the key of an earlier row; refuse empty ids."""
    ((empty,),) = table.reader.rows(f"SELECT min(rowid) FROM {table.sql} WHERE id IS NULL")
    if empty is not None:
        raise HanmeError(f"{table.place(empty, 'id')}: the id is empty")
    repeated = table.reader.rows(
        f"SELECT any_value(id), min(rowid), min(rowid, 2)[2] FROM {table.sql} "
        f"GROUP BY {key} HAVING count(*) > 1 ORDER BY 3 LIMIT 1"
    )
    if not repeated:
        return table
    if nodes.duplicates == "error":
        text, first, second = repeated[0]
        raise HanmeError(
            f"{table.place(second, 'id')}: the id {text[:60]!r} is already that of "
            f'{table.place(first)}; duplicates = "first" drops such rows'
        )
    kept = table.reader.keep(table, f"rowid IN (SELECT min(rowid) FROM {table.sql} GROUP BY {key})")
    dropped = f"{table.size - kept.size:,} rows dropped, as an earlier row is the same node"
    table.reader.notes.append(f"{kind}: {dropped}")
    return kept
