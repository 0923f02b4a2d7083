"""The kinds of features that a column of a ``graph.toml`` can become."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

Filled = Annotated[str, StringConstraints(min_length=1)]
Kept = Annotated[
    int, Field(ge=1, le=2**31, description="How many values to keep, the most frequent ones.")
]


class Part(BaseModel):
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


class NumberSpec(Part):
    """A number, standardised: minus the column's mean, divided by its standard deviation.

    An empty cell counts as the mean. From 500 numbers on, 5 to 16 *knots* among them have a feature
    each, which says how near a number is, and so have empty cells.
    """

    kind: Literal["number"]


class CategorySpec(Part):
    """One value, one-hot. An empty cell is all zeros."""

    kind: Literal["category"]
    size: Kept = 1000


class ListSpec(Part):
    """Several values in one cell, split by a separator.

    A list in Parquet or JSON is taken as it is.
    """

    kind: Literal["list"]
    separator: Filled = Field(default="|", description="The text between two values.")
    size: Kept = 1000


class TextSpec(Part):
    """The words of a text."""

    kind: Literal["text"]
    method: Literal["tfidf", "hash"] = Field(
        default="tfidf",
        description="tfidf: the most frequent words among those in at most half of the texts, "
        "weighted by how rare they are. hash: every word, counted in one of `size` buckets.",
    )
    size: int = Field(default=100, ge=1, le=2**20, description="Number of words, or of buckets.")


class DateSpec(Part):
    """A date as a number: its year with the part of the year that has passed.

    See `number` for the features.
    """

    kind: Literal["date"]
    format: Filled | None = Field(
        default=None,
        description="How dates are written, such as %d.%m.%Y (default: 2004-11-12, a time may "
        "follow).",
    )


class VectorSpec(Part):
    """As many numbers in every cell, such as an embedding, each standardised.

    A list in Parquet or JSON, or text such as `0.1 0.2 0.3`. An empty cell counts as the mean.
    """

    kind: Literal["vector"]


KINDS = ("number", "category", "list", "text", "date", "vector")


def _feature(value: Any) -> Any:
    """Read ``year = "number"``, which is short for ``year = {kind = "number"}``."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or value.get("kind") not in KINDS:
        given = value.get("kind") if isinstance(value, dict) else value
        raise ValueError(f"a feature is one of {', '.join(KINDS)}, but got {given!r}")
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
