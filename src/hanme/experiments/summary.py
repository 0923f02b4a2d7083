"""Summaries of runs: a list of them, and their scores over several seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hanme.errors import HanmeError
from hanme.runs import Run

RULES = {
    "with_fallback": "with fallback",
    "without_fallback": "HGB's rule",
    "expected_f1": "expected F1",
}
"""The decision rules that models are compared under, by their names in tables."""

AVERAGES = ("micro", "macro")


def slug(name: str) -> str:
    """Turn a name into that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Return mean and standard deviation over all runs, by decision rule, split and average."""
    results = [run.result() for run in runs]
    scores = [result["scores"] | {"expected_f1": result["expected_f1"]} for result in results]
    return {
        **_over_seeds({rule: [by_rule[rule] for by_rule in scores] for rule in RULES}),
        "parameters": results[0]["parameters"],
        "best_epochs": [result["best_epoch"] for result in results],
        **{cost: statistics.median(result[cost] for result in results) for cost in COSTS},
    }


def summarise_majority(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the same for the baseline that predicts the most common label."""
    scores = [run.result()["baselines"]["majority"] for run in runs]
    return _over_seeds(dict.fromkeys(RULES, scores)) | {
        "parameters": 0,
        **dict.fromkeys(COSTS, 0.0),
    }


COSTS = ("seconds_per_epoch", "peak_memory_mb")


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """Summarise the run folders in a folder: settings, state and test scores, the latest first."""
    folders = sorted({path.parent for path in folder.glob("**/config.json")}, key=_changed)
    return [_summary(run) for run in reversed(folders) if not run.name.startswith("fold-")]


def _summary(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"run": str(folder)}
    try:
        run = Run.open(folder)
        model, training = run.config.model, run.config.training
        row |= {
            "graph": run.config.data.name,
            "model": model.name,
            "recipe": training.recipe,
            "seed": training.seed,
            "state": "unfinished",
        }
        if run.finished:
            result = run.result()
            scores = result["scores"].get("decided", result["scores"]["with_fallback"])
            row |= {"state": "finished", "epochs": result["epochs"], **scores.get("test", {})}
    except HanmeError as error:
        row |= {"state": "damaged", "error": str(error)}
    return row


def _changed(folder: Path) -> int:
    """Return when a run was finished or, if it is not, started, in nanoseconds."""
    result = folder / "result.json"
    return (result if result.exists() else folder / "config.json").stat().st_mtime_ns


def _over_seeds(by_rule: Mapping[str, list[Any]]) -> dict[str, Any]:
    summary = {}
    for rule, split, average in product(by_rule, ("val", "test"), AVERAGES):
        values = [scores[split][average] for scores in by_rule[rule]]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        summary[f"{rule}.{split}.{average}"] = {"mean": mean, "std": spread, "values": values}
    return summary
