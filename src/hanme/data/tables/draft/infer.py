"""Infer a ``graph.toml`` from tables: profile columns, assign roles, apply the rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.build.evidence import Labels
from hanme.data.tables.build.graph import GraphSource
from hanme.data.tables.build.leakage import linked_leaks, near_duplicates, own_leaks, repeated
from hanme.data.tables.build.target import read_parts
from hanme.data.tables.draft.draft import Draft
from hanme.data.tables.draft.profile import (
    FEW_VALUES,
    MAX_CATEGORIES,
    ColumnProfile,
    ProfiledTable,
    profile_table,
)
from hanme.data.tables.draft.relations import (
    add_column_relation,
    add_link_relations,
    relation_columns,
    source_values,
)
from hanme.data.tables.draft.roles import (
    MAX_LABELS,
    MIN_ROWS,
    NAME_WORDS,
    count_labels,
    infer_roles,
    is_split,
)
from hanme.data.tables.read.discover import find_tables
from hanme.data.tables.read.formats import FORMATS
from hanme.data.tables.read.reader import Reader
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import FILE
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

TEXT = "text"

CATEGORY_OF_RELATION = 64
"""Up to this number of values, in ten rows each, a relation is a feature, too.

Feature pairs are built from features alone, and a network may weigh them differently.
"""


def infer(
    path: Path, target: str | None = None, label: str | None = None, *, views: bool = False
) -> Draft:
    """Infer a configuration from the tables in a folder, or from one file.

    Args:
        path: The folder or file.
        target: The table whose rows to classify: its file, with or without the ending, or its node
            type (default: the one with the likeliest label).
        label: The column of labels (default: the likeliest).
        views: Whether views of databases count as tables.
    """
    if not path.exists():
        raise HanmeError(f"{path}: no such file or folder")
    folder = whole(path if path.is_dir() else path.parent)
    tables, skipped = find_tables(folder, None if path.is_dir() else path.name, views=views)
    return _infer(tables, folder, skipped, None, target, label)


def infer_frames(frames: Mapping[str, Any], label: str | None = None) -> Draft:
    """Infer a configuration from tables in memory, by name."""
    return _infer([Source(table=name) for name in frames], Path.cwd(), [], frames, None, label)


def _infer(
    found: list[Source],
    folder: Path,
    skipped: list[str],
    frames: Mapping[str, Any] | None,
    target: str | None,
    label: str | None,
) -> Draft:
    sources: list[ResolvedSource] = []
    for source in found:
        try:
            sources.append(ResolvedSource.find(source, folder, source.table or "", frames))
        except HanmeError as error:
            skipped.append(str(error))
    with Reader(sources, folder) as reader:
        tables = []
        for resolved in sources:
            try:
                tables.append(profile_table(reader, resolved))
            except HanmeError as error:
                skipped.append(str(error))
        if not tables:
            known = f"no tables; known formats are {', '.join(FORMATS)}, DuckDB and SQLite files"
            raise HanmeError(skipped[0] if len(skipped) == 1 else f"{folder}: {known}")
        draft = _apply_rules(tables, skipped, target, label)
    _check_linked_rows(draft, folder, frames)
    draft.ask()
    return draft


def _apply_rules(
    tables: list[ProfiledTable], skipped: list[str], target_name: str | None, label_name: str | None
) -> Draft:
    target, label = infer_roles(tables, target_name, label_name)
    draft = Draft(target.kind, {t.kind for t in tables if t.is_nodes}, skipped)
    draft.reasons["target",] = "the node type to classify"
    for table in tables:
        if table is target:
            _add_target(draft, table, label)
        elif table.is_nodes:
            columns, name = _add_nodes(draft, table, table.ends, target)
            _add_features(draft, table, [column for column in columns if column is not name])
    for table in tables:
        if table.is_links:
            add_link_relations(draft, table)
    for kind in draft.implied:
        draft.reasons["nodes", kind] = "no table: its nodes are the ids in links"
    if not draft.relations:
        draft.reasons["relations",] = (
            "no column links rows to each other, so linear models and trees are trained. To add a "
            'relation, write [relations.NAME] and columns = ["a column whose values repeat"].'
        )
    return draft


def _add_nodes(
    draft: Draft, table: ProfiledTable, used: list[ColumnProfile], target: ProfiledTable
) -> tuple[list[ColumnProfile], ColumnProfile | None]:
    """Add a node type with its references; return its other columns, and the one of names.

    Rows of links that are nodes, too, are facts about the target.
    """
    place = ("nodes", table.kind)
    facts = "; each is a link, and a node with the numbers and dates" if table.is_links else ""
    unnamed = ""
    if table.unnamed:
        columns = "1 column has" if table.unnamed == 1 else f"{table.unnamed} columns have"
        unnamed = f"; {columns} no name in the header: left out"
    draft.set(place, source_values(table.source), f"{table.size:,} rows{facts}{unnamed}")
    for key, reason in (("encoding", "not UTF-8"), ("empty", "such cells count as empty")):
        if key in draft.nodes[table.kind]:
            draft.reasons[(*place, key)] = reason
    unique = "unique" if table.id else "no column is unique, so rows are numbered from 1"
    draft.set((*place, "id"), table.id.name if table.id else None, unique)
    if table.repeated and table.id:
        again = f"{table.repeated:,} rows repeat an earlier one"
        draft.set((*place, "duplicates"), "first", again)
    rest = [column for column in table.own_columns() if column not in used]
    name = _name_column(rest)
    draft.set((*place, "name"), name.name if name else None)
    for column in [c for c in table.columns if c.name in table.hints and c not in used]:
        draft.set((*place, column.name), None, table.hints[column.name])
    to_target = [r for r in table.references if r.table is target and r.column not in used]
    hidden = {column.name for column in used}
    for reference in (to_target if table.is_links else []) or table.references:
        if reference.column not in used and hidden.isdisjoint(reference.where):
            add_column_relation(draft, table, [reference.column], reference)
    return rest, name


def _name_column(columns: list[ColumnProfile]) -> ColumnProfile | None:
    """Return the column of names; a table of two columns need not call it so."""
    names = [c for c in columns if c.named(NAME_WORDS) or len(columns) == 1]
    names = [c for c in names if not c.number and not c.is_object and c.distinct * 2 > c.filled]
    return max(names, key=lambda column: column.distinct, default=None)


def _add_target(draft: Draft, table: ProfiledTable, label: ColumnProfile | None) -> None:
    """Add the node type to classify; columns that could be features may become relations."""
    split = next((column for column in table.own_columns() if is_split(column)), None)
    leaks = _own_leaks(draft, table, label, split) if label else []
    used = [label, *leaks] if label else leaks
    columns, name = _add_nodes(draft, table, used, table)
    _add_label(draft, table, label)
    if split is not None:
        draft.set(("nodes", table.kind, "split"), split.name, "it holds train, val and test")
    place = ("nodes", table.kind, "features")
    columns = [column for column in columns if column not in (name, split)]
    repeats = near_duplicates(table.table, [column.alias for column in (*columns, name) if column])
    if repeats is not None and split is None:
        again = f"{table.size - len(set(repeats.tolist())):,} rows nearly repeat others"
        reason = f'{again}; training keeps them in one part unless duplicates = "apart"'
        draft.reasons["nodes", table.kind, "[split]"] = reason
    groups = relation_columns(table, columns)
    for group in groups:
        add_column_relation(draft, table, group)
    relations = {c: c.separator for group in groups for c in group}
    _add_features(draft, table, [c for c in columns if c not in relations])
    for column in [c for c in columns if c not in relations and 2 * c.distinct >= FEW_VALUES]:
        if draft.nodes[table.kind].get("features", {}).get(column.name) == "category":
            draft.reasons[(*place, column.name)] += (
                f'; or a relation: [relations.NAME] columns = ["{column.name}"]'
            )
    relations |= {r.column: r.separator for r in table.references if r.column not in used}
    for column, separator in relations.items():
        if is_also_category(column, separator):
            draft.set((*place, column.name), "category", "also a relation")
    has_text = TEXT in draft.nodes[table.kind].get("features", {}).values()
    if name and name.distinct > FEW_VALUES and (not has_text or name.repetition >= 2):
        draft.set((*place, name.name), TEXT)


def _own_leaks(
    draft: Draft, table: ProfiledTable, label: ColumnProfile, split: ColumnProfile | None
) -> list[ColumnProfile]:
    """Leave out columns of the target that give the label away, as features and as relations.

    There is no split yet but that of a column; without one, all labels are read.
    """
    name = _name_column([c for c in table.own_columns() if c is not label])
    others = (table.id, label, split, name)
    columns = {c.name: c for c in table.columns if c.filled and c not in others}
    cells = [column.alias for column in (*columns.values(), name) if column]
    hidden = repeated(near_duplicates(table.table, cells), table.table.size)
    if split is not None:
        (unseen,) = table.table.reader.arrays(
            f"SELECT {split.alias} IS DISTINCT FROM 'train' FROM {table.table.sql} ORDER BY rowid"
        )
        hidden |= unseen.astype(bool)
    labels = Labels.read(table.table, label.alias, hidden)
    leaks = own_leaks(table.table, {name: c.alias for name, c in columns.items()}, labels)
    draft.questions += [leak for leak in leaks if not leak.why]
    for leak in (leak for leak in leaks if leak.why):
        column, trial = columns[leak.name], Draft(draft.target, set(draft.types), [])
        trial.set(("nodes", table.kind, "features", column.name), infer_feature(column)[0])
        references = table.refers(column)
        if references or relation_columns(table, [column]):
            add_column_relation(trial, table, [column], *references[:1])
        draft.leave_out(leak, trial)
    return [columns[leak.name] for leak in leaks if leak.why]


def _check_linked_rows(draft: Draft, folder: Path, frames: Mapping[str, Any] | None) -> None:
    """Leave out relations, and columns of linked rows, that give the label away."""
    if not draft.relations or "label" not in draft.nodes[draft.target]:
        return
    source = GraphSource.find(draft.config, folder / FILE, frames=frames)
    try:
        with Reader(source.sources.values(), folder) as reader:
            config, tables, _, relations = source.open(reader)
            table = tables[draft.target]
            labels = Labels.read(table, "label", read_parts(config, table, table.size) != 0)
            leaks = linked_leaks(config, tables, relations.values(), labels)
    except HanmeError as error:
        draft.notes.append(f"Linked rows were not checked for leaks: {error}")
        return
    draft.questions += [leak for leak in leaks if not leak.why]
    for leak in (leak for leak in leaks if leak.why):
        draft.leave_out(leak)


def infer_feature(column: ColumnProfile) -> tuple[Any, str]:
    """Return the feature that a column becomes, None if it is left out, and the reason."""
    if not column.filled:
        return None, "every cell is empty"
    if column.is_vector:
        return "vector", ""
    if column.date is not None:
        return {"kind": "date", "format": column.date} if column.date else "date", ""
    if column.distinct == 1:
        return None, "every cell is the same"
    if column.number:
        if column.is_row_number:
            return None, "row numbers"
        is_id = column.unique and column.filled > 2 and column.named(("id", "key", "code"))
        written = f"numbers as people write them, such as {column.written}"
        feature = {"kind": "number", "decimal": ","} if column.decimal == "," else "number"
        return (None, "ids") if is_id else (feature, written if column.written else "")
    if column.is_address and column.distinct > FEW_VALUES:
        return None, "addresses"
    if column.separator:
        return {"kind": "list", "separator": column.separator}, ""
    if column.words >= 4 and column.distinct > max(FEW_VALUES, column.filled / 10):
        return TEXT, ""
    if column.distinct <= min(MAX_CATEGORIES, max(20, column.filled / 2)):
        mixed = f", some of them no numbers, such as {column.other!r}" if column.other else ""
        return "category", f"{column.distinct:,} values{mixed}"
    if column.words >= 2 and column.repetition >= 2:  # other rows use the same words
        return TEXT, ""
    mixed = f": numbers, but also {column.other!r}" if column.other else ""
    return None, f"{column.distinct:,} different values{mixed}"


def is_also_category(column: ColumnProfile, separator: str | None) -> bool:
    """Return whether a column that is a relation is a feature, too."""
    return not separator and 2 <= column.distinct <= min(CATEGORY_OF_RELATION, column.filled / 10)


def _add_features(draft: Draft, table: ProfiledTable, columns: list[ColumnProfile]) -> None:
    """Add the features of a node type."""
    for column in columns:
        feature, reason = infer_feature(column)
        reason = f"left out ({reason})" if feature is None else reason
        draft.set(("nodes", table.kind, "features", column.name), feature, reason)


def _add_label(draft: Draft, table: ProfiledTable, label: ColumnProfile | None) -> None:
    """Add the label, how cells hold several, and what to do with rare ones."""
    place = ("nodes", table.kind)
    if label is None:
        draft.set((*place, "label"), None, "no column looks like a label: name one")
        return
    if label.number and label.distinct > MAX_LABELS:
        raise HanmeError(
            f"--label {label.name}: {label.distinct:,} different numbers, but hanme predicts "
            "classes; make a column of ranges first, in the file or by a query with "
            f'ntile(4) OVER (ORDER BY "{label.name}")'
        )
    examples, rare = count_labels(table, label)
    more = ", ..." if label.values > len(examples) else ""
    for names in (reference.table for reference in table.refers(label)[:1]):
        if _name_column(names.own_columns()):
            draft.set((*place, "label_type"), names.kind, "labels are shown by its names")
    empty = f"; {table.size - label.filled:,} rows without" if label.filled < table.size else ""
    draft.set((*place, "label"), label.name, f"{', '.join(examples)}{more}{empty}")
    if label.separator:
        several = "a node may have several labels"
        draft.set((*place, "label_separator"), label.separator, several)
    if rare:
        what = "1 label has" if rare == 1 else f"{rare:,} labels have"
        draft.set((*place, "label_min_count"), MIN_ROWS, f"{what} fewer rows")
