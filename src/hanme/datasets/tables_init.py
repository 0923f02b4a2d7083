"""A first ``graph.toml`` for a folder of tables, with its guesses explained."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from hanme.datasets.tables_config import FILE, TableConfig
from hanme.datasets.tables_guess import (
    MOST_VALUES,
    NAME_WORDS,
    Column,
    Sheet,
    guess,
    guess_label,
    is_split,
    pairs,
    refers_to,
    says,
)
from hanme.errors import HanmeError
from hanme.files import replacing


def init(folder: Path) -> Path:
    """Looks at the tables in a folder and writes a ``graph.toml`` with its guesses explained.

    Returns:
        The file written.
    """
    path = folder / FILE
    if path.exists():
        raise HanmeError(f"{path}: there is one already; it is left as it is")
    text = draft(folder)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def draft(folder: Path) -> str:
    """The text of a ``graph.toml`` for the tables in a folder."""
    text = _write(guess(folder))
    TableConfig.model_validate(tomllib.loads(text))
    return text


def _write(sheets: list[Sheet]) -> str:
    nodes = [sheet for sheet in sheets if sheet.nodes]
    guesses = {id(sheet): found for sheet in nodes if (found := guess_label(sheet))}
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


def _write_nodes(sheet: Sheet, target: bool, label: Column | None) -> list[str]:
    assert sheet.id is not None
    lines = [f"[nodes.{_key(sheet.kind)}]  # {sheet.table.size:,} rows", *_table_lines(sheet)]
    lines.append(f"id = {_toml(sheet.id.name)}  # each value is there once")
    rest = [c for c in sheet.columns if c is not sheet.id and c not in sheet.links]
    name = next((c for c in rest if says(c, NAME_WORDS) and not c.number and c is not label), None)
    if name:
        lines.append(f"name = {_toml(name.name)}")
    if label:
        lines += _label_lines(label, sheet.table.size)
    elif target:
        lines.append('# label = "..."  # no column looks like a label: say which one it is')
    split = next((c for c in rest if target and is_split(c)), None)
    if split:
        lines.append(f"split = {_toml(split.name)}  # train, val and test are in it")
    features = [c for c in rest if c not in (name, label, split)]
    if features:
        lines += ["", f"[nodes.{_key(sheet.kind)}.features]"]
        lines += [_feature_line(column, sheet.table.size) for column in features]
    return lines


def _table_lines(sheet: Sheet) -> list[str]:
    lines = [f"table = {_toml(sheet.file)}"]
    if sheet.source.separator:
        lines.append(f"separator = {_toml(sheet.source.separator)}")
    if sheet.source.encoding != "utf-8":
        lines.append(f"encoding = {_toml(sheet.source.encoding)}  # it is not UTF-8")
    return lines


def _label_lines(label: Column, size: int) -> list[str]:
    shown = ", ".join(_comment(example) for example in label.examples)
    empty = f", {size - label.filled:,} rows without" if label.filled < size else ""
    more = ", ..." if label.separator or label.distinct > len(label.examples) else ""
    lines = [f"label = {_toml(label.name)}  # {shown}{more}{empty}"]
    if label.separator:
        lines.append(f"label_separator = {_toml(label.separator)}  # several labels per node")
    return lines


def _feature_line(column: Column, size: int) -> str:
    key = column.name if re.fullmatch(r"[A-Za-z0-9_-]+", column.name) else _toml(column.name)
    if not column.filled:
        return f"# {_comment(column.name)} is left out: it is empty"
    if column.number:
        unique = column.distinct == column.filled > 2 and says(column, ("id", "key", "code"))
        return f'{key} = "number"' if not unique else f"# {_comment(column.name)} is left out: ids"
    if column.separator:
        return f'{key} = {{kind = "list", separator = {_toml(column.separator)}}}'
    if column.words >= 4:
        return f'{key} = {{kind = "text", method = "tfidf", size = 100}}'
    if column.distinct <= MOST_VALUES and column.distinct <= max(20, column.filled / 2):
        return f'{key} = "category"  # {column.distinct:,} different values'
    return f"# {_comment(column.name)} is left out: {column.distinct:,} different values"


def _write_relations(sheet: Sheet, taken: set[str]) -> list[str]:
    """Links of a table of nodes to what its columns refer to, or of a table of links."""
    found = pairs(sheet)
    lines: list[str] = []
    for kind, start, end in found:
        name = sheet.kind if not sheet.nodes and len(found) == 1 else f"{sheet.kind}_{end.name}"
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
        lines.append(f"target = {{type = {_toml(refers_to(end))}, column = {_toml(end.name)}}}")
        if strays:
            lines.append(f'unknown = "drop"  # {strays:,} rows name no known id')
    if found and not sheet.nodes:
        lines += _hints(sheet)
    return lines


def _hints(sheet: Sheet) -> list[str]:
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
