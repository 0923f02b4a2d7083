"""The command ``hanme runs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import Json
from hanme.cli.show import print_table, printable
from hanme.errors import HanmeError


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder to search for run folders.")
    ] = Path("runs"),
    json_: Json = False,
) -> None:
    """List runs with their settings, state and test scores, the latest first.

    hanme runs

    hanme runs docs/results/runs
    """
    from hanme.experiments.configuration import graph_name
    from hanme.experiments.summary import list_runs

    if not folder.is_dir():
        raise HanmeError(f"{folder}: no such folder; train a run with hanme train GRAPH")
    rows = list_runs(folder)
    if json_:
        print(json.dumps(rows))
        return
    columns = ("run", "graph", "model", "recipe", "seed", "state", "epochs", "micro", "macro")
    heads = [*columns[:-2], "test micro", "test macro"]
    rows = [row | ({"graph": graph_name(row["graph"])} if "graph" in row else {}) for row in rows]
    cells = [[printable(_text(row.get(column))) for column in columns] for row in rows]
    print_table(heads, cells, width=140, left=6)
    for row in rows:
        if "error" in row:
            print(printable(row["error"]))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "" if value is None else str(value)
