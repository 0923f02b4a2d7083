"""The parts of a ``graph.toml``: where rows come from, node types, relations and the split."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from hanme.data.tables.schema.features import FeatureSpec, Filled, Section, short_form

Name = Annotated[str, StringConstraints(pattern=r"^\w+$")]
ColumnName = Annotated[Filled, Field(description="A column of the table.")]
Encoding = Literal["utf-8", "utf-16", "latin-1"]
Format = Literal["csv", "tsv", "parquet", "json"]
Duplicates = Literal["error", "first", "all"]


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
