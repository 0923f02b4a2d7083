"""Scores over several seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from hanme.runs import Run

PAPER_SEED = 483

RULES = {
    "with_fallback": "with fallback",
    "without_fallback": "HGB's rule",
    "expected_f1": "expected F1",
}
"""The decision rules that models are compared under; runs before 0.3 have no ``expected_f1``."""

AVERAGES = ("micro", "macro")


def first_seeds(count: int) -> list[int]:
    """Return this many seeds: the paper's, then 1, 2, 3, ..."""
    others = (seed for seed in range(1, count + 1) if seed != PAPER_SEED)
    return [PAPER_SEED, *others][:count]


def slug(name: str) -> str:
    """Turn a name into that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Return mean and standard deviation over all runs, by decision rule, split and average."""
    results = [run.result() for run in runs]
    by_rule = {
        rule: [result["scores"].get(rule) or result.get(rule) for result in results]
        for rule in RULES
    }
    costs = ("seconds_per_epoch", "peak_memory_mb")
    return _over_seeds({rule: found for rule, found in by_rule.items() if all(found)}) | {
        "parameters": results[0]["parameters"],
        "best_epochs": [result["best_epoch"] for result in results],
        **{cost: statistics.median(result[cost] for result in results) for cost in costs},
    }


def summarise_majority(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Return the same for the commonest labels; None for runs before 0.3, which do not know it."""
    found = [run.result()["baselines"].get("majority") for run in runs]
    if not all(found):
        return None
    costs = {"parameters": 0, "seconds_per_epoch": 0.0, "peak_memory_mb": 0.0}
    return _over_seeds(dict.fromkeys(RULES, found)) | costs


def _over_seeds(by_rule: Mapping[str, list[Any]]) -> dict[str, Any]:
    summary = {}
    for rule, split, average in product(by_rule, ("val", "test"), AVERAGES):
        values = [scores[split][average] for scores in by_rule[rule]]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values)
        summary[f"{rule}.{split}.{average}"] = {"mean": mean, "std": spread, "values": values}
    return summary
