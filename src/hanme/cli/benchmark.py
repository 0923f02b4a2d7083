"""The command ``hanme benchmark``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hanme.cli.options import Positive, Range, changed_fields
from hanme.cli.show import show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.benchmark import Entry


def benchmark(
    *,
    out: Path,
    model: list[str] | None = None,
    graph: list[str] | None = None,
    seeds: Annotated[int, Range(1, 1000)] | None = None,
    lts: Literal["none", "linear", "root", "geometric", "both"] | None = None,
    runs: Path | None = None,
    train: bool = True,
    processes: Positive = os.cpu_count() or 1,
    device: str | None = None,
    json_: bool = False,
    config: str = "benchmark",
    config_folder: Path | None = None,
    changes: list[str] | None = None,
    data: Path | None = None,
    allow: list[str] | None = None,
) -> None:
    """Train models on graphs over several seeds and compare them with published scores.

    hanme benchmark --model han --model hanme-direct --graph IMDB --out docs/results

    hanme benchmark --config paper --out docs/results

    Settings come from the packaged configuration files, one per model and graph, or from
    --config-folder; on a graph.toml, models have the defaults of hanme train. Finished runs are not
    trained again, so you can stop it and start it again. A failed run does not stop the others; it
    is named at the end, with exit status 2.

    Args:
        out: Folder for tables (.md, .json) and figures.
        model: First part of a configuration's name, such as hanme-direct (default: all models).
        graph: planted, IMDB, ACM, DBLP, or a graph.toml (default: IMDB, ACM and DBLP).
        seeds: Number of seeds (default: those of the --config).
        lts: Loss-aware training schedule; both: rows without it and with linear (default: as
            configured).
        runs: Folder for the run folders (default: OUT/runs).
        train: Train missing runs, or only report the finished ones.
        processes: Number of runs to train at a time.
        config: benchmark: the models and graphs chosen by --model and --graph; paper: the rows of
            the paper's table; or a TOML file.
    """
    from hanme.experiments.benchmark import Experiment
    from hanme.experiments.report import report
    from hanme.runs.pool import train_all, unfinished

    plan, fields = Experiment.read(config), changed_fields(changes)
    if plan.row and (model or graph or lts or config_folder):
        fixed = "--model, --graph, --lts and --config-folder do not apply"
        raise HanmeError(f"the rows of {config} are fixed: {fixed}")
    entries = (
        plan.entries(fields, data)
        if plan.row
        else _entries(model, graph or ["IMDB", "ACM", "DBLP"], lts, config_folder, fields, data)
    )
    numbers = plan.first_seeds(seeds or len(plan.seeds))
    folder = runs or out / "runs"
    work = [job for entry in entries for job in entry.jobs(folder, numbers)]
    out.mkdir(parents=True, exist_ok=True)
    if train:
        with show_progress("runs", len(work)) as (bar, task):
            failed = train_all(work, processes, lambda _: bar.advance(task))
    else:
        failed = {folder: "not trained yet" for _, folder in unfinished(work)}
    command = shlex.join(["hanme", *sys.argv[1:]])
    table = report(plan, entries, folder, numbers, out, command=command, failed=failed)
    print(json.dumps(table) if json_ else (out / f"{plan.name}.md").read_text(encoding="utf-8"))
    if train and failed:
        first, why = next(iter(failed.items()))
        raise HanmeError(f"{len(failed)} of {len(work)} runs failed, first {first}: {why}")


def _entries(
    chosen: list[str] | None,
    graphs: list[str],
    lts: str | None,
    configs: Path | None,
    changes: Mapping[str, Any],
    source: Path | None,
) -> list[Entry]:
    """Return a row per graph, model and pace of LTS."""
    from hanme.data import is_tables, load
    from hanme.experiments.benchmark import Entry, from_source
    from hanme.experiments.configuration import models

    paces = ["none", "linear"] if lts == "both" else [lts]
    entries = []
    for graph in dict.fromkeys(graphs):
        if is_tables(graph) and not load(graph).split.test.any():
            raise HanmeError(f"--graph {graph}: it has no test nodes to compare on")
        names = dict.fromkeys(chosen or models(graph, configs))
        if not names:
            raise HanmeError(f"no configuration for {graph}: name a --model and a --config-folder")
        fields = {**changes, **from_source(graph, source)}
        entries += [Entry.make(n, graph, pace, configs, fields) for n in names for pace in paces]
    return entries
