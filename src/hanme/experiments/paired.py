"""Paired comparisons of two rows: tests over seeds, and the bootstrap over test nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hanme.common.memory import blocks

DRAWS = 2000
"""Bootstrap draws: the 2.5 % quantile then rests on 50 of them."""


def paired_tests(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """Compare the scores of two rows over the same seeds.

    Returns:
        The mean difference, how often the first row is better and worse, two-sided p values of the
        paired t test (``t``), Wilcoxon's signed-rank test and the sign test, and Cohen's d_z, the
        mean difference over its standard deviation. What is undefined is None: everything but the
        counts and the sign test needs differences that vary.
    """
    d = np.asarray(first) - np.asarray(second)
    better, worse = int((d > 0).sum()), int((d < 0).sum())
    spread = float(d.std(ddof=1)) if len(d) > 1 else 0.0
    varies = spread > 1e-9  # below, scores in percent differ by rounding only
    return {
        "difference": float(d.mean()),
        "better": better,
        "worse": worse,
        "t": float(stats.ttest_rel(first, second).pvalue) if varies else None,
        "wilcoxon": float(stats.wilcoxon(d).pvalue) if varies else None,
        "sign": float(stats.binomtest(better, better + worse).pvalue) if better + worse else None,
        "d_z": float(d.mean()) / spread if varies else None,
    }


def bootstrap_f1(
    predicted: NDArray[np.bool_], true: NDArray[np.bool_], *, draws: int = DRAWS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Return micro and macro F1 in percent, means over seeds, on resampled nodes, ``[draws]`` each.

    The same nodes are drawn for every call with as many nodes, so results can be subtracted.

    Args:
        predicted: Predicted labels, ``[S, n, C]`` for S seeds. A node that a seed does not test has
            no labels, neither here nor in ``true``.
        true: The labels, ``[S, n, C]``.
        draws: Number of draws.
        seed: Seed of the draws.
    """
    seeds, nodes, labels = predicted.shape
    each = np.stack([predicted & true, predicted.astype(np.int8) + true])  # hits, total
    flat = each.transpose(2, 0, 1, 3).reshape(nodes, -1).astype(np.float64)
    random, share = np.random.default_rng(seed), np.full(nodes, 1 / nodes)
    drawn = np.empty((draws, flat.shape[1]))
    for rows in blocks(draws, nodes):
        drawn[rows] = random.multinomial(nodes, share, rows.stop - rows.start) @ flat
    hits, total = drawn.reshape(draws, 2, seeds, labels).transpose(1, 0, 2, 3)
    micro = 2 * hits.sum(2) / np.maximum(1, total.sum(2))
    macro = (2 * hits / np.maximum(1, total)).mean(2)
    return {"micro": 100 * micro.mean(1), "macro": 100 * macro.mean(1)}


def interval(values: NDArray[np.float64]) -> list[float]:
    """Return the 95 % percentile interval of bootstrap draws."""
    return [round(float(bound), 4) for bound in np.quantile(values, [0.025, 0.975])]
