"""Scores of runs over several seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

RULES = {
    "with_fallback": "with fallback",
    "without_fallback": "HGB's rule",
    "expected_f1": "expected F1",
}
"""The decision rules that models are compared under, by their names in tables."""

AVERAGES = ("micro", "macro")
COSTS = ("seconds_per_epoch", "peak_memory_mb")


def slug(name: str) -> str:
    """Turn a name into that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def summarise(results: Sequence[Mapping[str, Any]], *, majority: bool = False) -> dict[str, Any]:
    """Return mean and standard deviation over results, by decision rule, split and average.

    With ``majority``, they are those of the baseline that predicts the most common labels.
    """
    summary: dict[str, Any] = {}
    for rule, split, average in product(RULES, ("val", "test"), AVERAGES):
        scores = [_scores(result, rule, majority)[split][average] for result in results]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        summary[f"{rule}.{split}.{average}"] = {
            "mean": statistics.mean(scores),
            "std": spread,
            "values": scores,
        }
    if majority:
        return summary | {"parameters": 0, **dict.fromkeys(COSTS, 0.0)}
    return summary | {
        "parameters": results[0]["parameters"],
        "best_epochs": [result["best_epoch"] for result in results],
        **{cost: statistics.median(result[cost] for result in results) for cost in COSTS},
    }


def _scores(result: Mapping[str, Any], rule: str, majority: bool) -> Any:
    """Return the scores of a result by part of the split and average."""
    if majority:
        return result["baselines"]["majority"]
    return result["expected_f1"] if rule == "expected_f1" else result["scores"][rule]
