"""The result of schema inference: a configuration with a reason for each field, and its TOML."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hanme.common.files import replacing
from hanme.common.text import unused_name
from hanme.common.toml import toml_key, toml_text
from hanme.data.tables.build.leakage import Leak
from hanme.data.tables.schema.config import FILE, GraphConfig
from hanme.errors import HanmeError

Field = tuple[str, ...]
"""The place of a field, such as ``("nodes", "film", "label")``."""

WIDTH = 100
"""Maximum length of a line of comments, and of a reason behind a value."""

ENDS = ("source", "target")
"""The keys of a table of links for its ends."""

HEADER = (
    "Written by hanme init from the names and values of the columns. Check it and change what is "
    "wrong; docs/tables.md explains the keys."
)


@dataclass
class Draft:
    """A configuration to which the rules add fields.

    A reason may be about a field that has no value; it then explains why, or suggests one.
    """

    target: str  # the node type to classify
    types: set[str]  # names of node types that are taken
    skipped: list[str]  # files that are not used, and why
    implied: list[str] = field(default_factory=list)  # node types that need a section of their own
    nodes: dict[str, Any] = field(default_factory=dict)
    relations: dict[str, Any] = field(default_factory=dict)
    reasons: dict[Field, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what the user should know or decide
    questions: list[Leak] = field(default_factory=list)  # what nearly gives the label away

    def set(self, place: Field, value: Any, reason: str = "") -> None:
        """Set a field, unless the value is None, and the reason for it."""
        values: dict[str, Any] = {"nodes": self.nodes, "relations": self.relations}
        for key in place[:-1]:
            values = values.setdefault(key, {})
        if value is not None:
            values[place[-1]] = value
        if reason:
            self.reasons[place] = reason

    def add_relation(self, name: str, values: dict[str, Any], reason: str) -> Field:
        """Add a relation under an unused name; return its place."""
        place = ("relations", unused_name(name, self.relations, ""))
        self.set(place, {k: v for k, v in values.items() if v is not None}, reason)
        return place

    def new_type(self, name: str) -> str:
        """Return an unused name for a node type, and take it."""
        name = unused_name(name, self.types, "")
        self.types.add(name)
        return name

    def implied_type(self, name: str) -> str:
        """Return a node type without a table, the same for the same name."""
        if name not in self.implied:
            name = self.new_type(name)
            self.implied.append(name)
        return name

    def leave_out(self, leak: Leak, trial: Draft | None = None) -> None:
        """Remove what gives the label away, and note why and how to add it back.

        `trial` has it if it was never added.
        """
        draft = trial or self
        place, lines, keep = draft.place_of(leak.name), list[str](), [leak.name]
        if place[0] == "nodes":
            _, kind, _, column = place
            features = draft.nodes.get(kind, {}).get("features", {})
            if column in features:
                feature = f"{toml_key(column)} = {_inline(features.pop(column))}"
                lines.append(f"{feature} to [nodes.{toml_key(kind)}.features]")
            self.set(place, None, f"left out ({leak.why})")
            relations = draft.relations if trial else {}
        else:
            relations = {place[1]: self.relations.pop(place[1])}
            keep = []
        for name, section in relations.items():
            lines.append(f"[relations.{name}] with {', '.join(_fields((), section, {}))}")
            keep.append(f"relations.{name}")
        self.__dict__.pop("config", None)
        lines.append(f"keep = {_inline(keep)} to [nodes.{self.target}]")
        use = f" To use it, add {' and '.join(lines)}." if len(lines) > 1 else ""
        self.notes.append(f"Left out: {leak.name}: {leak.why}.{use}")

    def place_of(self, name: str) -> Field:
        """Return the place of a column or relation that is called as ``keep`` does."""
        first, _, rest = name.partition(".")
        if first == "relations" and rest in self.relations:
            return ("relations", rest)
        own = self.nodes.get(self.target, {}).get("features", {})
        other = first in self.nodes and first != self.target and rest and name not in own
        kind, column = (first, rest) if other else (self.target, name)
        return ("nodes", kind, "features", column)

    def ask(self) -> None:
        """Note the questions about columns and relations that are used, the strongest of each."""
        for leak in {q.name: q for q in sorted(self.questions, key=lambda q: q.auc)}.values():
            place = self.place_of(leak.name)
            if place[0] == "relations":
                where = [f"[relations.{place[1]}]"]
            else:
                used = place[3] in self.nodes[place[1]].get("features", {})
                where = [f"{toml_key(place[3])} from [{'.'.join(place[:3])}]"] if used else []
            for name, relation in self.relations.items():
                if leak.name in relation.get("columns", ()) and "source" not in relation:
                    where.append(f"[relations.{name}]")
            if where:
                self.notes.append(f"Check: {leak.question} If not, delete {' and '.join(where)}.")

    @cached_property
    def config(self) -> GraphConfig:
        """The configuration, once all fields are set."""
        ends = (relation.get(side) for relation in self.relations.values() for side in ENDS)
        named = [end["type"] for end in ends if isinstance(end, dict)]
        nodes = self.nodes | {kind: {} for kind in self.implied if kind in named}
        values = {"target": self.target, "nodes": nodes, "relations": self.relations}
        return GraphConfig.model_validate(values)


def output_path(path: Path, *, force: bool = False) -> Path:
    """Return the ``graph.toml`` to write for a folder or a file; refuse to replace one."""
    file = (path if path.is_dir() or not path.exists() else path.parent) / FILE
    if file.exists() and not force:
        raise HanmeError(f"{file}: it exists; add --force to replace it")
    return file


def write(draft: Draft, file: Path) -> None:
    """Write a configuration to a file."""
    with replacing(file) as temporary:
        temporary.write_text(render(draft), encoding="utf-8")


def render(draft: Draft) -> str:
    """Return the text of a ``graph.toml``."""
    values = draft.config.model_dump(exclude_unset=True)
    nodes, relations = values.pop("nodes"), values.pop("relations", {})
    sections: dict[Field, dict[str, Any]] = {}
    for kind, section in nodes.items():
        features = section.pop("features", {})
        sections |= {("nodes", kind): section, ("nodes", kind, "features"): features}
    sections |= {("relations", name): section for name, section in relations.items()}
    lines = [*_comment(HEADER), *(f"# Skipped: {_plain(reason)}" for reason in draft.skipped)]
    lines += [line for note in draft.notes for line in _comment(note)] + [""]
    lines += _fields((), values, draft.reasons)
    for place, section in sections.items():
        hints = [
            line
            for (*parent, key), reason in draft.reasons.items()
            if tuple(parent) == place and key not in section
            for line in _comment(f"{key}: {reason}")
        ]
        fields = _fields(place, section, draft.reasons) + hints
        if fields or len(place) == 2:
            header = f"[{'.'.join(map(toml_key, place))}]{_reason(place, draft.reasons)}"
            lines += ["", header, *fields]
    if not relations:
        lines += ["", *_comment(draft.reasons.get(("relations",), ""))]
    return "\n".join(lines) + "\n"


def _fields(place: Field, values: Mapping[str, Any], reasons: Mapping[Field, str]) -> list[str]:
    return [
        f"{toml_key(key)} = {_inline(value)}{_reason((*place, key), reasons)}"
        for key, value in values.items()
    ]


def _inline(value: Any) -> str:
    """Return a value on one line; a feature that has only a kind is written as this kind."""
    if isinstance(value, Mapping) and list(value) == ["kind"]:
        return _inline(value["kind"])
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(key)} = {_inline(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return toml_text(value) if isinstance(value, str) else str(value)


def _reason(place: Field, reasons: Mapping[Field, str]) -> str:
    reason = _plain(reasons.get(place, ""))
    return f"  # {textwrap.shorten(reason, WIDTH, placeholder=' ...')}" if reason else ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(_plain(text), WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _plain(text: str) -> str:
    """Return a text that may stand in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
