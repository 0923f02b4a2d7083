"""Micro and macro F1."""

from __future__ import annotations

from typing import NamedTuple

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
