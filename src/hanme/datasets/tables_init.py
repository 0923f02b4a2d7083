"""A first ``graph.toml`` for a folder of tables, guessed from names and values."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hanme.datasets.tables_config import FILE, RESERVED, Source, TableConfig
from hanme.datasets.tables_read import FORMATS, Kind, Origin, Reader, Table
from hanme.errors import HanmeError
from hanme.files import replacing

LABEL_WORDS = ("label", "genre", "class", "category", "topic", "target", "type", "kind")
NAME_WORDS = ("name", "title")
SEPARATORS = ("|", ";", ",")
MOST_LABELS = 50
MOST_VALUES = 1000
SINGULAR = {"people": "person", "men": "man", "women": "woman", "children": "child"}


@dataclass
class _Column:
    """What is known of a column."""

    name: str
    alias: str
    filled: int
    distinct: int
    number: bool
    words: float
    items: dict[str, tuple[float, int]]
    examples: list[str]
    refers: _Sheet | None = None
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
class _Sheet:
    """A table of the folder."""

    file: str
    source: Source
    table: Table
    kind: str
    columns: list[_Column]
    id: _Column | None = None
    links: list[_Column] = field(default_factory=list)
    nodes: bool = False


def init(folder: Path) -> Path:
    """Looks at the tables in a folder and writes a ``graph.toml`` with its guesses explained.

    Returns:
        The file written.
    """
    path = folder / FILE
    if path.exists():
        raise HanmeError(f"{path}: there is one already; it is left as it is")
    text = guess(folder)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def guess(folder: Path) -> str:
    """The text of a ``graph.toml`` for the tables in a folder."""
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
    if not any(_pairs(sheet) for sheet in sheets):
        raise HanmeError(f"{folder}: no column of a table holds the ids of another")
    text = _write(sheets)
    TableConfig.model_validate(tomllib.loads(text))
    return text


def _is_table(path: Path) -> bool:
    return any(path.name.lower().endswith((end, f"{end}.gz")) for end in FORMATS)


def _source(folder: Path, file: str) -> Source:
    """A CSV file of one column, in which a semicolon stands, is one of several columns."""
    separator = None
    if file.lower().endswith(".csv"):
        with (folder / file).open("rb") as opened:
            head = opened.readline(100_000).decode("utf-8", "replace")
        if "," not in head:
            separator = next((s for s in (";", "\t", "|") if s in head), None)
    return Source(table=file, separator=separator)


def _look(reader: Reader, origin: Origin, file: str, source: Source) -> _Sheet:
    names = [name for name in reader.columns(origin) if name]
    wanted: dict[str, tuple[str, Kind]] = {f"c{i}": (name, "text") for i, name in enumerate(names)}
    table = reader.read(origin, wanted)
    columns = [_profile(reader, table, alias, name) for alias, (name, _) in wanted.items()]
    kind = re.sub(r"\W+", "_", file.split(".")[0].lower()).strip("_") or "node"
    return _Sheet(file, source, table, SINGULAR.get(kind, _singular(kind)), columns)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word


def _profile(reader: Reader, table: Table, alias: str, name: str) -> _Column:
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
    return _Column(name, alias, filled, distinct, number, length, items, shown)


def _name(sheets: list[_Sheet]) -> None:
    """Gives no two tables the same name."""
    taken = set(RESERVED)
    for sheet in sheets:
        base, number = sheet.kind, 2
        while sheet.kind in taken:
            sheet.kind, number = f"{base}{number}", number + 1
        taken.add(sheet.kind)


def _guess_id(sheet: _Sheet, others: set[str]) -> _Column | None:
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


def _guess_links(reader: Reader, sheet: _Sheet, sheets: list[_Sheet]) -> None:
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


def _alludes(name: str, other: _Sheet) -> bool:
    name = name.lower()
    own = other.id.name.lower() if other.id else ""
    named = other.kind in _words(name) or name == f"{other.kind}id"
    return named or (own == name and own != "id")


def _words(name: str) -> list[str]:
    return re.split(r"[\W_]+", name.lower())


def _tell_nodes(sheets: list[_Sheet]) -> None:
    """A table of ids is one of nodes, unless all it does is to link others."""
    referred = {id(column.refers) for sheet in sheets for column in sheet.links}
    for sheet in sheets:
        only_links = len(sheet.links) >= 2 and id(sheet) not in referred
        named = any(_says(c, NAME_WORDS) for c in sheet.columns)
        sheet.nodes = sheet.id is not None and (not only_links or named)


def _says(column: _Column, words: Iterable[str]) -> bool:
    return any(word in _words(column.name) for word in words)


def _label(sheet: _Sheet) -> tuple[int, _Column] | None:
    """The likeliest label of a table: few values, some cells empty, a telling name."""
    best = None
    for column in sheet.columns:
        if column is sheet.id or column in sheet.links or _is_split(column):
            continue
        distinct = column.items[column.separator][1] if column.separator else column.distinct
        if not 2 <= distinct <= min(MOST_LABELS, column.filled // 2):
            continue
        if column.number and not _says(column, LABEL_WORDS):
            continue
        score = 4 * _says(column, LABEL_WORDS) + 2 * (column.filled < sheet.table.size)
        if best is None or score > best[0]:
            best = (score, column)
    return best


def _is_split(column: _Column) -> bool:
    return column.distinct <= 3 and bool(column.filled) and _parts(column)


def _parts(column: _Column) -> bool:
    return {"train", "val"} <= set(column.examples) <= {"train", "val", "test"}


def _write(sheets: list[_Sheet]) -> str:
    nodes = [sheet for sheet in sheets if sheet.nodes]
    guesses = {id(sheet): found for sheet in nodes if (found := _label(sheet))}
    target = max(nodes, key=lambda s: (guesses.get(id(s), (-1,))[0], len(s.links), s.table.size))
    lines = [
        "# A first graph.toml, written by hanme init. Everything in it is a guess from the names",
        "# and values of the columns: change what is wrong. docs/tables.md says what can be here.",
        "",
        f"target = {_toml(target.kind)}  # the node type to classify",
    ]
    for sheet in nodes:
        label = guesses[id(sheet)][1] if sheet is target and id(sheet) in guesses else None
        lines += ["", *_write_nodes(sheet, sheet is target, label)]
    taken: set[str] = set()
    for sheet in sheets:
        lines += _write_relations(sheet, taken)
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    """A name as a key of TOML, quoted where it has to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_]+", name) else _toml(name)


def _write_nodes(sheet: _Sheet, target: bool, label: _Column | None) -> list[str]:
    assert sheet.id is not None
    lines = [f"[nodes.{_key(sheet.kind)}]  # {sheet.table.size:,} rows", *_table_lines(sheet)]
    lines.append(f"id = {_toml(sheet.id.name)}  # each value is there once")
    rest = [c for c in sheet.columns if c is not sheet.id and c not in sheet.links]
    name = next((c for c in rest if _says(c, NAME_WORDS) and not c.number and c is not label), None)
    if name:
        lines.append(f"name = {_toml(name.name)}")
    if label:
        lines += _label_lines(label, sheet.table.size)
    elif target:
        lines.append('# label = "..."  # no column looks like a label: say which one it is')
    split = next((c for c in rest if target and _is_split(c)), None)
    if split:
        lines.append(f"split = {_toml(split.name)}  # train, val and test are in it")
    features = [c for c in rest if c not in (name, label, split)]
    if features:
        lines += ["", f"[nodes.{_key(sheet.kind)}.features]"]
        lines += [_feature_line(column, sheet.table.size) for column in features]
    return lines


def _table_lines(sheet: _Sheet) -> list[str]:
    lines = [f"table = {_toml(sheet.file)}"]
    if sheet.source.separator:
        lines.append(f"separator = {_toml(sheet.source.separator)}")
    return lines


def _label_lines(label: _Column, size: int) -> list[str]:
    shown = ", ".join(_comment(example) for example in label.examples)
    empty = f", {size - label.filled:,} rows without" if label.filled < size else ""
    more = ", ..." if label.separator or label.distinct > len(label.examples) else ""
    lines = [f"label = {_toml(label.name)}  # {shown}{more}{empty}"]
    if label.separator:
        lines.append(f"label_separator = {_toml(label.separator)}  # several labels per node")
    return lines


def _feature_line(column: _Column, size: int) -> str:
    key = column.name if re.fullmatch(r"[A-Za-z0-9_-]+", column.name) else _toml(column.name)
    if not column.filled:
        return f"# {_comment(column.name)} is left out: it is empty"
    if column.number:
        unique = column.distinct == column.filled > 2 and _says(column, ("id", "key", "code"))
        return f'{key} = "number"' if not unique else f"# {_comment(column.name)} is left out: ids"
    if column.separator:
        return f'{key} = {{kind = "list", separator = {_toml(column.separator)}}}'
    if column.words >= 4:
        return f'{key} = {{kind = "text", method = "tfidf", size = 100}}'
    if column.distinct <= MOST_VALUES and column.distinct <= max(20, column.filled / 2):
        return f'{key} = "category"  # {column.distinct:,} different values'
    return f"# {_comment(column.name)} is left out: {column.distinct:,} different values"


def _write_relations(sheet: _Sheet, taken: set[str]) -> list[str]:
    """Links of a table of nodes to what its columns refer to, or of a table of links."""
    pairs = _pairs(sheet)
    lines: list[str] = []
    for kind, start, end in pairs:
        name = sheet.kind if not sheet.nodes and len(pairs) == 1 else f"{sheet.kind}_{end.name}"
        name = base = re.sub(r"\W+", "_", name.lower()).strip("_")
        number = 2
        while name in taken:
            name, number = f"{base}{number}", number + 1
        taken.add(name)
        strays = max(end.strays, 0 if sheet.nodes else start.strays)
        lines += [
            "",
            f"[relations.{_key(name)}]  # {sheet.table.size:,} rows",
            *_table_lines(sheet),
        ]
        lines.append(f"source = {{type = {_toml(kind)}, column = {_toml(start.name)}}}")
        lines.append(f"target = {{type = {_toml(_kind(end))}, column = {_toml(end.name)}}}")
        if strays:
            lines.append(f'unknown = "drop"  # {strays:,} rows name no known id')
    if pairs and not sheet.nodes:
        lines += _hints(sheet)
    return lines


def _pairs(sheet: _Sheet) -> list[tuple[str, _Column, _Column]]:
    """The links of a table: the type and column they start from, and the column they end at."""
    if sheet.nodes and sheet.id is not None:
        return [(sheet.kind, sheet.id, column) for column in sheet.links]
    return [(_kind(sheet.links[0]), sheet.links[0], column) for column in sheet.links[1:]]


def _kind(column: _Column) -> str:
    assert column.refers is not None
    return column.refers.kind


def _hints(sheet: _Sheet) -> list[str]:
    """What else could be made of a table of links."""
    lines = []
    for column in sheet.columns:
        if column in sheet.links or column is sheet.id or not 2 <= column.distinct <= 10:
            continue
        value, cell = column.examples[0].replace("'", "''"), column.name.replace('"', '""')
        query = f"SELECT * FROM '{sheet.file}' WHERE \"{cell}\" = '{value}'"
        if "'" not in sheet.file:
            lines += [
                f"# {_comment(column.name)} tells rows apart: a relation for each of its values "
                f"({', '.join(map(_comment, column.examples))}{', ...' * (column.distinct > 3)}),",
                f"# with query = {_comment(_toml(query))} instead of table, may say more.",
            ]
    return lines


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:100]
