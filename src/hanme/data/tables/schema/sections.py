"""The sections of a ``graph.toml``: features, sources, node types, relations and the split."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, Self

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
ColumnName = Annotated[Filled, Field(description="A column of the table.")]
Encoding = Literal["utf-8", "utf-16", "latin-1"]
Format = Literal["csv", "tsv", "parquet", "json"]
Duplicates = Literal["error", "first", "all"]


Kept = Annotated[
    int, Field(ge=1, le=2**31, description="Maximum number of values, most frequent first.")
]


class Section(BaseModel):
    """A section of the file, immutable; an error about an unknown key lists the known ones."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

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


class NumberSpec(Section):
    """A standardised number; an empty cell counts as the mean.

    From 500 numbers on, also its nearness to each of 5 to 16 quantiles (knots), and whether the
    cell is empty.
    """

    kind: Literal["number"]


class CategorySpec(Section):
    """One-hot encoded values; an empty cell is all zeros."""

    kind: Literal["category"]
    size: Kept = 1000


class ListSpec(Section):
    """Multi-hot encoded values of cells that hold several; a list needs no separator."""

    kind: Literal["list"]
    separator: Filled = Field(default="|", description="The text between two values.")
    size: Kept = 1000


class TextSpec(Section):
    """The words of a text."""

    kind: Literal["text"]
    method: Literal["tfidf", "hash"] = Field(
        default="tfidf",
        description="tfidf: frequent words that at most half of the texts contain, weighted by "
        "rarity. hash: all words, counted in `size` buckets.",
    )
    size: int = Field(default=100, ge=1, le=2**20, description="Number of words, or of buckets.")


class DateSpec(Section):
    """A date as a number: the year with the part of it that has passed; see `number`."""

    kind: Literal["date"]
    format: Filled | None = Field(
        default=None,
        description="Format, such as %d.%m.%Y (default: 2004-11-12, a time may follow).",
    )


class VectorSpec(Section):
    """The same number of numbers in every cell, such as an embedding, each standardised.

    A list, or text such as `0.1 0.2 0.3`. An empty cell counts as the mean.
    """

    kind: Literal["vector"]


KINDS = ("number", "category", "list", "text", "date", "vector")


def _feature(value: Any) -> Any:
    """Read ``year = "number"``, which is short for ``year = {kind = "number"}``."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        kind = value.get("kind") if isinstance(value, dict) else value
        raise ValueError(f"a feature is one of {', '.join(KINDS)}, but got {kind!r}")
    return value


def short_form(schema: dict[str, Any]) -> None:
    """Allow the name of a kind alone in the JSON schema."""
    long = schema["additionalProperties"]
    schema["additionalProperties"] = {"anyOf": [{"enum": list(KINDS)}, long]}


FeatureSpec = Annotated[
    Annotated[
        NumberSpec | CategorySpec | ListSpec | TextSpec | DateSpec | VectorSpec,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_feature),
]


class Source(Section):
    """Where rows come from: a table, or a query."""

    table: Filled | None = Field(
        default=None,
        description="A CSV, TSV, Parquet or JSON file beside graph.toml, or a pattern such as "
        "films/*.parquet; with `database`, the name of a table in it.",
    )
    query: Filled | None = Field(
        default=None,
        description="Instead of a table: one SELECT in DuckDB's SQL (on SQLite, in its SQL). It "
        "reads only files that it names in quotes.",
    )
    database: Filled | None = Field(
        default=None, description="A DuckDB or SQLite file beside graph.toml, opened read-only."
    )
    format: Format | None = Field(
        default=None, description="The format of a file whose ending does not tell it."
    )
    separator: Annotated[str, StringConstraints(min_length=1, max_length=1)] | None = Field(
        default=None,
        description="CSV: the character between two cells (default: a comma, in .tsv a tab).",
    )
    encoding: Encoding = Field(default="utf-8", description="CSV: the encoding of the text.")
    empty: list[Filled] = Field(default=[], description="Texts such as NA that mean an empty cell.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.model_fields_set and (self.table is None) == (self.query is None):
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

    A section without any key is a type whose nodes are the ids that relations name.
    """

    id: ColumnName | None = Field(
        default=None, description="The column of ids (default: the row number, from 1)."
    )
    duplicates: Duplicates | None = Field(
        default=None,
        description="Rows with the id of an earlier row (without an id: with all its cells): "
        "an error (default), dropped (first), or joined to one node with the links and labels of "
        "all rows (all).",
    )
    name: ColumnName | None = Field(
        default=None, description="The column of names for people to read (default: the id)."
    )
    label: ColumnName | None = Field(
        default=None,
        description="Target: the column of labels. An empty cell is a node to predict.",
    )
    label_separator: Filled | None = Field(
        default=None, description="Target: the text between two labels, if a node may have several."
    )
    label_min_count: int | None = Field(
        default=None, ge=1, description="Target: labels of fewer rows are rare."
    )
    label_rest: Literal["drop", "other"] = Field(
        default="drop",
        description="Target: rare labels count as none (drop) or as one label, other.",
    )
    split: ColumnName | None = Field(
        default=None, description="Target: a column with train, val, test or an empty cell."
    )
    shares: Shares = Field(
        default=Shares(),
        description="Target: the shares of a random split.",
    )
    features: dict[str, FeatureSpec] = Field(default={}, json_schema_extra=short_form)

    @property
    def implied(self) -> bool:
        """Whether it has no table: its nodes are the ids that relations name."""
        return self.table is None and self.query is None


class End(Section):
    """One end of a relation: a node type, and the column that holds its ids."""

    type: Name
    column: ColumnName


class _Relation(Section):
    reverse: Name | None = Field(
        default=None, description="The name of the reverse relation (default: rev_NAME)."
    )
    unknown: Literal["refuse", "drop", "add"] = Field(
        default="refuse",
        description="A link to an id that no table has: refuse it, drop it, or add a node.",
    )
    duplicates: Duplicates | None = Field(
        default=None,
        description="Repeated links: an error, kept once (first, the default of columns), or each "
        "counts (all, the default of a table).",
    )


class LinkTable(_Relation, Source):
    """A relation; each row of its table is a link. The reverse relation is made as well."""

    source: End
    target: End
    where: dict[Filled, str] = Field(
        default={}, description='Only rows with these cells, such as {job = "actor"}.'
    )
    each: ColumnName | None = Field(
        default=None,
        description="A column of names: each of its values makes a relation of its own.",
    )
    weight: ColumnName | None = Field(
        default=None,
        description="A column of numbers from 0 on. Rows of weight 0 make no link; models do not "
        "distinguish other weights.",
    )


def _one_or_several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class ColumnLinks(_Relation):
    """A relation from a node type to the values in some columns of its table.

    The values are ids of `type`, which needs no table of its own. An empty cell is no link.
    """

    columns: Annotated[list[Filled], BeforeValidator(_one_or_several), Field(min_length=1)] = Field(
        description="A column, or a list of columns.",
        json_schema_extra=lambda s: s.update(
            anyOf=[{"type": "string"}, {"type": s.pop("type"), "items": s.pop("items")}]
        ),
    )
    separator: Filled | None = Field(
        default=None, description="The text between two values of a cell, if it holds several."
    )
    source: Name | None = Field(
        default=None, description="The node type that has the columns (default: the target)."
    )
    type: Name | None = Field(
        default=None, description="The node type of the values (default: the relation's name)."
    )


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        table = not {"table", "query", "target", "each"}.isdisjoint(value)
        return "[table]" if table and "columns" not in value else "[columns]"
    return "[columns]" if isinstance(value, ColumnLinks) else "[table]"


Relation = Annotated[
    Annotated[LinkTable, Tag("[table]")] | Annotated[ColumnLinks, Tag("[columns]")],
    Discriminator(_shape),
]


class SplitRule(Section):
    """How to split the labelled nodes."""

    test: Filled | None = Field(
        default=None,
        description="A condition in SQL on the target's columns, such as year >= 2015: the rows to "
        "test on.",
    )
    val: Filled | None = Field(
        default=None,
        description="A condition on the other rows: those to validate on. Without one, they are "
        "drawn.",
    )
    group: Filled | None = Field(
        default=None,
        description="A column or a relation of the target: nodes that share a value of it are all "
        "in the same part.",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if self.group is None and self.test is None and self.val is None:
            raise ValueError("give test, val or group")
        if self.group is not None and (self.test is not None or self.val is not None):
            raise ValueError("give group, or test and val, not both")
        return self
