"""Micro and macro F1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.memory import blocks
from hanme.decision import Decision
from hanme.graph.graph import label_matrix


class F1(NamedTuple):
    """F1 over all decisions together, and the mean of the labels' own F1, both in [0, 1]."""

    micro: float
    macro: float


class Tally:
    """What F1 is made of, counted over some nodes after others.

    Args:
        labels: The number of labels.
    """

    def __init__(self, labels: int) -> None:
        self.counts = torch.zeros(2, labels, dtype=torch.float64)  # hits; given and predicted

    def add(self, predicted: Tensor, true: Tensor) -> None:
        """Count some nodes, by bool matrices ``[n, C]``."""
        counts = [(predicted & true).sum(0), predicted.sum(0) + true.sum(0)]
        self.counts += torch.stack(counts).cpu()

    def f1(self) -> F1:
        """Return the scores; a label neither given nor predicted counts 0."""
        hits, total = self.counts
        micro = 2 * hits.sum() / total.sum().clamp(min=1)
        macro = (2 * hits / total.clamp(min=1)).mean()
        return F1(float(micro), float(macro))


def f1(predicted: Tensor, true: Tensor) -> F1:
    """Score a bool matrix of predicted labels, see :class:`Tally`."""
    tally = Tally(true.size(1))
    tally.add(predicted, true)
    return tally.f1()


def scores(
    logits: Tensor, y: Tensor, masks: dict[str, Tensor], decision: Decision
) -> dict[str, F1]:
    """Return the F1 of each masked set of nodes."""
    found = {name: Tally(logits.size(1)) for name in masks}
    for rows in blocks(*logits.shape):
        part = {name: mask[rows] for name, mask in masks.items()}
        tally_parts(found, logits[rows], y[rows], part, decision)
    return {name: tally.f1() for name, tally in found.items()}


def tally_parts(
    found: dict[str, Tally], logits: Tensor, y: Tensor, masks: dict[str, Tensor], decision: Decision
) -> None:
    """Count some nodes for each part that they are in."""
    predicted = decision.labels(logits, multilabel=y.dim() == 2)
    true = label_matrix(y, logits.size(1))
    for name, mask in masks.items():
        found[name].add(predicted[mask], true[mask])


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
    both = torch.cat([predicted, true], 1).cpu().numpy()
    _, first, counts = np.unique(
        np.packbits(both, axis=1), axis=0, return_index=True, return_counts=True
    )
    said, there = np.split(both[first], 2, axis=1)
    made_of = csr_array(np.hstack([said & there, said.astype(np.int64) + there]))
    random, share = np.random.default_rng(seed), counts / len(both)
    found = np.empty((draws, made_of.shape[1]), np.int64)
    for rows in blocks(draws, len(counts)):
        found[rows] = random.multinomial(len(both), share, rows.stop - rows.start) @ made_of
    hits, total = np.split(found, 2, axis=1)
    micro = 2 * hits.sum(1) / np.maximum(1, total.sum(1))
    macro = (2 * hits / np.maximum(1, total)).mean(1)
    low, high = np.quantile(np.stack([micro, macro]), [0.025, 0.975], axis=1).tolist()
    return {"micro": (low[0], high[0]), "macro": (low[1], high[1])}
