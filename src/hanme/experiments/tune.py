"""Search for the settings of a model on a graph, by scores on validation nodes only."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from hanme.common.files import lock, read_json, remove_leftovers, replacing, write_json
from hanme.common.options import Closed, validated
from hanme.common.toml import read_toml, to_toml
from hanme.errors import HanmeError
from hanme.experiments.configuration import look_up, override
from hanme.runs import RunConfig, build_network, load_graph
from hanme.runs.results import rule_name
from hanme.runs.train import train_in_memory
from hanme.training import Epoch

SPACES = Path(__file__).parent / "spaces.toml"

REPORT_EPOCHS = 10
"""Epochs between the scores that a trial reports to the pruner: few, as each may end it."""


class Trial(Closed):
    """A configuration that was tried."""

    number: int  # counts the trials
    changes: dict[str, Any]  # fields that differ from the configuration that the search starts from
    score: float | None  # in percent, None if the trial was stopped
    why: str = ""  # why it was stopped
    state: Literal["COMPLETE", "PRUNED", "FAIL"] = "COMPLETE"
    params: dict[str, Any] = Field(default_factory=dict)  # the changes as Optuna has them
    steps: dict[int, float] = Field(default_factory=dict)  # scores reported to the pruner, by epoch


class Study(Closed):
    """A search and its trials, as they are stored."""

    search: dict[str, Any]
    trials: list[Trial]


@dataclass(frozen=True)
class Search:
    """What to search for."""

    values: Mapping[str, Any]  # the configuration to start from
    space: Mapping[str, Mapping[str, Any]]  # the fields to change, see :func:`search_space`
    seeds: Sequence[int]  # the score of a trial is the mean over these
    epochs: int | None = None  # maximum number of epochs (default: as configured)
    seed: int = 0  # of the search
    prune: bool = False  # stop trials that score below the median of earlier ones

    def configs(self, changes: Mapping[str, Any], source: Path | None) -> list[RunConfig]:
        """Return the runs of a trial, one per seed."""
        extra: dict[str, Any] = {"data.source": str(source)} if source else {}
        if self.epochs is not None:
            extra["training.epochs"] = self.epochs
        return [
            RunConfig.make(override(self.values, {**changes, **extra, "training.seed": seed}))
            for seed in self.seeds
        ]


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
    """Try configurations until there are enough trials, including those of an earlier call.

    The first is the one the search starts from. The next ones depend only on ``search`` and on the
    scores so far: a search that was killed and started again tries the same configurations.

    Args:
        search: What to search for.
        path: The JSON file with the trials; one process at a time may use it.
        trials: Number of trials.
        source: Folder or archive with the files of a benchmark graph.
        on_trial: Called with the number of finished trials, first and after each new one.
    """
    import optuna

    for config in search.configs({}, source):  # report mistakes before anything is written
        build_network(config.model, load_graph(config))
    if not path.name or path.is_dir():
        raise HanmeError(f"{path}: a study is a file, such as study.json")
    with lock(path.with_name(f".{path.name}.lock"), str(path)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        done = _read(path, search)
        remove_leftovers(path.parent, f"{path.stem}.")
        ranges = {field: _distribution(entry) for field, entry in search.space.items()}
        study = _replay(done, ranges, search, path)
        on_trial(len(done))
        while len(done) < trials:
            study.sampler = optuna.samplers.TPESampler(seed=search.seed + len(done))
            done.append(_try(search, source, study, ranges, len(done)))
            stored = Study(search=_plain(search), trials=done)
            write_json(path, stored.model_dump(mode="json"))
            on_trial(len(done))
    return done


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best score, the first of equals."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise HanmeError(f"none of {len(trials)} trials has a score; the last: {trials[-1].why}")
    return max(scored, key=lambda trial: trial.score or 0.0)


def write_config(values: Mapping[str, Any], comment: Sequence[str], path: Path) -> None:
    """Write a configuration file, which ``hanme train --config`` reads."""
    with replacing(path) as temporary:
        text = "".join(f"# {line}\n" for line in comment) + "\n" + to_toml(values)
        temporary.write_text(text, encoding="utf-8")


def _read(path: Path, search: Search) -> list[Trial]:
    """Read the trials of this search; refuse a file of another."""
    if not path.exists():
        return []
    study = validated(Study, read_json(path), f"{path}: not a study")
    for name, value in _plain(search).items():
        if study.search.get(name) != value:
            raise HanmeError(f"{path}: a study with other {name}; name another --study file")
    return study.trials


def _plain(search: Search) -> dict[str, Any]:
    """Return a search as JSON has it."""
    return asdict(search) | {"seeds": list(search.seeds)}


def _replay(done: list[Trial], ranges: dict[str, Any], search: Search, path: Path) -> Any:
    """Return a study in memory that knows the trials so far."""
    import optuna

    pruner = optuna.pruners.MedianPruner() if search.prune else optuna.pruners.NopPruner()
    study = optuna.create_study(direction="maximize", pruner=pruner)
    if not done:
        study.enqueue_trial({f: _label(look_up(search.values, f)) for f in search.space})
    try:
        for trial in done:
            study.add_trial(
                optuna.trial.create_trial(
                    state=optuna.trial.TrialState[trial.state],
                    params=trial.params,
                    distributions=ranges,
                    value=trial.score,
                    intermediate_values=trial.steps,
                )
            )
    except ValueError as error:
        raise HanmeError(f"{path}: not a study ({error})") from None
    return study


def _try(
    search: Search, source: Path | None, study: Any, ranges: dict[str, Any], number: int
) -> Trial:
    """Run the next trial."""
    import optuna

    trial, why = study.ask(ranges), ""
    changes = {field: _value(search.space[field], drawn) for field, drawn in trial.params.items()}
    try:
        result: dict[str, Any] = {"values": _score_all(search, source, trial, changes)}
    except optuna.TrialPruned:
        result, why = (
            {"state": optuna.trial.TrialState.PRUNED},
            "below the median of earlier trials",
        )
    except HanmeError as error:
        if not number:
            raise
        result, why = {"state": optuna.trial.TrialState.FAIL}, str(error)
    ended = study.tell(trial, **result)
    return Trial(
        number=number,
        changes=changes,
        score=None if why else ended.value,
        why=why,
        state=ended.state.name,
        params=ended.params,
        steps=ended.intermediate_values,
    )


def _score_all(
    search: Search, source: Path | None, trial: Any, changes: Mapping[str, Any]
) -> float:
    """Return the mean score of a trial over its seeds."""
    f1 = []
    for number, config in enumerate(search.configs(changes, source)):
        before = number * config.training.epochs
        watch = _watch(trial, before, config.training.every) if search.prune else lambda _: None
        f1.append(_score(config, watch))
    return statistics.mean(f1)


def _score(config: RunConfig, on_epoch: Callable[[Epoch], None]) -> float:
    """Train and return the mean of micro and macro F1 on validation nodes, in percent."""
    graph = load_graph(config)
    run = train_in_memory(config, graph, on_epoch)
    f1 = run.result["scores"][rule_name(run.decision)]["val"]
    return float(round((f1["micro"] + f1["macro"]) / 2, 4))


def _watch(trial: Any, before: int, every: int) -> Callable[[Epoch], None]:
    """Report the scores of a trial to the pruner, after ``before`` epochs with other seeds."""
    import optuna

    def on_epoch(epoch: Epoch) -> None:
        if epoch.epoch % REPORT_EPOCHS < every:
            trial.report(100 * (epoch.val_micro + epoch.val_macro) / 2, before + epoch.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    return on_epoch


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
    """Return a range or choices as Optuna has them."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if "choices" in dimension:
        return CategoricalDistribution([_label(choice) for choice in dimension["choices"]])
    low, high, log = dimension["low"], dimension["high"], dimension.get("log", False)
    whole = isinstance(low, int) and isinstance(high, int)
    return (IntDistribution if whole else FloatDistribution)(low, high, log=log)


def _label(choice: Any) -> Any:
    """Return a choice as Optuna stores it: a list, such as metapaths, becomes one string."""
    return ", ".join(map(str, choice)) if isinstance(choice, list) else choice


def _value(dimension: Mapping[str, Any], drawn: Any) -> Any:
    """Return the value of a field, of Optuna's rounded to 4 digits."""
    for choice in dimension.get("choices", []):
        if _label(choice) == drawn:
            return choice
    return float(f"{drawn:.4g}") if isinstance(drawn, float) else drawn
