"""The command ``hanme runs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanme.cli.show import f1_columns, print_notes, print_table
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.runs.listing import ListedRun


def runs(folder: Path = Path("runs"), *, json_: bool = False) -> None:
    """List runs with their settings, state and scores, the latest first.

    hanme runs

    hanme runs results/runs/imdb-han

    Args:
        folder: Folder that holds the run folders (default: runs).
    """
    from hanme.runs.listing import list_runs

    if not folder.is_dir():
        raise HanmeError(f"{folder}: no such folder; train a run with hanme train GRAPH")
    listed = list_runs(folder)
    if json_:
        print(json.dumps([run.to_dict() for run in listed]))
        return
    print_table([_row(run) for run in listed], title="F1 (%)", width=140)
    print_notes(run.message for run in listed if run.message)


def _row(run: ListedRun) -> dict[str, Any]:
    config = run.config
    path = Path(config.data.name if config else "")
    return {
        "run": run.folder.name,
        "graph": path.parent.name if path.name == "graph.toml" else path.name,
        "model": config.model.name if config else "",
        "recipe": config.training.recipe if config else "",
        "seed": str(config.training.seed) if config else "",
        "state": run.state if run.percent is None else f"{run.state}, {run.percent:.0f} %",
        "stage": run.stage,
        "epochs": run.epochs,
        **f1_columns(run.scores or {}, ("val", "test")),
    }
