"""hanme tune"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from hanme.cli.options import Changes, ConfigFolder, Json, Source, fields
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.tune import Trial


def tune(
    model: Annotated[
        str, typer.Argument(help="The first part of a configuration's name, e.g. hanme-direct.")
    ],
    graph: Annotated[str, typer.Argument(help="planted, IMDB, ACM, DBLP, or a graph.toml.")],
    out: Annotated[Path, typer.Option(help="Where to write the best configuration, a TOML file.")],
    study: Annotated[
        Path | None,
        typer.Option(help="The SQLite file that keeps the trials (default: OUT's name with .db)."),
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Configurations to try, those in the study included.")
    ] = 20,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs per trial: the paper's seed, then 1, 2, 3, ...")
    ] = 1,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="At most so many epochs a run (default: the configuration's, which the file that "
            "is written keeps in any case).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Draws what is tried.")] = 0,
    prune: Annotated[
        bool, typer.Option("--prune", help="Give up a trial that is worse than the median so far.")
    ] = False,
    config_folder: ConfigFolder = None,
    changes: Changes = None,
    data: Source = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT if it exists.")] = False,
    json_: Json = False,
) -> None:
    """Searches for better settings of a model on a graph and writes the best as a file.

    hanme tune hanme-direct IMDB --trials 50 --out my/hanme-direct-IMDB.toml

    hanme train --config my/hanme-direct-IMDB.toml --out runs/tuned

    The packaged configuration is tried first; what may change is in the package's spaces.toml. A
    trial's score is the mean of micro and macro F1 on validation nodes, of the epoch that the
    configuration chooses; test nodes have no part in it. Kill it when you like: started again, it
    goes on with the trials that are done.
    """
    from hanme.datasets import is_tables, known_name
    from hanme.experiments.configs import changed_config, override
    from hanme.experiments.summary import seeds as first_seeds
    from hanme.experiments.tune import Problem, best_trial, search_space, write_config
    from hanme.experiments.tune import tune as search

    if out.suffix != ".toml":
        raise HanmeError(f"{out}: a configuration's name ends with .toml")
    if out.exists() and not force:
        raise HanmeError(f"{out}: it exists; name another file, or overwrite it with --force")
    values = changed_config(model, graph, config_folder, fields(changes))
    space = search_space(model, None if is_tables(graph) else known_name(graph), values)
    problem = Problem(values, space, first_seeds(seeds), epochs, seed, prune)
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{model} {graph}: trials", total=trials)
        done = search(
            problem,
            study or out.with_suffix(".db"),
            trials,
            source=data,
            on_trial=lambda count: bar.update(task, completed=count),
        )
    best = best_trial(done)
    comment = [
        f"Chosen by hanme tune {model} {graph}, of {len(done)} trials, on validation nodes:",
        f"mean of micro and macro F1 {best.score:.2f} (started from: {_shown(done[0])}), "
        f"{seeds} seed(s) a trial.",
    ]
    write_config(override(values, best.changes), comment, out)
    if json_:
        print(json.dumps({"best": asdict(best), "trials": [asdict(trial) for trial in done]}))
        return
    _print_best(done, list(space))
    print(f"The best configuration is in {out}: hanme train --config {out} --out RUN")


def _print_best(trials: list[Trial], fields: list[str], most: int = 10) -> None:
    """A table of the trials with the best scores."""
    table = Table(title="Best trials: validation F1 (%), mean of micro and macro")
    table.title_justify = "left"
    for name in ("trial", "score", *(field.rpartition(".")[2] for field in fields)):
        table.add_column(name, justify="right", overflow="fold")
    for trial in sorted(trials, key=lambda trial: -(trial.score or 0.0))[:most]:
        settings = [trial.changes.get(field, "") for field in fields]
        shown = ["\n".join(s) if isinstance(s, list) else str(s) for s in settings]
        table.add_row(str(trial.number), _shown(trial), *shown)
    Console(width=None if Console().is_terminal else 140).print(table)


def _shown(trial: Trial) -> str:
    return f"{trial.score:.2f}" if trial.score is not None else "–"
