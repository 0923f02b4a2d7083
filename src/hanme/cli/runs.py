"""The command ``hanme runs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanme.cli.options import Json
from hanme.cli.show import print_table, printable
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.runs.listing import ListedRun


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that holds the run folders.")
    ] = Path("runs"),
    json_: Json = False,
) -> None:
    """List runs with their settings, state and scores, the latest first.

    hanme runs

    hanme runs results/runs/imdb-han
    """
    from hanme.runs.listing import list_runs

    if not folder.is_dir():
        raise HanmeError(f"{folder}: no such folder; train a run with hanme train GRAPH")
    listed = list_runs(folder)
    if json_:
        print(json.dumps([run.to_dict() for run in listed]))
        return
    scores = [f"{part} {f1}" for part in ("val", "test") for f1 in ("micro", "macro")]
    heads = ["run", "graph", "model", "recipe", "seed", "state", "epochs", *scores]
    print_table(heads, map(_cells, listed), title="F1 (%)", width=140, left=6)
    for run in listed:
        if run.message:
            print(printable(run.message))


def _cells(run: ListedRun) -> list[str]:
    settings = [""] * 4
    if config := run.config:
        path = Path(config.data.name)
        graph = path.parent.name if path.name == "graph.toml" else path.name
        settings = [graph, config.model.name, config.training.recipe, str(config.training.seed)]
    scores = [
        f"{(run.scores or {})[part][f1]:.2f}" if part in (run.scores or {}) else "–"
        for part in ("val", "test")
        for f1 in ("micro", "macro")
    ]
    return [printable(cell) for cell in (run.folder.name, *settings, run.state)] + [
        str(run.epochs),
        *scores,
    ]
