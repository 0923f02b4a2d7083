"""Search for the settings of a model on a graph, by scores on validation nodes only."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hanme.common.files import lock, read_json, remove_leftovers, write_json
from hanme.common.options import Closed, validated
from hanme.common.toml import read_toml
from hanme.errors import HanmeError
from hanme.runs import RunConfig, build_network, load_graph
from hanme.runs.config import look_up, override
from hanme.runs.train import train_in_memory

SPACES = Path(__file__).parent / "spaces.toml"


class Trial(Closed):
    """A configuration that was tried."""

    number: int  # counts the trials
    params: dict[str, Any]  # what Optuna has drawn by field: a number, or the place of a choice
    changes: dict[str, Any]  # fields that differ from the configuration that the search starts from
    score: float | None  # in percent, None if training failed
    why: str = ""  # why it failed


class Search(Closed):
    """What to search for."""

    values: dict[str, Any]  # the configuration to start from
    space: dict[str, dict[str, Any]]  # the fields to change, see :func:`search_space`
    seeds: list[int]  # the score of a trial is the mean over these
    epochs: int | None = None  # maximum number of epochs (default: as configured)
    seed: int = 0  # of the search

    def configs(self, changes: Mapping[str, Any], source: Path | None) -> list[RunConfig]:
        """Return the runs of a trial, one per seed."""
        extra = {"data.source": source and str(source), "training.epochs": self.epochs}
        fields = {**changes, **{field: x for field, x in extra.items() if x is not None}}
        values = [override(self.values, fields | {"training.seed": seed}) for seed in self.seeds]
        return [RunConfig.make(one) for one in values]


class Study(Closed):
    """A search and its trials, as they are stored."""

    search: Search
    trials: list[Trial]


def search_space(
    model: str, graph: str | None, values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the ranges and choices in ``spaces.toml`` of the fields that a configuration sets.

    They are extended to include its values. ``graph`` is None for a user's own tables.
    """
    tables = read_toml(SPACES)
    names = ("every", str(look_up(values, "model.name")), model, graph or "")
    merged = {field: entry for name in names for field, entry in tables.get(name, {}).items()}
    current = {field: look_up(values, field) for field in merged}
    return {
        field: _including(value, merged[field], field)
        for field, value in current.items()
        if value is not None
    }


def run_trials(
    search: Search,
    path: Path,
    trials: int,
    *,
    source: Path | None = None,
    on_trial: Callable[[int], None] = lambda done: None,
) -> list[Trial]:
    """Try configurations until there are enough trials, including those stored in ``path``.

    The first is the one the search starts from. The next ones depend only on ``search`` and on the
    scores so far: a search that was killed and started again tries the same configurations.
    ``on_trial`` is called with the number of finished trials, first and after each new one.
    """
    import optuna

    for config in search.configs({}, source):  # report mistakes before anything is written
        build_network(config.model, load_graph(config))
    with lock(path.with_name(f".{path.name}.lock"), str(path)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        done = _read(path, search)
        remove_leftovers(path.parent, path.stem)
        ranges = {field: _distribution(entry) for field, entry in search.space.items()}
        on_trial(len(done))
        while len(done) < trials:
            params = _suggest(search, ranges, done, path)
            done.append(_try(search, source, params, len(done)))
            write_json(path, Study(search=search, trials=done).model_dump(mode="json"))
            on_trial(len(done))
    return done


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best score, the first of equals."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise HanmeError(f"none of {len(trials)} trials has a score; the last: {trials[-1].why}")
    return max(scored, key=lambda trial: trial.score or 0.0)


def _read(path: Path, search: Search) -> list[Trial]:
    """Read the trials of this search; refuse a file of another."""
    if not path.exists():
        return []
    study = validated(Study, read_json(path), f"{path}: not a study")
    for name in Search.model_fields:
        if getattr(study.search, name) != getattr(search, name):
            raise HanmeError(f"{path}: a study with other {name}; name another --out file")
    return study.trials


def _suggest(
    search: Search, ranges: dict[str, Any], done: list[Trial], path: Path
) -> dict[str, Any]:
    """Return what Optuna draws after the trials so far; first, where the search starts."""
    from optuna import create_study
    from optuna.samplers import TPESampler
    from optuna.trial import TrialState, create_trial

    if not done:
        start = {field: look_up(search.values, field) for field in search.space}
        return {
            field: entry["choices"].index(start[field]) if "choices" in entry else start[field]
            for field, entry in search.space.items()
        }
    study = create_study(direction="maximize", sampler=TPESampler(seed=search.seed + len(done)))
    try:
        for trial in done:
            state = TrialState.FAIL if trial.score is None else TrialState.COMPLETE
            about = {"params": trial.params, "distributions": ranges, "value": trial.score}
            study.add_trial(create_trial(state=state, **about))
    except ValueError as error:
        raise HanmeError(f"{path}: not a study ({error})") from None
    drawn: dict[str, Any] = study.ask(ranges).params
    return drawn


def _try(search: Search, source: Path | None, params: dict[str, Any], number: int) -> Trial:
    """Run a trial. Its score is the mean of micro and macro F1 on validation nodes, in percent."""
    changes = dict(params)
    for field, entry in search.space.items():
        if "choices" in entry:
            changes[field] = entry["choices"][params[field]]
        elif isinstance(params[field], float):
            changes[field] = float(f"{params[field]:.4g}")
    values = []
    try:
        for config in search.configs(changes, source):
            run = train_in_memory(config, load_graph(config))
            f1 = run.result["selection"]
            values.append((f1["micro"] + f1["macro"]) / 2)
    except (HanmeError, MemoryError, RuntimeError) as error:
        full = isinstance(error, MemoryError) or "memory" in str(error)  # how PyTorch says it
        if not number or not (full or isinstance(error, HanmeError)):
            raise
        why = "out of memory" if full else str(error)
        return Trial(number=number, params=params, changes=changes, score=None, why=why)
    score = round(statistics.mean(values), 4)
    return Trial(number=number, params=params, changes=changes, score=score)


def _including(value: Any, dimension: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return a range or choices, extended to include a value."""
    if "choices" in dimension:
        choices = dimension["choices"]
        return {"choices": choices if value in choices else [value, *choices]}
    if dimension.get("log") and value <= 0:
        raise HanmeError(f"{field}: {value} not in a range on a logarithmic scale")
    low, high = min(dimension["low"], value), max(dimension["high"], value)
    return {**dimension, "low": low, "high": high}


def _distribution(dimension: Mapping[str, Any]) -> Any:
    """Return a range, or the places of choices, as Optuna has them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if "choices" in dimension:
        return CategoricalDistribution(range(len(dimension["choices"])))
    low, high, log = dimension["low"], dimension["high"], dimension.get("log", False)
    whole = isinstance(low, int) and isinstance(high, int)
    return (IntDistribution if whole else FloatDistribution)(low, high, log=log)
