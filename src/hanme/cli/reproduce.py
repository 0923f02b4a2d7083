"""The command ``hanme reproduce``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.benchmark import benchmark
from hanme.cli.options import Device, Json, Processes, Runs, Source


def reproduce(
    out: Annotated[Path, typer.Option(help="Where to write paper.md, .csv, .json and the figure.")],
    runs: Runs = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seeds (default: the paper's and four more).")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Maximum number of epochs (default: the paper's 200).")
    ] = None,
    processes: Processes = os.cpu_count() or 1,
    data: Source = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Train every row of the paper's table over several seeds; write the table and a figure.

    This is hanme benchmark --experiment paper. Finished runs are not trained again, so you can stop
    it and start it again at any time.
    """
    changes = None if epochs is None else [f"training.epochs={epochs}"]
    benchmark(
        out,
        experiment="paper",
        seed=seed,
        runs=runs,
        changes=changes,
        processes=processes,
        data=data,
        json_=json_,
    )
