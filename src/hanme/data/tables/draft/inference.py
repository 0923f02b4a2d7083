"""Guess what the tables in a folder hold, from the names and values of their columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.common.numbers import untaken
from hanme.data.tables.build.features import most_frequent
from hanme.data.tables.draft.facts import at_target, triples
from hanme.data.tables.draft.profile import (
    NAME_WORDS,
    ColumnProfile,
    Sheet,
    cells,
    profile,
    says,
    words_of,
)
from hanme.data.tables.draft.references import guess_id, guess_links
from hanme.data.tables.read.discover import Found, find_tables
from hanme.data.tables.read.reader import Reader, Wanted
from hanme.data.tables.read.sources import FORMATS, ResolvedSource
from hanme.errors import HanmeError

LABEL_WORDS = ("label", "genre", "class", "category", "topic", "target", "type", "kind")
OUTCOMES = ("status", "outcome", "species", "diagnosis", "response", "survived", "sentiment", "y")
"""What a column of labels may be called, by no other word."""
LIKELY_LABELS = 50
FEW_LABELLED = 50
"""A table with fewer labels is the target only if no other has labels."""
FEW_ROWS = 5
SINGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "movies": "movie",
    "series": "series", "species": "species",
}  # fmt: skip


@dataclass
class Guess:
    """What the tables of a folder seem to be."""

    sheets: list[Sheet]  # the tables
    target: Sheet  # the one to classify
    label: ColumnProfile | None  # its column of labels
    examples: list[str] = field(default_factory=list)  # the three most frequent labels
    rare: int = 0  # how many labels only a few rows have
    copies: list[ColumnProfile] = field(default_factory=list)  # the columns that tell the label
    skipped: list[str] = field(default_factory=list)  # why other files are no part of it


def guess(path: Path, target: str | None = None, label: str | None = None) -> Guess:
    """Look at the tables in a folder, or at one file.

    The user may name the ``target``, by its table with or without the ending or by its node type,
    and the column that is the ``label``.
    """
    if not path.exists():
        raise HanmeError(f"{path}: there is no such folder")
    folder = path if path.is_dir() else path.parent
    found, skipped = find_tables(whole(folder), None if path.is_dir() else path.name)
    return guess_tables(found, whole(folder), skipped, target=target, label=label)


def guess_tables(
    found: list[Found],
    folder: Path,
    skipped: list[str] | None = None,
    *,
    frames: Mapping[str, Any] | None = None,
    target: str | None = None,
    label: str | None = None,
) -> Guess:
    """Look at tables that were found in a folder, or are in memory; see :func:`guess`."""
    skipped = [] if skipped is None else skipped
    sources: list[tuple[Found, ResolvedSource]] = []
    for one in found:
        try:
            sources.append((one, ResolvedSource.find(one.source, folder, one.title, frames)))
        except HanmeError as error:
            skipped.append(str(error))
    with Reader([source for _, source in sources], folder) as reader:
        sheets = []
        for one, source in sources:
            try:
                sheets.append(_look(reader, source, one))
            except HanmeError as error:
                skipped.append(str(error))
        if not sheets:
            known = f"no table in it; known are {', '.join(FORMATS)}, DuckDB and SQLite files"
            raise HanmeError(skipped[0] if len(skipped) == 1 else f"{folder}: {known}")
        return _understand(reader, sheets, skipped, target, label)


def _look(reader: Reader, source: ResolvedSource, found: Found) -> Sheet:
    """Read a table and look at its columns, again if some cells turn out to mean nothing."""
    names = [name for name in reader.columns(source) if name]
    wanted = {f"c{i}": Wanted(name) for i, name in enumerate(names)}
    table = reader.read(source, wanted)
    columns = [profile(reader, table, alias) for alias in wanted]
    missing = sorted({text for column in columns for text in column.missing})
    if missing and not found.source.empty:
        spec = found.source.model_copy(update={"empty": missing})
        again = replace(source, spec=spec)
        return _look(reader, again, Found(found.title, spec))
    kind = re.sub(r"\W+", "_", found.title.split(".")[0].lower()).strip("_") or "node"
    kind = f"node_{kind}" if kind[0].isdigit() else kind
    sheet = Sheet(found.title, found.source, table, singular(kind), columns)
    ((different,),) = reader.rows(f"SELECT count(*) FROM (SELECT DISTINCT * FROM {table.sql})")
    sheet.repeated = table.size - different
    return sheet


def singular(word: str) -> str:
    """Return a word of plural form in the singular, as far as English has rules."""
    if word in SINGULAR:
        return SINGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    plural = word.endswith("s") and not word.endswith(("ss", "is", "us")) and len(word) > 3
    return word[:-1] if plural else word


def take(name: str, taken: set[str]) -> str:
    """Return a name, with a number if it is taken already, and take it."""
    found = untaken(name, taken, "")
    taken.add(found)
    return found


def _understand(
    reader: Reader, sheets: list[Sheet], skipped: list[str], target: str | None, label: str | None
) -> Guess:
    taken: set[str] = set()
    kinds = [sheet.kind for sheet in sheets]
    for sheet in sheets:
        ending = re.sub(r"\W+", "_", sheet.file.rpartition(".")[2].lower())
        if kinds.count(sheet.kind) > 1 and sheet.source.format:  # ml.item and ml.inter
            sheet.kind = ending
        sheet.kind = take(sheet.kind, taken)
    for sheet in sheets:
        sheet.id = guess_id(reader, sheet, [other for other in sheets if other is not sheet])
        sheet.triples = triples(sheet)
    for sheet in sheets:
        guess_links(reader, sheet, sheets)
    chosen = _asked_for(sheets, target, label)
    _tell_nodes(sheets, chosen)
    nodes = [sheet for sheet in sheets if sheet.nodes]
    guesses = {id(sheet): one for sheet in nodes if (one := guess_label(sheet))}
    chosen = chosen or max(
        nodes, key=lambda s: (guesses.get(id(s), (-100,))[0], len(s.links), s.table.size)
    )
    for sheet in sheets:
        if sheet.triples is not None and chosen.id is not None:
            sheet.at_target = at_target(reader, sheet, chosen.table, chosen.id)
    column = guesses[id(chosen)][1] if id(chosen) in guesses else None
    if label is not None:
        column = next(c for c in chosen.columns if label in (c.name, c.plain))
    found = Guess(sheets, chosen, column, skipped=skipped)
    if column is not None:
        chosen.links = [c for c in chosen.links if c is not column]
        found.rare = _rare(reader, chosen, column)
        found.examples = list(most_frequent(chosen.table, cells(chosen.table, column), 3))
        found.copies = [c for c in chosen.columns if _tells(reader, chosen, c, column)]
    return found


def _asked_for(sheets: list[Sheet], target: str | None, label: str | None) -> Sheet | None:
    """Return the table that the user names, or the only one with the label that the user names."""
    chosen = sheets
    if target is not None:
        chosen = [s for s in sheets if target in (s.kind, s.file, s.file.split(".")[0])]
        if not chosen:
            kinds = ", ".join(sheet.kind for sheet in sheets)
            raise HanmeError(f"--target {target}: no such table; there are {kinds}")
    if label is not None:
        having = [s for s in chosen if any(label in (c.name, c.plain) for c in s.columns)]
        if not having:
            columns = ", ".join(c.name for sheet in chosen for c in sheet.columns)[:300]
            raise HanmeError(f"--label {label}: no such column; there are {columns}")
        if len(having) > 1:
            kinds = ", ".join(sheet.kind for sheet in having)
            raise HanmeError(f"--label {label}: several tables have it; say --target {kinds}")
        chosen = having
    return chosen[0] if target is not None or label is not None else None


def _tell_nodes(sheets: list[Sheet], target: Sheet | None) -> None:
    """Decide which tables are nodes: those that do more than link other tables."""
    referred = {id(column.refers) for sheet in sheets for column in sheet.links}
    for sheet in sheets:
        named = sheet.id is not None and any(says(c, NAME_WORDS) for c in sheet.columns)
        rest = [c for c in sheet.columns if c not in sheet.links and c is not sheet.id]
        alone = len(sheet.links) == 1 and sheet.id is None
        sheet.ends = [c for c in rest if _is_end(c)]
        narrow = len(rest) <= max(2, len(sheet.links)) + alone * len(sheet.ends)
        ends = len(sheet.links) + alone * len(sheet.ends[:1])
        links = ends >= 2 and id(sheet) not in referred and not named and narrow
        sheet.nodes = sheet is target or not (links or sheet.triples)
        if sheet.nodes:
            sheet.ends = []
    if not any(sheet.nodes for sheet in sheets):
        max(sheets, key=lambda s: (s.triples is None, s.table.size)).nodes = True


def _is_end(column: ColumnProfile) -> bool:
    """Return whether the values of a column in a table of links are likely ids."""
    an_id = words_of(column.plain)[-1] == "id" or column.typed == "token"
    text = not column.number and column.date is None and column.words <= 4
    return column.distinct >= 2 and (an_id or (text and column.distinct < 0.8 * column.filled))


def guess_label(sheet: Sheet) -> tuple[int, ColumnProfile] | None:
    """Find the likeliest label of a table: few values, some cells empty, a telling name."""
    best = None
    for column in sheet.columns:
        if column is sheet.id or column in sheet.links or is_split(column):
            continue
        if column.date is not None or column.vector or column.objects:
            continue
        separator = column.separator
        distinct = column.items[separator].distinct if separator else column.distinct
        if not 2 <= distinct <= min(LIKELY_LABELS, column.filled // 2):
            continue
        if not separator and column.second < min(FEW_ROWS, column.filled // 10):
            continue
        telling = _telling(sheet, column)
        if column.number and telling < 3:
            continue
        score = telling + 2 * (column.filled < 0.95 * sheet.table.size)
        score -= 10 * (column.filled < FEW_LABELLED)
        if best is None or score > best[0]:
            best = (score, column)
    return best


def _telling(sheet: Sheet, column: ColumnProfile) -> int:
    """Return how much the name of a column says that it is the label."""
    words = words_of(column.plain)
    if set(words) <= set(words_of(sheet.kind)):  # such as churn in customer_churn.csv
        return 5
    if says(column, LABEL_WORDS):
        return 4
    if len(words) == 1 and words[0] in OUTCOMES:
        return 3
    return -2 if says(column, (*NAME_WORDS, "code", "id", "zip")) else 0


def is_split(column: ColumnProfile) -> bool:
    """Return whether a column seems to hold the split."""
    found = set(column.examples)
    return column.distinct <= 3 and {"train", "val"} <= found <= {"train", "val", "test"}


def _rare(reader: Reader, sheet: Sheet, label: ColumnProfile) -> int:
    """Count the labels that few rows have; 0 if fewer than two others would be left."""
    ((rare, others),) = reader.rows(
        f"SELECT count(*) FILTER (n < {FEW_ROWS}), count(*) FILTER (n >= {FEW_ROWS}) FROM (SELECT "
        f"count(*) AS n FROM (SELECT unnest({cells(sheet.table, label)}) AS item "
        f"FROM {sheet.table.sql}) WHERE item <> '' GROUP BY item)"
    )
    return int(rare) if others >= 2 else 0


def _tells(reader: Reader, sheet: Sheet, column: ColumnProfile, label: ColumnProfile) -> bool:
    """Return whether each value of a column has one label and enough rows for that to mean it."""
    if column is label or column is sheet.id or column in sheet.links or is_split(column):
        return False
    if label.filled == sheet.table.size and column.filled < FEW_ROWS * column.distinct:
        return False  # as the query would find
    ((both, values, rows),) = reader.rows(
        f"SELECT count(DISTINCT ({column.alias}, {label.alias})), count(DISTINCT {column.alias}), "
        f"count(*) FROM {sheet.table.sql} WHERE {column.alias} IS NOT NULL AND {label.alias} IS "
        "NOT NULL"
    )
    return bool(values >= 2 and both == values and rows >= FEW_ROWS * values)
