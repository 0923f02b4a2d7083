"""Rules for features: what a column becomes, or why it is left out."""

from __future__ import annotations

from typing import Any

from hanme.data.tables.draft.profile import FEW_VALUES, MAX_CATEGORIES, ColumnProfile

TEXT = "text"

CATEGORY_OF_RELATION = 64
"""Up to this number of values, in ten rows each, a relation is a feature, too.

Feature pairs are built from features alone, and a network may weigh them differently.
"""


def infer_feature(column: ColumnProfile) -> tuple[Any, str]:
    """Return the feature that a column becomes, None if it is left out, and the reason."""
    if not column.filled:
        return None, "every cell is empty"
    if column.is_vector:
        return "vector", ""
    if column.date is not None:
        return {"kind": "date", "format": column.date} if column.date else "date", ""
    if column.distinct == 1:
        return None, "every cell is the same"
    if column.number:
        if column.is_row_number:
            return None, "row numbers"
        is_id = column.unique and column.filled > 2 and column.named(("id", "key", "code"))
        written = f"numbers as people write them, such as {column.written}"
        return (None, "ids") if is_id else ("number", written if column.written else "")
    if column.is_address and column.distinct > FEW_VALUES:
        return None, "addresses"
    if column.separator:
        return {"kind": "list", "separator": column.separator}, ""
    if column.words >= 4 and column.distinct > max(FEW_VALUES, column.filled / 10):
        return TEXT, ""
    if column.distinct <= min(MAX_CATEGORIES, max(20, column.filled / 2)):
        return "category", f"{column.distinct:,} values"
    if column.words >= 2 and column.repetition >= 2:  # other rows use the same words
        return TEXT, ""
    return None, f"{column.distinct:,} different values"


def is_also_category(column: ColumnProfile, separator: str | None) -> bool:
    """Return whether a column that is a relation is a feature, too."""
    return not separator and 2 <= column.distinct <= min(CATEGORY_OF_RELATION, column.filled / 10)
