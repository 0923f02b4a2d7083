"""The command ``hanme benchmark``."""

from __future__ import annotations

import json
import os
import re
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
    protocols: bool = False,
    shard: str | None = None,
    collect: bool = False,
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

    hanme benchmark --protocols --model hanme --model linear --out docs/results

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
        protocols: Report weights fitted to training nodes and to all labelled nodes under five
            decision rules, with paired tests (protocols.md, .json, .csv, .tex).
        shard: I/N: train only the Ith of N shares of the runs, and write no report.
        collect: Train nothing; report the finished runs.
        processes: Number of runs to train at a time.
        config: benchmark: the models and graphs chosen by --model and --graph; paper: the rows of
            the paper's table; questions: its open questions, with controls; or a TOML file.
    """
    from hanme.experiments import protocol_report, report
    from hanme.experiments.benchmark import Experiment
    from hanme.runs.pool import train_all, unfinished

    share = _share(shard)
    if shard and collect:
        raise HanmeError("--shard trains runs and --collect reports them: use one of them")
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
    if collect:
        failed = {folder: "not trained yet" for _, folder in unfinished(work)}
    else:
        with show_progress("runs", len(work[share])) as (bar, task):
            failed = train_all(work[share], processes, lambda _: bar.advance(task))
    if shard is None:
        about: Any = {"command": shlex.join(["hanme", *sys.argv[1:]]), "failed": failed}
        if protocols:
            table = protocol_report.report(entries, folder, numbers, out, **about)
        else:
            table = report.report(plan, entries, folder, numbers, out, **about)
        name = "protocols" if protocols else plan.name
        print(json.dumps(table) if json_ else (out / f"{name}.md").read_text(encoding="utf-8"))
    if failed and not collect:
        first, why = next(iter(failed.items()))
        raise HanmeError(f"{len(failed)} of {len(work[share])} runs failed, first {first}: {why}")


def _share(shard: str | None) -> slice:
    """Return every Nth run from the Ith on, for ``I/N``; all runs for None."""
    if shard is None:
        return slice(None)
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise HanmeError(f"--shard {shard}: expected I/N with I from 1 to N, such as 2/8")
    return slice(int(match[1]) - 1, None, int(match[2]))


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
