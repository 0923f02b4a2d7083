"""Search for the settings of a model on a graph, by scores on validation nodes only."""

from __future__ import annotations

import sqlite3
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hanme.common.files import lock, regular, remove_leftovers, replacing
from hanme.common.toml import read_toml, to_toml
from hanme.data.tables.read.databases import refuse_cut
from hanme.data.tables.read.formats import database_kind
from hanme.errors import HanmeError, one_line
from hanme.experiments.configuration import look_up, override
from hanme.runs import RunConfig, build_network, load_graph
from hanme.runs.train import train_in_memory
from hanme.training import Epoch
from hanme.training.metrics import scores

SPACES = Path(__file__).parent / "spaces.toml"

REPORTED = 10
"""A trial that may be pruned reports its score at this interval of epochs."""


@dataclass(frozen=True)
class Trial:
    """A configuration that was tried."""

    number: int  # counts the trials
    changes: dict[str, Any]  # where it differs from the configuration that the search started from
    score: float | None  # in percent, None if the trial was given up
    why: str = ""  # why it was given up


@dataclass(frozen=True)
class Search:
    """What to search for."""

    values: Mapping[str, Any]  # the configuration to start from
    space: Mapping[str, Mapping[str, Any]]  # what may change, by field, see :func:`search_space`
    seeds: Sequence[int]  # a trial's score is the mean over these
    epochs: int | None = None  # maximum number of epochs (default: as in the configuration)
    seed: int = 0  # draws what is tried
    prune: bool = False  # give up a trial that does worse than the median of those before it

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
    """Read from ``spaces.toml`` what may change: fields that the configuration ``values`` sets.

    Ranges and choices include the value it has. ``graph`` is None for a user's own tables.
    """
    tables = read_toml(SPACES)
    names = ("every", str(look_up(values, "model.name")), model, graph or "")
    merged = {field: entry for name in names for field, entry in tables.get(name, {}).items()}
    found = {field: look_up(values, field) for field in merged}
    return {
        field: _including(value, merged[field], field)
        for field, value in found.items()
        if value is not None
    }


def run_trials(
    search: Search,
    study: Path,
    trials: int,
    *,
    source: Path | None = None,
    on_trial: Callable[[int], None] = lambda done: None,
) -> list[Trial]:
    """Try configurations until ``trials`` are done, those of an earlier call included.

    The first is the one the search starts from. What is tried next depends only on ``search`` and
    on the scores so far: a search that was killed and started again tries the same configurations.

    Args:
        search: What to search for.
        study: The SQLite file that keeps the trials; one process at a time may use it.
        trials: How many.
        source: Where the benchmark's files are.
        on_trial: Called with the number of trials done, at the start and after each new one.

    Returns:
        The trials that are done, in order, without those that were interrupted.
    """
    import optuna

    for config in search.configs({}, source):  # report mistakes before anything is written
        build_network(config.model, load_graph(config))
    _refuse_other(study)
    locked = lock(study.with_name(f".{study.name}.lock"), str(study))
    with locked, _keeping(study), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        kept = _open(study, search)
        for interrupted in kept.get_trials(states=[optuna.trial.TrialState.RUNNING]):
            kept.tell(interrupted.number, state=optuna.trial.TrialState.FAIL)
        while True:
            done = _done(kept, search)
            on_trial(len(done))
            if len(done) >= trials:
                return done
            if not done and not kept.get_trials(states=[optuna.trial.TrialState.WAITING]):
                kept.enqueue_trial({f: _label(look_up(search.values, f)) for f in search.space})
            kept.sampler = optuna.samplers.TPESampler(seed=search.seed + len(done))
            trial = kept.ask()
            try:
                score = _try(search, source, trial)
            except optuna.TrialPruned:
                kept.tell(trial, state=optuna.trial.TrialState.PRUNED)
            except HanmeError as error:
                if not done:
                    raise
                trial.set_user_attr("why", str(error))
                kept.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                kept.tell(trial, score)


def _refuse_other(study: Path) -> None:
    """Refuse a file that is none of ours: SQLite would write into it."""
    if not study.name or study.is_dir():
        raise HanmeError(f"{study}: a study is a file; name one that ends in .db")
    if not regular(study).exists() or not study.stat().st_size:
        return
    names = {"another"}
    if database_kind(study) == "sqlite":
        with suppress(sqlite3.Error), closing(sqlite3.connect(study)) as opened:
            # this undoes first what was half-written when a search was killed
            names = {name for (name,) in opened.execute("SELECT name FROM sqlite_master")}
        refuse_cut(study)
    if names and not {"studies", "version_info"} & names:
        raise HanmeError(f"{study}: not a study; name another --study file")


@contextmanager
def _keeping(study: Path) -> Iterator[None]:
    """Report in one line that a study can no longer be read or written, as on a full disk."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise HanmeError(
            f"{study}: the study cannot be read or written ({reason}); make room or restore it, "
            "then start the same command again"
        ) from None


def best_trial(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best score, the first of equals."""
    scored = [trial for trial in trials if trial.score is not None]
    if not scored:
        raise HanmeError(f"none of {len(trials)} trials has a score; the last: {trials[-1].why}")
    return max(scored, key=lambda trial: trial.score or 0.0)


def write_config(values: Mapping[str, Any], comment: Sequence[str], path: Path) -> None:
    """Write a configuration file, which ``hanme train --config`` reads."""
    remove_leftovers(path.parent, f"{path.stem}.")
    with replacing(path) as temporary:
        text = "".join(f"# {line}\n" for line in comment) + "\n" + to_toml(values)
        temporary.write_text(text, encoding="utf-8")


def _try(search: Search, source: Path | None, trial: Any) -> float:
    """Return the score of a trial."""
    found = []
    configs = search.configs(_suggest(trial, search.space), source)
    for number, config in enumerate(configs):
        before = number * config.training.epochs
        watch = _watch(trial, before, config.training.every) if search.prune else lambda _: None
        found.append(_score(config, watch))
    return statistics.mean(found)


def _score(config: RunConfig, on_epoch: Callable[[Epoch], None]) -> float:
    """Train and return the mean of micro and macro F1 on validation nodes, in percent."""
    graph = load_graph(config)
    outputs = train_in_memory(config, graph, on_epoch).trained.outputs
    f1 = scores(outputs.held_out, graph.y, {"val": graph.split.val}, outputs.decision)["val"]
    return round(100 * (f1.micro + f1.macro) / 2, 4)


def _watch(trial: Any, before: int, every: int) -> Callable[[Epoch], None]:
    """Report a trial's scores to the pruner, after ``before`` epochs with other seeds."""
    import optuna

    def on_epoch(epoch: Epoch) -> None:
        if epoch.epoch % REPORTED < every:
            trial.report(100 * (epoch.val_micro + epoch.val_macro) / 2, before + epoch.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    return on_epoch


def _open(path: Path, search: Search) -> Any:
    """Open or create the study in a file; refuse one of another search."""
    import optuna

    if set("{}") & set(str(path.resolve())):  # Optuna reads them as a template
        raise HanmeError(f"{path}: the path of a study cannot have {{ or }}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{path.resolve()}",
            study_name="hanme",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner() if search.prune else optuna.pruners.NopPruner(),
        )
        begun, _ = study.user_attrs, study.get_trials(deepcopy=False)
    except Exception as error:  # Optuna believes whatever it reads
        reason = one_line(error) or type(error).__name__
        raise HanmeError(
            f"{path}: not a study, damaged, or it cannot be written ({reason}); restore it or "
            "name another --study file"
        ) from None
    asked = asdict(search)
    asked["configuration"] = asked.pop("values")
    for name, value in asked.items():
        if name not in begun:
            study.set_user_attr(name, value)
        elif begun[name] != value:
            raise HanmeError(
                f"{path}: it holds a study with another {name}; name another --study file"
            )
    return study


def _done(study: Any, search: Search) -> list[Trial]:
    """Return the trials that ended by themselves."""
    from optuna.trial import TrialState

    done = []
    for trial in study.get_trials(deepcopy=False):
        why = trial.user_attrs.get("why", "")
        if trial.state is TrialState.PRUNED:
            why = "given up: worse than the median of the trials before it"
        if trial.state is TrialState.COMPLETE or why:
            changes = {
                field: _value(dimension, trial.params[field])
                for field, dimension in search.space.items()
                if field in trial.params
            }
            score = trial.value if trial.state is TrialState.COMPLETE else None
            done.append(Trial(trial.number, changes, score, why))
    return done


def _including(value: Any, dimension: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return a range or choices, extended to include a value."""
    if "choices" in dimension:
        choices = dimension["choices"]
        return {"choices": choices if value in choices else [value, *choices]}
    if dimension.get("log") and value <= 0:
        raise HanmeError(f"{field}: {value} cannot be in a range searched on a logarithmic scale")
    low, high = min(dimension["low"], value), max(dimension["high"], value)
    return {**dimension, "low": low, "high": high}


def _suggest(trial: Any, space: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Draw what a trial changes, by field."""
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
    """Return a choice as Optuna stores it: a list, such as metapaths, becomes one string."""
    return ", ".join(map(str, choice)) if isinstance(choice, list) else choice


def _value(dimension: Mapping[str, Any], drawn: Any) -> Any:
    """Return the value of a field for what was drawn, rounded to 4 digits."""
    for choice in dimension.get("choices", []):
        if _label(choice) == drawn:
            return choice
    return float(f"{drawn:.4g}") if isinstance(drawn, float) else drawn
