"""Make a relation of each value of a column, such as the predicates of a knowledge graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hanme.common.numbers import untaken
from hanme.data.tables.read.reader import ColumnRequest, Reader
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import LinkTable, Relation
from hanme.errors import HanmeError
from hanme.graph.metapath import EdgeType

MOST_RELATIONS = 1000


def expand(
    config: GraphConfig,
    path: Path,
    known: Collection[EdgeType] | None = None,
    frames: Mapping[str, Any] | None = None,
) -> GraphConfig:
    """Return a configuration in which no relation has ``each``.

    Values of which every link would be dropped are left out. Where a trained run has the ``known``
    edge types, its values are kept instead, and no others.
    """
    if not any(isinstance(r, LinkTable) and r.each for r in config.relations.values()):
        return config
    found: dict[str, Relation] = {}
    for name, relation in config.relations.items():
        if not isinstance(relation, LinkTable) or relation.each is None:
            found[name] = relation
            continue
        ends, mine = (relation.source.type, relation.target.type), set[str]()
        values = _values(config, relation, path.parent, name, frames, kept=known is None)
        if known is not None:  # "is 2" is is_2, before the second "is" could be
            values.sort(key=lambda value: (ends[0], _plain(value), ends[1]) not in known)
        for value in values:
            plain = _plain(value)
            own: str | None = untaken(plain, found)
            if known is not None:
                mates = {n for source, n, target in known if (source, target) == ends}
                own = _known_as(plain, mates - found.keys(), {n for _, n, _ in known})
                if own is None and plain in mine:
                    raise HanmeError(
                        f"{path}: relations.{name}: {value!r} in column {relation.each} reads as "
                        f"{plain} too, which the run knows by one value alone; rename it"
                    )
            if own is not None:
                mine.add(plain)
                where = relation.where | {relation.each: value}
                found[own] = relation.model_copy(update={"each": None, "where": where})
    config = config.changed(relations=found)
    try:
        config.check_names()
    except ValueError as error:
        raise HanmeError(f"{path}: {error}") from None
    return config


def _known_as(plain: str, names: Collection[str], taken: Collection[str]) -> str | None:
    """Return which of some names a value that reads so had in a run.

    That is ``knows``, or ``knows_2`` if another relation of the run has taken ``knows``.
    """
    numbered = re.compile(rf"{re.escape(plain)}_\d+")
    fits = [n for n in names if n == plain or (plain in taken and numbered.fullmatch(n))]
    return min(fits, key=lambda name: (len(name), name), default=None)


def _values(
    config: GraphConfig,
    relation: LinkTable,
    folder: Path,
    name: str,
    frames: Mapping[str, Any] | None,
    *,
    kept: bool,
) -> list[str]:
    """Return the values that make a relation each; `kept`: only those with a link that is kept."""
    where, values = f"relations.{name}", relation.where.values()
    source = ResolvedSource.find(relation, folder, where, frames)
    ends = {"source": relation.source, "target": relation.target}
    ids = {
        side: (ResolvedSource.find(spec, folder, f"nodes.{end.type}", frames), spec.id)
        for side, end in ends.items()
        if kept and relation.unknown == "drop" and end.type not in _added(config)
        and (spec := config.node_types[end.type]).id
    }  # fmt: skip
    with Reader([source, *(nodes for nodes, _ in ids.values())], folder) as reader:
        columns = {"value": ColumnRequest(relation.each or "")}
        columns |= {side: ColumnRequest(ends[side].column) for side in ids}
        columns |= {f"where{i}": ColumnRequest(column) for i, column in enumerate(relation.where)}
        table = reader.read(source, columns)
        some = "".join(f" AND where{i} = trim(?)" for i in range(len(relation.where)))
        known = ""
        for side, (nodes, column) in ids.items():
            found = reader.read(nodes, {"id": ColumnRequest(column or "")})
            known += f" AND {side} IN (SELECT id FROM {found.sql})"
        select = f"SELECT DISTINCT value FROM {table.sql} WHERE value IS NOT NULL{some}"
        rows = reader.rows(f"{select}{known} ORDER BY value LIMIT {MOST_RELATIONS + 1}", *values)
        if not rows and not (known and reader.rows(f"{select} LIMIT 1", *values)):
            raise HanmeError(f"{table.column_title('value')}: every cell is empty")
    if not rows:
        raise HanmeError(
            f"{where}: no row of {table.source.title} has a known id of "
            f"{' and '.join(ends[side].type for side in ids)}, so every link would be dropped; "
            "leave the relation out"
        )
    if len(rows) > MOST_RELATIONS:
        raise HanmeError(
            f"{table.column_title('value')}: more than {MOST_RELATIONS:,} different values, too "
            "many for a relation each"
        )
    return [value for (value,) in rows]


def _added(config: GraphConfig) -> set[str]:
    """Return the node types that relations add nodes to."""
    adding = (config.edge_types[n][0] for n, r in config.relations.items() if r.unknown == "add")
    return {kind for source, _, target in adding for kind in (source, target)}


def _plain(value: str) -> str:
    """Return a value as the name of a relation; http://x/ns#bornIn becomes bornIn."""
    last = re.split(r"[/#]", value.strip().rstrip("/#>"))[-1] if "://" in value else value
    return re.sub(r"\W+", "_", last).strip("_") or "relation"
