"""Profile the columns of a table: how many values, of what kind, and how often each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hanme.data.tables.build.features import JUNK
from hanme.data.tables.draft.names import type_name, words_of
from hanme.data.tables.read.databases import DeclaredKeys, declared_keys
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import LARGEST, number_sql, quoted
from hanme.data.tables.schema.sections import Source

SEPARATORS = ("|", ";", ",")
"""Texts between the values of a cell, in the order in which they are tried."""

SAMPLE = 10_000
"""Rows in which words are counted: enough for a mean, and fast on long texts."""

MISSING = ("NA", "N/A", "n/a", "-", "--", "?", ".", "None", "none", "null", "NaN", "nan")
"""Texts that mean an empty cell if all other cells of the column are numbers."""

ALWAYS_MISSING = ("NULL", "#N/A", "\\N")
"""Texts that mean an empty cell in any column."""

DATES = (
    "%Y-%m-%d", "%b %d %Y", "%d %b %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d",
    "%d-%b-%y", "%Y%m%d", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M", "%m/%d/%y",
)  # fmt: skip
"""Formats of dates, in the order in which they are tried after ISO 8601."""

FEW_VALUES = 20
"""Up to this number, values are a feature each rather than a relation between all rows."""

MAX_CATEGORIES = 1000
"""Maximum number of values of a category or list, the default of ``size`` in ``graph.toml``."""

TYPOS = 0.01
"""Share of cells with a separator below which they are taken for typing errors."""

NAME_LENGTH = 2.4
"""Mean number of words in a part above which a column with commas is prose, not names."""

ADDRESS = r"^(\w+://|www\.|[\w.+-]+@[\w-]+\.\w|(\.{0,2}|[A-Za-z]:)[/\\]\S|\S+[/\\]\S+\.\w{2,4}$)"
"""What a URL, an e-mail address or a path begins with."""

WORDS = r"regexp_extract_all({}, '[\p{{L}}\p{{N}}]+')"


@dataclass(frozen=True)
class SplitProfile:
    """The parts that a separator splits the cells of a column into."""

    share: float  # share of cells that contain the separator
    distinct: int  # number of different parts
    total: int  # number of parts
    varied: int  # number of parts, each different cell counted once
    words: float  # mean number of words in a part
    numeric: bool  # whether every part is a number
    rare: float  # share of parts that occur once or twice
    known: float  # of the cells with the separator, the share whose parts all occur as whole cells


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """Statistics of a column that was read as text."""

    name: str  # its name in the file
    alias: str  # its name in the reader's database
    filled: int  # number of cells that are not empty
    distinct: int  # number of different values
    numeric: bool  # whether the cells are numbers, but for a share of ``JUNK``
    words: float  # mean number of words in a cell
    examples: list[str]  # the three most frequent values
    second: int  # number of rows with the second of these
    missing: list[str]  # texts such as NA that mean an empty cell
    is_list: bool  # whether cells are lists, joined by | here
    is_object: bool  # whether every cell is a JSON object, or a list of them
    is_row_number: bool  # whether it increases by 1 from row to row
    is_address: bool  # whether most cells are URLs, e-mail addresses or paths
    written: str | None = None  # a number that is written as 1,234 or $5 or 12 %, if there is one
    decimal: str = "."  # the decimal sign of its numbers
    other: str | None = None  # a cell that is no number, if at least half of them are numbers
    is_vector: bool = False  # whether every cell has the same number of numbers
    date: str | None = None  # format of the dates, empty for ISO 8601; None if there are none
    repetition: float = 0  # how often a word of the first rows occurs, on average
    splits: Mapping[str, SplitProfile] = field(default_factory=dict)  # by separator

    @property
    def number(self) -> bool:
        """Whether cells are numbers, not lists of them."""
        return self.numeric and not self.is_list

    @property
    def measure(self) -> bool:
        """Whether it holds numbers or dates that vary and are not row numbers."""
        is_number = self.number and not self.is_row_number
        return self.distinct > 1 and (is_number or self.date is not None)

    @cached_property
    def separator(self) -> str | None:
        """The text between the values of a cell, if cells seem to hold several."""
        if self.is_list and "|" in self.splits:
            return "|"
        return next((s for s, split in self.splits.items() if self._is_split(s, split)), None)

    def _is_split(self, separator: str, parts: SplitProfile) -> bool:
        comma = separator == ","
        if comma and self.words >= 4 and parts.words > NAME_LENGTH and parts.rare > 0.5:
            return False  # prose
        # A name may contain a comma, and 1,234 is not a list of 1 and 234.
        occur_alone = parts.known >= (0.9 if comma else 0.5) and not parts.numeric
        if occur_alone and parts.share >= TYPOS:
            return True
        limit = self.distinct if comma else max(20, self.distinct)
        few = parts.distinct <= min(MAX_CATEGORIES, limit)
        repeat = parts.words <= 3 and parts.varied >= 1.5 * parts.distinct
        return (few or repeat) and parts.share >= (
            0.1 if parts.distinct * 2 > self.distinct else 0.02
        )

    @property
    def values(self) -> int:
        """The number of different values, within cells if they hold several."""
        return self.splits[self.separator].distinct if self.separator else self.distinct

    @property
    def unique(self) -> bool:
        """Whether no value repeats."""
        return self.distinct == self.filled

    def named(self, words: Iterable[str]) -> bool:
        """Return whether the name contains one of the words."""
        return not set(words).isdisjoint(words_of(self.name))


@dataclass(frozen=True)
class Reference:
    """A column, some or all of whose values are ids of a table.

    A value that is the id of its own row is not counted.
    """

    column: ColumnProfile
    table: ProfiledTable  # whose ids they are
    separator: str | None  # the text between two ids of a cell
    rows: int  # number of values that are ids
    ids: int  # number of different ones
    unknown_rows: int  # number of values that are not
    unknown_ids: int  # number of different ones
    spread: bool  # whether they reach beyond the first quarter of the ids, or ids have gaps
    partial: bool = False  # whether other values are ids of other tables
    where: Mapping[str, str] = field(default_factory=dict)  # the rows it is about, if not all

    @property
    def share(self) -> float:
        """The share of values that are ids."""
        return self.rows / (self.rows + self.unknown_rows)


@dataclass(eq=False)
class ProfiledTable:
    """A table with the profiles of its columns, and the role that rules have assigned to it."""

    title: str  # what messages call it
    source: Source  # how to read it, as in ``graph.toml``
    table: Table  # its rows, in the reader's database
    kind: str  # the name of its node type, or of its links
    columns: list[ColumnProfile]
    repeated: int  # number of rows that are equal to an earlier one
    declared: DeclaredKeys  # keys that the database declares
    unnamed: int = 0  # number of columns without a name, which nothing can refer to
    id: ColumnProfile | None = None  # the column of ids; without one, rows are numbered
    references: list[Reference] = field(default_factory=list)
    hints: dict[str, str] = field(default_factory=dict)  # what a column may be, and what to write
    # columns of a link table whose values are likely ids, but of no table
    ends: list[ColumnProfile] = field(default_factory=list)
    is_nodes: bool = False  # whether a row is a node
    is_links: bool = False  # whether a row is a link; it may be both

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.table.size

    def refers(self, column: ColumnProfile) -> list[Reference]:
        """Return the references of a column: several, if it has ids of several tables."""
        return [reference for reference in self.references if reference.column is column]

    @property
    def referring(self) -> list[ColumnProfile]:
        """The columns that are references."""
        return [column for column in self.columns if self.refers(column)]

    def own_columns(self) -> list[ColumnProfile]:
        """Return the columns that are neither the id nor references."""
        return [c for c in self.columns if c is not self.id and not self.refers(c)]

    def select(self, columns: str, rows: str | None = None) -> tuple[Any, ...]:
        """Return the first row of a query on the table, or on a query of it."""
        return self.table.reader.rows(f"SELECT {columns} FROM {rows or self.table.sql}")[0]

    def items(self, column: ColumnProfile, separator: str | None, *columns: str) -> str:
        """Return SQL for the values within the cells of a column, as ``item``."""
        also = "".join(f", {name}" for name in columns)
        items = self.table.items(column.alias, separator)
        return f"(SELECT unnest({items}) AS item{also} FROM {self.table.sql})"


def profile_table(reader: Reader, source: ResolvedSource) -> ProfiledTable:
    """Read a table and profile its columns, again if some texts turn out to mean empty cells."""
    every = reader.columns(source)
    names = [name for name in every if name]
    requests = {f"c{i}": ColumnRequest(name) for i, name in enumerate(names)}
    table = reader.read(source, requests)
    columns = [_profile(table, alias) for alias in requests]
    if any(column.decimal == "," for column in columns):  # then 1.234 is no fraction, either
        columns = [_grouped(table, column) for column in columns]
    missing = sorted({text for column in columns for text in column.missing})
    if missing and not source.spec.empty:
        spec = source.spec.model_copy(update={"empty": missing})
        return profile_table(reader, replace(source, spec=spec))
    # Hashes of rows: the rows themselves do not fit into memory if there are many columns.
    ((distinct,),) = reader.rows(f"SELECT count(DISTINCT hash(t)) FROM {table.sql} AS t")
    title = source.spec.table or ""
    repeated = table.size - distinct
    keys = declared_keys(source)
    kind, unnamed = type_name(title), len(every) - len(names)
    return ProfiledTable(title, source.spec, table, kind, columns, repeated, keys, unnamed)


def _profile(table: Table, alias: str, decimal: str = ".") -> ColumnProfile:
    """Profile a column; with another decimal sign if its cells are no numbers else."""
    number = number_sql(alias, decimal)
    finite = f"abs({number}) <= {LARGEST}"
    comma, first = number_sql(alias, ","), f"FILTER (rowid < {SAMPLE})"
    missing = f"{alias} IN ({', '.join(map(quoted, (*MISSING, *ALWAYS_MISSING)))})"
    row = table.reader.rows(
        f"SELECT count({alias}), count(DISTINCT {alias}), count(*) FILTER ({finite}), "
        f"count({comma}), min({alias}) FILTER (NOT coalesce({finite}, false)), "
        f"coalesce(avg(len({WORDS.format(alias)})) {first}, 0), "
        f"coalesce(list(DISTINCT {alias}) FILTER ({missing}), []), count(*) FILTER ({missing}), "
        f"min({number} - rowid) = max({number} - rowid), "
        f"count(*) FILTER (starts_with({alias}, '{{')), "
        f"avg(regexp_matches({alias}, {quoted(ADDRESS)})::INT) {first} > 0.8, "
        f"min({alias}) FILTER ({number} IS NOT NULL AND TRY_CAST({alias} AS DOUBLE) IS NULL), "
        + ", ".join(f"count(*) FILTER (contains({alias}, '{s}'))" for s in SEPARATORS)
        + f" FROM {table.sql}"
    )[0]
    filled, distinct, finite, commas, other, words, texts, empty, *rest = row
    steps, objects, address, written, *counts = rest
    examples = table.reader.rows(
        f"SELECT {alias}, count(*) AS n FROM {table.sql} WHERE {alias} IS NOT NULL "
        f"GROUP BY {alias} ORDER BY n DESC, {alias} LIMIT 3"
    )
    others = filled - finite  # cells that are not numbers
    junk = JUNK * filled if distinct > FEW_VALUES else 0  # else a category with letters in it
    if decimal == "." and others - empty > junk and filled - commas - empty <= junk:
        return _profile(table, alias, decimal=",")
    numbers_otherwise = finite > 0 and others - empty <= junk
    column = ColumnProfile(
        name=table.columns[alias],
        alias=alias,
        filled=filled,
        distinct=distinct,
        numeric=finite > 0 and others <= junk,
        words=words,
        examples=[value for value, _ in examples],
        second=examples[1][1] if len(examples) > 1 else 0,
        missing=sorted(t for t in texts if numbers_otherwise or t in ALWAYS_MISSING),
        is_list=table.kinds[alias] == "joined",
        is_object=0 < filled == objects,
        is_row_number=2 < filled == finite and bool(steps),
        is_address=bool(address),
        written=written,
        decimal=decimal,
        other=other if 2 * finite >= filled else None,
    )
    if column.number or not filled:
        return column
    column = replace(column, repetition=_repetition(table, alias))
    if column.is_object:
        return column
    present = [s for s, count in zip(SEPARATORS, counts, strict=True) if count]
    return replace(
        column,
        date=_date_format(table, column),
        is_vector=_is_vector(table, column),
        splits={s: _split(table, alias, s) for s in (["|"] if column.is_list else present)},
    )


def _grouped(table: Table, column: ColumnProfile) -> ColumnProfile:
    """Return a column of numbers such as 1.234 profiled with a decimal comma, if all are such."""
    ((points, commas),) = table.reader.rows(
        f"SELECT count(*) FILTER (contains({column.alias}, '.')), "
        f"count({number_sql(column.alias, ',')}) FROM {table.sql}"
    )
    grouped = column.number and points > 0 and commas >= (1 - JUNK) * column.filled
    return _profile(table, column.alias, decimal=",") if grouped else column


def _split(table: Table, alias: str, separator: str) -> SplitProfile:
    (row,) = table.reader.rows(
        f"WITH cells AS (SELECT {alias} AS cell, count(*) AS n, contains(cell, $1) AS split FROM "
        f"{table.sql} WHERE cell IS NOT NULL GROUP BY ALL), parts AS (SELECT cell, n, split, "
        "trim(unnest(string_split(cell, $1))) AS part FROM cells), "
        "items AS (SELECT part, sum(n) AS n FROM parts GROUP BY part), "
        "fits AS (SELECT any_value(n) AS n, bool_and(part IN (SELECT cell FROM cells)) AS fits "
        "FROM parts WHERE split GROUP BY cell) "
        "SELECT (SELECT coalesce(sum(n) FILTER (split), 0) / sum(n) FROM cells), "
        "(SELECT count(*) FROM items), sum(n)::BIGINT, count(*), "
        f"sum(n * len({WORDS.format('part')})) / sum(n), "
        "count(*) FILTER (part <> '' AND TRY_CAST(part AS DOUBLE) IS NULL) = 0, "
        "(SELECT coalesce(sum(n) FILTER (n <= 2), 0) / sum(n) FROM items), "
        "(SELECT coalesce(sum(n) FILTER (fits) / sum(n), 0) FROM fits) FROM parts",
        separator,
    )
    return SplitProfile(*row)


def _repetition(table: Table, alias: str) -> float:
    ((mean,),) = table.reader.rows(
        "SELECT coalesce(count(*) / nullif(count(DISTINCT word), 0), 0) FROM (SELECT "
        f"unnest({WORDS.format(f'lower({alias})')}) AS word FROM {table.sql} "
        f"WHERE rowid < {SAMPLE})"
    )
    return float(mean)


def _date_format(table: Table, column: ColumnProfile) -> str | None:
    """Return the format that most cells have; the first, if several have as many."""
    alias, cells = column.alias, f"{table.sql} WHERE {column.alias} IS NOT NULL"
    formats = {"": f"TRY_CAST({alias} AS TIMESTAMP)"}
    formats |= {form: f"try_strptime({alias}, '{form}')" for form in DATES}

    def parsed(rows: str) -> dict[str, int]:
        counts = ", ".join(f"count(year({date}))" for date in formats.values())
        (row,) = table.reader.rows(f"SELECT {counts} FROM (SELECT {alias} FROM {rows})")
        return dict(zip(formats, row, strict=True))

    first, some = parsed(f"{cells} LIMIT 100"), min(100, column.filled)
    formats = {form: date for form, date in formats.items() if first[form] > 0.8 * some}
    if not formats:
        return None
    counts = parsed(cells)
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] >= (1 - JUNK) * column.filled else None


def _is_vector(table: Table, column: ColumnProfile) -> bool:
    """Return whether all cells have the same number of numbers, at least two, most with a point."""
    inner = rf"regexp_replace({column.alias}, '^[\s\[\(]+|[\s\]\)]+$', '', 'g')"
    parts = rf"regexp_split_to_array({inner}, '[\s,;|]+')"
    ((least, most, texts, points),) = table.reader.rows(
        f"SELECT min(len(parts)), max(len(parts)), count(*) FILTER (len(list_filter(parts, "
        "lambda p: TRY_CAST(p AS DOUBLE) IS NULL)) > 0), count(*) FILTER (contains("
        f"array_to_string(parts, ' '), '.')) FROM (SELECT {parts} AS parts FROM {table.sql} "
        f"WHERE {column.alias} IS NOT NULL)"
    )
    return bool(least == most and least >= 2 and not texts and points * 2 > column.filled)
