"""``graph.toml``: which tables make a graph, as pydantic models and as a JSON schema."""

from __future__ import annotations

import difflib
import tomllib
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

from hanme.errors import HanmeError
from hanme.metapath import Metapath

RESERVED = frozenset({"target", "multilabel", "fitted", "dropped", "digest", "metapath_instances"})
"""What a graph has beside its node types, under the same names that these could have."""

FILE = "graph.toml"

Name = Annotated[str, StringConstraints(pattern=r"^\w+$")]
Filled = Annotated[str, StringConstraints(min_length=1)]
Column = Annotated[Filled, Field(description="A column of the table.")]


class _Part(BaseModel):
    """A part of the file. A key it does not know is refused with those it knows."""

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


class Number(_Part):
    """A number, standardised: less the column's mean, divided by its standard deviation. An empty
    cell counts as the mean."""

    kind: Literal["number"]


class Category(_Part):
    """One value, one-hot. An empty cell is all zeros."""

    kind: Literal["category"]
    size: int = Field(default=1000, ge=1, description="Keep so many values, the most frequent.")


class Items(_Part):
    """Several values in one cell, split by a separator; a list in Parquet or JSON is taken as it
    is."""

    kind: Literal["list"]
    separator: Filled = Field(default="|", description="What stands between two values.")
    size: int = Field(default=1000, ge=1, description="Keep so many values, the most frequent.")


class Text(_Part):
    """Words."""

    kind: Literal["text"]
    method: Literal["tfidf", "hash"] = Field(
        default="tfidf",
        description="tfidf: the most frequent words that at most half of the texts have, weighted "
        "by how rare they are. hash: every word, counted in one of `size` buckets.",
    )
    size: int = Field(default=100, ge=1, le=2**20, description="Number of words, or of buckets.")


KINDS = ("number", "category", "list", "text")


def _feature(value: Any) -> Any:
    """``year = "number"`` is short for ``year = {kind = "number"}``."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        given = value.get("kind") if isinstance(value, dict) else value
        raise ValueError(f"a feature is one of {', '.join(KINDS)}, but got {given!r}")
    return value


def _short_form(schema: dict[str, Any]) -> None:
    long = schema["additionalProperties"]
    schema["additionalProperties"] = {"anyOf": [{"enum": list(KINDS)}, long]}


Feature = Annotated[
    Annotated[Number | Category | Items | Text, Field(discriminator="kind")],
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
        description="One SELECT in DuckDB's SQL instead of a table; it reads the files it names.",
    )
    separator: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = Field(
        default=None, description="CSV: what stands between two cells (default: , or a tab)."
    )
    encoding: Encoding = Field(default="utf-8", description="CSV: how the text is written.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.table is None) == (self.query is None):
            raise ValueError("give a table or a query, one of the two")
        return self


class Shares(_Part):
    """How labelled nodes are dealt out where there is no split column."""

    train: float = Field(default=0.6, gt=0, le=1)
    val: float = Field(default=0.2, gt=0, lt=1)
    test: float = Field(default=0.2, ge=0, lt=1)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(self.train + self.val + self.test - 1) > 1e-6:
            raise ValueError(f"they add up to {self.train + self.val + self.test:g}, not to 1")
        return self


class Nodes(Source):
    """A node type: a row of its table is a node."""

    id: Column
    name: Column | None = Field(default=None, description="What people call it (default: the id).")
    label: Column | None = Field(
        default=None, description="Target only: the label. An empty cell is an unlabelled node."
    )
    label_separator: Filled | None = Field(
        default=None, description="Target only: nodes have several labels, so separated."
    )
    split: Column | None = Field(
        default=None, description="Target only: train, val or test; empty for none of them."
    )
    shares: Shares = Field(
        default=Shares(), description="Target only: without a split column, how labels are dealt."
    )
    features: dict[str, Feature] = Field(default={}, json_schema_extra=_short_form)


class End(_Part):
    """One end of a relation: a node type, and the column that holds its ids."""

    type: Name
    column: Column


class Relation(Source):
    """Links: a row of the table is a link. Its reverse is made as well."""

    source: End
    target: End
    weight: Column | None = Field(
        default=None,
        description="A number from 0 on; links of weight 0 are left out, the others' weights are "
        "kept as edge_weight, which no model uses so far.",
    )
    reverse: Name | None = Field(
        default=None, description="What the relation is called the other way (default: rev_NAME)."
    )
    unknown: Literal["refuse", "drop"] = Field(
        default="refuse", description="What to do with a link to an id that is in no table."
    )


class TableConfig(_Part):
    """A graph.toml."""

    target: Name = Field(description="The node type to classify.")
    nodes: dict[Name, Nodes] = Field(min_length=1)
    relations: dict[Name, Relation] = Field(min_length=1)
    metapaths: list[Filled] | None = Field(
        default=None,
        min_length=1,
        description="What hanme train takes by default (default: each relation of the target, "
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
                    raise ValueError(f"nodes.{kind}.{key}: only the target {self.target} has it")
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
        seen: list[tuple[str, str, str]] = []
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
    def edge_types(self) -> dict[str, tuple[tuple[str, str, str], tuple[str, str, str]]]:
        """Each relation's edge type, there and back."""
        return {
            name: (
                (relation.source.type, name, relation.target.type),
                (relation.target.type, relation.reverse or f"rev_{name}", relation.source.type),
            )
            for name, relation in self.relations.items()
        }

    def default_metapaths(self) -> list[str]:
        """Those of the file, or each relation of the target there and back."""
        if self.metapaths is not None:
            return self.metapaths
        found: list[str] = []
        for there, back in self.edge_types.values():
            if there[0] == there[2] == self.target:
                found += [f"{self.target}-{name}:{self.target}" for name in (there[1], back[1])]
            elif self.target in (there[0], there[2]):
                away, home = (there, back) if there[0] == self.target else (back, there)
                found.append(f"{self.target}-{away[1]}:{away[2]}-{home[1]}:{self.target}")
        if not found:
            raise HanmeError(f"no relation starts or ends at the target {self.target}")
        return found


def config_path(name: str | Path) -> Path:
    """``graph.toml`` itself, or that of a folder."""
    path = Path(name).expanduser()
    return (path / FILE if path.is_dir() else path).resolve()


def is_tables(name: str | Path) -> bool:
    """Whether a data set's name is that of a ``graph.toml`` or of a folder with one."""
    text = str(name)
    try:
        return text.endswith(".toml") or (Path(text).expanduser() / FILE).is_file()
    except (OSError, RuntimeError, ValueError):
        return False


def read_config(path: Path) -> TableConfig:
    """Reads and checks a ``graph.toml``."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
        config = TableConfig.model_validate(values)
    except FileNotFoundError:
        raise HanmeError(f"{path}: no such file; hanme init FOLDER writes a first one") from None
    except OSError as error:
        raise HanmeError(f"{path}: it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise HanmeError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise HanmeError(f"{path}: not TOML: {error}") from None
    except ValidationError as error:
        raise HanmeError(f"{path}: {_first(error)}") from None
    for kind in RESERVED & config.nodes.keys():
        raise HanmeError(f"{path}: nodes.{kind}: the graph itself has something of that name")
    return config


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
    """The JSON schema of ``graph.toml``, for editors and programs."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TableConfig.model_json_schema(),
        "title": FILE,
    }
