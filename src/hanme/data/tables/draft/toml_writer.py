"""Write the lines of a drafted ``graph.toml``, with the guesses explained."""

from __future__ import annotations

from hanme.common.toml import toml_key, toml_text
from hanme.data.tables.draft.inference import FEW_ROWS, Guess, is_split
from hanme.data.tables.draft.profile import MOST_VALUES, ColumnProfile, Sheet, says

TEXT = '{kind = "text", method = "tfidf", size = 2000}'

COPY = "each of its values has one label, so it may be a copy of it"

FEW_VALUES = 20
"""So few values are a feature each rather than a relation, which would link everything."""
SOME_VALUES = 64
"""So few values, in ten rows each, are features even of a relation: pairs multiply these alone."""


def table_lines(sheet: Sheet) -> list[str]:
    """Write where the rows of a table come from."""
    source, keys = sheet.source, ("database", "table", "format", "separator")
    lines = [f"{key} = {toml_text(value)}" for key in keys if (value := getattr(source, key))]
    if source.encoding != "utf-8":
        lines.append(f"encoding = {toml_text(source.encoding)}  # it is not UTF-8")
    if source.empty:
        listed = ", ".join(map(toml_text, source.empty))
        lines.append(f"empty = [{listed}]  # such cells count as empty")
    return lines


def id_lines(sheet: Sheet) -> list[str]:
    """Write which column has the ids."""
    again = f'duplicates = "first"  # {sheet.repeated:,} rows are there already'
    if sheet.id is None:
        lines = ["# Without an id, rows have their numbers, from 1 on, as ids."]
        wide = len(sheet.columns) >= 4 and sheet.repeated * 5 < sheet.table.size
        return [*lines, again] if sheet.repeated and wide else lines
    lines = [f"id = {toml_text(sheet.id.name)}"]
    return [*lines, again] if sheet.repeated else [f"{lines[0]}  # no value is there twice"]


def label_lines(label: ColumnProfile, size: int, found: Guess) -> list[str]:
    """Write which column has the labels."""
    shown = ", ".join(map(comment, found.examples))
    empty = f", {size - label.filled:,} rows without" if label.filled < size else ""
    more = ", ..." if label.separator or label.distinct > len(found.examples) else ""
    lines = [f"label = {toml_text(label.name)}  # {shown}{more}{empty}"]
    if label.separator:
        lines.append(f"label_separator = {toml_text(label.separator)}  # several labels per node")
    if found.rare:
        what = "1 label has" if found.rare == 1 else f"{found.rare:,} labels have"
        lines.append(f"label_min_count = {FEW_ROWS}  # {what} fewer rows")
        lines.append('label_rest = "drop"  # "other" joins them as one label')
    return lines


def other_labels(sheet: Sheet, found: Guess) -> list[str]:
    """Name columns that could be the label, too."""
    others = [
        column.name
        for column in sheet.columns
        if column not in (found.label, sheet.id) and 2 <= column.distinct <= FEW_VALUES
        and not column.number and column not in sheet.links and not is_split(column)
    ]  # fmt: skip
    listed = ", ".join(comment(name) for name in others[:5])
    return [f"# --label chooses another column, such as {listed}"] if others else []


def feature_line(column: ColumnProfile, may_link: bool) -> str:
    """Write what a column becomes as a feature, or why it becomes none."""
    key, left_out = toml_key(column.name), f"# {comment(column.name)} is left out"
    if not column.filled:
        return f"{left_out}: it is empty"
    if column.vector:
        return f'{key} = "vector"'
    if column.date is not None:
        how = f'{{kind = "date", format = {toml_text(column.date)}}}' if column.date else '"date"'
        return f"{key} = {how}"
    if column.distinct == 1:
        return f"{left_out}: every cell is the same"
    if column.number:
        if column.counts:
            return f"{left_out}: the numbers of the rows"
        unique = column.distinct == column.filled > 2 and says(column, ("id", "key", "code"))
        return f'{key} = "number"' if not unique else f"{left_out}: ids"
    if column.separator:
        return f'{key} = {{kind = "list", separator = {toml_text(column.separator)}}}'
    if column.words >= 4 and column.distinct > max(FEW_VALUES, column.filled / 10):
        return f"{key} = {TEXT}"
    if column.distinct <= MOST_VALUES and column.distinct <= max(20, column.filled / 2):
        or_else = "; or a relation: columns = [...]" if may_link else ""
        return f'{key} = "category"  # {column.distinct:,} different values{or_else}'
    if column.words >= 2 and column.told >= 2:
        return f"{key} = {TEXT}"
    return f"{left_out}: {column.distinct:,} different values"


def also_feature(column: ColumnProfile) -> list[str]:
    """Write a column that is a relation as a feature, too, if its values are few."""
    if column.separator or not 2 <= column.distinct <= min(SOME_VALUES, column.filled / 10):
        return []
    return [f'{toml_key(column.name)} = "category"  # a relation, too']


def end_text(kind: str, column: ColumnProfile) -> str:
    """Write an end of a relation."""
    return f"{{type = {toml_text(kind)}, column = {toml_text(column.name)}}}"


def hints(sheet: Sheet, used: list[ColumnProfile]) -> list[str]:
    """Suggest what else could be made of a table of links."""
    lines = []
    for column in sheet.columns:
        if column in (*sheet.links, *used, sheet.id) or not 2 <= column.distinct <= FEW_VALUES:
            continue
        shown = f"{', '.join(map(comment, column.examples))}{', ...' * (column.distinct > 3)}"
        lines += [
            f"# {comment(column.name)} tells rows apart: a relation for each of its values "
            f"({shown}),",
            f"# with each = {comment(toml_text(column.name))}, may say more.",
        ]
    return lines


def comment(text: str) -> str:
    """Return a text as it may stand in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)[:100]
