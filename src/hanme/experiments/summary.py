"""What experiments over several seeds have in common."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from itertools import product
from typing import Any

from hanme.training import Run

SEEDS = (483, 1, 2, 3, 4)
"""The paper's seed and four more."""

RULES = {"with_fallback": "with fallback", "without_fallback": "HGB's rule"}
AVERAGES = ("micro", "macro")


def seeds(count: int) -> list[int]:
    """The first so many: the paper's, then 1, 2, 3, ..."""
    others = (seed for seed in range(1, count + 1) if seed != SEEDS[0])
    return [SEEDS[0], *others][:count]


def slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Mean and standard deviation over all runs, by decision rule, split and average."""
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


def cell(entry: dict[str, Any]) -> str:
    """Mean ± standard deviation, as it stands in a table."""
    return f"{entry['mean']:.2f} ± {entry['std']:.2f}"


def columns(rules_and_splits: Sequence[tuple[str, str]]) -> list[str]:
    """The keys of a summary for these rules and splits, micro before macro."""
    return [f"{rule}.{split}.{average}" for rule, split in rules_and_splits for average in AVERAGES]
