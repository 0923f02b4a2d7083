"""Rules for tables: nodes or links, which table holds the target, and which column the label."""

from __future__ import annotations

import re

from hanme.common.text import unused_name
from hanme.data.tables.draft.keys import infer_keys
from hanme.data.tables.draft.names import SIDES, words_of
from hanme.data.tables.draft.profile import FEW_VALUES, ColumnProfile, ProfiledTable
from hanme.errors import HanmeError

NAME_WORDS = ("name", "title")
"""Words in the name of a column that holds names for people to read."""

LABEL_WORDS = (
    "label", "genre", "class", "category", "topic", "target", "fraud", "churn", "churned",
    "rating", "default", "defaulted", "readmitted",
)  # fmt: skip
"""Words in the name of a column of labels."""

OUTCOMES = (
    "status", "outcome", "species", "diagnosis", "response", "survived", "sentiment", "y", "result",
)  # fmt: skip
"""Whole names of columns of labels."""

KINDS = ("type", "kind", "flag")
"""Words in the name of a column that is the label unless another is."""

NO_LABELS = ("name", "title", "code", "id", "zip")
"""Words in the name of a column that is hardly the label."""

MAX_LABELS = 50
"""Maximum number of labels of a column that is taken for the label unless the user says so."""

MIN_LABELLED = 50
"""A table with fewer labelled rows is the target only if no other table has labels."""

MIN_ROWS = 5
"""Rows that a label needs: a rarer one can hardly be learnt."""

MIN_SCORE = 4
"""Score of a label from which on rows are rather to be classified than links."""

MAX_FACTS = 2_000_000
"""Maximum number of links whose numbers and dates become features of nodes: a node takes memory."""


def infer_roles(
    tables: list[ProfiledTable], target: str | None, label: str | None
) -> tuple[ProfiledTable, ColumnProfile | None]:
    """Set the role of each table; return the target and its label.

    The user may name the `target`, by its file or its node type, and the column of the `label`.
    """
    _name_types(tables)
    infer_keys(tables)
    chosen = _named_target(tables, target, label)
    for table in tables:
        own = table.own_columns()
        least = FEW_VALUES + 1 if any(column.measure for column in own) else 2
        ends = [column for column in own if _is_end(column, least)]
        table.is_links = table is not chosen and _is_links(table, ends, tables)
        table.is_nodes = not table.is_links
        table.ends = ends if table.is_links else []
    if not any(table.is_nodes for table in tables):
        nodes = max(tables, key=lambda table: table.size)
        nodes.is_nodes, nodes.is_links, nodes.ends = True, False, []
    nodes_tables = [table for table in tables if table.is_nodes]
    labels = {id(table): best for table in nodes_tables if (best := find_label(table))}
    if chosen is None:
        # The table with the likeliest label; without one, the one with most references, or rows.
        chosen = max(
            nodes_tables, key=lambda t: (labels.get(id(t), (-100,))[0], len(t.references), t.size)
        )
    column = labels[id(chosen)][1] if id(chosen) in labels else None
    if label is not None:
        column = next(c for c in chosen.columns if c.name == label)
    for table in tables:  # numbers and dates of links are facts about their ends
        table.is_nodes |= len(_measures(table)) > 0 and table.size <= MAX_FACTS
    return chosen, column


def _measures(table: ProfiledTable) -> list[ColumnProfile]:
    return [c for c in table.own_columns() if c.measure and c not in table.ends]


def _name_types(tables: list[ProfiledTable]) -> None:
    """Give each table a name of its own, by its ending if several have one: ml.item, ml.inter."""
    kinds = [table.kind for table in tables]
    taken: set[str] = set()
    for table in tables:
        if kinds.count(table.kind) > 1 and table.source.format:
            table.kind = re.sub(r"\W+", "_", table.title.rpartition(".")[2].lower())
        table.kind = unused_name(table.kind, taken, "")
        taken.add(table.kind)


def _is_end(column: ColumnProfile, least: int) -> bool:
    """Return whether the values of a column in a table of links are likely ids.

    Texts need the `least` number of values: beside numbers and dates, few are a category.
    """
    is_id = words_of(column.name)[-1] == "id" and not column.named(("year",))
    text = not column.number and column.date is None and column.words <= 4
    repeats = least <= column.distinct < 0.8 * column.filled
    return column.distinct >= 2 and (is_id or (text and repeats))


def _is_links(table: ProfiledTable, ends: list[ColumnProfile], tables: list[ProfiledTable]) -> bool:
    """Return whether rows link two others: two references, few other columns, no name.

    Columns such as ``source ID`` and ``target ID`` may have any columns beside them.
    """
    if any(reference.table is table for other in tables for reference in other.references):
        return False
    columns = table.referring
    sides = {words_of(column.name)[0] for column in columns} & SIDES
    if len(columns) == len(sides) == 2:
        return True
    if table.id is not None:
        label = find_label(table)
        has_name = any(column.named(NAME_WORDS) for column in table.columns)
        if has_name or (label is not None and label[0] >= MIN_SCORE):
            return False
    one_end_unknown = len(columns) == 1 and table.id is None and bool(ends)
    limit = 3 if one_end_unknown else max(2, len(columns))
    return len(columns) + one_end_unknown >= 2 and len(table.own_columns()) <= limit


def _named_target(
    tables: list[ProfiledTable], target: str | None, label: str | None
) -> ProfiledTable | None:
    """Return the table that the user names, or the only one with the label that the user names."""
    if target is None and label is None:
        return None
    chosen = tables
    if target is not None:
        names = {target.lower(), target.lower().split(".")[0]}
        chosen = [
            t for t in tables if names & {t.kind, t.title.lower(), t.title.lower().split(".")[0]}
        ]
        if not chosen:
            kinds = ", ".join(table.kind for table in tables)
            raise HanmeError(f"--target {target}: no such table; expected one of {kinds}")
    if label is not None:
        having = [t for t in chosen if any(c.name == label for c in t.columns)]
        if not having:
            columns = ", ".join(c.name for table in chosen for c in table.columns)[:300]
            raise HanmeError(f"--label {label}: no such column; expected one of {columns}")
        # The label of one table may be the id of another, which has its name.
        others = [t for t in having if t.id is None or t.id.name != label]
        having = others or having
        if len(having) > 1:
            kinds = " or ".join(table.kind for table in having)
            raise HanmeError(f"--label {label}: several tables have it; add --target {kinds}")
        chosen = having
    return chosen[0]


def find_label(table: ProfiledTable) -> tuple[int, ColumnProfile] | None:
    """Return the likeliest label of a table and its score, if there is one."""
    best = None
    for column in table.columns:
        score = _label_score(table, column)
        if score is not None and (best is None or score > best[0]):
            best = (score, column)
    return best


def _label_score(table: ProfiledTable, column: ColumnProfile) -> int | None:
    """Return how likely a column is the label, by its name and its empty cells."""
    by_name = _name_score(table, column)
    if column is table.id or is_split(column):
        return None
    if references := table.refers(column):
        # An id is the label only if it stands for a name such as that of a genre.
        is_lookup = len(references[0].table.columns) == 2 and not references[0].partial
        return by_name if is_lookup and by_name == 4 and column.values <= MAX_LABELS else None
    if column.date is not None or column.is_vector or column.is_object or column.is_address:
        return None
    if not 2 <= column.values <= min(MAX_LABELS, column.filled // 2):
        return None
    if not column.separator and column.second < min(MIN_ROWS, column.filled // 10):
        return None
    if column.number and by_name < 3:
        return None
    some_empty = column.filled < 0.95 * table.size
    return by_name + 2 * some_empty - 10 * (column.filled < MIN_LABELLED)


def _name_score(table: ProfiledTable, column: ColumnProfile) -> int:
    words = words_of(column.name)
    if set(words) <= set(words_of(table.kind)):  # such as churn in customer_churn.csv
        return 5
    if column.named(LABEL_WORDS):
        return 4
    if column.named(KINDS) or (len(words) == 1 and words[0] in OUTCOMES):
        return 3
    return -2 if column.named(NO_LABELS) else 0


def is_split(column: ColumnProfile) -> bool:
    """Return whether a column holds train, val and perhaps test."""
    return column.distinct <= 3 and {"train", "val"} <= set(column.examples) <= {
        "train", "val", "test"
    }  # fmt: skip


def count_labels(table: ProfiledTable, label: ColumnProfile) -> tuple[list[str], int]:
    """Return the three most frequent labels, and how many have fewer than ``MIN_ROWS`` rows.

    That number is 0 if fewer than two other labels would be left.
    """
    items = table.items(label, label.separator)
    counts = f"(SELECT item, count(*) AS n FROM {items} GROUP BY item)"
    examples, rare, others = table.select(
        f"list(item ORDER BY n DESC, item)[:3], count(*) FILTER (n < {MIN_ROWS}), "
        f"count(*) FILTER (n >= {MIN_ROWS})",
        counts,
    )
    return examples or [], rare if others >= 2 else 0
