"""Read the rows of node types, and number their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from hanme.data.tables.build.features import Fitted, encode, fit, wanted, width
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table, column
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.features import FeatureSpec
from hanme.data.tables.schema.sections import NodeTable
from hanme.errors import HanmeError

NAME = "coalesce(t.name, i.id)"
"""What a node is called: one with an empty name is called by its id."""


@dataclass(frozen=True)
class NodeRows:
    """The rows of a node type."""

    table: Table  # a row for each node
    every: Table  # all rows; more than nodes where several rows of an id make one node
    # the node of each row in `every`; None if they are the same
    node: NDArray[np.int64] | None = None


class Ids:
    """The ids of a node type and their numbers, as a table in the reader's database."""

    def __init__(self, reader: Reader, kind: str, table: Table | None) -> None:
        self.reader = reader
        self.sql = reader.new_name()
        self.kind = kind
        first = "SELECT ''::VARCHAR AS id, 0::BIGINT AS node WHERE false"
        if table is not None:
            first = f"SELECT id, rowid::BIGINT AS node FROM {table.sql}"
        reader.rows(f"CREATE TEMP TABLE {self.sql} AS {first}")
        self.size = 0 if table is None else table.size

    def add(self, select: str, *values: object) -> None:
        """Add new ids in the order of their rows; `select` has the columns id and row."""
        self.reader.rows(
            f"INSERT INTO {self.sql} SELECT id, {self.size} + row_number() OVER (ORDER BY first, "
            f"id) - 1 FROM (SELECT id, min(row) AS first FROM ({select}) WHERE id IS NOT NULL "
            f"AND id NOT IN (SELECT id FROM {self.sql}) GROUP BY id)",
            *values,
        )
        ((self.size,),) = self.reader.rows(f"SELECT count(*) FROM {self.sql}")

    def texts(self, size: int, named: Table | None = None) -> Iterator[NDArray[Any]]:
        """Yield the ids in the order of their numbers, so many at a time; or names by a table."""
        for begin in range(0, self.size, size):
            text, join = "i.id", ""
            if named is not None:
                part = named.part(begin, begin + size).sql
                text, join = NAME, f"LEFT JOIN {part} AS t ON i.node - {begin} = t.rowid"
            some = f"WHERE i.node >= {begin} AND i.node < {begin + size} ORDER BY i.node"
            yield self.reader.arrays(f"SELECT {text} AS text FROM {self.sql} AS i {join} {some}")[
                "text"
            ]


def read_rows(reader: Reader, source: ResolvedSource, config: GraphConfig, kind: str) -> NodeRows:
    """Read the table of a node type, with the columns of its relations."""
    nodes = config.nodes[kind]
    columns = {alias: wanted(*pair) for alias, pair in feature_columns(nodes).items()}
    named = {"id": nodes.id, "name": nodes.name, "split": nodes.split}
    columns |= {alias: ColumnRequest(name) for alias, name in named.items() if name is not None}
    if nodes.label is not None:
        columns["label"] = ColumnRequest(nodes.label, "list")
    for name, relation in config.column_links(kind):
        for alias, cell in zip(link_aliases(config, name), relation.columns, strict=True):
            columns[alias] = ColumnRequest(cell, "list")
    group = config.split.group if config.split and kind == config.target else None
    if group is not None and group not in config.relations:
        columns["together"] = ColumnRequest(group)
    if nodes.id is None and (nodes.duplicates in ("error", "first") or not columns):
        columns |= {f"cell{i}": ColumnRequest(c) for i, c in enumerate(reader.columns(source))}
    every = reader.read(source, columns)
    if nodes.id is None:
        every = reader.numbered(every)
    return _without_duplicates(every, nodes, kind)


def link_aliases(config: GraphConfig, name: str) -> list[str]:
    """Return what the columns of a relation are called in the database."""
    columns = getattr(config.relations[name], "columns", [])
    return [f"link{list(config.relations).index(name)}_{i}" for i in range(len(columns))]


def _without_duplicates(every: Table, nodes: NodeTable, kind: str) -> NodeRows:
    """Check that every row has an id of its own, or do what `duplicates` says."""
    how = nodes.duplicates or ("all" if nodes.id is None else "error")
    if nodes.id is None and how == "all":
        return NodeRows(every, every)
    key = "id"
    if nodes.id is None:
        key = ", ".join(alias for alias in every.columns if alias.startswith("cell"))
    else:
        empty = every.reader.rows(f"SELECT min(rowid) FROM {every.sql} WHERE id IS NULL")
        if empty[0][0] is not None:
            raise HanmeError(f"{every.place(empty[0][0], 'id')}: the id is empty")
    twice = every.reader.rows(
        f"SELECT any_value(id), min(rowid), min(rowid, 2)[2] FROM {every.sql} "
        f"GROUP BY {key} HAVING count(*) > 1 ORDER BY 3 LIMIT 1"
    )
    if not twice:
        return NodeRows(every, every)
    if how == "error":
        raise HanmeError(_twice(every, nodes, *twice[0]))
    table = every.reader.keep(
        every, f"rowid IN (SELECT min(rowid) FROM {every.sql} GROUP BY {key})"
    )
    more = every.size - table.size
    if how == "first":
        every.reader.notes.append(
            f"{kind}: {more:,} rows dropped, as an earlier row is the same node"
        )
        return NodeRows(table, table)
    every.reader.notes.append(f"{kind}: {more:,} rows joined with an earlier row of the same id")
    found = every.reader.arrays(
        f"SELECT t.rowid AS node FROM {every.sql} AS e JOIN {table.sql} AS t USING (id) "
        "ORDER BY e.rowid"
    )
    return NodeRows(table, every, column(found, "node", 0))


def _twice(every: Table, nodes: NodeTable, text: str, first: int, second: int) -> str:
    hint = 'duplicates = "first" drops such rows'
    if nodes.id is None:
        return f"{every.place(second)}: the same as {every.place(first)}; {hint}"
    return (
        f"{every.place(second, 'id')}: the id {text[:60]!r} is already that of "
        f"{every.place(first)}; {hint}"
    )


def feature_columns(nodes: NodeTable) -> dict[str, tuple[str, FeatureSpec]]:
    """Return the columns that become features, by their names in the database."""
    return {f"feature{i}": pair for i, pair in enumerate(nodes.features.items())}


def learn(
    rows: NodeRows | None, spec: NodeTable, known: dict[str, Fitted] | None
) -> dict[str, Fitted]:
    """Return what was learnt of the columns of a type's features, or was `known` before."""
    if rows is None or known:
        return known or {}
    columns = feature_columns(spec).items()
    return {name: fit(rows.table, alias, how) for alias, (name, how) in columns}


def feature_rows(
    ids: Ids, table: Table, spec: NodeTable, learnt: Mapping[str, Fitted], size: int
) -> Iterator[csr_array]:
    """Yield the features of a type's nodes, so many at a time; ids without a row get zeros."""
    columns = feature_columns(spec).items()
    for begin in range(0, table.size, size):
        part = table.part(begin, min(begin + size, table.size))
        blocks = [encode(part, alias, how, learnt[name]) for alias, (name, how) in columns]
        yield csr_array(hstack(blocks, format="csr", dtype=np.float32))
    every = sum(map(width, learnt.values()))
    for begin in range(table.size, ids.size, size):
        yield csr_array((min(size, ids.size - begin), every), dtype=np.float32)
