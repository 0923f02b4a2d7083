"""Micro and macro F1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hanme.decision import Decision
from hanme.graph.graph import label_matrix


class F1(NamedTuple):
    """F1 over all decisions together, and the mean of the labels' own F1, both in [0, 1]."""

    micro: float
    macro: float


def f1(predicted: Tensor, true: Tensor) -> F1:
    """Score a bool matrix of predicted labels; a label neither given nor predicted counts 0."""
    hits = (predicted & true).sum(0).double()
    total = (predicted.sum(0) + true.sum(0)).double()
    micro = 2 * hits.sum() / total.sum().clamp(min=1)
    macro = (2 * hits / total.clamp(min=1)).mean()
    return F1(float(micro), float(macro))


def scores(
    logits: Tensor, y: Tensor, masks: dict[str, Tensor], decision: Decision
) -> dict[str, F1]:
    """Return the F1 of each masked set of nodes."""
    predicted = decision.labels(logits, multilabel=y.dim() == 2)
    true = label_matrix(y, logits.size(1))
    return {name: f1(predicted[mask], true[mask]) for name, mask in masks.items()}


def f1_interval(
    predicted: Tensor, true: Tensor, *, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals of micro and macro F1 by the bootstrap over nodes.

    Nodes that are alike in both are drawn together, so the cost does not grow with their number.

    Args:
        predicted: The predicted labels, bool, ``[n, C]``.
        true: The labels that are there, bool, ``[n, C]``.
        draws: How often as many nodes are drawn.
        seed: Draws them.
    """
    size = predicted.size(1)
    both = torch.cat([predicted, true], 1).cpu().numpy()
    kinds, counts = np.unique(both, axis=0, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(both), counts / len(both), draws)
    said, there = kinds[:, :size], kinds[:, size:]
    hits = drawn @ (said & there).astype(np.int64)  # [draws, C]
    total = drawn @ (said.astype(np.int64) + there)
    micro = 2 * hits.sum(1) / np.maximum(1, total.sum(1))
    macro = (2 * hits / np.maximum(1, total)).mean(1)
    low, high = np.quantile(np.stack([micro, macro]), [0.025, 0.975], axis=1).tolist()
    return {"micro": (low[0], high[0]), "macro": (low[1], high[1])}
