"""From logits to labels, and micro and macro F1."""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from hanme.graph.graph import label_matrix


class F1(NamedTuple):
    """F1 over all decisions together, and the mean of the labels' own F1, both in [0, 1]."""

    micro: float
    macro: float


def decide(logits: Tensor, *, multilabel: bool, fallback: bool) -> Tensor:
    """Choose the labels of each node, as a bool matrix ``[N, C]``.

    Args:
        logits: ``[N, C]``.
        multilabel: Every label over 0.5 instead of the most likely one.
        fallback: With several labels per node, give a node with none over 0.5 its most likely
            one. The paper does; the rule of the Heterogeneous Graph Benchmark has no such
            fallback.
    """
    likeliest = F.one_hot(logits.argmax(1), logits.size(1)).bool()
    if not multilabel:
        return likeliest
    chosen = logits > 0
    return chosen | (likeliest & ~chosen.any(1, keepdim=True)) if fallback else chosen


def f1(predicted: Tensor, true: Tensor) -> F1:
    """Score a bool matrix of predicted labels; a label neither given nor predicted counts 0."""
    hits = (predicted & true).sum(0).double()
    total = (predicted.sum(0) + true.sum(0)).double()
    micro = 2 * hits.sum() / total.sum().clamp(min=1)
    macro = (2 * hits / total.clamp(min=1)).mean()
    return F1(float(micro), float(macro))


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Return each node's loss: cross-entropy, binary where nodes have several labels."""
    if y.dim() == 2:
        return F.binary_cross_entropy_with_logits(logits, y, reduction="none").mean(1)
    return F.cross_entropy(logits, y, reduction="none")


def scores(logits: Tensor, y: Tensor, masks: dict[str, Tensor], *, fallback: bool) -> dict[str, F1]:
    """Return the F1 of each masked set of nodes."""
    predicted = decide(logits, multilabel=y.dim() == 2, fallback=fallback)
    true = label_matrix(y, logits.size(1))
    return {name: f1(predicted[mask], true[mask]) for name, mask in masks.items()}
