"""Make a relation of each value of a column, such as the predicates of a knowledge graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from hanme.data.tables.read.reader import ColumnRequest, Reader
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import LinkTable, Relation
from hanme.errors import HanmeError
from hanme.graph.metapath import EdgeType

MAX_RELATIONS = 1000
"""Maximum number of relations that a column makes: a column with more is hardly a predicate."""


def expand_each(
    config: GraphConfig,
    path: Path,
    known: Collection[EdgeType] | None = None,
    frames: Mapping[str, Any] | None = None,
) -> GraphConfig:
    """Return a configuration in which no relation has ``each``.

    Values whose links would all be dropped are left out. If a trained run has the `known` edge
    types, its values are used instead, and no others.
    """
    if not any(isinstance(r, LinkTable) and r.each for r in config.relations.values()):
        return config
    relations: dict[str, Relation] = {}
    for name, relation in config.relations.items():
        if not isinstance(relation, LinkTable) or relation.each is None:
            relations[name] = relation
            continue
        values = _values(config, relation, path.parent, name, frames, only_linked=known is None)
        for own, value in _names(name, relation, values, known, relations).items():
            where = relation.where | {relation.each: value}
            relations[own] = relation.model_copy(update={"each": None, "where": where})
    config = config.changed(relations=relations)
    try:
        config.check_names()
    except ValueError as error:
        raise HanmeError(f"{path}: {error}") from None
    return config


def _names(
    relation_name: str,
    relation: LinkTable,
    values: list[str],
    known: Collection[EdgeType] | None,
    taken: Collection[str],
) -> dict[str, str]:
    """Return a name for each value, and of a trained run only those that it has a relation for.

    The value ``born in`` is ``born_in``, or ``fact_born_in`` if another relation is called so; of
    values that read alike, the later ones are numbered.
    """
    names: dict[str, str] = {}
    by_name: dict[str, list[str]] = {}
    for value in values:
        by_name.setdefault(_plain_name(value), []).append(value)
    source, target = relation.source.type, relation.target.type
    for plain, alike in by_name.items():
        options = chain([plain], (f"{relation_name}_{plain}{i or ''}" for i in count()))
        if known is None:
            free = (name for name in options if name not in taken and name not in names)
            names |= {next(free): value for value in alike}
            continue
        own = [name for name in islice(options, 100) if (source, name, target) in known]
        if own and len(alike) > len(own):
            raise HanmeError(
                f"relations.{relation_name}: {' and '.join(map(repr, alike))} in column "
                f"{relation.each} both read as {plain}, which the run has fewer relations for"
            )
        names |= dict(zip(own, alike, strict=False))
    return names


def _values(
    config: GraphConfig,
    relation: LinkTable,
    folder: Path,
    name: str,
    frames: Mapping[str, Any] | None,
    *,
    only_linked: bool,
) -> list[str]:
    """Return the values of the column, or only those with a link that is not dropped."""
    where, values = f"relations.{name}", relation.where.values()
    source = ResolvedSource.find(relation, folder, where, frames)
    ends = {"source": relation.source, "target": relation.target}
    ids = {
        side: (ResolvedSource.find(spec, folder, f"nodes.{end.type}", frames), spec.id)
        for side, end in ends.items()
        if only_linked and relation.unknown == "drop" and end.type not in _growing_types(config)
        and (spec := config.node_types[end.type]).id
    }  # fmt: skip
    with Reader([source, *(nodes for nodes, _ in ids.values())], folder) as reader:
        columns = {"value": ColumnRequest(relation.each or "")}
        columns |= {side: ColumnRequest(ends[side].column) for side in ids}
        columns |= {f"where{i}": ColumnRequest(column) for i, column in enumerate(relation.where)}
        table = reader.read(source, columns)
        rows = "".join(f" AND where{i} = trim(?)" for i in range(len(relation.where)))
        linked = ""
        for side, (nodes, column) in ids.items():
            node_ids = reader.read(nodes, {"id": ColumnRequest(column or "")})
            linked += f" AND {side} IN (SELECT id FROM {node_ids.sql})"
        select = f"SELECT DISTINCT value FROM {table.sql} WHERE value IS NOT NULL{rows}"
        found = reader.rows(f"{select}{linked} ORDER BY value LIMIT {MAX_RELATIONS + 1}", *values)
        if not found and not (linked and reader.rows(f"{select} LIMIT 1", *values)):
            raise HanmeError(f"{table.column_title('value')}: every cell is empty")
    if not found:
        raise HanmeError(
            f"{where}: no row of {table.source.title} has a known id of "
            f"{' and '.join(ends[side].type for side in ids)}, so every link would be dropped; "
            "leave the relation out"
        )
    if len(found) > MAX_RELATIONS:
        raise HanmeError(
            f"{table.column_title('value')}: more than {MAX_RELATIONS:,} different values, too "
            "many for one relation each"
        )
    return [value for (value,) in found]


def _growing_types(config: GraphConfig) -> set[str]:
    """Return the node types that relations add nodes to."""
    adding = (config.edge_types[n][0] for n, r in config.relations.items() if r.unknown == "add")
    return {kind for source, _, target in adding for kind in (source, target)}


def _plain_name(value: str) -> str:
    """Return a value as the name of a relation; http://x/ns#bornIn becomes bornIn."""
    last = re.split(r"[/#]", value.strip().rstrip("/#>"))[-1] if "://" in value else value
    return re.sub(r"\W+", "_", last).strip("_") or "relation"
