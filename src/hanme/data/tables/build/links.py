"""Read the links of a user's tables: from tables of links, and from columns of node tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from torch import Tensor

from hanme.data.tables.build.features import Fitted, numbers, width
from hanme.data.tables.build.nodes import Ids, NodeRows, feature_rows, learn, link_aliases
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table, column
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import ColumnLinks, LinkTable, NodeTable
from hanme.errors import HanmeError
from hanme.graph import EdgeType, Nodes, Texts
from hanme.graph.features import to_torch


@dataclass(frozen=True)
class LinkRows:
    """The rows of a relation, before their ids are numbered."""

    name: str  # the relation
    edge_type: EdgeType  # its types
    relation: LinkTable | ColumnLinks  # what ``graph.toml`` says of it
    table: Table  # the table that they are in
    select: str  # the rows in SQL: their number, a place within the row, the ids of both ends
    values: tuple[str, ...] = ()  # the values that `select` asks for

    def add_ids(self, ids: Mapping[str, Ids], implied: set[str]) -> None:
        """Add the ids of node types that have no table, or to which unknown ids are added."""
        for side, kind in (("source", self.edge_type[0]), ("target", self.edge_type[2])):
            if kind in implied or self.relation.unknown == "add":
                ids[kind].add(
                    f"SELECT {side} AS id, (row, place) AS row FROM ({self.select})", *self.values
                )

    def say_none(self) -> None:
        """Note if no row is a link."""
        reader = self.table.reader
        if not reader.rows(f"SELECT 1 FROM ({self.select}) LIMIT 1", *self.values):
            why = "where is true for no row" if self.values else "every cell is empty"
            reader.notes.append(f"{self.name}: no links, as {why} of {self.table.source.title}")

    def numbered(self, ids: Mapping[str, Ids]) -> str:
        """Return the links with the numbers of both ends, s.node and t.node, as SQL to select from.

        The number of an unknown id is NULL.
        """
        source, _, target = self.edge_type
        return (
            f"({self.select}) AS link LEFT JOIN {ids[source].sql} AS s ON link.source = s.id "
            f"LEFT JOIN {ids[target].sql} AS t ON link.target = t.id"
        )


class Made:
    """What is made of a user's tables: nodes and links, in memory."""

    def __init__(self) -> None:
        self.links: Mapping[EdgeType, Tensor] = {}

    def nodes(
        self, ids: Ids, rows: NodeRows | None, spec: NodeTable, known: dict[str, Fitted] | None
    ) -> tuple[Nodes, dict[str, Fitted]]:
        """Make the nodes of a type; return what was learnt of their columns, too."""
        size = max(1, ids.size)
        names = texts = Texts.of(chain.from_iterable(ids.texts(size)))
        learnt, x = learn(rows, spec, known), None
        if rows is not None and any(map(width, learnt.values())):  # an empty column has no values
            found = feature_rows(ids, rows.table, spec, learnt, size)
            x = to_torch(csr_array(vstack(list(found), format="csr")))
        if rows is not None and spec.name is not None:
            names = Texts.of(chain.from_iterable(ids.texts(size, rows.table)))
        return Nodes(ids.kind, ids.size, x, names, texts), learnt

    def add_links(self, rows: LinkRows, ids: Mapping[str, Ids]) -> int:
        """Add the links of a relation; return how many were dropped, see :func:`read_links`."""
        links, dropped = read_links(rows, ids)
        self.links = {**self.links, rows.edge_type: links}
        return dropped


def open_links(
    reader: Reader,
    config: GraphConfig,
    name: str,
    source: ResolvedSource | None,
    rows: Mapping[str, NodeRows],
    opened: list[LinkRows],
) -> LinkRows:
    """Read the table of a relation; relations of the same table that are `opened` share it."""
    relation, edge_type = config.relations[name], config.edge_types[name][0]
    if isinstance(relation, ColumnLinks):
        every = rows[edge_type[0]].every
        lists = [every.items(a, relation.separator) for a in link_aliases(config, name)]
        select = (
            "SELECT row, source, target, place FROM (SELECT row, source, unnest(items) AS target, "
            "generate_subscripts(items, 1) AS place FROM (SELECT rowid AS row, id AS source, "
            f"flatten([{', '.join(lists)}]) AS items FROM {every.sql}))"
        )
        return LinkRows(name, edge_type, relation, every, select)
    assert source is not None
    columns = {
        "source": ColumnRequest(relation.source.column),
        "target": ColumnRequest(relation.target.column),
        **{f"where{i}": ColumnRequest(column) for i, column in enumerate(relation.where)},
    }
    if relation.weight is not None:
        columns["weight"] = ColumnRequest(relation.weight, "number")
    names = {alias: wanted.column for alias, wanted in columns.items()}
    tables = (links.table for links in opened if links.table.source.spec == source.spec)
    same = next((table for table in tables if table.columns == names), None)
    table = same or reader.read(source, columns)
    where = " AND ".join(f"where{i} = trim(?)" for i in range(len(relation.where)))
    select = f"SELECT rowid AS row, 1 AS place, source, target FROM {table.sql}"
    values = tuple(relation.where.values())
    return LinkRows(name, edge_type, relation, table, f"{select} WHERE {where or 'true'}", values)


def read_links(links: LinkRows, ids: Mapping[str, Ids]) -> tuple[Tensor, int]:
    """Find the numbers of the ends of a relation's links.

    Returns:
        Node numbers ``[2, E]``, and the number of dropped links to unknown ids.
    """
    found = links.table.reader.arrays(
        f"SELECT link.row, s.node AS source, t.node AS target FROM {links.numbered(ids)} "
        "ORDER BY link.row, link.place",
        *links.values,
    )
    row = column(found, "row", 0)
    ends = np.stack([column(found, end, -1) for end in ("source", "target")]).astype(np.int64)
    known: NDArray[np.bool_] = np.asarray((ends >= 0).all(axis=0))
    dropped = int((~known).sum())
    if dropped and links.relation.unknown == "refuse":
        _refuse(links, ends, int(np.flatnonzero(~known)[0]), row)
    if isinstance(links.relation, LinkTable) and links.relation.weight is not None:
        known = known & (_weights(links.table)[row] > 0)
    known = known & ~_repeated(links, ends, known, row)
    return torch.from_numpy(ends if known.all() else ends[:, known]), dropped


def repeated_how(links: LinkRows) -> str:
    """Return what to do with links that are there several times."""
    columns = isinstance(links.relation, ColumnLinks)
    return links.relation.duplicates or ("first" if columns else "all")


def say_repeated(links: LinkRows, again: int) -> None:
    """Note how many links are repetitions."""
    what = "each counts" if repeated_how(links) == "all" else "each is kept once"
    if again:
        links.table.reader.notes.append(
            f"{links.name}: {again:,} links are repetitions of others; {what}"
        )


def _repeated(
    links: LinkRows, ends: NDArray[np.int64], known: NDArray[np.bool_], row: NDArray[Any]
) -> NDArray[np.bool_]:
    """Return which links to leave out because an earlier one is the same."""
    places = np.flatnonzero(known)
    source, target = ends[:, places]
    _, first = np.unique(source * (target.max(initial=0) + 1) + target, return_index=True)
    repeated = known.copy()
    repeated[places[first]] = False
    how = repeated_how(links)
    if how == "error" and repeated.any():
        place = links.table.place(int(row[repeated.argmax()]))
        raise HanmeError(
            f"{place}: the link is there already; "
            f'duplicates = "first" in relations.{links.name} keeps one of each'
        )
    say_repeated(links, int(repeated.sum()))
    return repeated if how == "first" else np.zeros_like(repeated)


def _refuse(links: LinkRows, ends: NDArray[Any], place: int, row: NDArray[Any]) -> None:
    side, kind = (
        ("source", links.edge_type[0]) if ends[0, place] < 0 else ("target", links.edge_type[2])
    )
    value = links.table.reader.rows(
        f"SELECT {side} FROM ({links.select}) ORDER BY row, place LIMIT 1 OFFSET {place}",
        *links.values,
    )[0][0]
    what = "the id is empty" if value is None else f"no {kind} has the id {value[:60]!r}"
    if isinstance(links.relation, LinkTable):
        where = links.table.place(int(row[place]), side)
    else:
        where = f"{links.table.place(int(row[place]))}, column {', '.join(links.relation.columns)}"
    raise HanmeError(
        f'{where}: {what}; unknown = "drop" in relations.{links.name} leaves such links out'
    )


def _weights(table: Table) -> NDArray[np.float64]:
    values = numbers(table, "weight")
    wrong = np.flatnonzero(~(values >= 0) | (values > np.finfo(np.float32).max))
    if wrong.size:
        row = int(wrong[0])
        what = "empty" if np.isnan(values[row]) else f"{values[row]:g}"
        raise HanmeError(
            f"{table.place(row, 'weight')}: the weight is {what}; expected a number from 0 on"
        )
    return values
