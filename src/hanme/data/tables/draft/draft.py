"""The result of schema inference: a configuration, and a reason for each of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hanme.common.numbers import untaken
from hanme.data.tables.schema.config import GraphConfig

Field = tuple[str, ...]
"""The place of a field, such as ``("nodes", "film", "label")``."""


@dataclass(frozen=True)
class InferredConfig:
    """An inferred ``graph.toml``.

    A reason may be about a field that the configuration does not set; it then explains why, or
    suggests a value.
    """

    config: GraphConfig
    reasons: Mapping[Field, str]
    skipped: tuple[str, ...]  # files that are not used, and why
    copies: tuple[str, ...]  # columns that are not used because they may copy the label


@dataclass
class Draft:
    """A configuration under construction, to which the rules add fields."""

    target: str  # the node type to classify
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    relations: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[Field, str] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)  # names of node types that are taken
    implied: list[str] = field(default_factory=list)  # node types that need a section of their own

    def explain(self, *place: str, reason: str) -> None:
        """Add the reason for a field."""
        self.reasons[place] = reason

    def add_relation(self, name: str, values: dict[str, Any], **reasons: str) -> str:
        """Add a relation under an unused name, with reasons for the section and its keys."""
        name = untaken(name, self.relations, "")
        self.relations[name] = {key: value for key, value in values.items() if value is not None}
        for key, reason in reasons.items():
            self.explain("relations", name, *([] if key == "section" else [key]), reason=reason)
        return name

    def new_type(self, name: str) -> str:
        """Return an unused name for a node type, and take it."""
        name = untaken(name, self.types, "")
        self.types.add(name)
        return name

    def config(self) -> GraphConfig:
        """Return the configuration."""
        nodes = self.nodes | {kind: {} for kind in self.implied}
        values = {"target": self.target, "nodes": nodes, "relations": self.relations}
        return GraphConfig.model_validate(values)
