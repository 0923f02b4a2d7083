"""Scores of runs over several seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

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


def _over_seeds(by_rule: Mapping[str, list[Any]]) -> dict[str, Any]:
    summary = {}
    for rule, split, average in product(by_rule, ("val", "test"), AVERAGES):
        values = [scores[split][average] for scores in by_rule[rule]]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        summary[f"{rule}.{split}.{average}"] = {"mean": mean, "std": spread, "values": values}
    return summary
