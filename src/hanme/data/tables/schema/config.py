"""The pydantic model and the JSON schema of a ``graph.toml``."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from hanme.common.files import whole
from hanme.common.toml import read_toml
from hanme.data.tables.schema.sections import (
    Filled,
    LinkTable,
    Name,
    NodeTable,
    Relation,
    Section,
    Source,
    SplitRule,
)
from hanme.errors import HanmeError
from hanme.graph import EdgeType
from hanme.graph.metapath import Metapath

FILE = "graph.toml"
TARGET_ONLY = (
    "label", "label_separator", "label_type", "label_min_count", "split", "shares", "keep",
)  # fmt: skip


class GraphConfig(Section):
    """The content of a graph.toml."""

    target: Name
    """The node type to classify."""
    nodes: dict[Name, NodeTable]
    relations: dict[Name, Relation] = Field(default={})
    split: SplitRule | None = None
    """How to split the labelled nodes, unless at random."""
    metapaths: list[Filled] | None = Field(default=None, min_length=1, max_length=1000)
    """Metapaths of models (default: each relation of the target there and back)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_type(self.target, "target")
        target, where = self.nodes[self.target], f"nodes.{self.target}"
        if target.implied:
            raise ValueError(f"{where}: give a table or a query; it is the target")
        if target.label_type and getattr(self.nodes.get(target.label_type), "name", None) is None:
            raise ValueError(f"{where}.label_type: no node type {target.label_type!r} with names")
        if target.split and ("shares" in target.model_fields_set or self.split):
            raise ValueError(f"{where}: give split or shares or [split], one of them")
        for kind, nodes in self.nodes.items():
            self._hide_answers(nodes, nodes.features, f"nodes.{kind}.features")
            for key in TARGET_ONLY:
                if kind != self.target and key in nodes.model_fields_set:
                    raise ValueError(f"nodes.{kind}.{key}: only the target {self.target} has it")
        for name, relation in self.relations.items():
            where = f"relations.{name}"
            if isinstance(relation, LinkTable):
                self._check_type(relation.source.type, f"{where}.source")
                self._check_type(relation.target.type, f"{where}.target")
                columns = [relation.source.column, relation.target.column, *relation.where]
                self._hide_answers(relation, [*columns, relation.each], where)
                continue
            source = relation.source or self.target
            self._check_type(source, f"{where}.source")
            if self.nodes[source].implied:
                raise ValueError(f"{where}.source: {source} has no table")
            self._hide_answers(self.nodes[source], relation.columns, f"{where}.columns")
        if not any(isinstance(r, LinkTable) and r.each for r in self.relations.values()):
            self.check_names()
        return self

    def _check_type(self, kind: str, where: str) -> None:
        if kind not in self.nodes:
            known = ", ".join(self.nodes)
            raise ValueError(f"{where}: no node type {kind!r}; expected one of {known}")

    def _hide_answers(self, source: Source, columns: Collection[str | None], where: str) -> None:
        """Refuse label and split among the columns of the target's table that a model sees."""
        target, place = self.nodes[self.target], ("database", "table", "query")
        if any(getattr(source, key) != getattr(target, key) for key in place):
            return
        for key in ("label", "split"):
            if (column := getattr(target, key)) is not None and column in columns:
                raise ValueError(f"{where}: {column} is the {key}, which no model may see")

    def check_names(self) -> None:
        """Refuse relations of the same name, and metapaths that the graph does not have."""
        edge_types = [e for pair in self.edge_types.values() for e in pair]
        for (source, name, target), count in Counter(edge_types).items():
            if count > 1:
                raise ValueError(
                    f"relations: two are called {name} from {source} to {target}; rename one"
                )
        for text in self.metapaths or ():
            root = Metapath.parse(text, (list(self.node_types), edge_types)).root
            if root != self.target:
                raise ValueError(f"metapath {text!r}: it starts at {root}, not at {self.target}")

    @property
    def node_types(self) -> dict[str, NodeTable]:
        """The node types, with those that only relations name."""
        named = {kind for edge_types in self.edge_types.values() for kind in edge_types[0][::2]}
        return self.nodes | {t: NodeTable() for t in sorted(named - set(self.nodes))}

    @property
    def edge_types(self) -> dict[str, tuple[EdgeType, EdgeType]]:
        """The edge type of each relation, and of its reverse."""
        edge_types = {}
        for name, relation in self.relations.items():
            if isinstance(relation, LinkTable):
                source, target = relation.source.type, relation.target.type
            else:
                source, target = relation.source or self.target, relation.type or name
            back = relation.reverse or f"rev_{name}"
            edge_types[name] = ((source, name, target), (target, back, source))
        return edge_types

    def without_relations(self, leaks: Collection[str]) -> GraphConfig:
        """Return the configuration without relations that give the label away."""
        kept = {n: r for n, r in self.relations.items() if f"relations.{n}" not in leaks}
        return self.model_copy(update={"relations": kept})

    @property
    def kept(self) -> set[str]:
        """What is used even if it gives the label away, as ``keep`` calls it."""
        metadata = list(self.node_types), [e for pair in self.edge_types.values() for e in pair]
        steps = {e for text in self.metapaths or () for e in Metapath.parse(text, metadata).steps}
        walked = {n for n, pair in self.edge_types.items() if not steps.isdisjoint(pair)}
        return {*self.nodes[self.target].keep, *(f"relations.{name}" for name in walked)}

    def column_name(self, kind: str, column: str) -> str:
        """Return what ``keep`` calls a column: ``TYPE.COLUMN``, unless it is of the target."""
        return column if kind == self.target else f"{kind}.{column}"

    @property
    def display(self) -> dict[str, dict[str, Any]]:
        """The names for explanations, by node type; see :func:`hanme.graph.display`."""
        names = {}
        for kind, nodes in self.nodes.items():
            columns = nodes.features.items()
            own: dict[str, Any] = {
                "singular": nodes.singular,
                "plural": nodes.plural,
                "titles": {column: spec.title for column, spec in columns if spec.title},
                "units": {column: spec.unit for column, spec in columns if spec.unit},
                "label": nodes.label,
                "links": {
                    column: name
                    for name, relation in self.relations.items()
                    if not isinstance(relation, LinkTable)
                    and (relation.source or self.target) == kind
                    for column in relation.columns
                    if column in nodes.features
                },
            }
            names[kind] = {key: value for key, value in own.items() if value}
        return {kind: own for kind, own in names.items() if own}

    def default_metapaths(self) -> list[str]:
        """Return each relation of the target there and back."""
        metapaths: list[str] = []
        for there, back in self.edge_types.values():
            if there[0] == there[2] == self.target:
                metapaths += [f"{self.target}-{name}:{self.target}" for name in (there[1], back[1])]
            elif self.target in (there[0], there[2]):
                away, home = (there, back) if there[0] == self.target else (back, there)
                metapaths.append(f"{self.target}-{away[1]}:{away[2]}-{home[1]}:{self.target}")
        return metapaths


def config_path(name: str | Path) -> Path:
    """Return the absolute path of a ``graph.toml``, or of the one in a folder."""
    path = whole(name)
    return whole(path / FILE) if path.is_dir() else path


def is_tables(name: str | Path) -> bool:
    """Return whether a data set's name is the path of a ``graph.toml`` or of a folder with one."""
    text = str(name)
    try:
        return text.endswith(".toml") or (Path(text).expanduser() / FILE).is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def read_config(path: Path) -> GraphConfig:
    """Read and check a ``graph.toml``."""
    if not os.path.exists(path):
        raise HanmeError(f"{path}: no such file; hanme init FOLDER writes one")
    return check_config(read_toml(path), str(path))


def check_config(values: dict[str, Any], where: str) -> GraphConfig:
    """Check the values of a ``graph.toml`` that were read from `where`."""
    try:
        return GraphConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
    place = [str(part) for part in first["loc"] if not str(part).startswith("[")]
    known = {
        "missing": "it is missing",
        "string_pattern_mismatch": "a name is letters, digits and underscores",
        "value_error": str(first.get("ctx", {}).get("error")),
    }
    what = known.get(first["type"], f"{first['msg']}, but got {str(first['input'])[:80]!r}")
    raise HanmeError(": ".join(filter(None, (where, ".".join(place), what))))


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``graph.toml``, for editors and programs."""
    version = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return version | GraphConfig.model_json_schema() | {"title": FILE}
