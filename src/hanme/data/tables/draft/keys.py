"""Rules for keys: which column holds the ids of a table, and which columns refer to a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hanme.data.tables.draft.names import GENERIC, is_key, mentions, type_name, words_of
from hanme.data.tables.draft.profile import FEW_VALUES, ColumnProfile, ProfiledTable, Reference
from hanme.data.tables.read.sql import quoted

MATCHES = 0.8
"""Share of values that must be ids of a table, if the column's name does not mention the table."""

NAMED_MATCHES = 0.5
"""The same share if the column's name mentions the table, and ends in id if it holds numbers."""

NUMBER_MATCHES = 0.98
"""The same share for numbers in a column whose name mentions a table, but does not end in id."""

LEAST_SHARE = 0.02
"""Share of values that must be ids of a further table, if a column has ids of several."""

LEAST_HINT = 0.2
"""Share of values that are ids of a table from which on a comment shows how to link them."""

FEW_TEXTS = 5
"""Fewer different texts may occur in another table by accident."""


def infer_keys(tables: list[ProfiledTable]) -> None:
    """Set the id and the references of each table, declared ones first."""
    by_title = {table.title.lower(): table for table in tables}
    declared: list[tuple[ProfiledTable, ColumnProfile, ProfiledTable]] = []
    for table in tables:
        others = [other for other in tables if other is not table]
        table.id = _column(table, table.declared.primary) or _find_id(table, others)
    for table in tables:
        for name, (title, key) in table.declared.foreign.items():
            other, column = by_title.get(title.lower()), _column(table, name)
            if other and column and (ids := _column(other, key)) and ids.unique:
                other.id = ids
                declared.append((table, column, other))
    known = KnownIds(tables)
    for table, column, other in declared:
        table.references += [r for r in known.match(table, column, None) if r.table is other]
    for i, table in enumerate(tables):
        table.references += _same_rows(table, tables[:i], known)
        columns = [c for c in table.own_columns() if c.filled and c.date is None]
        for column in columns:
            table.references += _find_references(table, column, known)
        for column in columns:
            if not table.refers(column):
                table.references += _by_type(table, column, known)


class KnownIds:
    """The ids of all tables, as one table in the reader's database."""

    def __init__(self, tables: list[ProfiledTable]) -> None:
        reader = tables[0].table.reader
        self.tables = [table for table in tables if table.id is not None]
        self.sql = reader.new_name()
        ids = " UNION ALL ".join(
            f"SELECT DISTINCT {table.id.alias} AS id, {i} AS number FROM {table.table.sql}"
            for i, table in enumerate(self.tables)
            if table.id is not None
        )
        ids = ids or "SELECT '' AS id, 0 AS number WHERE false"
        reader.rows(f"CREATE TEMP TABLE {self.sql} AS {ids}")
        number = "TRY_CAST(id AS DOUBLE)"
        # For each table, the number that ids must reach to be more than small counts.
        self.reach: dict[int, float] = dict(
            reader.rows(
                f"SELECT number, CASE WHEN max({number}) - min({number}) > 2 * count(*) THEN "
                f"'-inf' ELSE coalesce(max({number}), 0) / 4 END::DOUBLE FROM {self.sql} "
                "GROUP BY number"
            )
        )

    def match(
        self,
        table: ProfiledTable,
        column: ColumnProfile,
        separator: str | None,
        condition: str = "true",
    ) -> list[Reference]:
        """Return the tables that have values of a column as ids; those with most values first.

        Only rows that meet the SQL `condition` count.
        """
        # A copy of the own id is not a link.
        own = table.id.alias if table.id is not None and table in self.tables else "NULL"
        number = self.tables.index(table) if table in self.tables else -1
        cells = table.items(column, separator, f"{own} AS own", f"{condition} AS chosen")
        rows = table.table.reader.rows(
            "WITH items AS (SELECT item, own, count(*) AS n FROM "
            f"{cells} WHERE chosen GROUP BY ALL) SELECT number, "
            f"sum(n) - coalesce(sum(n) FILTER (number = {number} AND item = own), 0) AS known, "
            "count(DISTINCT item), (SELECT sum(n) FROM items) - sum(n), "
            "(SELECT count(DISTINCT item) FROM items) - count(DISTINCT item), "
            f"max(TRY_CAST(item AS DOUBLE)) FROM items JOIN {self.sql} ON item = id GROUP BY "
            "number HAVING known > 0 ORDER BY known DESC, number"
        )
        return [
            Reference(
                column, self.tables[i], separator, int(known), ids, int(unknown), unknown_ids,
                spread=most is not None and most >= self.reach[i],
            )
            for i, known, ids, unknown, unknown_ids, most in rows
        ]  # fmt: skip


def _column(table: ProfiledTable, name: str | None) -> ColumnProfile | None:
    return next((column for column in table.columns if column.name == name), None)


def _find_id(table: ProfiledTable, others: list[ProfiledTable]) -> ColumnProfile | None:
    """Return the first column of unique values that one of the following rules accepts.

    Repeated rows count once. A column that another table repeats comes before one that has the
    table's own name: if flights name their carrier, the carrier identifies an airline.
    """
    unique = [
        column
        for column in table.columns
        if column.distinct == table.size - table.repeated
        and column.filled == table.size
        and (
            mentions(column.name, table.kind, "") == 2
            or not any(mentions(column.name, other.kind, "") == 2 for other in others)
        )
    ]

    def own(column: ColumnProfile) -> bool:
        name = column.name.lower()
        return name in ("id", "key", "uuid") or (
            is_key(name) and mentions(column.name, table.kind, "") == 2
        )

    rules: tuple[Callable[[ColumnProfile], bool], ...] = (
        lambda c: own(c) and _is_repeated(table, c, others, by_name=True),
        lambda c: _is_repeated(table, c, others),
        own,
        lambda c: type_name(c.name) == table.kind,
        lambda c: c.name.lower().endswith("id"),
        lambda c: c is table.columns[0] and c.words <= 2 and not c.is_address,
    )
    return next((column for rule in rules for column in unique if rule(column)), None)


def _is_repeated(
    table: ProfiledTable, column: ColumnProfile, others: list[ProfiledTable], by_name: bool = False
) -> bool:
    """Return whether a column of another table repeats the values of a column.

    That column has the same name, mentions the table or, unless `by_name`, holds texts.
    """
    ids = f"SELECT {column.alias} FROM {table.table.sql}"
    for other in others:
        for one in other.columns:
            same = mentions(one.name, table.kind, column.name) == 2 or one.name == column.name
            texts = not (by_name or one.numeric or column.numeric) and one.distinct >= FEW_TEXTS
            if not (same or texts) or not one.filled or one.unique or one.date is not None:
                continue
            # Most columns can be excluded by their most frequent values.
            listed = ", ".join(map(quoted, one.examples))
            known = table.table.reader.rows(f"{ids} WHERE {column.alias} IN ({listed}) GROUP BY 1")
            if 2 * len(known) < len(one.examples):
                continue
            counted = f"count(DISTINCT {one.alias}) FILTER ({one.alias} NOT IN ({ids}))"
            if other.select(counted)[0] <= one.distinct * (1 - MATCHES):
                return True
    return False


def _same_rows(
    table: ProfiledTable, earlier: list[ProfiledTable], known: KnownIds
) -> list[Reference]:
    """Return the reference from the id of a table to an earlier table with the same ids."""
    if table.id is None or table.id.is_row_number:
        return []
    same = [t for t in earlier if t.id and t.id.name == table.id.name and t.size == table.size]
    matches = known.match(table, table.id, None) if same else []
    return [r for other in same for r in matches if r.table is other and not r.unknown_rows][:1]


def _find_references(
    table: ProfiledTable, column: ColumnProfile, known: KnownIds
) -> list[Reference]:
    """Return the tables whose ids are the cells of a column, or the values within them.

    Whole cells come first: an id such as ``(0008,0005)`` contains a comma and is not a list.
    """
    best: tuple[tuple[float, int, int], list[Reference]] | None = None
    matches: list[Reference] = []
    inferred = column.separator and not column.is_list
    for separator in (None, column.separator) if inferred else (column.separator,):
        numeric = column.splits[separator].numeric if separator else column.numeric
        called_id = column.name.lower() in GENERIC and not column.unique
        if numeric and not called_id and not any(_mentions(column, t) for t in known.tables):
            continue  # a name must say that numbers are ids
        matches = known.match(table, column, separator)
        for match in matches:
            named = _mentions(column, match.table)
            score = (match.share, named, -match.table.size)
            same = match.table.id is not None and match.table.id.name == column.name
            only = called_id and same and len(matches) == 1 and match.share == 1
            fits = only or _is_reference(match, named, numeric)
            if fits and (best is None or score > best[0]):
                best = (score, [match])
        several = [] if numeric else _disjoint(matches)
        total = sum(match.share for match in several)
        if len(several) > 1 and (best is None or best[0][0] < total):
            best = ((total, 0, 0), [replace(match, partial=True) for match in several])
    if best is not None:
        return best[1]
    for match in matches[: not numeric]:
        if match.share >= LEAST_HINT and match.ids > FEW_TEXTS:
            table.hints[column.name] = (
                f"{match.share:.0%} are ids of {match.table.kind}; to link them, write "
                f'[relations.NAME] columns = ["{column.name}"], source = "{table.kind}", '
                f'type = "{match.table.kind}", unknown = "drop"'
            )
    return []


def _is_reference(match: Reference, named: int, numeric: bool) -> bool:
    """Return whether values of a column are ids of a table, and not by accident.

    Numbers are among other numbers by accident, so their name must fit. If it does not say that
    they are ids, they must also reach beyond the first quarter of the ids, unless ids have gaps.
    """
    if match.ids < 1 + (match.share < 1):
        return False
    if not numeric:
        return match.share >= (NAMED_MATCHES if named else MATCHES)
    if named == 2 and is_key(match.column.name):
        return match.share >= NAMED_MATCHES
    return named > 0 and match.share >= NUMBER_MATCHES and match.spread


def _disjoint(matches: list[Reference]) -> list[Reference]:
    """Return the tables that share the values of a column among them, if they do."""
    some = [match for match in matches if match.share >= LEAST_SHARE and match.ids > 1]
    total = sum(match.share for match in some)
    return some if MATCHES <= total <= 1 + LEAST_SHARE else []


def _by_type(table: ProfiledTable, column: ColumnProfile, known: KnownIds) -> list[Reference]:
    """Return the tables that another column names, such as ``source_type`` for ``source_id``."""
    if not is_key(column.name) or column.separator:
        return []
    stem = set(words_of(column.name)[:-1])
    for kinds in table.columns:
        *words, last = words_of(kinds.name)
        if last not in ("type", "kind", "table", "class") or set(words) != stem:
            continue
        if kinds.separator or not 2 <= kinds.distinct <= FEW_VALUES:
            continue
        values = table.table.reader.rows(
            f"SELECT DISTINCT {kinds.alias} FROM {table.table.sql} WHERE {kinds.alias} IS NOT NULL "
            "ORDER BY ALL"
        )
        references = [
            replace(match, partial=True, where={kinds.name: value})
            for (value,) in values
            for match in known.match(table, column, None, f"{kinds.alias} = {quoted(value)}")
            if match.table.kind == type_name(value) and match.share >= MATCHES
        ]
        if references:
            return references
    return []


def _mentions(column: ColumnProfile, other: ProfiledTable) -> int:
    """Return whether the name of a column mentions a table or has the name of its id."""
    return mentions(column.name, other.kind, other.id.name if other.id else "")
