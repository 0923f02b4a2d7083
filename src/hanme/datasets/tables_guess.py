"""What the tables in a folder seem to be, guessed from names and values."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hanme.datasets.tables_config import RESERVED, Encoding, Source
from hanme.datasets.tables_origin import FORMATS, Origin, open_text, suffix
from hanme.datasets.tables_read import Kind, Reader, Table
from hanme.errors import HanmeError

LABEL_WORDS = ("label", "genre", "class", "category", "topic", "target", "type", "kind")
NAME_WORDS = ("name", "title")
SEPARATORS = ("|", ";", ",")
MOST_LABELS = 50
MOST_VALUES = 1000
SINGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "movies": "movie",
    "series": "series",
}  # fmt: skip


@dataclass
class Column:
    """What is known of a column."""

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
        """What stands between the values of its cells, if there seem to be several."""
        for separator, (share, distinct) in self.items.items():
            few = self.distinct if separator == "," else max(20, self.distinct)
            if share >= 0.1 and distinct <= min(MOST_VALUES, few):
                return separator
        return None


@dataclass
class Sheet:
    """A table of the folder."""

    file: str
    source: Source
    table: Table
    kind: str
    columns: list[Column]
    id: Column | None = None
    links: list[Column] = field(default_factory=list)
    nodes: bool = False


def guess(folder: Path) -> list[Sheet]:
    """The tables in a folder, each with its ids and the columns that hold those of others."""
    if not folder.is_dir():
        raise HanmeError(f"{folder}: not a folder")
    files = sorted(p.name for p in folder.iterdir() if p.is_file() and _is_table(p))
    if not files:
        raise HanmeError(f"{folder}: no table in it; known are {', '.join(FORMATS)}")
    folder = folder.resolve()
    sources = {file: _source(folder, file) for file in files}
    origins = {file: Origin.find(source, folder, file) for file, source in sources.items()}
    with Reader(origins.values(), folder) as reader:
        sheets = [_look(reader, origins[file], file, sources[file]) for file in files]
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


def _source(folder: Path, file: str) -> Source:
    """A CSV file of one column, in which a semicolon stands, is one of several columns."""
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
    """UTF-16 begins with a mark, UTF-8 shows by itself, and all else is taken for latin-1."""
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


def _look(reader: Reader, origin: Origin, file: str, source: Source) -> Sheet:
    names = [name for name in reader.columns(origin) if name]
    wanted: dict[str, tuple[str, Kind]] = {f"c{i}": (name, "text") for i, name in enumerate(names)}
    table = reader.read(origin, wanted)
    columns = [_profile(reader, table, alias, name) for alias, (name, _) in wanted.items()]
    kind = re.sub(r"\W+", "_", file.split(".")[0].lower()).strip("_") or "node"
    return Sheet(file, source, table, SINGULAR.get(kind, _singular(kind)), columns)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def _profile(reader: Reader, table: Table, alias: str, name: str) -> Column:
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
    return Column(name, alias, filled, distinct, number, length, items, shown)


def _name(sheets: list[Sheet]) -> None:
    """Gives no two tables the same name."""
    taken = set(RESERVED)
    for sheet in sheets:
        base, number = sheet.kind, 2
        while sheet.kind in taken:
            sheet.kind, number = f"{base}{number}", number + 1
        taken.add(sheet.kind)


def _guess_id(sheet: Sheet, others: set[str]) -> Column | None:
    """A column whose values are there once, and whose name is not that of another table."""
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
    """Finds columns whose values are the ids of a table."""
    for column in sheet.columns:
        if column is sheet.id or not column.filled:
            continue
        best: tuple[float, bool, int] | None = None
        for other in sheets:
            if other.id is None:
                continue
            named = _alludes(column.name, other)
            # Numbers are among other numbers by accident; a name must speak for them.
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
    """A table of ids is one of nodes, unless all it does is to link others."""
    referred = {id(column.refers) for sheet in sheets for column in sheet.links}
    for sheet in sheets:
        only_links = len(sheet.links) >= 2 and id(sheet) not in referred
        named = any(says(c, NAME_WORDS) for c in sheet.columns)
        sheet.nodes = sheet.id is not None and (not only_links or named)


def says(column: Column, words: Iterable[str]) -> bool:
    return any(word in _words(column.name) for word in words)


def guess_label(sheet: Sheet) -> tuple[int, Column] | None:
    """The likeliest label of a table: few values, some cells empty, a telling name."""
    best = None
    for column in sheet.columns:
        if column is sheet.id or column in sheet.links or is_split(column):
            continue
        distinct = column.items[column.separator][1] if column.separator else column.distinct
        if not 2 <= distinct <= min(MOST_LABELS, column.filled // 2):
            continue
        if column.number and not says(column, LABEL_WORDS):
            continue
        score = 4 * says(column, LABEL_WORDS) + 2 * (column.filled < sheet.table.size)
        if best is None or score > best[0]:
            best = (score, column)
    return best


def is_split(column: Column) -> bool:
    return column.distinct <= 3 and bool(column.filled) and _parts(column)


def _parts(column: Column) -> bool:
    return {"train", "val"} <= set(column.examples) <= {"train", "val", "test"}


def pairs(sheet: Sheet) -> list[tuple[str, Column, Column]]:
    """The links of a table: the type and column they start from, and the column they end at."""
    if sheet.nodes and sheet.id is not None:
        return [(sheet.kind, sheet.id, column) for column in sheet.links]
    return [(refers_to(sheet.links[0]), sheet.links[0], column) for column in sheet.links[1:]]


def refers_to(column: Column) -> str:
    assert column.refers is not None
    return column.refers.kind
