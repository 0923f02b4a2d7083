"""Rules for labels: which column is the label, and which is the split."""

from __future__ import annotations

from hanme.data.tables.draft.names import words_of
from hanme.data.tables.draft.profile import ColumnProfile, ProfiledTable

LABEL_WORDS = ("label", "genre", "class", "category", "topic", "target", "fraud", "churn")
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
    if reference := table.refers(column):
        # An id is the label only if it stands for a name such as that of a genre.
        is_lookup = len(reference.table.columns) == 2
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
