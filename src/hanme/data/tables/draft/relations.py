"""Rules for relations: between rows that share a value, and in tables of links."""

from __future__ import annotations

import re
from itertools import product
from typing import NamedTuple

from hanme.data.tables.draft.draft import Draft, Field
from hanme.data.tables.draft.names import value_type
from hanme.data.tables.draft.profile import FEW_VALUES, ColumnProfile, ProfiledTable, Reference
from hanme.data.tables.read.sql import quoted
from hanme.data.tables.schema.sections import Source

MAX_NEIGHBOURS = 100
"""Mean number of rows with the same value up to which a column is a relation.

On two tables (one seed), more took 1.2 to 5 times as long for at most 1 % of the Brier score.
"""

MIN_REPETITION = 3
"""Mean number of rows from which on unknown ids become nodes."""

MIN_LINKS = 5
"""Fewer links between two tables are taken for accidents, if a column has ids of several."""


class LinkEnd(NamedTuple):
    """One end of the links of a table."""

    kind: str  # its node type
    column: ColumnProfile  # of ids
    reference: Reference | None = None  # unless the ids are its own or of no table


def relation_columns(
    table: ProfiledTable, columns: list[ColumnProfile]
) -> list[list[ColumnProfile]]:
    """Return the columns that become relations, as groups such as ``actor_1`` and ``actor_2``."""
    by_name: dict[str, list[ColumnProfile]] = {}
    for column in columns:
        if _can_link(column):
            by_name.setdefault(re.sub(r"\d+", "#", column.name), []).append(column)
    chosen = []
    for group in by_name.values():
        together = len(group) > 1 and _links_well(table, group)
        chosen += [group] if together else [[c] for c in group if _links_well(table, [c])]
    return chosen


def _can_link(column: ColumnProfile) -> bool:
    """Return whether values of a column repeat, so that it could link rows."""
    if column.distinct < 2 or column.date is not None or column.is_vector or column.is_object:
        return False
    if column.separator:
        parts = column.splits[column.separator]
        return parts.total >= 1.2 * parts.distinct
    if column.number and not column.named(("id", "code", "key", "zip")):
        return False
    return column.distinct <= 0.8 * column.filled and column.words < 6


def _links_well(table: ProfiledTable, columns: list[ColumnProfile]) -> bool:
    """Return whether columns have many values, and few rows share one."""
    items = " UNION ALL ".join(f"FROM {table.items(c, c.separator)}" for c in columns)
    values, rows, pairs = table.select(
        "count(*), sum(n), sum(n * n)", f"(SELECT count(*) AS n FROM ({items}) GROUP BY item)"
    )
    return bool(values > FEW_VALUES and pairs <= MAX_NEIGHBOURS * rows)


def add_column_relation(
    draft: Draft,
    table: ProfiledTable,
    columns: list[ColumnProfile],
    reference: Reference | None = None,
) -> None:
    """Add a relation from columns of a node table to a table, or to nodes made of their values."""
    first, is_target = columns[0], table.kind == draft.target
    stem = value_type(first.name, numbered=len(columns) > 1)
    separator = reference.separator if reference else first.separator
    name = stem if is_target else f"{table.kind}_{stem}"
    if reference and reference.partial:
        name = f"{name}_{reference.table.kind}"
    if reference and reference.where:  # only links have a condition
        if table.id is not None:
            own = LinkEnd(table.kind, table.id)
            _add_links(draft, table, name, (own, LinkEnd(reference.table.kind, first, reference)))
        return
    values = {
        "columns": [column.name for column in columns],
        "separator": separator,
        "source": None if is_target else table.kind,
    }
    reason = f"{first.distinct:,} {'different cells' if separator else 'values'}"
    place = draft.add_relation(name, values, reason)
    kind = reference.table.kind if reference else draft.new_type(place[1])
    draft.set((*place, "type"), kind if kind != place[1] else None)
    if reference and reference.unknown_rows:
        said = f"{reference.unknown_rows:,} values are not ids of {kind}"
        _set_unknown(draft, place, said, [reference])


def add_link_relations(draft: Draft, table: ProfiledTable) -> None:
    """Add the relations of a table of links: one for each pair of tables that it links."""
    columns = table.referring
    first, *others = columns + table.ends[: max(0, 2 - len(columns))]
    more = [
        column
        for column in table.ends
        if column not in others and not column.separator and _links_well(table, [column])
    ]
    to_target = (r.column for r in table.references if r.table.kind == draft.target)
    start = next(to_target, first)
    pairs = [(first, end) for end in others] + [(start, end) for end in more]
    used = [*columns, *others, *more, table.id]
    each = [
        c for c in table.columns if c not in used and not c.number and 2 <= c.distinct <= FEW_VALUES
    ]
    for begin, end in pairs:
        is_main = len(others) == 1 and end in others
        name = table.kind if is_main else f"{table.kind}_{value_type(end.name)}"
        sources, targets = _link_ends(draft, table, begin), _link_ends(draft, table, end)
        several = len(sources) * len(targets) > 1
        for source, target in product(sources, targets):
            ends = (source, target)
            if several and _count_links(table, ends) < MIN_LINKS < table.size:
                continue
            own = f"{name}_{source.kind}_{target.kind}" if several else name
            place = _add_links(draft, table, own, ends)
            for column in each:
                examples = ", ".join(column.examples) + ", ..." * (column.distinct > 3)
                reason = f"would make one relation per {column.name}: {examples}"
                draft.set((*place, f'each = "{column.name}"'), None, reason)


def _link_ends(draft: Draft, table: ProfiledTable, column: ColumnProfile) -> list[LinkEnd]:
    """Return an end for each table whose ids a column has, or one of a type without a table."""
    ends = [LinkEnd(r.table.kind, column, r) for r in table.refers(column)]
    return ends or [LinkEnd(draft.implied_type(value_type(column.name)), column)]


def _add_links(
    draft: Draft, table: ProfiledTable, name: str, ends: tuple[LinkEnd, LinkEnd]
) -> Field:
    """Add a relation of the rows of a table, with what to do with unknown ids."""
    references = [end.reference for end in ends if end.reference]
    partial = any(reference.partial for reference in references)
    rows = _count_links(table, ends) if partial else table.size
    values = source_values(table.source)
    for side, end in zip(("source", "target"), ends, strict=True):
        values[side] = {"type": end.kind, "column": end.column.name}
    where = {column: value for r in references for column, value in r.where.items()}
    values["where"] = where or None
    name = re.sub(r"\W+", "_", name.lower()).strip("_")
    place = draft.add_relation(name, values, f"{rows:,} rows")
    if partial:
        draft.set((*place, "unknown"), "drop", "leaves out rows with ids of other tables")
        return place
    empty = max(table.size - end.column.filled for end in ends)
    unknown = max([empty, *(table.size - r.column.filled + r.unknown_rows for r in references)])
    if unknown:
        _set_unknown(draft, place, f"{unknown:,} rows name no known id", references)
    return place


def _count_links(table: ProfiledTable, ends: tuple[LinkEnd, LinkEnd]) -> int:
    """Return the number of rows in which each end with a reference has an id of its table."""
    aliases = {column.name: column.alias for column in table.columns}
    conditions = ["true"]
    for reference in [end.reference for end in ends if end.reference]:
        other = reference.table
        conditions += [f"{aliases[name]} = {quoted(v)}" for name, v in reference.where.items()]
        if other.id is not None:
            ids = f"SELECT {other.id.alias} FROM {other.table.sql}"
            conditions.append(f"{reference.column.alias} IN ({ids})")
    (count,) = table.select(f"count(*) FILTER ({' AND '.join(conditions)})")
    return int(count)


def source_values(source: Source) -> dict[str, object]:
    """Return where rows come from, as ``graph.toml`` has it."""
    return source.model_dump(exclude_defaults=True)


def _set_unknown(draft: Draft, place: Field, said: str, references: list[Reference]) -> None:
    """Set what to do with unknown ids: those that repeat become nodes, but not of the target."""
    some = [reference for reference in references if reference.unknown_rows]
    add = bool(some) and all(
        r.unknown_rows >= MIN_REPETITION * r.unknown_ids
        and r.table.kind != draft.target
        and not r.partial
        for r in some
    )
    then = "they become nodes without features" if add else "such links are left out"
    draft.set((*place, "unknown"), "add" if add else "drop", f"{said}: {then}")
