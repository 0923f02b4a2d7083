"""Write a first ``graph.toml`` for a folder of tables, with the guesses explained."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hanme.common.files import replacing
from hanme.common.toml import toml_key, toml_text
from hanme.datasets.tables.config import FILE, GraphConfig
from hanme.datasets.tables.guess import (
    MOST_VALUES,
    NAME_WORDS,
    ColumnProfile,
    Sheet,
    guess,
    guess_label,
    is_split,
    pairs,
    refers_to,
    says,
    untaken,
)
from hanme.errors import HanmeError


def write_draft(folder: Path) -> Path:
    """Write a ``graph.toml`` for the tables in a folder and return its path."""
    path = folder / FILE
    if path.exists():
        raise HanmeError(f"{path}: there is one already; it is left as it is")
    text = draft(folder)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def draft(folder: Path) -> str:
    """Return the text of a ``graph.toml`` for the tables in a folder."""
    text = _write(guess(folder))
    GraphConfig.model_validate(tomllib.loads(text))
    return text


def _write(sheets: list[Sheet]) -> str:
    nodes = [sheet for sheet in sheets if sheet.nodes]
    guesses = {id(sheet): found for sheet in nodes if (found := guess_label(sheet))}
    target = max(nodes, key=lambda s: (guesses.get(id(s), (-1,))[0], len(s.links), s.table.size))
    lines = [
        "# A first graph.toml, written by hanme init. Everything in it is a guess from the names",
        "# and values of the columns: change what is wrong. docs/tables.md explains the keys.",
        "",
        f"target = {toml_text(target.kind)}  # the node type to classify",
    ]
    for sheet in nodes:
        label = guesses[id(sheet)][1] if sheet is target and id(sheet) in guesses else None
        lines += ["", *_write_nodes(sheet, sheet is target, label)]
    taken: set[str] = set()
    for sheet in sheets:
        lines += _write_relations(sheet, taken)
    return "\n".join(lines) + "\n"


def _write_nodes(sheet: Sheet, target: bool, label: ColumnProfile | None) -> list[str]:
    assert sheet.id is not None
    lines = [f"[nodes.{toml_key(sheet.kind)}]  # {sheet.table.size:,} rows", *_table_lines(sheet)]
    lines.append(f"id = {toml_text(sheet.id.name)}  # no value is there twice")
    rest = [c for c in sheet.columns if c is not sheet.id and c not in sheet.links]
    name = next((c for c in rest if says(c, NAME_WORDS) and not c.number and c is not label), None)
    if name:
        lines.append(f"name = {toml_text(name.name)}")
    if label:
        lines += _label_lines(label, sheet.table.size)
    elif target:
        lines.append('# label = "..."  # no column looks like a label: say which one it is')
    split = next((c for c in rest if target and is_split(c)), None)
    if split:
        lines.append(f"split = {toml_text(split.name)}  # it holds train, val and test")
    features = [c for c in rest if c not in (name, label, split)]
    if features:
        lines += ["", f"[nodes.{toml_key(sheet.kind)}.features]"]
        lines += map(_feature_line, features)
    return lines


def _table_lines(sheet: Sheet) -> list[str]:
    lines = [f"table = {toml_text(sheet.file)}"]
    if sheet.source.separator:
        lines.append(f"separator = {toml_text(sheet.source.separator)}")
    if sheet.source.encoding != "utf-8":
        lines.append(f"encoding = {toml_text(sheet.source.encoding)}  # it is not UTF-8")
    return lines


def _label_lines(label: ColumnProfile, size: int) -> list[str]:
    shown = ", ".join(_comment(example) for example in label.examples)
    empty = f", {size - label.filled:,} rows without" if label.filled < size else ""
    more = ", ..." if label.separator or label.distinct > len(label.examples) else ""
    lines = [f"label = {toml_text(label.name)}  # {shown}{more}{empty}"]
    if label.separator:
        lines.append(f"label_separator = {toml_text(label.separator)}  # several labels per node")
    return lines


def _feature_line(column: ColumnProfile) -> str:
    key = toml_key(column.name)
    if not column.filled:
        return f"# {_comment(column.name)} is left out: it is empty"
    if column.number:
        unique = column.distinct == column.filled > 2 and says(column, ("id", "key", "code"))
        return f'{key} = "number"' if not unique else f"# {_comment(column.name)} is left out: ids"
    if column.separator:
        return f'{key} = {{kind = "list", separator = {toml_text(column.separator)}}}'
    if column.words >= 4:
        return f'{key} = {{kind = "text", method = "tfidf", size = 100}}'
    if column.distinct <= MOST_VALUES and column.distinct <= max(20, column.filled / 2):
        return f'{key} = "category"  # {column.distinct:,} different values'
    return f"# {_comment(column.name)} is left out: {column.distinct:,} different values"


def _write_relations(sheet: Sheet, taken: set[str]) -> list[str]:
    """Write the links of a table of nodes to what its columns refer to, or of a table of links."""
    found = pairs(sheet)
    lines: list[str] = []
    for kind, start, end in found:
        name = sheet.kind if not sheet.nodes and len(found) == 1 else f"{sheet.kind}_{end.name}"
        name = untaken(re.sub(r"\W+", "_", name.lower()).strip("_"), taken)
        strays = max(end.strays, 0 if sheet.nodes else start.strays)
        lines += [
            "",
            f"[relations.{toml_key(name)}]  # {sheet.table.size:,} rows",
            *_table_lines(sheet),
            f"source = {_end(kind, start)}",
            f"target = {_end(refers_to(end), end)}",
        ]
        if strays:
            lines.append(f'unknown = "drop"  # {strays:,} rows name no known id')
    if found and not sheet.nodes:
        lines += _hints(sheet)
    return lines


def _end(kind: str, column: ColumnProfile) -> str:
    return f"{{type = {toml_text(kind)}, column = {toml_text(column.name)}}}"


def _hints(sheet: Sheet) -> list[str]:
    """Suggest what else could be made of a table of links."""
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
                f"# with query = {_comment(toml_text(query))} instead of table, may say more.",
            ]
    return lines


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:100]
