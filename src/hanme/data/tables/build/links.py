"""Read the links of tables: from tables of links, and from columns of node tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from hanme.data.tables.build.nodes import NodeIds, link_aliases
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import ColumnLinks, LinkTable
from hanme.errors import HanmeError
from hanme.graph import EdgeType

MAX_RELATIONS = 1000
"""Maximum number of relations that a column makes: a column with more is hardly a predicate."""


@dataclass(frozen=True)
class LinkRows:
    """The rows of a relation, before their ids are numbered."""

    name: str  # the relation
    edge_type: EdgeType
    spec: LinkTable | ColumnLinks  # its section of ``graph.toml``
    table: Table  # the table that the rows are in
    select: str  # the rows in SQL: columns row, source, target
    values: tuple[str, ...] = ()  # the parameters of `select`

    def add_ids(self, ids: Mapping[str, NodeIds]) -> None:
        """Add the ids of node types that have no table, or to which unknown ids are added.

        If links to unknown ids are dropped, ids that only these links name are not added.
        """
        ends = [("source", ids[self.edge_type[0]]), ("target", ids[self.edge_type[2]])]
        for (side, near), (other, far) in (ends, ends[::-1]):
            if near.table is None or self.spec.unknown == "add":
                rows = f"SELECT {side} AS id, row FROM ({self.select})"
                if self.spec.unknown == "drop" and far.table is not None:
                    rows += f" WHERE {other} IN (SELECT id FROM {far.sql})"
                near.add(rows, *self.values)

    def number(self, source: NodeIds, target: NodeIds) -> tuple[str, int]:
        """Replace ids by node numbers.

        Returns:
            A table of the database with the columns source and target, and the number of links to
            unknown ids, which were dropped.
        """
        reader, links, kept = source.reader, source.reader.new_name(), source.reader.new_name()
        reader.rows(
            f"CREATE TEMP TABLE {links} AS SELECT row, s.node AS source, t.node AS target, "
            f"link.source AS source_id, link.target AS target_id FROM ({self.select}) AS link "
            f"LEFT JOIN {source.sql} AS s ON link.source = s.id "
            f"LEFT JOIN {target.sql} AS t ON link.target = t.id",
            *self.values,
        )
        known = f"source, target FROM {links} WHERE source IS NOT NULL AND target IS NOT NULL"
        ((total, count),) = reader.rows(
            f"SELECT (SELECT count(*) FROM {links}), (SELECT count(*) FROM (SELECT {known}))"
        )
        if not total:
            why = "where is true for no row" if self.values else "every cell is empty"
            reader.notes.append(f"{self.name}: no links, as {why} of {self.table.source.title}")
        if count < total and self.spec.unknown == "refuse":
            self._refuse_unknown(links)
        distinct = "DISTINCT " if isinstance(self.spec, ColumnLinks) else ""
        reader.rows(f"CREATE TEMP TABLE {kept} AS SELECT {distinct}{known}")
        reader.rows(f"DROP TABLE {links}")
        return kept, total - count

    def _refuse_unknown(self, links: str) -> None:
        ((row, known, source, target),) = self.table.reader.rows(
            f"SELECT row, source IS NOT NULL, source_id, target_id FROM {links} "
            "WHERE source IS NULL OR target IS NULL ORDER BY row LIMIT 1"
        )
        side, value = ("target", target) if known else ("source", source)
        kind = self.edge_type[2 if known else 0]
        what = "the id is empty" if value is None else f"no {kind} has the id {value[:60]!r}"
        where = self.table.place(row, side if isinstance(self.spec, LinkTable) else None)
        if isinstance(self.spec, ColumnLinks):
            where += f", column {', '.join(self.spec.columns)}"
        raise HanmeError(
            f'{where}: {what}; unknown = "drop" in relations.{self.name} leaves such links out'
        )


def open_relations(
    reader: Reader,
    config: GraphConfig,
    sources: Mapping[str, ResolvedSource],
    ids: Mapping[str, NodeIds],
    known: Collection[EdgeType] | None,
) -> dict[str, list[LinkRows]]:
    """Read the links of all relations, and add the ids that only they name.

    A relation with ``each`` becomes one per value; if a trained run has the `known` edge types,
    only those. Relations that add nodes come first, because others may link to these nodes.
    """
    opened: dict[str, list[LinkRows]] = {name: [] for name in config.relations}
    tables: dict[object, Table] = {}
    taken = set(config.relations)
    for name in sorted(config.relations, key=lambda name: config.relations[name].unknown != "add"):
        spec, edge_type = config.relations[name], config.edge_types[name][0]
        if isinstance(spec, ColumnLinks):
            opened[name].append(_column_links(config, name, ids[edge_type[0]]))
        else:
            source = sources[f"relations.{name}"]
            columns = {"source": spec.source.column, "target": spec.target.column}
            columns |= {f"where{i}": column for i, column in enumerate(spec.where)}
            columns |= {"each": spec.each} if spec.each else {}
            key = (source.spec.model_dump_json(), *columns.items())
            if key not in tables:
                requests = {alias: ColumnRequest(column) for alias, column in columns.items()}
                tables[key] = reader.read(source, requests)
            opened[name] += _table_links(name, spec, edge_type, tables[key], ids, known, taken)
        for links in opened[name]:
            taken.add(links.name)
            links.add_ids(ids)
    return opened


def _column_links(config: GraphConfig, name: str, owner: NodeIds) -> LinkRows:
    spec, table = config.relations[name], owner.table
    assert isinstance(spec, ColumnLinks)
    assert table is not None
    lists = [table.items(alias, spec.separator) for alias in link_aliases(config, name)]
    select = (
        f"SELECT rowid AS row, id AS source, unnest(flatten([{', '.join(lists)}])) AS target "
        f"FROM {table.sql}"
    )
    return LinkRows(name, config.edge_types[name][0], spec, table, select)


def _table_links(
    name: str,
    spec: LinkTable,
    edge_type: EdgeType,
    table: Table,
    ids: Mapping[str, NodeIds],
    known: Collection[EdgeType] | None,
    taken: Collection[str],
) -> Iterator[LinkRows]:
    """Yield the links of a table, by value if it has ``each``."""
    where = " AND ".join([f"where{i} = trim(?)" for i in range(len(spec.where))] or ["true"])
    select = f"SELECT rowid AS row, source, target FROM {table.sql} WHERE {where}"
    values = tuple(spec.where.values())
    if spec.each is None:
        yield LinkRows(name, edge_type, spec, table, select, values)
        return
    linked = ""
    if spec.unknown == "drop" and known is None:
        for side, kind in (("source", edge_type[0]), ("target", edge_type[2])):
            if ids[kind].table is not None:
                linked += f" AND {side} IN (SELECT id FROM {ids[kind].sql})"
    found = table.reader.rows(
        f"SELECT DISTINCT each FROM {table.sql} WHERE each IS NOT NULL AND {where}{linked} "
        f"ORDER BY each LIMIT {MAX_RELATIONS + 1}",
        *values,
    )
    if not 0 < len(found) <= MAX_RELATIONS:
        what = f"more than {MAX_RELATIONS:,} different values" if found else "no value has a link"
        raise HanmeError(f"relations.{name}: {what} in {table.column_title('each')}")
    own: set[str] = set()
    for (value,) in found:
        plain = _plain_name(value)
        types = [(edge_type[0], option, edge_type[2]) for option in (plain, f"{name}_{plain}")]
        fitting = [e for e in types if (e[1] not in taken if known is None else e in known)]
        if known is not None and not fitting:
            continue  # a relation that the run does not know
        if not fitting or fitting[0][1] in own:
            raise HanmeError(
                f"{table.column_title('each')}: {value!r} reads as {plain}, as another relation or "
                "value does; rename it"
            )
        own.add(fitting[0][1])
        part, own_values = f"{select} AND each = ?", (*values, value)
        yield LinkRows(fitting[0][1], fitting[0], spec, table, part, own_values)


def _plain_name(value: str) -> str:
    """Return a value as the name of a relation; http://x/ns#bornIn becomes bornIn."""
    last = re.split(r"[/#]", value.strip().rstrip("/#>"))[-1] if "://" in value else value
    return re.sub(r"\W+", "_", last).strip("_") or "relation"
