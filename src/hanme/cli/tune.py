"""The command ``hanme tune``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hanme.cli.options import Positive, Range, changed_fields
from hanme.cli.show import print_table, show_progress
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.experiments.tune import Trial


def tune(
    model: str,
    graph: str,
    *,
    out: Path,
    trials: Annotated[int, Range(1, 10**6)] = 20,
    seeds: Annotated[int, Range(1, 1000)] = 1,
    epochs: Positive | None = None,
    seed: Annotated[int, Range(0, 2**31)] = 0,
    force: bool = False,
    device: str | None = None,
    json_: bool = False,
    config_folder: Path | None = None,
    changes: list[str] | None = None,
    data: Path | None = None,
    allow: list[str] | None = None,
) -> None:
    """Search for the best settings of a model on a graph and write a configuration file.

    hanme tune hanme-direct IMDB --trials 50 --out my/hanme-direct-IMDB.toml

    hanme train --config my/hanme-direct-IMDB.toml --out runs/tuned

    The packaged configuration is tried first; spaces.toml in the package has the search space. The
    score of a trial is the mean of micro and macro F1 on validation nodes, at the epoch that the
    configuration selects; test nodes are not used. You can stop it at any time: the same command
    continues after the finished trials.

    Args:
        model: First part of a configuration's name, such as hanme-direct.
        out: TOML file for the best configuration; the trials are next to it, in a .json file.
        trials: Number of configurations to try, including those of an earlier search.
        seeds: Number of runs per trial, with seeds 0, 1, ...
        epochs: Maximum number of epochs in the search (default: as configured).
        seed: Seed of the search.
        force: Overwrite OUT.
    """
    from hanme.common.files import replacing
    from hanme.common.toml import to_toml
    from hanme.data import is_tables, known_name
    from hanme.experiments.configuration import changed_config
    from hanme.experiments.tune import Search, best_trial, run_trials, search_space
    from hanme.runs.config import override

    if out.suffix != ".toml" or out.is_dir():
        raise HanmeError(f"{out}: name a file that ends with .toml")
    if out.exists() and not force:
        raise HanmeError(f"{out}: it exists; name another file, or overwrite it with --force")
    values = changed_config(model, graph, config_folder, changed_fields(changes))
    space = search_space(model, None if is_tables(graph) else known_name(graph), values)
    numbers = list(range(seeds))
    search = Search(values=values, space=space, seeds=numbers, epochs=epochs, seed=seed)
    with show_progress(f"{model} {graph}: trials", trials) as (bar, task):
        done = run_trials(
            search,
            out.with_suffix(".json"),
            trials,
            source=data,
            on_trial=lambda count: bar.update(task, completed=count),
        )
    best = best_trial(done)
    comment = [
        f"Chosen by hanme tune {model} {graph}, of {len(done)} trials, on validation nodes:",
        f"mean of micro and macro F1 {best.score:.2f} (first trial: {done[0].score or 0:.2f}), "
        f"{seeds} seed(s) per trial.",
    ]
    text = "".join(f"# {line}\n" for line in comment) + "\n"
    with replacing(out) as temporary:
        temporary.write_text(text + to_toml(override(values, best.changes)), encoding="utf-8")
    if json_:
        trials_ = [trial.model_dump() for trial in done]
        print(json.dumps({"best": best.model_dump(), "trials": trials_}))
        return
    _print_best(done, list(space))
    print(f"The best configuration is in {out}: hanme train --config {out} --out RUN")


def _setting(value: Any) -> Any:
    """Return a setting for a table, whose cells show two places: learning rates need more."""
    return f"{value:g}" if isinstance(value, float) else value


def _print_best(trials: list[Trial], fields: list[str]) -> None:
    """Print the ten trials with the best scores."""
    rows = [
        {"trial": trial.number, "score": trial.score}
        | {field.rpartition(".")[2]: _setting(trial.changes.get(field, "")) for field in fields}
        for trial in sorted(trials, key=lambda trial: -(trial.score or 0.0))[:10]
    ]
    title = "Best trials: validation F1 (%), mean of micro and macro"
    print_table(rows, title=title, width=140)
