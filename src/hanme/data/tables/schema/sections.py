"""The sections of a ``graph.toml``; the docstring of a key is its description in the schema."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

Filled = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=r"^\w+$")]
Encoding = Literal["utf-8", "utf-16", "latin-1"]
Format = Literal["csv", "tsv", "parquet", "json"]
NAMING = {"singular", "plural"}
"""Keys that a node type without a table may have."""


class Section(BaseModel):
    """A section of the file, immutable; an error about an unknown key lists the known ones."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        known = list(cls.model_fields)
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                close = difflib.get_close_matches(str(key), known, 1)
                hint = f"did you mean {close[0]}? " if close else ""
                raise ValueError(f"no such key {key!r}; {hint}Known: {', '.join(known)}")
        return values


Kind = Literal["number", "category", "list", "text", "date", "vector"]
OPTIONS = {
    "category": {"size"}, "list": {"size", "separator"}, "text": {"size", "method"},
    "date": {"format"}, "number": {"unit", "decimal"},
}  # fmt: skip


def _feature(value: Any) -> Any:
    """Read ``year = "number"``, which is short for ``year = {kind = "number"}``."""
    values = {"kind": value} if isinstance(value, str) else value
    if isinstance(values, dict) and (kind := values.get("kind")) not in get_args(Kind):
        raise ValueError(f"a feature is one of {', '.join(get_args(Kind))}, but got {kind!r}")
    return values


class Feature(Section):
    """How a column becomes features; docs/tables.md describes the kinds."""

    kind: Kind
    size: int | None = Field(default=None, ge=1, le=2**31)
    """category, list: maximum number of values (default: 1000). text: of words (default: a quarter
    of the number of texts, between 1,000 and 20,000; words in at least 2 texts)."""
    separator: Filled = "|"
    """list: the text between two values."""
    format: Filled | None = None
    """date: its format, such as %d.%m.%Y (default: 2004-11-12, a time may follow)."""
    decimal: Literal[".", ","] = "."
    """number: the decimal sign; with a comma, 1.234,5 is 1234.5."""
    method: Literal["tfidf"] = "tfidf"
    """text: the only method."""
    title: Filled | None = None
    """What explanations call the column (default: its name as words)."""
    unit: Filled | None = None
    """number: what it counts, such as USD, which explanations write behind a value."""

    @model_validator(mode="after")
    def _own_options(self) -> Self:
        own = {"kind", "title", *OPTIONS.get(self.kind, set())}
        for key in self.model_fields_set - own:
            raise ValueError(f"a {self.kind} has no {key}")
        return self


FeatureSpec = Annotated[Feature, BeforeValidator(_feature, json_schema_input_type=Kind | Feature)]


class Source(Section):
    """Where rows come from: a table, or a query."""

    table: Filled | None = None
    """A CSV, TSV, Parquet or JSON file beside graph.toml, or a pattern such as films/*.parquet;
    with `database`, the name of a table in it."""
    query: Filled | None = None
    """Instead of a table: one SELECT in DuckDB's SQL (on SQLite, in its SQL). It reads only files
    that it names in quotes."""
    database: Filled | None = None
    """A DuckDB or SQLite file beside graph.toml, opened read-only."""
    format: Format | None = None
    """The format of a file whose ending does not tell it."""
    separator: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = None
    """CSV: the character between two cells (default: a comma, in .tsv a tab)."""
    encoding: Encoding = "utf-8"
    """CSV: the encoding of the text."""
    empty: list[Filled] = []
    """Texts such as NA that mean an empty cell."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.model_fields_set - NAMING and (self.table is None) == (self.query is None):
            raise ValueError("give a table or a query, one of the two")
        return self


class Shares(Section):
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
    """A node type; each row of its table is a node.

    A section without a table or query is a type whose nodes are the ids that relations name.
    """

    singular: Filled | None = None
    """What explanations call one node (default: the type's name as words)."""
    plural: Filled | None = None
    """What they call several (default: the plural of `singular`)."""
    id: Filled | None = None
    """The column of ids (default: the row number, from 1)."""
    duplicates: Literal["error", "first"] = "error"
    """Rows with the id of an earlier row: an error, or dropped (first). Without an id, first drops
    rows that are equal to an earlier one."""
    name: Filled | None = None
    """The column of names for people to read (default: the id)."""
    label: Filled | None = None
    """Target: the column of labels. An empty cell is a node to predict."""
    label_separator: Filled | None = None
    """Target: the text between two labels, if a node may have several."""
    label_type: Name | None = None
    """Target: the node type whose ids the labels are; its names become the labels."""
    label_min_count: int | None = Field(default=None, ge=1)
    """Target: labels of fewer rows count as no label."""
    split: Filled | None = None
    """Target: a column with train, val, test or an empty cell."""
    shares: Shares = Shares()
    """Target: the shares of a random split."""
    features: dict[str, FeatureSpec] = {}
    keep: list[Filled] = []
    """Target: what to use although it seems to give the label away: columns, TYPE.COLUMN of another
    type, relations.NAME."""

    @property
    def implied(self) -> bool:
        """Whether it has no table: its nodes are the ids that relations name."""
        return self.table is None and self.query is None


class End(Section):
    """One end of a relation: a node type, and the column of the table that holds its ids."""

    type: Name
    column: Filled


class _Relation(Section):
    reverse: Name | None = None
    """The name of the reverse relation (default: rev_NAME)."""
    unknown: Literal["refuse", "drop", "add"] = "refuse"
    """A link to an id that no table has: refuse it, drop it, or add a node."""


class LinkTable(_Relation, Source):
    """A relation; each row of its table is a link. The reverse relation is made as well."""

    source: End
    target: End
    where: dict[Filled, str] = {}
    """Only rows with these cells, such as {job = "actor"}."""
    each: Filled | None = None
    """A column of names: each of its values makes a relation of its own."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ColumnLinks(_Relation):
    """A relation from a node type to the values in some columns of its table: ids of `type`."""

    columns: Annotated[
        list[Filled],
        BeforeValidator(_as_list, json_schema_input_type=str | list[Filled]),
        Field(min_length=1),
    ]
    """A column, or a list of columns."""
    separator: Filled | None = None
    """The text between two values of a cell, if it holds several."""
    source: Name | None = None
    """The node type that has the columns (default: the target)."""
    type: Name | None = None
    """The node type of the values (default: the relation's name)."""


def _shape(value: Any) -> str:
    if not isinstance(value, dict):
        return "[columns]" if isinstance(value, ColumnLinks) else "[table]"
    is_table = "columns" not in value and not {"table", "query", "target"}.isdisjoint(value)
    return "[table]" if is_table else "[columns]"


Relation = Annotated[
    Annotated[LinkTable, Tag("[table]")] | Annotated[ColumnLinks, Tag("[columns]")],
    Discriminator(_shape),
]


class SplitRule(Section):
    """Conditions in SQL on the target's columns; a part without one is drawn."""

    test: Filled | None = None
    """The rows to test on, such as year >= 2015."""
    val: Filled | None = None
    """Of the other rows, those to validate on."""
    duplicates: Literal["together", "apart"] = "together"
    """Rows that nearly repeat others are in the same part of a random split, or need not be."""
