"""Read the rows of node types, and number their ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from hanme.data.tables.build.features import Fitted, fit, request
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import FeatureSpec, NodeTable
from hanme.errors import HanmeError


@dataclass(frozen=True)
class NodeRows:
    """The rows of a node type."""

    table: Table  # one row for each node
    every: Table  # all rows; more than nodes if several rows of an id make one node
    node: NDArray[np.int64] | None = None  # the node of each row in `every`; None if the same

    def nodes(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes of some rows of `every`."""
        return rows if self.node is None else self.node[rows]


class NodeIds:
    """The ids of a node type and their numbers, as a table in the reader's database."""

    def __init__(self, reader: Reader, kind: str, table: Table | None) -> None:
        self.reader, self.kind, self.sql = reader, kind, reader.new_name()
        ids = "SELECT ''::VARCHAR AS id, 0::BIGINT AS node WHERE false"
        if table is not None:
            ids = f"SELECT id, rowid::BIGINT AS node FROM {table.sql}"
        reader.rows(f"CREATE TEMP TABLE {self.sql} AS {ids}")
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
        """Yield the ids by number, `size` at a time; or the names of a table, if not empty."""
        for begin in range(0, self.size, size):
            text, join = "i.id", ""
            if named is not None:
                part = named.part(begin, begin + size).sql
                join = f"LEFT JOIN {part} AS t ON i.node - {begin} = t.rowid"
                text = "coalesce(t.name, i.id)"
            some = f"WHERE i.node >= {begin} AND i.node < {begin + size} ORDER BY i.node"
            yield from self.reader.arrays(f"SELECT {text} FROM {self.sql} AS i {join} {some}")


def read_rows(reader: Reader, source: ResolvedSource, config: GraphConfig, kind: str) -> NodeRows:
    """Read the table of a node type, with the columns of its relations."""
    nodes = config.nodes[kind]
    columns = {alias: request(*pair) for alias, pair in feature_columns(nodes).items()}
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
    """Return the names in the database of the columns of a relation."""
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
        ((empty,),) = every.reader.rows(f"SELECT min(rowid) FROM {every.sql} WHERE id IS NULL")
        if empty is not None:
            raise HanmeError(f"{every.place(empty, 'id')}: the id is empty")
    repeated = every.reader.rows(
        f"SELECT any_value(id), min(rowid), min(rowid, 2)[2] FROM {every.sql} "
        f"GROUP BY {key} HAVING count(*) > 1 ORDER BY 3 LIMIT 1"
    )
    if not repeated:
        return NodeRows(every, every)
    if how == "error":
        text, first, second = repeated[0]
        where = every.place(second, None if nodes.id is None else "id")
        what = "the same as" if nodes.id is None else f"the id {text[:60]!r} is already that of"
        hint = 'duplicates = "first" drops such rows'
        raise HanmeError(f"{where}: {what} {every.place(first)}; {hint}")
    table = every.reader.keep(
        every, f"rowid IN (SELECT min(rowid) FROM {every.sql} GROUP BY {key})"
    )
    what = "dropped, as" if how == "first" else "joined with"
    what += (
        " an earlier row is the same node" if how == "first" else " an earlier row of the same id"
    )
    every.reader.notes.append(f"{kind}: {every.size - table.size:,} rows {what}")
    if how == "first":
        return NodeRows(table, table)
    (node,) = every.reader.arrays(
        f"SELECT t.rowid AS node FROM {every.sql} AS e JOIN {table.sql} AS t USING (id) "
        "ORDER BY e.rowid"
    )
    return NodeRows(table, every, node)


def feature_columns(nodes: NodeTable) -> dict[str, tuple[str, FeatureSpec]]:
    """Return the columns that become features, by their names in the database."""
    return {f"feature{i}": pair for i, pair in enumerate(nodes.features.items())}


def fit_features(table: Table, nodes: NodeTable) -> dict[str, Fitted]:
    """Fit the features of a node type."""
    columns = feature_columns(nodes).items()
    return {name: fit(table, alias, spec) for alias, (name, spec) in columns}


def feature_rows(
    ids: NodeIds, table: Table, nodes: NodeTable, fitted: Mapping[str, Fitted], size: int
) -> Iterator[csr_array]:
    """Yield the features of a type's nodes, `size` at a time; ids without a row get zeros."""
    columns = feature_columns(nodes).items()
    for begin in range(0, table.size, size):
        part = table.part(begin, min(begin + size, table.size))
        blocks = [fitted[name].encode(part, alias, spec) for alias, (name, spec) in columns]
        yield csr_array(hstack(blocks, format="csr", dtype=np.float32))
    width = sum(one.width for one in fitted.values())
    for begin in range(table.size, ids.size, size):
        yield csr_array((min(size, ids.size - begin), width), dtype=np.float32)
