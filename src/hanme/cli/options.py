"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hanme.errors import HanmeError

DataSet = Annotated[
    str, typer.Argument(help="planted, IMDB, ACM, DBLP, Freebase, or a graph.toml.")
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Folder or archive with the benchmark's files "
        "(default: the folder in HANME_DATA, else they are downloaded).",
    ),
]
Grown = Annotated[
    Path | None,
    typer.Option("--graph", help="Another graph.toml of the same schema, e.g. one that has grown."),
]
Features = Annotated[
    str | None,
    typer.Option(
        help="Features of node types other than the target: mean of their neighbours' (default), "
        "onehot ids, or the given ones (default of a graph.toml and of planted); given-onehot: ids "
        "for the types to which none are given."
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="A knob of planted, e.g. -o movies=2000."
    ),
]
Processes = Annotated[int, typer.Option(min=1, help="Runs side by side (default: one per core).")]
ConfigFolder = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        help="Folder with MODEL-GRAPH.toml files that take the place of the packaged.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other option of the model (layers=3), or any field of the configuration "
        "(training.lr=0.01); may be given several times.",
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


def fields(changes: list[str] | None) -> dict[str, Any]:
    """What ``--set`` says, by field of a configuration."""
    return {
        key if "." in key else f"model.options.{key}": value
        for key, value in pairs(changes).items()
    }
