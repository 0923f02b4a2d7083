"""Find the ids of tables, and the columns of other tables that hold them."""

from __future__ import annotations

from hanme.data.tables.draft.profile import ColumnProfile, Sheet, cells, words_of
from hanme.data.tables.read.reader import Reader

MATCHES = 0.8
"""The share of a column's values that must be ids of a table that its name does not allude to."""
FEW_TEXTS = 5
"""Fewer texts may be among those of another table by accident."""


def guess_id(reader: Reader, sheet: Sheet, others: list[Sheet]) -> ColumnProfile | None:
    """Find a column whose values are all different and whose name is not that of another table.

    Rows that are there twice count once. A column that another table repeats goes before one that
    has the table's own name: with flights by carrier, airlines are told apart by their carrier,
    and countries by their code, if no other table has their id.
    """
    kinds = {other.kind for other in others}
    different = sheet.table.size - sheet.repeated
    unique = [
        column
        for column in sheet.columns
        if column.filled >= column.distinct == different
        and column.filled == sheet.table.size
        and not kinds & set(words_of(column.plain))
    ]
    own = {"id", f"{sheet.kind}_id", f"{sheet.kind}id", "key", "uuid"}
    for fits in (
        lambda c: c.plain.lower() in own and _is_repeated(reader, sheet, c, others, named=True),
        lambda c: _is_repeated(reader, sheet, c, others),
        lambda c: c.plain.lower() in own,
        lambda c: c.plain.lower() == sheet.kind,
        lambda c: c.plain.lower().endswith("id"),
        lambda c: c is sheet.columns[0] and c.words <= 2,
    ):
        for column in unique:
            if fits(column):
                return column
    return None


def _is_repeated(
    reader: Reader, sheet: Sheet, column: ColumnProfile, others: list[Sheet], named: bool = False
) -> bool:
    """Return whether a column of another table repeats the values of a column.

    It has its name, alludes to the table or, unless it must be `named`, holds texts.
    """
    for other in others:
        for one in other.columns:
            same = one.plain == column.plain or sheet.kind in words_of(one.plain)
            texts = not (named or one.digits or column.digits) and one.distinct >= FEW_TEXTS
            if one.distinct == one.filled or one.date is not None or not (same or texts):
                continue
            ((strays,),) = reader.rows(
                f"SELECT count(*) FROM (SELECT DISTINCT {one.alias} AS item FROM {other.table.sql})"
                f" WHERE item IS NOT NULL AND item NOT IN (SELECT {column.alias} FROM "
                f"{sheet.table.sql})"
            )
            if strays <= one.distinct * (1 - MATCHES):
                return True
    return False


def guess_links(reader: Reader, sheet: Sheet, sheets: list[Sheet]) -> None:
    """Find columns whose values are the ids of a table."""
    if sheet.id is not None and (twin := _twin(reader, sheet, sheets)):
        sheet.id.refers = twin
        sheet.links.append(sheet.id)
    columns = [] if sheet.triples else sheet.columns
    columns = [c for c in columns if c is not sheet.id and c.filled and c.date is None]
    for column in columns:
        _guess_link(reader, sheet, column, sheets)
        if column.refers is not None:
            sheet.links.append(column)
    for column in columns:
        if column.digits and column not in sheet.links:
            column.refers = _all_ids(reader, sheet, column, sheets)
            if column.refers is not None:
                sheet.links.append(column)


def _guess_link(reader: Reader, sheet: Sheet, column: ColumnProfile, sheets: list[Sheet]) -> None:
    """Find the table whose ids are the cells of a column, or the values within them.

    Whole cells go first: an id such as ``(0008,0005)`` has a comma and is no list.
    """
    best: tuple[float, bool, int] | None = None
    guessed = column.separator and not column.listed and column.typed is None
    kept = False
    for column.whole in (True, False) if guessed else (False,):
        numbers = column.items[column.separator].digits if column.separator else column.digits
        for other in sheets:
            named = _alludes(column.plain, other)
            # Numbers may be among other numbers by accident, so their name must fit too.
            if other.id is None or (numbers and not named):
                continue
            total, matched, strays, unknown = _match(reader, sheet, column, other)
            share = 1 - strays / max(1, total)
            found = (share, named, -other.table.size)
            enough = share >= (0.5 if named else MATCHES) and matched >= 1 + (share < 1)
            if enough and (best is None or found > best):
                best, kept, column.refers = found, column.whole, other
                column.strays, column.unknown = strays, unknown
    column.whole = kept


def _match(
    reader: Reader, sheet: Sheet, column: ColumnProfile, other: Sheet
) -> tuple[int, int, int, int]:
    """Count the values of a column, the ids of a table among them, and those that are none.

    Returns:
        The number of values, of different ids, of values that are no id and of different ones.
    """
    assert other.id is not None
    own = other.id.alias if other is sheet else "NULL"  # a copy of the id is no link
    (found,) = reader.rows(
        f"SELECT count(*), count(DISTINCT ids.id), count(*) FILTER (ids.id IS NULL), "
        "count(DISTINCT item) FILTER (ids.id IS NULL) FROM "
        f"(SELECT unnest({cells(sheet.table, column)}) AS item, {own} AS own "
        f"FROM {sheet.table.sql}) LEFT JOIN "
        f"(SELECT DISTINCT {other.id.alias} AS id FROM {other.table.sql}) AS ids "
        "ON item = ids.id WHERE item <> '' AND item IS DISTINCT FROM own"
    )
    return found


def _all_ids(
    reader: Reader, sheet: Sheet, column: ColumnProfile, sheets: list[Sheet]
) -> Sheet | None:
    """Return the table that has all numbers of a column as ids, if that is no accident.

    It is none if the column is called ``id``, repeats values and fits one table only; nor if its
    name ends in ``id``, other cells of the row are ids of that table, and these have gaps.
    """
    if words_of(column.plain)[-1] != "id":
        return None
    known = [
        other
        for other in sheets
        if other is not sheet and other.id and not _match(reader, sheet, column, other)[2]
    ]
    if column.plain.lower() == "id":
        return known[0] if len(known) == 1 and column.distinct < column.filled else None
    linked = [c.refers for c in sheet.links]
    return next((other for other in known if other in linked and _has_gaps(reader, other)), None)


def _has_gaps(reader: Reader, sheet: Sheet) -> bool:
    """Return whether most numbers between the least and the largest id are none."""
    assert sheet.id is not None
    number = f"TRY_CAST({sheet.id.alias} AS DOUBLE)"
    ((gaps,),) = reader.rows(
        f"SELECT max({number}) - min({number}) > 2 * count(*) FROM {sheet.table.sql}"
    )
    return bool(gaps)


def _twin(reader: Reader, sheet: Sheet, sheets: list[Sheet]) -> Sheet | None:
    """Return an earlier table with the same ids that tells more of the same things."""
    for other in sheets:
        if other is sheet or sheet.id is None or sheet.id.counts:
            return None
        same = other.id is not None and other.id.plain == sheet.id.plain
        if other.id is None or not same or other.table.size != sheet.table.size:
            continue
        ((strays,),) = reader.rows(
            f"SELECT count(*) FROM {sheet.table.sql} WHERE {sheet.id.alias} NOT IN "
            f"(SELECT {other.id.alias} FROM {other.table.sql})"
        )
        if not strays:
            return other
    return None


def _alludes(name: str, other: Sheet) -> bool:
    own = other.id.plain.lower() if other.id else ""
    named = other.kind in words_of(name) or name.lower() == f"{other.kind}id"
    return named or (own == name.lower() and own != "id")


def refers_to(column: ColumnProfile) -> str:
    """Return the node type whose ids a column holds."""
    assert column.refers is not None
    return column.refers.kind
