"""Search for the settings of a model on a graph, by its score on validation nodes only."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hanme.errors import HanmeError
from hanme.experiments.configs import PACKAGED, look_up, override
from hanme.files import claiming, replacing
from hanme.toml import read_toml, to_toml
from hanme.training import Epoch, RunConfig, Trainer
from hanme.training.metrics import scores
from hanme.training.pipeline import build_model, load_data

REPORTED = 10
"""A trial that may be pruned says how it does every so many epochs."""


@dataclass(frozen=True)
class Trial:
    """A configuration that was tried: what it has otherwise than the one started from, and its
    score in percent, None where it was given up, with the reason."""

    number: int
    changes: dict[str, Any]
    score: float | None
    why: str = ""


@dataclass(frozen=True)
class Problem:
    """What is searched for.

    Args:
        values: The configuration to start from.
        space: What may change, by field, as :func:`search_space` gives.
        seeds: A trial's score is the mean over these.
        epochs: At most so many a run, None for as many as the configuration says.
        seed: Draws what is tried.
        prune: Give a trial up early if it does worse than the median of those before it.
    """

    values: Mapping[str, Any]
    space: Mapping[str, Mapping[str, Any]]
    seeds: Sequence[int]
    epochs: int | None = None
    seed: int = 0
    prune: bool = False

    def configs(self, changes: Mapping[str, Any], source: Path | None) -> list[RunConfig]:
        """The runs of a trial, one per seed."""
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
    """What may change, from ``spaces.toml``: fields that the configuration sets, in ranges and
    choices that include what it sets."""
    tables = read_toml(PACKAGED / "spaces.toml")
    names = ("every", str(look_up(values, "model.name")), model, graph or "")
    merged = {field: entry for name in names for field, entry in tables.get(name, {}).items()}
    found = {field: look_up(values, field) for field in merged}
    return {
        field: _including(value, merged[field], field)
        for field, value in found.items()
        if value is not None
    }


def tune(
    problem: Problem,
    study: Path,
    trials: int,
    *,
    source: Path | None = None,
    on_trial: Callable[[int], None] = lambda done: None,
) -> list[Trial]:
    """Tries configurations until ``trials`` of them are done, those of an earlier call included.

    The first is the one started from. What is tried next depends on ``problem`` and on the scores
    so far alone: a search that was cut off and started again tries the same as one that was not.

    Args:
        problem: What is searched for.
        study: The SQLite file that keeps the trials; one process at a time works on it.
        trials: How many.
        source: Where the benchmark's files are.
        on_trial: Called with how many are done, at the start and after each new trial.

    Returns:
        All trials that are done, in order. A trial that was cut off is not one of them.
    """
    import optuna

    for config in problem.configs({}, source):  # a mistake shows before anything is kept
        build_model(config.model, load_data(config.data, config.training.seed))
    with claiming(study.with_name(f".{study.name}.lock"), str(study)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        kept = _open(study, problem)
        for cut_off in kept.get_trials(states=[optuna.trial.TrialState.RUNNING]):
            kept.tell(cut_off.number, state=optuna.trial.TrialState.FAIL)
        while True:
            done = _done(kept, problem)
            on_trial(len(done))
            if len(done) >= trials:
                return done
            if not done and not kept.get_trials(states=[optuna.trial.TrialState.WAITING]):
                kept.enqueue_trial({f: _label(look_up(problem.values, f)) for f in problem.space})
            kept.sampler = optuna.samplers.TPESampler(seed=problem.seed + len(done))
            errors = (HanmeError,) if done else ()
            kept.optimize(partial(_try, problem, source, errors), 1, catch=errors)


def best_trial(trials: Sequence[Trial]) -> Trial:
    """The trial with the best score, the first of equals."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise HanmeError(f"none of {len(trials)} trials has a score; the last: {trials[-1].why}")
    return max(scored, key=lambda trial: trial.score or 0.0)


def write_config(values: Mapping[str, Any], comment: Sequence[str], path: Path) -> None:
    """A configuration as a file that ``hanme train --config`` takes."""
    with replacing(path) as temporary:
        text = "".join(f"# {line}\n" for line in comment) + "\n" + to_toml(values)
        temporary.write_text(text, encoding="utf-8")


def _try(problem: Problem, source: Path | None, errors: tuple[type, ...], trial: Any) -> float:
    """The score of a trial; a configuration that cannot be trained says why."""
    try:
        configs = problem.configs(_suggest(trial, problem.space), source)
        found = []
        for number, config in enumerate(configs):
            before = number * config.training.epochs
            found.append(
                _score(
                    config, _watch(trial, before, config.training.every) if problem.prune else None
                )
            )
        return statistics.mean(found)
    except HanmeError as error:
        if errors:
            trial.set_user_attr("why", str(error))
        raise


def _score(config: RunConfig, on_epoch: Callable[[Epoch], None] | None) -> float:
    """Trains and gives the mean of micro and macro F1 on validation nodes, in percent."""
    data = load_data(config.data, config.training.seed)
    trainer = Trainer(build_model(config.model, data), data, config.training)
    trainer.run(on_epoch)
    val = {"val": trainer.masks["val"]}
    f1 = scores(trainer.logits(), trainer.y, val, fallback=config.training.fallback)["val"]
    return round(100 * (f1.micro + f1.macro) / 2, 4)


def _watch(trial: Any, before: int, every: int) -> Callable[[Epoch], None]:
    """Tells the pruner how a trial does, ``before`` epochs of other seeds being behind it."""
    import optuna

    def on_epoch(epoch: Epoch) -> None:
        if epoch.epoch % REPORTED < every:
            trial.report(100 * (epoch.val_micro + epoch.val_macro) / 2, before + epoch.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    return on_epoch


def _open(path: Path, problem: Problem) -> Any:
    """The study in a file, new or begun; it must be of this problem."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path.resolve()}",
            study_name="hanme",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner() if problem.prune else optuna.pruners.NopPruner(),
        )
    except (SQLAlchemyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise HanmeError(f"{path}: not a study, or it cannot be written ({reason})") from None
    asked = {
        "configuration": problem.values,
        "space": problem.space,
        "seeds": list(problem.seeds),
        "epochs": problem.epochs,
        "seed": problem.seed,
        "prune": problem.prune,
    }
    begun = study.user_attrs
    for name, value in asked.items():
        if name not in begun:
            study.set_user_attr(name, value)
        elif begun[name] != value:
            raise HanmeError(
                f"{path}: it holds a study with another {name}; name another --study file"
            )
    return study


def _done(study: Any, problem: Problem) -> list[Trial]:
    """The trials that ended by themselves."""
    from optuna.trial import TrialState

    done = []
    for trial in study.get_trials(deepcopy=False):
        why = trial.user_attrs.get("why", "")
        if trial.state is TrialState.PRUNED:
            why = "given up: worse than the median of the trials before it"
        if trial.state is TrialState.COMPLETE or why:
            changes = {
                field: _value(dimension, trial.params[field])
                for field, dimension in problem.space.items()
                if field in trial.params
            }
            score = trial.value if trial.state is TrialState.COMPLETE else None
            done.append(Trial(trial.number, changes, score, why))
    return done


def _including(value: Any, dimension: Mapping[str, Any], field: str) -> dict[str, Any]:
    """A range or choices, made larger where they lack a value."""
    if "choices" in dimension:
        choices = dimension["choices"]
        return {"choices": choices if value in choices else [value, *choices]}
    if dimension.get("log") and value <= 0:
        raise HanmeError(f"{field}: {value} cannot be in a range that is searched by its logarithm")
    low, high = min(dimension["low"], value), max(dimension["high"], value)
    return {**dimension, "low": low, "high": high}


def _suggest(trial: Any, space: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a trial changes, by field."""
    changes = {}
    for field, dimension in space.items():
        if "choices" in dimension:
            drawn = trial.suggest_categorical(field, [_label(c) for c in dimension["choices"]])
        else:
            low, high, log = dimension["low"], dimension["high"], dimension.get("log", False)
            whole = isinstance(low, int) and isinstance(high, int)
            suggest = trial.suggest_int if whole else trial.suggest_float
            drawn = suggest(field, low, high, log=log)
        changes[field] = _value(dimension, drawn)
    return changes


def _label(choice: Any) -> Any:
    """A choice as Optuna keeps it: lists, such as sets of metapaths, as one string."""
    return ", ".join(map(str, choice)) if isinstance(choice, list) else choice


def _value(dimension: Mapping[str, Any], drawn: Any) -> Any:
    """What a configuration gets for what was drawn; numbers as a person would write them."""
    for choice in dimension.get("choices", []):
        if _label(choice) == drawn:
            return choice
    return float(f"{drawn:.4g}") if isinstance(drawn, float) else drawn
