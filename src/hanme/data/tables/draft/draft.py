"""Write a first ``graph.toml`` for a folder of tables, with the guesses explained."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from hanme.common.files import replacing
from hanme.common.toml import toml_key, toml_text
from hanme.data.tables.draft.inference import Guess, guess, is_split, singular, take
from hanme.data.tables.draft.profile import NAME_WORDS, ColumnProfile, Sheet, says, words_of
from hanme.data.tables.draft.references import refers_to
from hanme.data.tables.draft.toml_writer import (
    COPY,
    FEW_VALUES,
    TEXT,
    also_feature,
    comment,
    end_text,
    feature_line,
    hints,
    id_lines,
    label_lines,
    other_labels,
    table_lines,
)
from hanme.data.tables.schema.config import FILE, GraphConfig
from hanme.errors import HanmeError

HUB = 300
"""A relation by which a row has more neighbours than this on average costs more than it says."""

REPEATS = 3
"""Unknown ids that so many rows have, on average, become nodes."""


def write_draft(
    path: Path,
    target: str | None = None,
    label: str | None = None,
    *,
    force: bool = False,
    on_skip: Callable[[str], None] = lambda reason: None,
) -> Path:
    """Write a ``graph.toml`` for the tables in a folder, or for one file, and return its path.

    ``force`` overwrites an existing one. ``on_skip`` is called with the reason for each file that
    is left out. See :func:`guess`.
    """
    file = (path if path.is_dir() or not path.exists() else path.parent) / FILE
    if file.exists() and not force:
        raise HanmeError(f"{file}: it exists; overwrite it with --force, or see --print")
    found = guess(path, target, label)
    text = write_text(found)
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    for column in found.copies:
        found.skipped.append(f"{found.target.file}, column {column.name}: {COPY}")
    for reason in found.skipped:
        on_skip(reason)
    return file


def write_text(found: Guess) -> str:
    """Return the text of a ``graph.toml`` for what was guessed."""
    text = _Draft(found).text()
    GraphConfig.model_validate(tomllib.loads(text))
    return text


class _Draft:
    """The text of a ``graph.toml``."""

    def __init__(self, found: Guess) -> None:
        self.found = found
        self.kinds = {sheet.kind for sheet in found.sheets if sheet.nodes}
        self.taken: set[str] = set()
        self.relations: list[str] = []
        self.implied: list[str] = []
        self.entity: str | None = None  # the type of what facts say of the target

    def text(self) -> str:
        target = self.found.target
        lines = [
            "# A first graph.toml, written by hanme init. Everything in it is a guess from the",
            "# names and values of the columns: change what is wrong. docs/tables.md explains the",
            "# keys.",
            *(f"# Skipped: {comment(reason)}" for reason in self.found.skipped),
            "",
            f"target = {toml_text(target.kind)}  # the node type to classify",
        ]
        for sheet in self.found.sheets:
            if sheet.nodes:
                lines += ["", *self._nodes(sheet)]
        for sheet in self.found.sheets:
            if sheet.triples and not sheet.nodes:
                self._triples(sheet)
            elif not sheet.nodes:
                self._links(sheet)
        for kind in self.implied:
            lines += ["", f"[nodes.{toml_key(kind)}]  # no table: its nodes are the ids in links"]
        if not self.relations:
            lines += [
                "",
                "# No column links rows to each other: a linear model is trained. A relation is",
            ]
            lines += ["# [relations.NAME]", '# columns = ["a column whose values repeat"]']
        return "\n".join(lines + self.relations) + "\n"

    def _nodes(self, sheet: Sheet) -> list[str]:
        found, is_target = self.found, sheet is self.found.target
        lines = [f"[nodes.{toml_key(sheet.kind)}]  # {sheet.table.size:,} rows"]
        lines += [*table_lines(sheet), *id_lines(sheet)]
        label = found.label if is_target else None
        rest = [c for c in sheet.columns if c not in (sheet.id, label) and c not in sheet.links]
        name = _name(rest)
        if name:
            lines.append(f"name = {toml_text(name.name)}")
        if label:
            lines += label_lines(label, sheet.table.size, found)
            lines += other_labels(sheet, found)
        elif is_target:
            lines.append('# label = "..."  # no column looks like a label: say which one it is')
        split = next((c for c in rest if is_target and is_split(c)), None)
        if split:
            lines.append(f"split = {toml_text(split.name)}  # it holds train, val and test")
        columns = [c for c in rest if c not in (name, split)]
        for column in sheet.links:
            self._column_relation(sheet, [column], refers_to(column))
        features = self._features(sheet, columns, name)
        if is_target:
            features += [line for column in sheet.links for line in also_feature(column)]
        if features:
            lines += ["", f"[nodes.{toml_key(sheet.kind)}.features]", *features]
        return lines

    def _features(
        self, sheet: Sheet, columns: list[ColumnProfile], name: ColumnProfile | None
    ) -> list[str]:
        """Write the features of a type; columns of the target may become relations instead."""
        is_target = sheet is self.found.target
        groups: dict[str, list[ColumnProfile]] = {}
        for column in columns:
            if is_target and column not in self.found.copies and _may_link(column):
                groups.setdefault(re.sub(r"\d+", "#", column.name), []).append(column)
        linked = {key: g for key, g in groups.items() if any(map(_should_link, g)) or len(g) > 1}
        if is_target and not linked and not sheet.links and not self._linked_by_others(sheet):
            best = min(groups, key=lambda key: sum(c.pairs for c in groups[key]), default=None)
            linked = {best: groups[best]} if best is not None else {}
        lines = []
        for column in columns:
            group = linked.get(re.sub(r"\d+", "#", column.name), [])
            if column in self.found.copies and is_target:
                lines.append(f"# {comment(column.name)} is left out: {COPY}")
            elif column in group:
                if column is group[0]:
                    self._column_relation(sheet, group)
                lines += also_feature(column)
            else:
                lines.append(feature_line(column, any(column in g for g in groups.values())))
        text = any("text" in line and not line.startswith("#") for line in lines)
        if is_target and name and name.distinct > FEW_VALUES and (not text or name.told >= 2):
            lines.append(f"{toml_key(name.name)} = {TEXT}")
        return lines

    def _linked_by_others(self, sheet: Sheet) -> bool:
        return any(c.refers is sheet for other in self.found.sheets for c in other.links) or any(
            other.triples for other in self.found.sheets
        )

    def _column_relation(
        self, sheet: Sheet, group: list[ColumnProfile], kind: str | None = None
    ) -> None:
        """Write a relation from columns to a type that has a table, or else is made of values."""
        first = group[0]
        stem = _stem(first.plain, len(group) > 1)
        if sheet is not self.found.target:
            stem = f"{sheet.kind}_{stem}"
        name = take(stem, self.taken)
        separator = first.separator
        shown = f"{first.distinct:,} different cells" if separator else f"{first.distinct:,} values"
        listed = ", ".join(toml_text(column.name) for column in group)
        lines = ["", f"[relations.{toml_key(name)}]  # {shown}", f"columns = [{listed}]"]
        if separator:
            lines.append(f"separator = {toml_text(separator)}")
        if sheet is not self.found.target:
            lines.append(f"source = {toml_text(sheet.kind)}")
        if kind is None:
            kind = take(name, self.kinds)
        if kind != name:
            lines.append(f"type = {toml_text(kind)}")
        if first.strays:
            lines.append(self._unknown(f"{first.strays:,} values are no known id", [first]))
        self.relations += lines

    def _links(self, sheet: Sheet) -> None:
        """Write the relations of a table of links."""
        first, *others = sheet.links + sheet.ends[: max(0, 2 - len(sheet.links))]
        more = [c for c in sheet.ends if c not in others and _should_link(c) and not c.separator]
        start = next((c for c in sheet.links if c.refers is self.found.target), first)
        for first, end in [*((first, end) for end in others), *((start, end) for end in more)]:
            main = len(others) == 1 and end in others
            name = sheet.kind if main else f"{sheet.kind}_{_stem(end.plain, False)}"
            name = take(re.sub(r"\W+", "_", name.lower()).strip("_"), self.taken)
            types = [self._end_type(column) for column in (first, end)]
            self.relations += [
                "",
                f"[relations.{toml_key(name)}]  # {sheet.table.size:,} rows",
                *table_lines(sheet),
                f"source = {end_text(types[0], first)}",
                f"target = {end_text(types[1], end)}",
            ]
            strays = max(c.strays + sheet.table.size - c.filled for c in (first, end))
            if strays:
                said = f"{strays:,} rows name no known id"
                self.relations.append(self._unknown(said, [first, end]))
        self.relations += hints(sheet, [*others, *more])

    def _unknown(self, said: str, columns: list[ColumnProfile]) -> str:
        """Write what to do with unknown ids: those that repeat tell much.

        They are no nodes to classify, as they would have no features.
        """
        strays = [c for c in columns if c.strays]
        repeat = all(c.strays >= REPEATS * c.unknown for c in strays)
        if strays and repeat and all(c.refers is not self.found.target for c in strays):
            return f'unknown = "add"  # {said}: they become nodes without features'
        return f'unknown = "drop"  # {said}'

    def _end_type(self, column: ColumnProfile) -> str:
        if column.refers is not None:
            return refers_to(column)
        kind = _stem(column.plain, False)
        if kind not in self.implied:
            kind = take(kind, self.kinds)
            self.implied.append(kind)
        return kind

    def _triples(self, sheet: Sheet) -> None:
        """Write a table of facts: a relation for each value of the middle column.

        If most facts have a target at one end and hardly any at both, the other ends are nodes of
        another type: a film is no actor.
        """
        assert sheet.triples is not None
        head, relation, tail = sheet.triples
        kind, name = self.found.target.kind, sheet.kind
        shown = ", ".join(map(comment, relation.examples))
        more = ", ..." if relation.distinct > len(relation.examples) else ""
        both, heads, tails = sheet.at_target
        if 2 * (both + heads + tails) > sheet.table.size and 10 * both < both + heads + tails:
            if self.entity is None:
                self.entity = take("entity", self.kinds)
                self.implied.append(self.entity)
            other = self.entity
            drafts = [
                (heads and heads + both, f"{name}_of", (kind, other), f"start at a {kind}"),
                (tails and tails + both, f"{name}_to", (other, kind), f"end at a {kind}"),
                (both, f"{name}_between", (kind, kind), "do both"),
            ]
            unknown = 'unknown = "drop"  # the other facts'
        else:
            drafts = [(sheet.table.size, name, (kind, kind), "in all")]
            unknown = f'unknown = "add"  # ids that are in no other table become nodes of {kind}'
        for count, title, types, what in drafts:
            if count:
                self.relations += [
                    "",
                    f"[relations.{toml_key(take(title, self.taken))}]  # {count:,} facts {what}",
                    *table_lines(sheet),
                    f"each = {toml_text(relation.name)}  # such as {shown}{more}",
                    f"source = {end_text(types[0], head)}",
                    f"target = {end_text(types[1], tail)}",
                    unknown,
                ]


def _name(columns: list[ColumnProfile]) -> ColumnProfile | None:
    """Return the column of names: of several, the one with the most different values."""
    named = [c for c in columns if says(c, NAME_WORDS) and not c.number and not c.objects]
    named = [c for c in named if c.distinct * 2 > c.filled]
    return max(named, key=lambda column: column.distinct, default=None)


def _stem(name: str, several: bool) -> str:
    """Return what a column's values are: ``actor_1_name`` are of type actor."""
    words = [word for word in words_of(name) if word]
    short = [w for w in words if w not in ("id", "name", "key") and not (several and w.isdigit())]
    stem = "_".join(short or words) or "value"
    return f"value_{stem}" if stem[0].isdigit() else singular(stem)


def _may_link(column: ColumnProfile) -> bool:
    """Return whether values of a column repeat, so that it could link rows."""
    if not column.filled or column.date is not None or column.vector or column.distinct < 2:
        return False
    if column.objects:
        return False
    if column.separator:
        found = column.items[column.separator]
        return found.total >= 1.2 * found.distinct
    if column.number and not says(column, ("id", "code", "key", "zip")):
        return False
    return column.distinct <= 0.8 * column.filled and column.words < 6


def _should_link(column: ColumnProfile) -> bool:
    """Return whether a column links rows without linking everything to everything."""
    distinct = column.items[column.separator].distinct if column.separator else column.distinct
    return distinct > FEW_VALUES and column.pairs <= HUB * column.filled
