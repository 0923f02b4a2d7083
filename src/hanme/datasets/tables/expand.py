"""Make a relation of each value of a column, such as the predicates of a knowledge graph."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from hanme.common.numbers import untaken
from hanme.datasets.tables.config import GraphConfig
from hanme.datasets.tables.keys import LinkTable, Relation
from hanme.datasets.tables.read import Reader, Wanted
from hanme.datasets.tables.sources import ResolvedSource
from hanme.errors import HanmeError

MOST_RELATIONS = 1000


def expand(
    config: GraphConfig,
    path: Path,
    known: Collection[str] | None = None,
    frames: Mapping[str, Any] | None = None,
) -> GraphConfig:
    """Return a configuration in which no relation has ``each``.

    Where a trained run has the ``known`` relations, those of other values are left out. So are
    values of which every link would be dropped.
    """
    found: dict[str, Relation] = {}
    for name, relation in config.relations.items():
        if not isinstance(relation, LinkTable) or relation.each is None:
            found[name] = relation
            continue
        for value in _values(config, relation, path.parent, name, frames):
            plain = _plain(value)
            own = untaken(plain, found)
            if known is not None and own != plain and own not in known:
                raise HanmeError(
                    f"{path}: relations.{name}: {value!r} in column {relation.each} reads as "
                    f"{plain} too, which the run knows by one value alone; rename it"
                )
            if known is None or own in known:
                where = relation.where | {relation.each: value}
                found[own] = relation.model_copy(update={"each": None, "where": where})
    if len(found) == len(config.relations) and set(found) == set(config.relations):
        return config
    config = config.changed(relations=found)
    try:
        config.check_names()
    except ValueError as error:
        raise HanmeError(f"{path}: {error}") from None
    return config


def _values(
    config: GraphConfig,
    relation: LinkTable,
    folder: Path,
    name: str,
    frames: Mapping[str, Any] | None,
) -> list[str]:
    source = ResolvedSource.find(relation, folder, f"relations.{name}", frames)
    ends = {"source": relation.source, "target": relation.target}
    ids = {
        side: (ResolvedSource.find(spec, folder, f"nodes.{end.type}", frames), spec.id)
        for side, end in ends.items()
        if relation.unknown == "drop" and (spec := config.node_types[end.type]).id
    }
    with Reader([source, *(nodes for nodes, _ in ids.values())], folder) as reader:
        columns = {"value": Wanted(relation.each or "")}
        columns |= {side: Wanted(ends[side].column) for side in ids}
        columns |= {f"where{i}": Wanted(column) for i, column in enumerate(relation.where)}
        table = reader.read(source, columns)
        where = "".join(f" AND where{i} = ?" for i in range(len(relation.where)))
        for side, (nodes, column) in ids.items():
            known = reader.read(nodes, {"id": Wanted(column or "")})
            where += f" AND {side} IN (SELECT id FROM {known.sql})"
        found = reader.rows(
            f"SELECT DISTINCT value FROM {table.sql} WHERE trim(value) <> ''{where} ORDER BY value "
            f"LIMIT {MOST_RELATIONS + 1}",
            *relation.where.values(),
        )
    if not found:
        why = "every link would be dropped" if ids else "every cell is empty"
        raise HanmeError(f"{table.column_title('value')}: {why}")
    if len(found) > MOST_RELATIONS:
        raise HanmeError(
            f"{table.column_title('value')}: more than {MOST_RELATIONS:,} different values, too "
            "many for a relation each"
        )
    return [value for (value,) in found]


def _plain(value: str) -> str:
    """Return a value as the name of a relation; http://x/ns#bornIn becomes bornIn."""
    last = re.split(r"[/#]", value.strip().rstrip("/#>"))[-1] if "://" in value else value
    return re.sub(r"\W+", "_", last).strip("_") or "relation"
