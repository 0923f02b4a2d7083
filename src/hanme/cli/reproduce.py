"""hanme reproduce"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import Json, Processes, Source
from hanme.cli.show import refuse_failed, train_with_bar
from hanme.errors import HanmeError


def reproduce(
    out: Annotated[Path, typer.Option(help="Where to write paper.md, paper.json and the figure.")],
    runs: Annotated[
        Path | None, typer.Option(help="Where the run folders go (default: OUT/runs).")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seeds (default: the paper's and four more).")
    ] = None,
    epochs: Annotated[int, typer.Option(help="At most so many epochs a run.")] = 200,
    processes: Processes = os.cpu_count() or 1,
    data: Source = None,
    json_: Json = False,
) -> None:
    """Trains every system of the paper's table over several seeds and writes table and figure.

    Finished runs are not trained again, so that it can be stopped and started as one likes.
    """
    from hanme.experiments import reproduce as experiment
    from hanme.experiments.summary import SEEDS

    seeds = seed or list(SEEDS)
    if len(set(seeds)) < len(seeds):
        raise HanmeError(f"seeds {seeds}: one is given twice")
    out.mkdir(parents=True, exist_ok=True)
    folder = runs or out / "runs"
    work = experiment.jobs(folder, seeds, data, epochs)
    refuse_failed(train_with_bar(work, processes), len(work))
    table = experiment.report(folder, seeds, out)
    if json_:
        print(json.dumps(table))
    else:
        print((out / "paper.md").read_text())
