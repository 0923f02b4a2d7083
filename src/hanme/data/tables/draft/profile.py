"""Look at the columns of a table: how many values, of what kind, and how often each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from hanme.data.tables.build.features import cell_items
from hanme.data.tables.read.reader import Reader, Table
from hanme.data.tables.schema.sections import Source

NAME_WORDS = ("name", "title")
SEPARATORS = ("|", ";", ",")
MOST_VALUES = 1000
FIRST_ROWS = 10_000
SLIPS = 0.01
"""If a smaller share of cells hold several values, that is no reason to split all of them."""
NAME = 2.4
"""So many words in a part are more than names have, on average."""
MISSING = ("NA", "N/A", "n/a", "-", "--", "?", ".", "None", "none", "null", "NaN", "nan")
ALWAYS_MISSING = ("NULL", "#N/A", "\\N")
DATES = (
    "%Y-%m-%d", "%b %d %Y", "%d %b %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d",
    "%d-%b-%y", "%Y%m%d",
)  # fmt: skip
TYPED = re.compile(r"(.+):(token|token_seq|float|float_seq)")


@dataclass(frozen=True)
class Items:
    """What a separator makes of a column's cells."""

    share: float  # the share of cells that it splits
    distinct: int  # how many different parts result
    total: int  # how many parts result
    varied: int  # how many parts result of cells that differ
    words: float  # the mean number of words in a part
    digits: bool  # whether every part looks like a number
    rare: float  # the share of parts that are there once or twice
    known: float  # of the cells that it splits, the share whose parts are all cells by themselves


@dataclass(eq=False)
class ColumnProfile:
    """What is known of a column."""

    name: str  # the user's name of it
    alias: str  # its name in the reader's database
    filled: int  # how many cells are not empty
    distinct: int  # how many different values there are
    digits: bool  # whether every cell that is not empty is a number, or looks like one
    number: bool  # whether it is one: not if the header says that numbers are tokens
    words: float  # the mean number of words in a cell
    items: dict[str, Items]  # by separator, what it makes of the cells
    examples: list[str]  # the three most frequent values
    second: int = 0  # how many rows have the second of these
    pairs: int = 0  # how many pairs of rows share a value; rows with themselves count
    # texts such as NA among cells that are numbers otherwise
    missing: list[str] = field(default_factory=list)
    # how dates are written; empty for 2004-11-12 with a time, None if there are none
    date: str | None = None
    listed: bool = False  # whether cells are lists, written with | between their values here
    vector: bool = False  # whether every cell has as many numbers
    counts: bool = False  # whether it numbers the rows
    objects: bool = False  # whether every cell is an object of JSON, or a list of them
    told: float = 0  # how often a word is there, on average
    refers: Sheet | None = None  # the table whose ids the cells hold
    strays: int = 0  # how many values are no id of that table
    unknown: int = 0  # how many different ones these are
    whole: bool = False  # whether cells are such ids as they are, and are not split

    @property
    def typed(self) -> str | None:
        """The type that a header such as ``class:token_seq`` gives."""
        found = TYPED.fullmatch(self.name)
        return found[2] if found else None

    @property
    def plain(self) -> str:
        """The name without such a type."""
        found = TYPED.fullmatch(self.name)
        return found[1] if found else self.name

    @property
    def separator(self) -> str | None:
        """The text between the values of a cell, if cells seem to hold several."""
        if self.typed == "token_seq":
            return " "
        if self.whole:
            return None
        if self.listed and "|" in self.items:
            return "|"
        for separator, found in self.items.items():
            few = self.distinct if separator == "," else max(20, self.distinct)
            short = found.distinct <= min(MOST_VALUES, few)
            repeated = found.words <= 3 and found.varied >= 1.5 * found.distinct
            enough = 0.1 if found.distinct * 2 > self.distinct else 0.02
            prose = self.words >= 4 and found.words > NAME and found.rare > 0.5
            if separator == "," and prose:
                continue
            # A name may have a comma, 1,234 is no list of 1 and 234, and a few cells are slips.
            alone = found.known >= (0.9 if separator == "," else 0.5) and not found.digits
            if alone and found.share >= SLIPS:
                return separator
            if found.share >= enough and (short or repeated):
                return separator
        return None


@dataclass
class Sheet:
    """A table of the folder."""

    file: str  # what messages call it
    source: Source  # how to read it, as in ``graph.toml``
    table: Table  # its rows
    kind: str  # the name of its node type, or of its links
    columns: list[ColumnProfile]  # its columns
    id: ColumnProfile | None = None  # the column of ids; without one, rows are numbered
    repeated: int = 0  # how many rows are there already
    links: list[ColumnProfile] = field(default_factory=list)  # the columns that hold ids of a table
    # in a table of links, the columns whose values are likely ids of no table
    ends: list[ColumnProfile] = field(default_factory=list)
    nodes: bool = False  # whether a row is a node; else it is a link
    # the columns of head, relation and tail in a table of facts
    triples: tuple[ColumnProfile, ColumnProfile, ColumnProfile] | None = None
    # how many facts have a target at both ends, at the head alone, at the tail alone
    at_target: tuple[int, int, int] = (0, 0, 0)


def profile(reader: Reader, table: Table, alias: str) -> ColumnProfile:
    """Look at a column of a table that was read as text."""
    name = table.columns[alias]
    number = f"TRY_CAST({alias} AS DOUBLE)"
    words = rf"len(regexp_extract_all({alias}, '[\p{{L}}\p{{N}}]+'))"
    known = ", ".join(f"'{text}'" for text in (*MISSING, *ALWAYS_MISSING))
    steps = f"{number} - rowid"
    ((filled, distinct, finite, length, missing, always, counts, objects),) = reader.rows(
        f"SELECT count({alias}), count(DISTINCT {alias}), count(*) FILTER (isfinite({number})), "
        f"coalesce(avg({words}), 0), coalesce(list(DISTINCT trim({alias})) FILTER "
        f"(trim({alias}) IN ({known})), []), count(*) FILTER (trim({alias}) IN ({known})), "
        f"min({steps}) = max({steps}), count(*) FILTER (starts_with(ltrim({alias}), '{{')) "
        f"FROM {table.sql}"
    )
    examples = reader.rows(
        f"SELECT {alias}, count(*) AS n FROM {table.sql} WHERE {alias} IS NOT NULL "
        f"GROUP BY {alias} ORDER BY n DESC, {alias} LIMIT 3"
    )
    shown = [str(example[0]) for example in examples]
    typed = TYPED.fullmatch(name)
    digits = 0 < filled == finite
    listed = table.kinds[alias] == "joined"
    numeric = digits and not listed and (typed is None or typed[2] == "float")
    found = ColumnProfile(name, alias, filled, distinct, digits, numeric, length, {}, shown)
    found.second = examples[1][1] if len(examples) > 1 else 0
    numbers_otherwise = 0 < finite == filled - always
    found.missing = sorted(m for m in missing if numbers_otherwise or m in ALWAYS_MISSING)
    found.counts = digits and filled > 2 and bool(counts)
    found.objects = 0 < filled == objects
    found.listed = listed
    if numeric or not filled:
        return found
    found.told = _told(reader, table, alias)
    if found.objects:
        return found
    found.date = _date_format(reader, table, found)
    found.vector = _is_vector(reader, table, found)
    separators = _splitting(reader, table, alias) if found.typed is None else [" "]
    for separator in ["|"] if found.listed else separators:
        found.items[separator] = _items(reader, table, alias, separator, filled)
    found.pairs = _pairs(reader, table, found)
    return found


def _splitting(reader: Reader, table: Table, alias: str) -> list[str]:
    """Return the separators that some cells of a column have."""
    counts = ", ".join(f"count(*) FILTER (contains({alias}, '{s}'))" for s in SEPARATORS)
    (found,) = reader.rows(f"SELECT {counts} FROM {table.sql}")
    return [separator for separator, cells in zip(SEPARATORS, found, strict=True) if cells]


def _items(reader: Reader, table: Table, alias: str, separator: str, filled: int) -> Items:
    split = f"string_split({alias}, '{separator}')"
    ((several,),) = reader.rows(f"SELECT count(*) FILTER (len({split}) > 1) FROM {table.sql}")
    ((distinct, total, varied, words, texts),) = reader.rows(
        "SELECT count(DISTINCT item), coalesce(sum(n), 0)::BIGINT, count(*), "
        r"coalesce(sum(n * len(regexp_extract_all(item, '[\p{L}\p{N}]+'))) / sum(n), 0), "
        "count(*) FILTER (item <> '' AND TRY_CAST(item AS DOUBLE) IS NULL) FROM "
        f"(SELECT trim(unnest({split})) AS item, n FROM "
        f"(SELECT {alias}, count(*) AS n FROM {table.sql} GROUP BY {alias}))"
    )
    ((rare,),) = reader.rows(
        "SELECT coalesce(sum(n) FILTER (n <= 2) / sum(n), 0) FROM (SELECT count(*) AS n FROM "
        f"(SELECT trim(unnest({split})) AS item FROM {table.sql}) GROUP BY item)"
    )
    ((known,),) = reader.rows(
        f"WITH cells AS (SELECT trim({alias}) AS cell, count(*) AS n FROM {table.sql} "
        f"WHERE {alias} IS NOT NULL GROUP BY ALL), parts AS (SELECT cell, n, trim(unnest("
        f"string_split(cell, '{separator}'))) AS part FROM cells WHERE contains(cell, "
        f"'{separator}')) SELECT coalesce(sum(n) FILTER (fits) / sum(n), 0) FROM (SELECT n, "
        "bool_and(part IN (SELECT cell FROM cells)) AS fits FROM parts "
        "GROUP BY cell, n)"
    )
    return Items(several / filled, distinct, total, varied, words, not texts, rare, known)


def cells(table: Table, column: ColumnProfile) -> str:
    """Return the values of a column in SQL, a list per row."""
    return cell_items(table, column.alias, column.separator)


def _told(reader: Reader, table: Table, alias: str) -> float:
    """Return how often a word of the first rows is there, on average."""
    words = rf"regexp_extract_all(lower({alias}), '[\p{{L}}\p{{N}}]+')"
    ((told,),) = reader.rows(
        "SELECT coalesce(count(*) / nullif(count(DISTINCT word), 0), 0) FROM (SELECT "
        f"unnest({words}) AS word FROM {table.sql} WHERE rowid < {FIRST_ROWS})"
    )
    return float(told)


def _pairs(reader: Reader, table: Table, column: ColumnProfile) -> int:
    ((pairs,),) = reader.rows(
        "SELECT coalesce(sum(n * n), 0)::BIGINT FROM (SELECT count(*) AS n FROM (SELECT "
        f"unnest({cells(table, column)}) AS item FROM {table.sql}) WHERE item <> '' GROUP BY item)"
    )
    return int(pairs)


def _date_format(reader: Reader, table: Table, column: ColumnProfile) -> str | None:
    """Return the first way to write dates in which every cell is one."""
    cell = f"trim({column.alias})"
    ways = {"": f"TRY_CAST({cell} AS TIMESTAMP)"}
    ways |= {way: f"try_strptime({cell}, '{way}')" for way in DATES}
    (fits,) = reader.rows(
        f"SELECT {', '.join(f'count({date})' for date in ways.values())} FROM (SELECT "
        f"{column.alias} FROM {table.sql} WHERE {column.alias} IS NOT NULL LIMIT 1)"
    )
    for (way, date), first in zip(ways.items(), fits, strict=True):
        other = f"SELECT count(*) FROM {table.sql} WHERE {cell} <> '' AND year({date}) IS NULL"
        if first and not reader.rows(other)[0][0]:
            return way
    return None


def _is_vector(reader: Reader, table: Table, column: ColumnProfile) -> bool:
    """Return whether every cell has as many numbers, at least two, most of them no integers."""
    if column.typed is not None:
        return column.typed == "float_seq"
    inner = rf"regexp_replace({column.alias}, '^[\s\[\(]+|[\s\]\)]+$', '', 'g')"
    parts = rf"regexp_split_to_array({inner}, '[\s,;|]+')"
    ((least, most, wrong, points),) = reader.rows(
        f"SELECT min(len(parts)), max(len(parts)), count(*) FILTER (len(list_filter(parts, "
        "lambda p: TRY_CAST(p AS DOUBLE) IS NULL)) > 0), count(*) FILTER (contains("
        f"array_to_string(parts, ' '), '.')) FROM (SELECT {parts} AS parts FROM {table.sql} "
        f"WHERE {column.alias} IS NOT NULL)"
    )
    return bool(least == most and least >= 2 and not wrong and points * 2 > column.filled)


def says(column: ColumnProfile, words: Iterable[str]) -> bool:
    """Return whether a column's name contains one of the words."""
    return any(word in words_of(column.plain) for word in words)


def words_of(name: str) -> list[str]:
    """Return the words of a name: ``director_id`` and ``directorId`` have two."""
    return re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
