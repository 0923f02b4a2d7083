"""Options and arguments that several commands share."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hanme.errors import HanmeError

data_option = partial(typer.Option, rich_help_panel="Data")
config_option = partial(typer.Option, rich_help_panel="Configuration")


def _refuse_ambiguous(name: str | None) -> str | None:
    from hanme.data import refuse_ambiguous

    if name is not None:
        refuse_ambiguous(name)
    return name


def _allow(paths: list[str] | None) -> list[str] | None:
    """Add paths to the environment, where worker processes find them, too."""
    from hanme.data.tables.read.sources import ALLOW

    if paths:
        before = [text for text in [os.environ.get(ALLOW, "")] if text]
        os.environ[ALLOW] = os.pathsep.join([*before, *map(os.path.abspath, paths)])
    return paths


def _choose_device(name: str | None) -> str | None:
    from hanme.common import device

    return None if name is None else device.choose(name)


GRAPHS = "planted, IMDB, ACM, DBLP, Freebase, a graph.toml or its folder, or a stored graph"
GraphArgument = Annotated[
    str, typer.Argument(metavar="GRAPH", help=f"{GRAPHS}.", callback=_refuse_ambiguous)
]
RunArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN", help="Run folder (default: the latest in runs/).", show_default=False
    ),
]
GraphOption = Annotated[
    Path | None,
    typer.Option(
        "--graph", help="Another graph.toml of the same schema, such as one with new rows."
    ),
]
Node = Annotated[
    list[str] | None,
    typer.Option("--node", "-n", help="Id or name of a target node. Repeat it for more than one."),
]
Source = Annotated[
    Path | None,
    data_option(
        "--data",
        help="Folder or archive with the files of a benchmark graph (default: HANME_DATA).",
    ),
]
Allow = Annotated[
    list[str] | None,
    data_option(
        "--allow",
        metavar="PATH",
        callback=_allow,
        help="File or folder outside of its own folder that a graph.toml may read (default: "
        "HANME_ALLOW). Repeat it for more than one.",
    ),
]
Changes = Annotated[
    list[str] | None,
    config_option(
        "--set",
        metavar="KEY=VALUE",
        help="Set any option of the model (layers=3) or field of the configuration "
        "(training.lr=0.01, data.options.movies=500). Repeat it for more than one.",
    ),
]
ConfigFolder = Annotated[
    Path | None,
    config_option(
        exists=True,
        file_okay=False,
        help="Folder of MODEL-GRAPH.toml files that replace the packaged ones.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        callback=_choose_device,
        help="Device to compute on: cpu (default), cuda or cuda:1. Not measured on GPUs.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def find_run(run: Path | None) -> Path:
    """Return the run folder, by default the latest, which is then named on stderr."""
    if run is None:
        from hanme.runs import latest_run

        run = latest_run()
        print(f"Latest run: {run}", file=sys.stderr)
    return run


def changed_fields(changes: list[str] | None) -> dict[str, Any]:
    """Return the fields that ``--set`` changes; a value is JSON if possible, else text."""
    from hanme.common.options import refuse_deep

    fields: dict[str, Any] = {}
    for text in changes or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise HanmeError(f"--set {text}: write it as KEY=VALUE")
        field = key if "." in key else f"model.options.{key}"
        try:
            fields[field] = json.loads(value)
        except ValueError:
            fields[field] = value
        except RecursionError:
            raise HanmeError(f"--set {key}: values are nested too deep") from None
        refuse_deep(fields[field], f"--set {key}")
    return fields
