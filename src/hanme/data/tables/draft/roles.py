"""Rules for tables: nodes, links or facts, and which table holds the target."""

from __future__ import annotations

import re

from hanme.common.text import unused_name
from hanme.data.tables.draft.keys import infer_keys
from hanme.data.tables.draft.labels import find_label
from hanme.data.tables.draft.profile import ColumnProfile, ProfiledTable, words_of
from hanme.errors import HanmeError

NAME_WORDS = ("name", "title")
"""Words in the name of a column that holds names for people to read."""

HEADS = ("head", "h", "subject", "subj", "s", "source", "from")
RELATIONS = ("relation", "rel", "r", "predicate", "pred", "p", "property", "type", "edge")
TAILS = ("tail", "t", "object", "obj", "o", "target", "to")
"""Names of the columns of a table of facts."""

MAX_RELATIONS = 1000
"""Maximum number of relations of a table of facts, the limit of ``each``."""


def infer_roles(
    tables: list[ProfiledTable], target: str | None, label: str | None
) -> tuple[ProfiledTable, ColumnProfile | None]:
    """Set the role of each table; return the target and its label.

    The user may name the `target`, by its file or its node type, and the column of the `label`.
    """
    _name_types(tables)
    for table in tables:
        table.facts = _find_facts(table)
    infer_keys(tables)
    chosen = _named_target(tables, target, label)
    for table in tables:
        rest = [c for c in table.columns if not table.refers(c) and c is not table.id]
        table.ends = [column for column in rest if _is_end(column)]
        table.is_nodes = table is chosen or not (table.facts or _is_links(table, tables))
        table.ends = [] if table.is_nodes else table.ends
    if not any(table.is_nodes for table in tables):
        max(tables, key=lambda t: (t.facts is None, t.size)).is_nodes = True
    nodes = [table for table in tables if table.is_nodes]
    labels = {id(table): best for table in nodes if (best := find_label(table))}
    if chosen is None:
        # The table with the likeliest label; without one, the one with most references, or rows.
        chosen = max(
            nodes, key=lambda t: (labels.get(id(t), (-100,))[0], len(t.references), t.size)
        )
    column = labels[id(chosen)][1] if id(chosen) in labels else None
    if label is not None:
        column = next(c for c in chosen.columns if label in (c.name, c.plain))
    chosen.references = [r for r in chosen.references if r.column is not column]
    return chosen, column


def _name_types(tables: list[ProfiledTable]) -> None:
    """Give each table a name of its own, by its ending if several have one: ml.item, ml.inter."""
    kinds = [table.kind for table in tables]
    taken: set[str] = set()
    for table in tables:
        if kinds.count(table.kind) > 1 and table.source.format:
            table.kind = re.sub(r"\W+", "_", table.title.rpartition(".")[2].lower())
        table.kind = unused_name(table.kind, taken, "")
        taken.add(table.kind)


def _find_facts(
    table: ProfiledTable,
) -> tuple[ColumnProfile, ColumnProfile, ColumnProfile] | None:
    """Return the columns of head, relation and tail of a table of facts."""
    by_name = [
        next((c for c in table.columns if c.plain.lower() in names), None)
        for names in (HEADS, RELATIONS, TAILS)
    ]
    head, relation, tail = by_name
    if head is None or relation is None or tail is None or len(table.columns) > 4:
        return None
    few = relation.distinct <= min(MAX_RELATIONS, max(2, relation.filled // 2))
    return (head, relation, tail) if few else None


def _is_end(column: ColumnProfile) -> bool:
    """Return whether the values of a column in a table of links are likely ids."""
    is_id = words_of(column.plain)[-1] == "id" or column.typed == "token"
    text = not column.number and column.date is None and column.words <= 4
    return column.distinct >= 2 and (is_id or (text and column.distinct < 0.8 * column.filled))


def _is_links(table: ProfiledTable, tables: list[ProfiledTable]) -> bool:
    """Return whether rows link two others: two references, few other columns, no name."""
    if any(reference.table is table for other in tables for reference in other.references):
        return False
    if table.id is not None and any(column.named(NAME_WORDS) for column in table.columns):
        return False
    columns = [reference.column for reference in table.references]
    rest = [c for c in table.columns if c not in columns and c is not table.id]
    one_end_unknown = len(columns) == 1 and table.id is None
    ends = len(columns) + (one_end_unknown and bool(table.ends))
    limit = max(2, len(columns)) + (len(table.ends) if one_end_unknown else 0)
    return ends >= 2 and len(rest) <= limit


def _named_target(
    tables: list[ProfiledTable], target: str | None, label: str | None
) -> ProfiledTable | None:
    """Return the table that the user names, or the only one with the label that the user names."""
    if target is None and label is None:
        return None
    chosen = tables
    if target is not None:
        chosen = [t for t in tables if target in (t.kind, t.title, t.title.split(".")[0])]
        if not chosen:
            kinds = ", ".join(table.kind for table in tables)
            raise HanmeError(f"--target {target}: no such table; expected one of {kinds}")
    if label is not None:
        having = [t for t in chosen if any(label in (c.name, c.plain) for c in t.columns)]
        if not having:
            columns = ", ".join(c.name for table in chosen for c in table.columns)[:300]
            raise HanmeError(f"--label {label}: no such column; expected one of {columns}")
        if len(having) > 1:
            kinds = " or ".join(table.kind for table in having)
            raise HanmeError(f"--label {label}: several tables have it; add --target {kinds}")
        chosen = having
    return chosen[0]
