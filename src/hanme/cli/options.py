"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hanme.errors import HanmeError

DataSet = Annotated[str, typer.Argument(help="planted, IMDB, ACM, DBLP or Freebase.")]
Source = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder or archive with the benchmark's files "
        "(default: the folder in HANME_DATA, else they are downloaded).",
    ),
]
Features = Annotated[
    str,
    typer.Option(
        help="Features of node types other than the target: mean of their neighbours', "
        "onehot ids, or the given ones."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="A knob of planted, e.g. -o movies=2000."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


class NamesModels(TyperCommand):
    """A command whose help on ``model`` ends with the models' names, looked up when it is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from hanme.nn import MODELS

        for parameter in self.params:
            if parameter.name == "model":
                parameter.help = f"{parameter.help} {', '.join(MODELS)}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def pairs(options: list[str] | None) -> dict[str, Any]:
    """``["movies=2000", ...]`` as a dictionary; a value is a number or true/false if it can be."""
    values: dict[str, Any] = {}
    for text in options or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HanmeError(f"option {text!r}: write it as KEY=VALUE")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
    return values
