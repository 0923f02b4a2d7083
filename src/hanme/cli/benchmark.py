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

PACES: dict[str | None, list[str | None]] = {
    None: [None],
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
            "several times (default: every one there is for a graph)."
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            help="planted, IMDB, ACM, DBLP, or a graph.toml; may be given several times "
            "(default: IMDB, ACM and DBLP)."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of seeds: the paper's, then 1, 2, 3, ...")
    ] = 5,
    lts: Annotated[
        str | None,
        typer.Option(
            help="Loss-aware training schedule: none, linear, root or geometric; both: a row "
            "without and a row with linear (default: as the configuration has it, in the package "
            "none)."
        ),
    ] = None,
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
    --config-folder; on a graph.toml without such files models are as hanme train has them.
    Finished runs are not trained again: stop it and start it as you like. A run that fails does not
    stop the others; it is named at the end, with exit status 2.
    """
    from hanme.experiments.benchmark import Entry, report
    from hanme.experiments.configs import graph_name, models
    from hanme.experiments.pool import unfinished
    from hanme.experiments.summary import seeds as first_seeds

    if lts not in PACES:
        raise HanmeError(f"--lts {lts!r}: there are {', '.join(filter(None, PACES))}")
    graphs: dict[str, str] = {}
    for text in graph or ["IMDB", "ACM", "DBLP"]:
        on = graph_name(text)
        _check(text, on, graphs.setdefault(on, text))
        if not model and not models(text, config_folder):
            raise HanmeError(f"no configuration for {on}: name a --model and a --config-folder")
    sets = fields(changes)
    entries = [
        Entry.make(name, text, pace, config_folder, sets | _files(text, data))
        for text in graphs.values()
        for name in dict.fromkeys(model or models(text, config_folder))
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
        *(f"--graph {shlex.quote(text)}" for text in graphs.values()),
        f"--seeds {seeds}" + (f" --lts {lts}" if lts else ""),
        *([f"--config-folder {shlex.quote(str(config_folder))}"] if config_folder else []),
        *(f"--set {shlex.quote(text)}" for text in changes or []),
        f"--out {shlex.quote(str(out))}",
    ]
    command = f"hanme benchmark {' '.join(given)}"
    table = report(entries, folder, numbers, out, command=command, failed=failed)
    print(json.dumps(table) if json_ else (out / "benchmark.md").read_text())
    if train:
        refuse_failed(failed, len(work))


def _check(graph: str, name: str, first: str) -> None:
    """Refuses tables that are called as others are, or have no nodes to compare models on."""
    from hanme.datasets import is_tables, known_name, load

    if known_name(graph) != known_name(first):
        raise HanmeError(f"--graph {graph}: {first} is called {name} as well; rename a folder")
    if is_tables(graph):
        data = load(graph)
        if not data[data.target].test_mask.any():
            raise HanmeError(f"--graph {graph}: no row is in test, so there is nothing to compare")


def _files(graph: str, data: Path | None) -> dict[str, str]:
    """Where the benchmark's files are, for those graphs that are read from them."""
    from hanme.datasets import is_tables

    own = graph.lower() == "planted" or is_tables(graph)
    return {} if data is None or own else {"data.source": str(data)}
