"""Rules for relations: between rows that share a value, in tables of links and of facts."""

from __future__ import annotations

import re
from itertools import product

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
    partial = reference is not None and reference.partial
    name = stem if is_target else f"{table.kind}_{stem}"
    name = f"{name}_{reference.table.kind}" if reference and partial else name
    if reference and reference.where:  # columns know no condition
        if table.id is not None:
            own = {"type": table.kind, "column": table.id.name}
            rows = _count_links(table, [reference])
            _add_links(draft, table, name, (own, _end(reference)), [reference], rows)
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
    for source, end in pairs:
        is_main = len(others) == 1 and end in others
        name = table.kind if is_main else f"{table.kind}_{value_type(end.name)}"
        ends: list[list[tuple[dict[str, str], Reference | None]]] = [
            [(_end(r), r) for r in table.refers(column)] or [(_new_end(draft, column), None)]
            for column in (source, end)
        ]
        several = max(map(len, ends)) > 1
        for (from_, first_reference), (to, second_reference) in product(*ends):
            references = [r for r in (first_reference, second_reference) if r]
            rows = _count_links(table, references) if several else table.size
            if rows < MIN_LINKS < table.size:
                continue
            own = f"{name}_{from_['type']}_{to['type']}" if several else name
            place = _add_links(draft, table, own, (from_, to), references, rows)
            for column in each:
                examples = ", ".join(column.examples) + ", ..." * (column.distinct > 3)
                reason = f"would make one relation per {column.name}: {examples}"
                draft.set((*place, f'each = "{column.name}"'), None, reason)


def _add_links(
    draft: Draft,
    table: ProfiledTable,
    name: str,
    ends: tuple[dict[str, str], dict[str, str]],
    references: list[Reference],
    rows: int,
) -> Field:
    """Add a relation of the rows of a table, with what to do with unknown ids."""
    where = {key: value for r in references for key, value in r.where.items()}
    values = source_values(table.source) | {"source": ends[0], "target": ends[1]}
    name = re.sub(r"\W+", "_", name.lower()).strip("_")
    place = draft.add_relation(name, values | ({"where": where} if where else {}), f"{rows:,} rows")
    if any(reference.partial for reference in references):
        draft.set((*place, "unknown"), "drop", "leaves out rows with ids of other tables")
        return place
    columns = {end["column"] for end in ends}
    empty = max(table.size - c.filled for c in table.columns if c.name in columns)
    unknown = max([empty, *(table.size - r.column.filled + r.unknown_rows for r in references)])
    if unknown:
        _set_unknown(draft, place, f"{unknown:,} rows name no known id", references)
    return place


def _count_links(table: ProfiledTable, references: list[Reference]) -> int:
    """Return the number of rows in which all references name an id of their table."""
    names = {column.name: column.alias for column in table.columns}
    conditions = [
        f"{names[name]} = {quoted(value)}" for r in references for name, value in r.where.items()
    ] + [
        f"{r.column.alias} IN (SELECT {r.table.id.alias} FROM {r.table.table.sql})"
        for r in references
        if r.table.id is not None
    ]
    (count,) = table.select(f"count(*) FILTER ({' AND '.join(conditions) or 'true'})")
    return int(count)


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


def _end(reference: Reference) -> dict[str, str]:
    """Return an end of a relation at a table."""
    return {"type": reference.table.kind, "column": reference.column.name}


def _new_end(draft: Draft, column: ColumnProfile) -> dict[str, str]:
    """Return an end of a relation at a node type without a table."""
    kind = value_type(column.name)
    if kind not in draft.implied:
        kind = draft.new_type(kind)
        draft.implied.append(kind)
    return {"type": kind, "column": column.name}
