"""The result of schema inference: a configuration, and a reason for each of its fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hanme.common.text import unused_name
from hanme.data.tables.schema.config import GraphConfig

Field = tuple[str, ...]
"""The place of a field, such as ``("nodes", "film", "label")``."""


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

    @cached_property
    def config(self) -> GraphConfig:
        """The configuration, once all fields are set."""
        nodes = self.nodes | {kind: {} for kind in self.implied}
        values = {"target": self.target, "nodes": nodes, "relations": self.relations}
        return GraphConfig.model_validate(values)
