"""Read the links of tables: from tables of links, and from columns of node tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanme.data.tables.build.nodes import NodeIds, NodeRows, link_aliases
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import ColumnLinks, LinkTable
from hanme.errors import HanmeError
from hanme.graph import EdgeType

PER_ROW = 1 << 20
"""Links of a row that keep their order: a link's ordinal is row * PER_ROW + place in the row."""


@dataclass(frozen=True)
class NumberedLinks:
    """The links of a relation in the reader's database, by node number."""

    sql: str  # the links: columns source, target, ordinal
    reader: Reader
    edge_type: EdgeType
    sizes: tuple[int, int]  # the number of source and target nodes
    dropped: int  # the number of links to unknown ids that were dropped


@dataclass(frozen=True)
class LinkRows:
    """The rows of a relation, before their ids are numbered."""

    name: str  # the relation
    edge_type: EdgeType
    relation: LinkTable | ColumnLinks  # its section of ``graph.toml``
    table: Table  # the table that the rows are in
    select: str  # the rows in SQL: columns ordinal, source, target
    values: tuple[str, ...] = ()  # the parameters of `select`

    @property
    def reader(self) -> Reader:
        """The reader in whose database they are."""
        return self.table.reader

    @property
    def duplicates(self) -> str:
        """What to do with repeated links."""
        columns = isinstance(self.relation, ColumnLinks)
        return self.relation.duplicates or ("first" if columns else "all")

    def add_ids(self, ids: Mapping[str, NodeIds], implied: set[str]) -> None:
        """Add the ids of node types that have no table, or to which unknown ids are added."""
        for side, kind in (("source", self.edge_type[0]), ("target", self.edge_type[2])):
            if kind in implied or self.relation.unknown == "add":
                rows = f"SELECT {side} AS id, ordinal AS row FROM ({self.select})"
                ids[kind].add(rows, *self.values)

    def note_if_empty(self) -> None:
        """Note if no row is a link."""
        if not self.reader.rows(f"SELECT 1 FROM ({self.select}) LIMIT 1", *self.values):
            why = "where is true for no row" if self.values else "every cell is empty"
            self.reader.notes.append(
                f"{self.name}: no links, as {why} of {self.table.source.title}"
            )

    def number(self, ids: Mapping[str, NodeIds]) -> NumberedLinks:
        """Replace ids by node numbers; treat unknown ids and repeated links as the file says."""
        source, target = (ids[kind] for kind in self.edge_type[::2])
        links, kept = self.reader.new_name(), self.reader.new_name()
        self.reader.rows(
            f"CREATE TEMP TABLE {links} AS SELECT ordinal, s.node AS source, t.node AS target "
            f"FROM ({self.select}) AS link LEFT JOIN {source.sql} AS s ON link.source = s.id "
            f"LEFT JOIN {target.sql} AS t ON link.target = t.id",
            *self.values,
        )
        known = f"FROM {links} WHERE source IS NOT NULL AND target IS NOT NULL"
        ((total, count, distinct),) = self.reader.rows(
            f"SELECT (SELECT count(*) FROM {links}), count(*), "
            f"count(DISTINCT source * {max(1, target.size)} + target) {known}"
        )
        if count < total and self.relation.unknown == "refuse":
            self._refuse_unknown(links)
        if distinct < count:
            self._treat_repeated(count - distinct, known)
        columns, group = "source, target, ordinal", ""
        if self.duplicates == "first":
            columns, group = "source, target, min(ordinal) AS ordinal", " GROUP BY source, target"
        self.reader.rows(f"CREATE TEMP TABLE {kept} AS SELECT {columns} {known}{group}")
        self.reader.rows(f"DROP TABLE {links}")
        sizes = (source.size, target.size)
        return NumberedLinks(kept, self.reader, self.edge_type, sizes, total - count)

    def _treat_repeated(self, count: int, known: str) -> None:
        if self.duplicates == "error":
            ((ordinal,),) = self.reader.rows(
                f"SELECT min(again) FROM (SELECT min(ordinal, 2)[2] AS again {known} "
                "GROUP BY source, target HAVING count(*) > 1)"
            )
            raise HanmeError(
                f"{self.table.place(ordinal // PER_ROW)}: the link repeats an earlier one; "
                f'duplicates = "first" in relations.{self.name} keeps one of each'
            )
        what = "each counts" if self.duplicates == "all" else "each is kept once"
        self.reader.notes.append(f"{self.name}: {count:,} links are repetitions of others; {what}")

    def _refuse_unknown(self, links: str) -> None:
        ((ordinal, known, source, target),) = self.reader.rows(
            f"SELECT ordinal, links.source IS NOT NULL, rows.source, rows.target FROM {links} AS "
            f"links JOIN ({self.select}) AS rows USING (ordinal) WHERE links.source IS NULL OR "
            "links.target IS NULL ORDER BY ordinal LIMIT 1",
            *self.values,
        )
        side, kind, value = ("source", self.edge_type[0], source)
        if known:
            side, kind, value = ("target", self.edge_type[2], target)
        what = "the id is empty" if value is None else f"no {kind} has the id {value[:60]!r}"
        if isinstance(self.relation, LinkTable):
            where = self.table.place(ordinal // PER_ROW, side)
        else:
            columns = ", ".join(self.relation.columns)
            where = f"{self.table.place(ordinal // PER_ROW)}, column {columns}"
        raise HanmeError(
            f'{where}: {what}; unknown = "drop" in relations.{self.name} leaves such links out'
        )


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
            f"SELECT row * {PER_ROW} + generate_subscripts(items, 1) AS ordinal, source, "
            "unnest(items) AS target FROM (SELECT rowid AS row, id AS source, "
            f"flatten([{', '.join(lists)}]) AS items FROM {every.sql})"
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
    names = {alias: request.column for alias, request in columns.items()}
    tables = (links.table for links in opened if links.table.source.spec == source.spec)
    same = next((table for table in tables if table.columns == names), None)
    table = same or reader.read(source, columns)
    conditions = [f"where{i} = trim(?)" for i in range(len(relation.where))]
    if relation.weight is not None:
        _check_weights(table)
        conditions.append("weight > 0")
    select = f"SELECT rowid * {PER_ROW} AS ordinal, source, target FROM {table.sql}"
    select += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return LinkRows(name, edge_type, relation, table, select, tuple(relation.where.values()))


def _check_weights(table: Table) -> None:
    values = table.numbers("weight")
    for row in np.flatnonzero(~(values >= 0))[:1]:
        what = "empty" if np.isnan(values[row]) else f"{values[row]:g}"
        raise HanmeError(
            f"{table.place(int(row), 'weight')}: the weight is {what}; expected 0 or more"
        )
