"""Guess what the tables in a folder hold, from the names and values of their columns."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

from hanme.datasets.tables.keys import Encoding, Source
from hanme.datasets.tables.read import Reader, Table, Wanted
from hanme.datasets.tables.sources import FORMATS, ResolvedSource, open_text, suffix
from hanme.errors import HanmeError

LABEL_WORDS = ("label", "genre", "class", "category", "topic", "target", "type", "kind")
NAME_WORDS = ("name", "title")
SEPARATORS = ("|", ";", ",")
LIKELY_LABELS = 50
MOST_VALUES = 1000
SINGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "movies": "movie",
    "series": "series",
}  # fmt: skip


@dataclass
class ColumnProfile:
    """What is known of a column.

    Args:
        name: The user's name of it.
        alias: Its name in the reader's database.
        filled: How many cells are not empty.
        distinct: How many different values there are.
        number: Whether every cell that is not empty is a number.
        words: The mean number of words in a cell.
        items: By separator, the share of cells that it splits and how many different parts result.
        examples: The three most frequent values.
        refers: The table whose ids the cells hold.
        strays: How many rows hold no id of that table.
    """

    name: str
    alias: str
    filled: int
    distinct: int
    number: bool
    words: float
    items: dict[str, tuple[float, int]]
    examples: list[str]
    refers: Sheet | None = None
    strays: int = 0

    @property
    def separator(self) -> str | None:
        """The text between the values of a cell, if cells seem to hold several."""
        for separator, (share, distinct) in self.items.items():
            few = self.distinct if separator == "," else max(20, self.distinct)
            if share >= 0.1 and distinct <= min(MOST_VALUES, few):
                return separator
        return None


@dataclass
class Sheet:
    """A table of the folder.

    Args:
        file: The name of the file.
        source: How to read it, as in ``graph.toml``.
        table: Its rows.
        kind: The name of its node type, or of its links.
        columns: Its columns.
        id: The column of ids.
        links: The columns that hold ids of a table.
        nodes: Whether a row is a node; else it is a link.
    """

    file: str
    source: Source
    table: Table
    kind: str
    columns: list[ColumnProfile]
    id: ColumnProfile | None = None
    links: list[ColumnProfile] = field(default_factory=list)
    nodes: bool = False


def guess(folder: Path) -> list[Sheet]:
    """Find the tables in a folder, and in each its ids and the columns that hold ids of others."""
    if not folder.is_dir():
        raise HanmeError(f"{folder}: not a folder")
    files = sorted(p.name for p in folder.iterdir() if p.is_file() and _is_table(p))
    if not files:
        raise HanmeError(f"{folder}: no table in it; known are {', '.join(FORMATS)}")
    folder = folder.resolve()
    found = [ResolvedSource.find(_spec(folder, file), folder, file) for file in files]
    with Reader(found, folder) as reader:
        sheets = [_look(reader, source, file) for source, file in zip(found, files, strict=True)]
        _name(sheets)
        for sheet in sheets:
            others = {other.kind for other in sheets if other is not sheet}
            sheet.id = _guess_id(sheet, others)
        for sheet in sheets:
            _guess_links(reader, sheet, sheets)
        _tell_nodes(sheets)
    if not any(sheet.nodes for sheet in sheets):
        raise HanmeError(f"{folder}: no table has a column of ids, each there once")
    if not any(pairs(sheet) for sheet in sheets):
        raise HanmeError(f"{folder}: no column of a table holds the ids of another")
    return sheets


def _is_table(path: Path) -> bool:
    return suffix(path.name) in FORMATS


def _spec(folder: Path, file: str) -> Source:
    """Say how to read a file: a header without a comma but with a semicolon has semicolons."""
    if FORMATS[suffix(file)] != "csv":
        return Source(table=file)
    try:
        encoding, separator = _encoding(folder / file), None
        with open_text(folder / file, encoding) as text:
            head = text.readline(100_000)
    except (EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{folder / file}: it cannot be read ({error})") from None
    if suffix(file) == ".csv" and "," not in head:
        separator = next((s for s in (";", "\t", "|") if s in head), None)
    return Source(table=file, separator=separator, encoding=encoding)


def _encoding(path: Path) -> Encoding:
    """Guess the encoding: UTF-16 begins with a mark, and all that is not UTF-8 is latin-1."""
    with open_text(path, "latin-1") as text:
        mark = text.read(2)
    if mark == "\xff\xfe":
        return "utf-16"
    if mark == "\xfe\xff":
        raise HanmeError(f"{path}: UTF-16 with the high byte first; saved as UTF-8 it can be read")
    try:
        with open_text(path, "utf-8", "strict") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _look(reader: Reader, source: ResolvedSource, file: str) -> Sheet:
    names = [name for name in reader.columns(source) if name]
    wanted = {f"c{i}": Wanted(name) for i, name in enumerate(names)}
    table = reader.read(source, wanted)
    columns = [_profile(reader, table, alias, name) for alias, (name, *_) in wanted.items()]
    kind = re.sub(r"\W+", "_", file.split(".")[0].lower()).strip("_") or "node"
    return Sheet(file, source.spec, table, SINGULAR.get(kind, _singular(kind)), columns)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def _profile(reader: Reader, table: Table, alias: str, name: str) -> ColumnProfile:
    numbers = f"TRY_CAST({alias} AS DOUBLE)"
    words = rf"len(regexp_extract_all({alias}, '[\p{{L}}\p{{N}}]+'))"
    ((filled, distinct, finite, length),) = reader.rows(
        f"SELECT count({alias}), count(DISTINCT {alias}), "
        f"count(*) FILTER (isfinite({numbers})), coalesce(avg({words}), 0) FROM {table.sql}"
    )
    number = 0 < filled == finite
    items = {}
    for separator in () if number or not filled else SEPARATORS:
        split = f"string_split({alias}, '{separator}')"
        ((several, parts),) = reader.rows(
            f"SELECT count(*) FILTER (len({split}) > 1), (SELECT count(DISTINCT trim(item)) FROM "
            f"(SELECT unnest({split}) AS item FROM {table.sql})) FROM {table.sql}"
        )
        items[separator] = (several / filled, parts)
    examples = reader.rows(
        f"SELECT {alias} FROM {table.sql} WHERE {alias} IS NOT NULL "
        f"GROUP BY {alias} ORDER BY count(*) DESC, {alias} LIMIT 3"
    )
    shown = [str(example[0]) for example in examples]
    return ColumnProfile(name, alias, filled, distinct, number, length, items, shown)


def _name(sheets: list[Sheet]) -> None:
    """Give every table a name of its own."""
    taken: set[str] = set()
    for sheet in sheets:
        sheet.kind = untaken(sheet.kind, taken)


def untaken(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken already, and take it."""
    names = chain([name], (f"{name}{number}" for number in count(2)))
    found = next(name for name in names if name not in taken)
    taken.add(found)
    return found


def _guess_id(sheet: Sheet, others: set[str]) -> ColumnProfile | None:
    """Find a column whose values are all different and whose name is not that of another table."""
    unique = [
        column
        for column in sheet.columns
        if column.filled == column.distinct == sheet.table.size
        and not others & set(_words(column.name))
    ]
    own = {"id", f"{sheet.kind}_id", f"{sheet.kind}id", sheet.kind, "key", "uuid"}
    for fits in (
        lambda c: c.name.lower() in own,
        lambda c: c.name.lower().endswith("id"),
        lambda c: c is sheet.columns[0] and c.words <= 2,
    ):
        for column in unique:
            if fits(column):
                return column
    return None


def _guess_links(reader: Reader, sheet: Sheet, sheets: list[Sheet]) -> None:
    """Find columns whose values are the ids of a table."""
    for column in sheet.columns:
        if column is sheet.id or not column.filled:
            continue
        best: tuple[float, bool, int] | None = None
        for other in sheets:
            if other.id is None:
                continue
            named = _alludes(column.name, other)
            # Numbers may be among other numbers by accident, so their name must fit too.
            if (column.number or other is sheet) and not named:
                continue
            ((strays,),) = reader.rows(
                f"SELECT count(*) FROM {sheet.table.sql} AS mine WHERE mine.{column.alias} IS NOT "
                f"NULL AND mine.{column.alias} NOT IN (SELECT {other.id.alias} FROM "
                f"{other.table.sql})"
            )
            share = 1 - strays / column.filled
            found = (share, named, -other.table.size)
            if share >= (0.5 if named else 1) and (best is None or found > best):
                best, column.refers, column.strays = found, other, strays
        if column.refers is not None:
            column.strays += sheet.table.size - column.filled
            sheet.links.append(column)


def _alludes(name: str, other: Sheet) -> bool:
    name = name.lower()
    own = other.id.name.lower() if other.id else ""
    named = other.kind in _words(name) or name == f"{other.kind}id"
    return named or (own == name and own != "id")


def _words(name: str) -> list[str]:
    return re.split(r"[\W_]+", name.lower())


def _tell_nodes(sheets: list[Sheet]) -> None:
    """Decide which tables are nodes: those with ids, unless all they do is link other tables."""
    referred = {id(column.refers) for sheet in sheets for column in sheet.links}
    for sheet in sheets:
        only_links = len(sheet.links) >= 2 and id(sheet) not in referred
        named = any(says(c, NAME_WORDS) for c in sheet.columns)
        sheet.nodes = sheet.id is not None and (not only_links or named)


def says(column: ColumnProfile, words: Iterable[str]) -> bool:
    """Return whether a column's name contains one of the words."""
    return any(word in _words(column.name) for word in words)


def guess_label(sheet: Sheet) -> tuple[int, ColumnProfile] | None:
    """Find the likeliest label of a table: few values, some cells empty, a telling name."""
    best = None
    for column in sheet.columns:
        if column is sheet.id or column in sheet.links or is_split(column):
            continue
        distinct = column.items[column.separator][1] if column.separator else column.distinct
        if not 2 <= distinct <= min(LIKELY_LABELS, column.filled // 2):
            continue
        if column.number and not says(column, LABEL_WORDS):
            continue
        score = 4 * says(column, LABEL_WORDS) + 2 * (column.filled < sheet.table.size)
        if best is None or score > best[0]:
            best = (score, column)
    return best


def is_split(column: ColumnProfile) -> bool:
    """Return whether a column seems to hold the split."""
    found = set(column.examples)
    return column.distinct <= 3 and {"train", "val"} <= found <= {"train", "val", "test"}


def pairs(sheet: Sheet) -> list[tuple[str, ColumnProfile, ColumnProfile]]:
    """Return the links of a table: the type and column they start from, the column they end at."""
    if sheet.nodes and sheet.id is not None:
        return [(sheet.kind, sheet.id, column) for column in sheet.links]
    return [(refers_to(sheet.links[0]), sheet.links[0], column) for column in sheet.links[1:]]


def refers_to(column: ColumnProfile) -> str:
    """Return the node type whose ids a column holds."""
    assert column.refers is not None
    return column.refers.kind
