"""hanme benchmark"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from hanme.cli.options import Changes, ConfigFolder, Json, Processes, Source, fields
from hanme.cli.show import refuse_failed, train_with_bar
from hanme.errors import HanmeError

PACES = {
    "none": ["none"],
    "linear": ["linear"],
    "root": ["root"],
    "geometric": ["geometric"],
    "both": ["none", "linear"],
}


def benchmark(
    out: Annotated[Path, typer.Option(help="Where to write benchmark.md, .csv, .json, figures.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="The first part of a configuration's name, e.g. han or hanme-direct; may be given "
            "several times (default: every one the package has for a graph)."
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            help="planted, IMDB, ACM or DBLP; may be given several times "
            "(default: IMDB, ACM and DBLP)."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds: the paper's, then 1, 2, 3, ...")
    ] = 5,
    lts: Annotated[
        str,
        typer.Option(
            help="Loss-aware training schedule: none, linear, root or geometric; both: a row "
            "without and a row with linear."
        ),
    ] = "none",
    runs: Annotated[
        Path | None, typer.Option(help="Where the run folders go (default: OUT/runs).")
    ] = None,
    config_folder: ConfigFolder = None,
    changes: Changes = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train/--no-train",
            help="--no-train: write the table of what is finished, and train nothing.",
        ),
    ] = True,
    processes: Processes = os.cpu_count() or 1,
    data: Source = None,
    json_: Json = False,
) -> None:
    """Trains models on graphs over several seeds and writes one table, published figures beside.

    hanme benchmark --model han --model hanme-direct --graph IMDB --out docs/results

    Settings come from the package's configuration files, one per model and graph, or from
    --config-folder. Finished runs are not trained again: stop it and start it as you like. A run
    that fails does not stop the others; it is named at the end, with exit status 2.
    """
    from hanme.datasets import known_name
    from hanme.experiments.benchmark import Entry, report
    from hanme.experiments.configs import models
    from hanme.experiments.pool import unfinished
    from hanme.experiments.summary import seeds as first_seeds

    if lts not in PACES:
        raise HanmeError(f"--lts {lts!r}: there are {', '.join(PACES)}")
    graphs = list(dict.fromkeys(map(known_name, graph or ["IMDB", "ACM", "DBLP"])))
    for on in graphs:
        if not model and not models(on):
            raise HanmeError(f"no configuration for {on}: name a --model and a --config-folder")
    sets = fields(changes)
    files = {"data.source": str(data)} if data else {}
    entries = [
        Entry.make(name, on, pace, config_folder, sets | ({} if on == "planted" else files))
        for on in graphs
        for name in dict.fromkeys(model or models(on))
        for pace in PACES[lts]
    ]
    out.mkdir(parents=True, exist_ok=True)
    folder = runs or out / "runs"
    numbers = first_seeds(seeds)
    work = [job for entry in entries for job in entry.jobs(folder, numbers)]
    if train:
        failed = train_with_bar(work, processes)
    else:
        failed = {folder: "not trained yet" for _, folder in unfinished(work)}
    given = [
        *(f"--model {name}" for name in model or []),
        *(f"--graph {name}" for name in graphs),
        f"--seeds {seeds} --lts {lts}",
        *([f"--config-folder {shlex.quote(str(config_folder))}"] if config_folder else []),
        *(f"--set {shlex.quote(text)}" for text in changes or []),
        f"--out {shlex.quote(str(out))}",
    ]
    command = f"hanme benchmark {' '.join(given)}"
    table = report(entries, folder, numbers, out, command=command, failed=failed)
    print(json.dumps(table) if json_ else (out / "benchmark.md").read_text())
    if train:
        refuse_failed(failed, len(work))
