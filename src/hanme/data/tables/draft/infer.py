"""Infer a ``graph.toml`` from tables: profile columns, assign roles, apply the rules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.draft.draft import Draft, InferredConfig
from hanme.data.tables.draft.features import (
    TEXT,
    infer_feature,
    is_also_category,
)
from hanme.data.tables.draft.labels import MIN_ROWS, copies_label, count_labels, is_split
from hanme.data.tables.draft.profile import (
    FEW_VALUES,
    ColumnProfile,
    ProfiledTable,
    profile_table,
)
from hanme.data.tables.draft.relations import (
    add_column_relation,
    add_fact_relations,
    add_link_relations,
    relation_columns,
    source_values,
)
from hanme.data.tables.draft.roles import NAME_WORDS, infer_roles
from hanme.data.tables.read.discover import FoundTable, find_tables
from hanme.data.tables.read.formats import FORMATS
from hanme.data.tables.read.reader import Reader
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

COPY = "each of its values has only one label, so it may be a copy of the label"


def infer(path: Path, target: str | None = None, label: str | None = None) -> InferredConfig:
    """Infer a configuration from the tables in a folder, or from one file.

    Args:
        path: The folder or file.
        target: The table whose rows to classify: its file, with or without the ending, or its node
            type (default: the one with the likeliest label).
        label: The column of labels (default: the likeliest).
    """
    if not path.exists():
        raise HanmeError(f"{path}: no such file or folder")
    folder = whole(path if path.is_dir() else path.parent)
    tables, skipped = find_tables(folder, None if path.is_dir() else path.name)
    return _infer(tables, folder, skipped, None, target, label)


def infer_frames(frames: Mapping[str, Any], label: str | None = None) -> InferredConfig:
    """Infer a configuration from tables in memory, by name."""
    tables = [FoundTable(name, Source(table=name)) for name in frames]
    return _infer(tables, Path.cwd(), [], frames, None, label)


def _infer(
    found: list[FoundTable],
    folder: Path,
    skipped: list[str],
    frames: Mapping[str, Any] | None,
    target: str | None,
    label: str | None,
) -> InferredConfig:
    sources: list[tuple[FoundTable, ResolvedSource]] = []
    for one in found:
        try:
            sources.append((one, ResolvedSource.find(one.source, folder, one.title, frames)))
        except HanmeError as error:
            skipped.append(str(error))
    with Reader([source for _, source in sources], folder) as reader:
        tables = []
        for one, source in sources:
            try:
                tables.append(profile_table(reader, source, one))
            except HanmeError as error:
                skipped.append(str(error))
        if not tables:
            known = f"no tables; known formats are {', '.join(FORMATS)}, DuckDB and SQLite files"
            raise HanmeError(skipped[0] if len(skipped) == 1 else f"{folder}: {known}")
        return _apply_rules(tables, skipped, target, label)


def _apply_rules(
    tables: list[ProfiledTable], skipped: list[str], target_name: str | None, label_name: str | None
) -> InferredConfig:
    target, label = infer_roles(tables, target_name, label_name)
    draft = Draft(target.kind, types={table.kind for table in tables if table.is_nodes})
    draft.explain("target", reason="the node type to classify")
    copies = [c for c in target.columns if label and copies_label(target, c, label)]
    linked = any(
        table.facts or any(reference.table is target for reference in table.references)
        for table in tables
    )
    for table in tables:
        if table is target:
            _add_target(draft, table, label, copies, linked)
        elif table.is_nodes:
            columns, name = _add_nodes(draft, table)
            _add_features(draft, table, [column for column in columns if column is not name])
    for table in tables:
        if table.facts and not table.is_nodes:
            add_fact_relations(draft, table, target)
        elif not table.is_nodes:
            add_link_relations(draft, table)
    for kind in draft.implied:
        draft.explain("nodes", kind, reason="no table: its nodes are the ids in links")
    if not draft.relations:
        draft.explain(
            "relations",
            reason="no column links rows to each other, so a linear model is trained. To add a "
            'relation, write [relations.NAME] and columns = ["a column whose values repeat"].',
        )
    messages = (f"{target.title}, column {column.name}: {COPY}" for column in copies)
    return InferredConfig(draft.config(), draft.reasons, tuple(skipped), tuple(messages))


def _add_nodes(
    draft: Draft, table: ProfiledTable, used: tuple[ColumnProfile | None, ...] = ()
) -> tuple[list[ColumnProfile], ColumnProfile | None]:
    """Add a node type with its references; return its other columns, and the one of names."""
    values = draft.nodes[table.kind] = source_values(table.source)
    reasons = {"encoding": "not UTF-8", "empty": "such cells count as empty"}
    reasons = {key: reason for key, reason in reasons.items() if key in values}
    if table.id is not None:
        values["id"] = table.id.name
    reasons["id"] = "unique" if table.id else "no column is unique, so rows are numbered from 1"
    few = len(table.columns) < 4 or table.repeated * 5 >= table.size
    if table.repeated and (table.id is not None or not few):
        values["duplicates"] = "first"
        reasons["duplicates"] = f"{table.repeated:,} rows repeat an earlier one"
        reasons["id"] = "unique apart from these" if table.id else reasons["id"]
    rest = [c for c in table.columns if c not in (table.id, *used) and not table.refers(c)]
    names = [c for c in rest if c.named(NAME_WORDS) and not c.number and not c.is_object]
    names = [c for c in names if c.distinct * 2 > c.filled]
    name = max(names, key=lambda column: column.distinct, default=None)
    if name is not None:
        values["name"] = name.name
    draft.explain("nodes", table.kind, reason=f"{table.size:,} rows")
    for key, reason in reasons.items():
        draft.explain("nodes", table.kind, key, reason=reason)
    for reference in table.references:
        add_column_relation(draft, table, [reference.column], reference)
    return rest, name


def _add_target(
    draft: Draft,
    table: ProfiledTable,
    label: ColumnProfile | None,
    copies: list[ColumnProfile],
    linked: bool,
) -> None:
    """Add the node type to classify; columns that could be features may become relations."""
    columns, name = _add_nodes(draft, table, (label,))
    _add_label(draft, table, label)
    split = next((column for column in columns if is_split(column)), None)
    if split is not None:
        draft.nodes[table.kind]["split"] = split.name
        draft.explain("nodes", table.kind, "split", reason="it holds train, val and test")
    for column in copies:
        place = ("nodes", table.kind, "features", column.name)
        draft.explain(*place, reason=f"left out ({COPY})")
    columns = [column for column in columns if column not in (name, split, *copies)]
    groups = relation_columns(table, columns, linked or bool(table.references))
    for group in groups:
        add_column_relation(draft, table, group)
    relations = {c: c.separator for group in groups for c in group}
    features = _add_features(draft, table, [c for c in columns if c not in relations])
    relations |= {reference.column: reference.separator for reference in table.references}
    for column, separator in relations.items():
        if is_also_category(column, separator):
            features[column.name] = "category"
            place = ("nodes", table.kind, "features", column.name)
            draft.explain(*place, reason="also a relation")
    has_text = TEXT in features.values()
    if name and name.distinct > FEW_VALUES and (not has_text or name.repetition >= 2):
        features[name.name] = TEXT


def _add_features(
    draft: Draft, table: ProfiledTable, columns: list[ColumnProfile]
) -> dict[str, Any]:
    """Add the features of a node type and return them, for more to be added."""
    features: dict[str, Any] = {}
    for column in columns:
        feature, reason = infer_feature(column)
        if feature is not None:
            features[column.name] = feature
        if reason:
            reason = reason if feature is not None else f"left out ({reason})"
            draft.explain("nodes", table.kind, "features", column.name, reason=reason)
    draft.nodes[table.kind]["features"] = features
    return features


def _add_label(draft: Draft, table: ProfiledTable, label: ColumnProfile | None) -> None:
    """Add the label, how cells hold several, and what to do with rare ones."""
    values, place = draft.nodes[table.kind], ("nodes", table.kind)
    if label is None:
        draft.explain(*place, "label", reason="no column looks like a label: name one")
        return
    examples, rare = count_labels(table, label)
    more = ", ..." if label.values > len(examples) else ""
    empty = f"; {table.size - label.filled:,} rows without" if label.filled < table.size else ""
    values["label"] = label.name
    draft.explain(*place, "label", reason=f"{', '.join(examples)}{more}{empty}")
    if label.separator:
        values["label_separator"] = label.separator
        draft.explain(*place, "label_separator", reason="a node may have several labels")
    if rare:
        values |= {"label_min_count": MIN_ROWS, "label_rest": "drop"}
        what = "1 label has" if rare == 1 else f"{rare:,} labels have"
        draft.explain(*place, "label_min_count", reason=f"{what} fewer rows")
        draft.explain(*place, "label_rest", reason='"other" joins them as one label')
    others = [
        column.name
        for column in table.columns
        if column not in (label, table.id) and 2 <= column.distinct <= FEW_VALUES
        and not column.number and not table.refers(column) and not is_split(column)
    ]  # fmt: skip
    if others:
        run = f"hanme init --force --label COLUMN, such as {', '.join(others[:5])}"
        draft.explain(*place, "for another label", reason=run)
