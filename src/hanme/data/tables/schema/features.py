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
