"""How far probabilities can be trusted: reliability, Brier score, calibration error."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

BINS = 10


class Quality(NamedTuple):
    """What probabilities are worth.

    Args:
        brier: The mean squared distance between probabilities and labels.
        error: The expected calibration error: the mean distance between how likely labels were said
            to be and how often they were there, over ten bins of probability.
        reliability: Per bin that holds anything: how many, the mean probability, and the share of
            labels that were there.
    """

    brier: float
    error: float
    reliability: list[tuple[int, float, float]]

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON holds it."""
        return self._asdict()


def quality(p: Tensor, true: Tensor) -> Quality:
    """Score probabilities ``[N, C]`` of labels against those that are there, bool ``[N, C]``."""
    p, there = p.detach().double().flatten().cpu(), true.double().flatten().cpu()
    bins = (p * BINS).long().clamp(max=BINS - 1)
    count = torch.bincount(bins, minlength=BINS)
    said = torch.bincount(bins, p, BINS)
    seen = torch.bincount(bins, there, BINS)
    total = max(1, len(p))
    rows = [
        (int(n), float(a / n), float(b / n))
        for n, a, b in zip(count, said, seen, strict=True)
        if n > 0
    ]
    return Quality(
        brier=float(((p - there) ** 2).sum() / total),
        error=float((said - seen).abs().sum() / total),
        reliability=rows,
    )
