"""The command ``hanme tune``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hanme.cli.options import Allow, Changes, ConfigFolder, Device, Json, Source, changed_fields
from hanme.cli.show import print_table, show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.tune import Trial


def tune(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="First part of a configuration's name, e.g. hanme-direct."
        ),
    ],
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help="planted, IMDB, ACM, DBLP, or a graph.toml.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="TOML file for the best configuration.")],
    study: Annotated[
        Path | None,
        typer.Option(help="SQLite file with the trials (default: OUT with .db for .toml)."),
    ] = None,
    trials: Annotated[
        int,
        typer.Option(
            min=1,
            max=10**6,
            help="Number of configurations to try, including those of an earlier search.",
        ),
    ] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of runs per trial, with seeds 0, 1, ...")
    ] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of epochs in the search (default: as configured). OUT keeps the "
            "configured number.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the search.")] = 0,
    prune: Annotated[
        bool, typer.Option("--prune", help="Stop trials that score below the median so far.")
    ] = False,
    config_folder: ConfigFolder = None,
    changes: Changes = None,
    data: Source = None,
    allow: Allow = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Search for the best settings of a model on a graph and write a configuration file.

    hanme tune hanme-direct IMDB --trials 50 --out my/hanme-direct-IMDB.toml

    hanme train --config my/hanme-direct-IMDB.toml --out runs/tuned

    The packaged configuration is tried first; spaces.toml in the package has the search space. The
    score of a trial is the mean of micro and macro F1 on validation nodes, at the epoch that the
    configuration selects; test nodes are not used. You can stop it at any time: the same command
    continues after the finished trials.
    """
    from hanme.data import is_tables, known_name
    from hanme.experiments.configuration import changed_config, override
    from hanme.experiments.tune import Search, best_trial, run_trials, search_space, write_config

    if out.suffix != ".toml":
        raise HanmeError(f"{out}: a configuration's name ends with .toml")
    if out.is_dir():
        raise HanmeError(f"{out}: a folder, not a file")
    if out.exists() and not force:
        raise HanmeError(f"{out}: it exists; name another file, or overwrite it with --force")
    values = changed_config(model, graph, config_folder, changed_fields(changes))
    space = search_space(model, None if is_tables(graph) else known_name(graph), values)
    search = Search(values, space, list(range(seeds)), epochs, seed, prune)
    with show_progress(f"{model} {graph}: trials", trials) as (bar, task):
        done = run_trials(
            search,
            study or out.with_suffix(".db"),
            trials,
            source=data,
            on_trial=lambda count: bar.update(task, completed=count),
        )
    best = best_trial(done)
    comment = [
        f"Chosen by hanme tune {model} {graph}, of {len(done)} trials, on validation nodes:",
        f"mean of micro and macro F1 {best.score:.2f} (first trial: {_score(done[0])}), "
        f"{seeds} seed(s) per trial.",
    ]
    write_config(override(values, best.changes), comment, out)
    if json_:
        print(json.dumps({"best": asdict(best), "trials": [asdict(trial) for trial in done]}))
        return
    _print_best(done, list(space))
    print(f"The best configuration is in {out}: hanme train --config {out} --out RUN")


def _print_best(trials: list[Trial], fields: list[str], most: int = 10) -> None:
    """Print the trials with the best scores."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -(trial.score or 0.0))[:most]:
        settings = [trial.changes.get(field, "") for field in fields]
        shown = ["\n".join(s) if isinstance(s, list) else str(s) for s in settings]
        rows.append([str(trial.number), _score(trial), *shown])
    heads = ["trial", "score", *(field.rpartition(".")[2] for field in fields)]
    title = "Best trials: validation F1 (%), mean of micro and macro"
    print_table(heads, rows, title=title, width=140)


def _score(trial: Trial) -> str:
    return f"{trial.score:.2f}" if trial.score is not None else "–"
