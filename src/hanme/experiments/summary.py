"""Scores over several seeds."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from hanme.runs import Run

PAPER_SEED = 483

RULES = {"with_fallback": "with fallback", "without_fallback": "HGB's rule"}
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
    summary: dict[str, Any] = {}
    for rule, split, average in product(RULES, ("val", "test"), AVERAGES):
        values = [result["scores"][rule][split][average] for result in results]
        summary[f"{rule}.{split}.{average}"] = {
            "mean": statistics.mean(values),
            "std": statistics.stdev(values) if len(values) > 1 else 0.0,
            "values": values,
        }
    summary["parameters"] = results[0]["parameters"]
    summary["best_epochs"] = [result["best_epoch"] for result in results]
    for cost in ("seconds_per_epoch", "peak_memory_mb"):
        summary[cost] = statistics.median(result[cost] for result in results)
    return summary
