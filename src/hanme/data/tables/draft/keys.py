"""Rules for keys: which column holds the ids of a table, and which columns refer to a table."""

from __future__ import annotations

from collections.abc import Callable

from hanme.data.tables.draft.profile import ColumnProfile, ProfiledTable, Reference, words_of

MATCHES = 0.8
"""Share of values that must be ids of a table, if the column's name does not mention the table."""

NAMED_MATCHES = 0.5
"""The same share if the column's name mentions the table."""

FEW_TEXTS = 5
"""Fewer different texts may occur in another table by accident."""


def infer_keys(tables: list[ProfiledTable]) -> None:
    """Set the id and the references of each table."""
    for table in tables:
        table.id = _find_id(table, [other for other in tables if other is not table])
    for table in tables:
        table.references = _same_rows(table, tables)
        if table.facts is None:
            table.references += _find_references(table, tables)


def _find_id(table: ProfiledTable, others: list[ProfiledTable]) -> ColumnProfile | None:
    """Return the first column of unique values that one of the following rules accepts.

    Repeated rows count once. A column that another table repeats comes before one that has the
    table's own name: if flights name their carrier, the carrier identifies an airline.
    """
    kinds = {other.kind for other in others}
    unique = [
        column
        for column in table.columns
        if column.distinct == table.size - table.repeated
        and column.filled == table.size
        and kinds.isdisjoint(words_of(column.plain))
    ]
    own_names = {"id", f"{table.kind}_id", f"{table.kind}id", "key", "uuid"}

    def own(column: ColumnProfile) -> bool:
        return column.plain.lower() in own_names

    rules: tuple[Callable[[ColumnProfile], bool], ...] = (
        lambda c: own(c) and _is_repeated(table, c, others, by_name=True),
        lambda c: _is_repeated(table, c, others),
        own,
        lambda c: c.plain.lower() == table.kind,
        lambda c: c.plain.lower().endswith("id"),
        lambda c: c is table.columns[0] and c.words <= 2,
    )
    return next((column for rule in rules for column in unique if rule(column)), None)


def _is_repeated(
    table: ProfiledTable, column: ColumnProfile, others: list[ProfiledTable], by_name: bool = False
) -> bool:
    """Return whether a column of another table repeats the values of a column.

    That column has the same name, mentions the table or, unless `by_name`, holds texts.
    """
    for other in others:
        for one in other.columns:
            same = one.plain == column.plain or table.kind in words_of(one.plain)
            texts = not (by_name or one.numeric or column.numeric) and one.distinct >= FEW_TEXTS
            if one.unique or one.date is not None or not (same or texts):
                continue
            *_, unknown = _match(other, one, None, table, column)
            if unknown <= one.distinct * (1 - MATCHES):
                return True
    return False


def _same_rows(table: ProfiledTable, tables: list[ProfiledTable]) -> list[Reference]:
    """Return the reference from the id of a table to an earlier table with the same ids."""
    if table.id is None or table.id.is_row_number:
        return []
    for other in tables[: tables.index(table)]:
        if other.id is None or other.id.plain != table.id.plain or other.size != table.size:
            continue
        _, _, unknown, _ = _match(table, table.id, None, other, other.id)
        if not unknown:
            return [Reference(table.id, other, None)]
    return []


def _find_references(table: ProfiledTable, tables: list[ProfiledTable]) -> list[Reference]:
    """Return the columns whose values are ids of a table, numbers by their names alone last."""
    columns = [c for c in table.columns if c is not table.id and c.filled and c.date is None]
    found = [reference for c in columns if (reference := _find_reference(table, c, tables))]
    for column in columns:
        if column.numeric and all(reference.column is not column for reference in found):
            linked = [reference.table for reference in (*table.references, *found)]
            other = _numbers_that_are_ids(table, column, tables, linked)
            found += [Reference(column, other, column.separator)] if other else []
    return found


def _find_reference(
    table: ProfiledTable, column: ColumnProfile, tables: list[ProfiledTable]
) -> Reference | None:
    """Return the table whose ids are the cells of a column, or the values within them.

    Whole cells come first: an id such as ``(0008,0005)`` contains a comma and is not a list.
    """
    best: tuple[tuple[float, bool, int], Reference] | None = None
    inferred = column.separator and not column.is_list and column.typed is None
    for separator in (None, column.separator) if inferred else (column.separator,):
        numeric = column.splits[separator].numeric if separator else column.numeric
        for other in tables:
            named = _mentions(column.plain, other)
            # Numbers may be among other numbers by accident, so their name must fit too.
            if other.id is None or (numeric and not named):
                continue
            total, matched, unknown_rows, unknown_ids = _match(
                table, column, separator, other, other.id
            )
            share = 1 - unknown_rows / max(1, total)
            if share < (NAMED_MATCHES if named else MATCHES) or matched < 1 + (share < 1):
                continue
            score = (share, named, -other.size)
            if best is None or score > best[0]:
                best = (score, Reference(column, other, separator, unknown_rows, unknown_ids))
    return best[1] if best else None


def _match(
    table: ProfiledTable,
    column: ColumnProfile,
    separator: str | None,
    other: ProfiledTable,
    ids: ColumnProfile,
) -> tuple[int, int, int, int]:
    """Compare the values of a column with the ids in a column of a table.

    Returns:
        The number of values, of different ids among them, of values that are not ids, and of
        different ones of these.
    """
    own = ids.alias if other is table else "NULL"  # a copy of the id is not a link
    total, matched, unknown_rows, unknown_ids = table.select(
        "count(*), count(DISTINCT ids.id), count(*) FILTER (ids.id IS NULL), "
        "count(DISTINCT item) FILTER (ids.id IS NULL)",
        f"{table.items(column, separator, f'{own} AS own')} LEFT JOIN (SELECT DISTINCT "
        f"{ids.alias} AS id FROM {other.table.sql}) AS ids ON item = ids.id "
        "WHERE item IS DISTINCT FROM own",
    )
    return total, matched, unknown_rows, unknown_ids


def _numbers_that_are_ids(
    table: ProfiledTable,
    column: ColumnProfile,
    tables: list[ProfiledTable],
    linked: list[ProfiledTable],
) -> ProfiledTable | None:
    """Return the table that has all numbers of a column as ids, if that is not an accident.

    It is not if the column is called ``id``, repeats values and fits only one table; nor if its
    name ends in ``id``, another column refers to that table, and the ids have gaps.
    """
    if words_of(column.plain)[-1] != "id":
        return None
    fitting = [
        other
        for other in tables
        if other is not table
        and other.id is not None
        and not _match(table, column, column.separator, other, other.id)[2]
    ]
    if column.plain.lower() == "id":
        return fitting[0] if len(fitting) == 1 and not column.unique else None
    return next((other for other in fitting if other in linked and _has_gaps(other)), None)


def _has_gaps(table: ProfiledTable) -> bool:
    """Return whether most numbers between the smallest and the largest id are not ids."""
    assert table.id is not None
    number = f"TRY_CAST({table.id.alias} AS DOUBLE)"
    (gaps,) = table.select(f"max({number}) - min({number}) > 2 * count(*)")
    return bool(gaps)


def _mentions(name: str, other: ProfiledTable) -> bool:
    """Return whether the name of a column mentions a table or has the name of its id."""
    own = other.id.plain.lower() if other.id else ""
    named = other.kind in words_of(name) or name.lower() == f"{other.kind}id"
    return named or (own == name.lower() and own != "id")
