"""Options that several commands share, and how they become a configuration."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hanme.errors import HanmeError

RunFolder = Annotated[
    Path | None,
    typer.Argument(
        help="A finished run folder (default: the latest in runs/).", show_default=False
    ),
]


def the_run(run: Path | None) -> Path:
    """Return the run named, or the latest, and then say which that is."""
    if run is not None:
        return run
    from hanme.runs import latest_run

    run = latest_run()
    print(f"The latest run: {run}", file=sys.stderr)
    return run


def _unambiguous(name: str) -> str:
    from hanme.data import refuse_ambiguous

    refuse_ambiguous(name)
    return name


DataSet = Annotated[
    str,
    typer.Argument(
        help="planted, IMDB, ACM, DBLP, Freebase, a graph.toml, or a stored graph.",
        callback=_unambiguous,
    ),
]
of_data = partial(typer.Option, rich_help_panel="Data")
of_configuration = partial(typer.Option, rich_help_panel="Configuration")
"""Options in panels of the help below those that matter most."""

Source = Annotated[
    Path | None,
    of_data(
        "--data",
        help="Folder or archive with the benchmark's files "
        "(default: the folder in HANME_DATA; without one they are downloaded).",
    ),
]
Grown = Annotated[
    Path | None,
    typer.Option("--graph", help="Another graph.toml of the same schema, e.g. one that has grown."),
]
FeaturesOption = Annotated[
    str | None,
    of_data(
        help="Features of node types other than the target. mean: the mean of their neighbours' "
        "(default); onehot: their ids; given: those in the data (default of a graph.toml and of "
        "planted); given-onehot: those in the data, ids for types without any."
    ),
]
Options = Annotated[
    list[str] | None,
    of_data(
        "--option", "-o", metavar="KEY=VALUE", help="An option of planted, e.g. -o movies=2000."
    ),
]
Runs = Annotated[Path | None, typer.Option(help="Where the run folders go (default: OUT/runs).")]
Processes = Annotated[int, typer.Option(min=1, help="Runs to train at a time: one per core.")]
ConfigFolder = Annotated[
    Path | None,
    of_configuration(
        exists=True,
        file_okay=False,
        help="Folder with MODEL-GRAPH.toml files that replace the package's.",
    ),
]


def _allow(paths: list[str] | None) -> list[str] | None:
    """Put paths into the environment, where processes that a command starts find them, too."""
    from hanme.data.tables.read.sources import ALLOW

    if paths:
        known = [text for text in [os.environ.get(ALLOW, "")] if text]
        os.environ[ALLOW] = os.pathsep.join([*known, *(os.path.abspath(path) for path in paths)])
    return paths


Allow = Annotated[
    list[str] | None,
    of_data(
        "--allow",
        metavar="PATH",
        callback=_allow,
        help="A file or folder that a graph.toml may read although it is outside of its own "
        "folder. Repeat it for several (default: those in HANME_ALLOW).",
    ),
]
Changes = Annotated[
    list[str] | None,
    of_configuration(
        "--set",
        metavar="KEY=VALUE",
        help="Any other option of the model (layers=3) or field of the configuration "
        "(training.lr=0.01). Repeat it for several.",
    ),
]


def _choose_device(name: str | None) -> str | None:
    if name is None:
        return None
    from hanme.common import device

    return device.choose(name)


Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        callback=_choose_device,
        help="Where to compute: cpu (default), cuda or cuda:1. GPUs are not measured.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def pairs(options: list[str] | None) -> dict[str, Any]:
    """Turn ``["movies=2000", ...]`` into a dictionary; a value is JSON if possible, else text."""
    from hanme.common.options import refuse_deep

    values: dict[str, Any] = {}
    for text in options or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HanmeError(f"option {text!r}: write it as KEY=VALUE")
        try:
            values[key] = json.loads(value)
        except ValueError:
            values[key] = value
        except RecursionError:
            raise HanmeError(f"option {key}: values are nested too deep") from None
        refuse_deep(values[key], f"option {key}")
    return values


def fields(changes: list[str] | None) -> dict[str, Any]:
    """Return what ``--set`` changes, by field of the configuration."""
    return {
        key if "." in key else f"model.options.{key}": value
        for key, value in pairs(changes).items()
    }
