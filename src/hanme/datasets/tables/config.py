"""The keys of a ``graph.toml``, as pydantic models and as a JSON schema."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from hanme.common.toml import read_toml
from hanme.errors import HanmeError
from hanme.graph import EdgeType
from hanme.metapath import Metapath

FILE = "graph.toml"

Name = Annotated[str, StringConstraints(pattern=r"^\w+$")]
Filled = Annotated[str, StringConstraints(min_length=1)]
ColumnName = Annotated[Filled, Field(description="A column of the table.")]


class _Part(BaseModel):
    """A part of the file. An unknown key is refused, and the message lists the known ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        known = list(cls.model_fields)
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                close = difflib.get_close_matches(str(key), known, 1)
                hint = f"did you mean {close[0]}? " if close else ""
                raise ValueError(f"no such key {key!r}; {hint}there are {', '.join(known)}")
        return values


class NumberSpec(_Part):
    """A number, standardised: minus the column's mean, divided by its standard deviation.

    An empty cell counts as the mean.
    """

    kind: Literal["number"]


class CategorySpec(_Part):
    """One value, one-hot. An empty cell is all zeros."""

    kind: Literal["category"]
    size: int = Field(
        default=1000, ge=1, description="How many values to keep, the most frequent ones."
    )


class ListSpec(_Part):
    """Several values in one cell, split by a separator.

    A list in Parquet or JSON is taken as it is.
    """

    kind: Literal["list"]
    separator: Filled = Field(default="|", description="The text between two values.")
    size: int = Field(
        default=1000, ge=1, description="How many values to keep, the most frequent ones."
    )


class TextSpec(_Part):
    """The words of a text."""

    kind: Literal["text"]
    method: Literal["tfidf", "hash"] = Field(
        default="tfidf",
        description="tfidf: the most frequent words among those in at most half of the texts, "
        "weighted by how rare they are. hash: every word, counted in one of `size` buckets.",
    )
    size: int = Field(default=100, ge=1, le=2**20, description="Number of words, or of buckets.")


KINDS = ("number", "category", "list", "text")


def _feature(value: Any) -> Any:
    """Read ``year = "number"``, which is short for ``year = {kind = "number"}``."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        given = value.get("kind") if isinstance(value, dict) else value
        raise ValueError(f"a feature is one of {', '.join(KINDS)}, but got {given!r}")
    return value


def _short_form(schema: dict[str, Any]) -> None:
    long = schema["additionalProperties"]
    schema["additionalProperties"] = {"anyOf": [{"enum": list(KINDS)}, long]}


FeatureSpec = Annotated[
    Annotated[NumberSpec | CategorySpec | ListSpec | TextSpec, Field(discriminator="kind")],
    BeforeValidator(_feature),
]


Encoding = Literal["utf-8", "utf-16", "latin-1"]


class Source(_Part):
    """Where rows come from: a table, or a query."""

    table: Filled | None = Field(
        default=None,
        description="A CSV, TSV, Parquet or JSON file beside graph.toml, or a pattern such as "
        "films/*.parquet.",
    )
    query: Filled | None = Field(
        default=None,
        description="One SELECT in DuckDB's SQL instead of a table; it can read only files that it "
        "names in quotes.",
    )
    separator: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = Field(
        default=None,
        description="CSV: the character between two cells (default: a comma, in .tsv a tab).",
    )
    encoding: Encoding = Field(default="utf-8", description="CSV: the encoding of the text.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError("give a table or a query, one of the two")
        return self


class Shares(_Part):
    """The shares of labelled nodes to train, validate and test on, without a split column."""

    train: float = Field(default=0.6, gt=0, le=1)
    val: float = Field(default=0.2, gt=0, lt=1)
    test: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-6:
            raise ValueError(f"they add up to {self.train + self.val + self.test:g}, not to 1")
        return self


class NodeTable(Source):
    """A node type; each row of its table is a node."""

    id: ColumnName
    name: ColumnName | None = Field(
        default=None, description="What people call the node (default: its id)."
    )
    label: ColumnName | None = Field(
        default=None, description="Target only: the label. An empty cell is an unlabelled node."
    )
    label_separator: Filled | None = Field(
        default=None, description="Target only: the text between two labels, if nodes have several."
    )
    split: ColumnName | None = Field(
        default=None, description="Target only: train, val or test; an empty cell is none of them."
    )
    shares: Shares = Field(
        default=Shares(),
        description="Target only: how large the parts are, without a split column.",
    )
    features: dict[str, FeatureSpec] = Field(default={}, json_schema_extra=_short_form)


class End(_Part):
    """One end of a relation: a node type, and the column that holds its ids."""

    type: Name
    column: ColumnName


class LinkTable(Source):
    """A relation; each row of its table is a link. The reverse relation is made as well."""

    source: End
    target: End
    weight: ColumnName | None = Field(
        default=None,
        description="A column of numbers from 0 on. Links of weight 0 are left out; no model uses "
        "the other weights so far.",
    )
    reverse: Name | None = Field(
        default=None, description="The name of the reverse relation (default: rev_NAME)."
    )
    unknown: Literal["refuse", "drop"] = Field(
        default="refuse", description="What to do with a link to an id that no table has."
    )


class GraphConfig(_Part):
    """A whole graph.toml."""

    target: Name = Field(description="The node type to classify.")
    nodes: dict[Name, NodeTable] = Field(min_length=1)
    relations: dict[Name, LinkTable] = Field(min_length=1)
    metapaths: list[Filled] | None = Field(
        default=None,
        min_length=1,
        description="The metapaths that models are given (default: each relation of the target, "
        "there and back).",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.target not in self.nodes:
            raise ValueError(f"target: no node type {self.target!r}; there are {self._types()}")
        for kind, nodes in self.nodes.items():
            if kind == self.target:
                continue
            for key in ("label", "label_separator", "split", "shares"):
                if key in nodes.model_fields_set:
                    raise ValueError(
                        f"nodes.{kind}.{key}: only the target {self.target} may have it"
                    )
        target = self.nodes[self.target]
        for key in ("label", "split"):
            if getattr(target, key) in target.features:
                raise ValueError(
                    f"nodes.{self.target}.features.{getattr(target, key)}: it is the {key}, which "
                    "no model may see"
                )
        if target.split and "shares" in target.model_fields_set:
            raise ValueError(f"nodes.{self.target}: give split or shares, not both")
        for name, relation in self.relations.items():
            for side, end in (("source", relation.source), ("target", relation.target)):
                if end.type not in self.nodes:
                    raise ValueError(
                        f"relations.{name}.{side}: no node type {end.type!r}; "
                        f"there are {self._types()}"
                    )
        seen: list[EdgeType] = []
        for there, back in self.edge_types.values():
            for edge_type in (there, back):
                if edge_type in seen:
                    raise ValueError(
                        f"relations: two are called {edge_type[1]} from {edge_type[0]} to "
                        f"{edge_type[2]}; give one another name"
                    )
                seen.append(edge_type)
        for text in self.metapaths or ():
            root = Metapath.parse(text, (list(self.nodes), seen)).root
            if root != self.target:
                raise ValueError(f"metapath {text!r}: it starts at {root}, not at {self.target}")
        return self

    def _types(self) -> str:
        return ", ".join(self.nodes)

    @property
    def edge_types(self) -> dict[str, tuple[EdgeType, EdgeType]]:
        """The edge type of each relation, and of its reverse."""
        return {
            name: (
                (relation.source.type, name, relation.target.type),
                (relation.target.type, relation.reverse or f"rev_{name}", relation.source.type),
            )
            for name, relation in self.relations.items()
        }

    def default_metapaths(self) -> list[str]:
        """Return the metapaths of the file, or each relation of the target there and back."""
        if self.metapaths is not None:
            return self.metapaths
        found: list[str] = []
        for there, back in self.edge_types.values():
            if there[0] == there[2] == self.target:
                found += [f"{self.target}-{name}:{self.target}" for name in (there[1], back[1])]
            elif self.target in (there[0], there[2]):
                away, home = (there, back) if there[0] == self.target else (back, there)
                found.append(f"{self.target}-{away[1]}:{away[2]}-{home[1]}:{self.target}")
        return found


def config_path(name: str | Path) -> Path:
    """Return the whole path of a ``graph.toml``, or of the one in a folder."""
    path = Path(name).expanduser()
    return (path / FILE if path.is_dir() else path).resolve()


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
        raise HanmeError(f"{path}: no such file; hanme init FOLDER writes a first one")
    try:
        return GraphConfig.model_validate(read_toml(path))
    except ValidationError as error:
        raise HanmeError(f"{path}: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part != "[key]")
    match first["type"]:
        case "missing":
            what = "it is missing"
        case "value_error":
            what = str(first["ctx"]["error"])
        case "string_pattern_mismatch":
            what = "a name is letters, digits and underscores"
        case _:
            what = f"{first['msg']}, but got {str(first['input'])[:80]!r}"
    return f"{where}: {what}" if where else what


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``graph.toml``, for editors and programs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **GraphConfig.model_json_schema(),
        "title": FILE,
    }
