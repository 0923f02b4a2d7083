"""The command ``hanme benchmark``."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hanme.cli.options import (
    Allow,
    Changes,
    ConfigFolder,
    Device,
    Json,
    Processes,
    Runs,
    Source,
    fields,
)
from hanme.cli.show import show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.benchmark import Entry

PACES = ("none", "linear", "root", "geometric", "both")


def benchmark(
    out: Annotated[
        Path, typer.Option(help="Where to write benchmark.md, .csv, .json and figures.")
    ],
    experiment: Annotated[
        str,
        typer.Option(
            help="What to compare. benchmark: the models and graphs that you choose with the "
            "options below; paper: the rows of the paper's table; or a TOML file of your own."
        ),
    ] = "benchmark",
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="The first part of a configuration's name, e.g. han or hanme-direct. Repeat it "
            "for several (default: all that have a configuration for the graph)."
        ),
    ] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            help="planted, IMDB, ACM, DBLP, or a graph.toml. Repeat it for several "
            "(default: IMDB, ACM and DBLP)."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of seeds: the paper's, then 1, 2, ...")
    ] = 5,
    seed: Annotated[
        list[int] | None, typer.Option(help="A seed, instead of --seeds. Repeat it for several.")
    ] = None,
    lts: Annotated[
        str | None,
        typer.Option(
            help="Loss-aware training schedule: none, linear, root or geometric; both: a row "
            "without it and a row with linear (default: as the configuration has it; the package's "
            "have none)."
        ),
    ] = None,
    runs: Runs = None,
    config_folder: ConfigFolder = None,
    changes: Changes = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train/--no-train",
            help="--no-train: train nothing, report the runs that are finished.",
        ),
    ] = True,
    processes: Processes = os.cpu_count() or 1,
    data: Source = None,
    allow: Allow = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Train models on graphs over several seeds and compare them with published figures.

    hanme benchmark --model han --model hanme-direct --graph IMDB --out docs/results

    Settings come from the package's configuration files, one per model and graph, or from
    --config-folder. A graph.toml needs no such file: models then have the defaults of hanme train.
    Finished runs are not trained again, so you can stop it and start it again at any time. A run
    that fails does not stop the others; it is named at the end, with exit status 2.
    """
    from hanme.experiments.benchmark import Experiment
    from hanme.experiments.report import report
    from hanme.experiments.summary import first_seeds
    from hanme.runs.pool import train_all, unfinished

    plan = Experiment.read(experiment)
    options: dict[str, Any] = {
        "model": model,
        "graph": graph,
        "lts": lts,
        "config-folder": config_folder,
    }
    if plan.row:
        for name in (name for name, value in options.items() if value):
            raise HanmeError(f"--{name}: the experiment {experiment} has rows of its own")
        options = {"experiment": experiment}
        entries = plan.entries(fields(changes), data)
    else:
        options["graph"] = graphs = _graphs(graph or ["IMDB", "ACM", "DBLP"])
        entries = _entries(model, graphs, lts, config_folder, fields(changes), data)
    numbers = seed or first_seeds(seeds)
    if len(set(numbers)) < len(numbers):
        raise HanmeError(f"--seed: {numbers} has a seed twice")
    folder = runs or out / "runs"
    work = [job for entry in entries for job in entry.jobs(folder, numbers)]
    out.mkdir(parents=True, exist_ok=True)
    if train:
        with show_progress("runs", len(work)) as (bar, task):
            failed = train_all(work, processes, lambda _: bar.advance(task))
    else:
        failed = {folder: "not trained yet" for _, folder in unfinished(work)}
    options |= {"seed": seed} if seed else {"seeds": seeds}
    command = _command(options | {"set": changes, "out": out})
    table = report(plan, entries, folder, numbers, out, command=command, failed=failed)
    print(json.dumps(table) if json_ else (out / f"{plan.name}.md").read_text(encoding="utf-8"))
    if train and failed:
        first, why = next(iter(failed.items()))
        raise HanmeError(f"{len(failed)} of {len(work)} runs failed, first {first}: {why}")


def _graphs(texts: list[str]) -> list[str]:
    """Drop repeated graphs; refuse two of one name, and tables without test nodes."""
    from hanme.data import is_tables, known_name, load
    from hanme.experiments.configuration import graph_name

    graphs: dict[str, str] = {}
    for text in texts:
        name = graph_name(text)
        first = graphs.setdefault(name, text)
        if known_name(text) != known_name(first):
            raise HanmeError(f"--graph {text}: {first} is called {name}, too; rename a folder")
        if is_tables(text) and not load(text).split.test.any():
            raise HanmeError(f"--graph {text}: no row is in test, so there is nothing to compare")
    return list(graphs.values())


def _entries(
    chosen: list[str] | None,
    graphs: list[str],
    lts: str | None,
    configs: Path | None,
    changes: Mapping[str, Any],
    source: Path | None,
) -> list[Entry]:
    """Return a row per graph, model and pace of LTS."""
    from hanme.experiments.benchmark import Entry, from_source
    from hanme.experiments.configuration import models

    if lts is not None and lts not in PACES:
        raise HanmeError(f"--lts {lts!r}: there are {', '.join(PACES)}")
    paces = ["none", "linear"] if lts == "both" else [lts]
    entries = []
    for graph in graphs:
        names = dict.fromkeys(chosen or models(graph, configs))
        if not names:
            raise HanmeError(f"no configuration for {graph}: name a --model and a --config-folder")
        fields = {**changes, **from_source(graph, source)}
        entries += [Entry.make(n, graph, pace, configs, fields) for n in names for pace in paces]
    return entries


def _command(options: Mapping[str, Any]) -> str:
    """Return the command that writes this report again."""
    words = ["hanme", "benchmark"]
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        words += [word for v in values if v is not None for word in (f"--{name}", str(v))]
    return shlex.join(words)
