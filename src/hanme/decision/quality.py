"""How far probabilities can be trusted: reliability, Brier score, calibration error."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hanme.common.memory import blocks

BINS = 10


class Quality(NamedTuple):
    """What probabilities are worth.

    ``error`` is the expected calibration error: the mean distance between how likely labels were
    said to be and how often they were there, over ten bins of probability.
    """

    brier: float  # the mean squared distance between probabilities and labels
    error: float
    # per bin that holds anything: how many, the mean probability, the share that were there
    reliability: list[tuple[int, float, float]]


def quality(p: Tensor, true: Tensor) -> Quality:
    """Score probabilities ``[N, C]`` of labels against those that are there, bool ``[N, C]``."""
    count, said, seen = torch.zeros(3, BINS, dtype=torch.float64)
    squares, total = 0.0, max(1, p.numel())
    for part in blocks(*p.shape):
        some, there = (x[part].detach().double().flatten().cpu() for x in (p, true))
        bins = (some * BINS).long().clamp(max=BINS - 1)
        count += torch.bincount(bins, minlength=BINS)
        said += torch.bincount(bins, some, BINS)
        seen += torch.bincount(bins, there, BINS)
        squares += float(((some - there) ** 2).sum())
    rows = [
        (int(n), float(a / n), float(b / n))
        for n, a, b in zip(count, said, seen, strict=True)
        if n > 0
    ]
    return Quality(squares / total, float((said - seen).abs().sum() / total), rows)
