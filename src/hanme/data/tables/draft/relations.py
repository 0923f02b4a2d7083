"""Rules for relations: between rows that share a value, in tables of links and of facts."""

from __future__ import annotations

import re

from hanme.data.tables.draft.draft import Draft, Field
from hanme.data.tables.draft.profile import (
    FEW_VALUES,
    ColumnProfile,
    ProfiledTable,
    Reference,
    singular,
    words_of,
)
from hanme.data.tables.schema.sections import Source

MAX_NEIGHBOURS = 300
"""Mean number of neighbours above which a relation costs more than it tells."""

MIN_REPETITION = 3
"""Mean number of rows from which on unknown ids become nodes."""


def relation_columns(
    table: ProfiledTable, columns: list[ColumnProfile], linked: bool
) -> list[list[ColumnProfile]]:
    """Return the columns that become relations, as groups such as ``actor_1`` and ``actor_2``.

    If the table is not `linked` otherwise, that is at least the group that links the fewest pairs
    of rows.
    """
    by_name: dict[str, list[ColumnProfile]] = {}
    for column in columns:
        if can_link(column):
            by_name.setdefault(re.sub(r"\d+", "#", column.name), []).append(column)
    groups = list(by_name.values())
    chosen = [g for g in groups if len(g) > 1 or any(_links_well(table, c) for c in g)]
    if groups and not chosen and not linked:
        chosen = [min(groups, key=lambda group: sum(_pairs(table, c) for c in group))]
    return chosen


def add_column_relation(
    draft: Draft,
    table: ProfiledTable,
    columns: list[ColumnProfile],
    reference: Reference | None = None,
) -> None:
    """Add a relation from columns of a node table to a table, or to nodes made of their values."""
    first, is_target = columns[0], table.kind == draft.target
    stem = _stem(first.plain, numbered=len(columns) > 1)
    separator = reference.separator if reference else first.separator
    place = draft.add_relation(
        stem if is_target else f"{table.kind}_{stem}",
        {
            "columns": [column.name for column in columns],
            "separator": separator,
            "source": None if is_target else table.kind,
        },
        f"{first.distinct:,} {'different cells' if separator else 'values'}",
    )
    kind = reference.table.kind if reference else draft.new_type(place[1])
    draft.set((*place, "type"), kind if kind != place[1] else None)
    if reference and reference.unknown_rows:
        said = f"{reference.unknown_rows:,} values are not ids of {kind}"
        _set_unknown(draft, place, said, [reference])


def add_link_relations(draft: Draft, table: ProfiledTable) -> None:
    """Add the relations of a table of links."""
    columns = [reference.column for reference in table.references]
    first, *others = columns + table.ends[: max(0, 2 - len(columns))]
    more = [
        column
        for column in table.ends
        if column not in others and not column.separator and _links_well(table, column)
    ]
    to_target = (r.column for r in table.references if r.table.kind == draft.target)
    start = next(to_target, first)
    pairs = [(first, end) for end in others] + [(start, end) for end in more]
    for source, end in pairs:
        is_main = len(others) == 1 and end in others
        name = table.kind if is_main else f"{table.kind}_{_stem(end.plain)}"
        place = draft.add_relation(
            re.sub(r"\W+", "_", name.lower()).strip("_"),
            source_values(table.source)
            | {"source": _end(draft, table, source), "target": _end(draft, table, end)},
            f"{table.size:,} rows",
        )
        references = [r for c in (source, end) if (r := table.refers(c))]
        unknown = max(
            table.size - c.filled + (r.unknown_rows if (r := table.refers(c)) else 0)
            for c in (source, end)
        )
        if unknown:
            _set_unknown(draft, place, f"{unknown:,} rows name no known id", references)
    used = [*columns, *others, *more, table.id]
    for column in table.columns:
        if column not in used and 2 <= column.distinct <= FEW_VALUES:
            examples = ", ".join(column.examples) + ", ..." * (column.distinct > 3)
            reason = f"would make one relation per {column.name}: {examples}"
            draft.set((*place, f'each = "{column.name}"'), None, reason)


def add_fact_relations(draft: Draft, table: ProfiledTable, target: ProfiledTable) -> None:
    """Add the relations of a table of facts, one for each value of the middle column.

    If most facts have a target at one end and hardly any at both, the other ends are nodes of
    another type: an actor is not a film.
    """
    assert table.facts is not None
    head, relation, tail = table.facts
    both, heads, tails = _facts_at_target(table, target)
    kind, name = target.kind, table.kind
    if 2 * (both + heads + tails) > table.size and 10 * both < both + heads + tails:
        if "entity" not in draft.implied:
            draft.implied.append(draft.new_type("entity"))
        other = draft.implied[-1]
        relations = [
            (heads and heads + both, f"{name}_of", (kind, other), f"start at a {kind}"),
            (tails and tails + both, f"{name}_to", (other, kind), f"end at a {kind}"),
            (both, f"{name}_between", (kind, kind), "do both"),
        ]
        unknown, why = "drop", "leaves out the other facts"
    else:
        relations = [(table.size, name, (kind, kind), "in all")]
        unknown, why = "add", f"ids that are in no other table become nodes of {kind}"
    more = ", ..." if relation.distinct > len(relation.examples) else ""
    for count, title, types, what in relations:
        if not count:
            continue
        ends = {
            "source": {"type": types[0], "column": head.name},
            "target": {"type": types[1], "column": tail.name},
        }
        place = draft.add_relation(
            title, source_values(table.source) | ends, f"{count:,} facts {what}"
        )
        each = f"one relation for each of {', '.join(relation.examples)}{more}"
        draft.set((*place, "each"), relation.name, each)
        draft.set((*place, "unknown"), unknown, why)


def source_values(source: Source) -> dict[str, object]:
    """Return where rows come from, as ``graph.toml`` has it."""
    return source.model_dump(exclude_defaults=True)


def _facts_at_target(table: ProfiledTable, target: ProfiledTable) -> tuple[int, int, int]:
    """Count the facts that have a target at both ends, only at the head, only at the tail."""
    if target.id is None or table.facts is None:
        return 0, 0, 0
    ids = f"(SELECT {target.id.alias} FROM {target.table.sql})"
    head, tail = (f"coalesce({table.facts[i].alias} IN {ids}, false)" for i in (0, 2))
    both, heads, tails = table.select(
        "count(*) FILTER (head AND tail), count(*) FILTER (head AND NOT tail), "
        "count(*) FILTER (tail AND NOT head)",
        f"(SELECT {head} AS head, {tail} AS tail FROM {table.table.sql})",
    )
    return both, heads, tails


def can_link(column: ColumnProfile) -> bool:
    """Return whether values of a column repeat, so that it could link rows."""
    if column.distinct < 2 or column.date is not None or column.is_vector or column.is_object:
        return False
    if column.separator:
        parts = column.splits[column.separator]
        return parts.total >= 1.2 * parts.distinct
    if column.number and not column.named(("id", "code", "key", "zip")):
        return False
    return column.distinct <= 0.8 * column.filled and column.words < 6


def _links_well(table: ProfiledTable, column: ColumnProfile) -> bool:
    """Return whether a column links rows without linking everything to everything."""
    few_pairs = _pairs(table, column) <= MAX_NEIGHBOURS * column.filled
    return column.values > FEW_VALUES and few_pairs


def _pairs(table: ProfiledTable, column: ColumnProfile) -> int:
    """Return how many pairs of rows share a value; a row and itself is one of them."""
    if column.number:
        return 0
    items = table.items(column, column.separator)
    (pairs,) = table.select(
        "coalesce(sum(n * n), 0)::BIGINT", f"(SELECT count(*) AS n FROM {items} GROUP BY item)"
    )
    return int(pairs)


def _set_unknown(draft: Draft, place: Field, said: str, references: list[Reference]) -> None:
    """Set what to do with unknown ids: those that repeat become nodes, but not of the target."""
    some = [reference for reference in references if reference.unknown_rows]
    add = bool(some) and all(
        r.unknown_rows >= MIN_REPETITION * r.unknown_ids and r.table.kind != draft.target
        for r in some
    )
    then = "they become nodes without features" if add else "such links are left out"
    draft.set((*place, "unknown"), "add" if add else "drop", f"{said}: {then}")


def _end(draft: Draft, table: ProfiledTable, column: ColumnProfile) -> dict[str, str]:
    """Return an end of a relation, of a new node type if the column refers to no table."""
    if reference := table.refers(column):
        return {"type": reference.table.kind, "column": column.name}
    kind = _stem(column.plain)
    if kind not in draft.implied:
        kind = draft.new_type(kind)
        draft.implied.append(kind)
    return {"type": kind, "column": column.name}


def _stem(name: str, *, numbered: bool = False) -> str:
    """Return what a column's values are: ``actor_1_name`` are of type actor."""
    words = [word for word in words_of(name) if word]
    short = [w for w in words if w not in ("id", "name", "key") and not (numbered and w.isdigit())]
    stem = "_".join(short or words) or "value"
    return f"value_{stem}" if stem[0].isdigit() else singular(stem)
