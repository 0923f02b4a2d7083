"""Scores of predicted labels (F1) and of probabilities (log loss, ROC-AUC, precision, lift)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.memory import blocks
from hanme.decision import Decision
from hanme.graph.graph import label_matrix


class F1(NamedTuple):
    """F1 over all decisions together, and the mean of the labels' own F1, both in [0, 1]."""

    micro: float
    macro: float

    @classmethod
    def of(cls, counts: Tensor) -> F1:
        """Return the scores of :func:`label_counts`; a label without counts has 0."""
        hits, total = counts
        micro = 2 * hits.sum() / total.sum().clamp(min=1)
        return cls(float(micro), float((2 * hits / total.clamp(min=1)).mean()))


def label_counts(predicted: Tensor, true: Tensor) -> Tensor:
    """Count hits, and labels predicted plus labels given, ``[2, C]``, of bool ``[n, C]``."""
    counts = torch.stack([(predicted & true).sum(0), predicted.sum(0) + true.sum(0)])
    return counts.double().cpu()


def f1(predicted: Tensor, true: Tensor) -> F1:
    """Score a bool matrix of predicted labels."""
    return F1.of(label_counts(predicted, true))


def count_parts(
    logits: Tensor, y: Tensor, masks: dict[str, Tensor], decision: Decision
) -> dict[str, Tensor]:
    """Return the :func:`label_counts` of each masked set of nodes."""
    counts = {name: torch.zeros(2, logits.size(1), dtype=torch.float64) for name in masks}
    for rows in blocks(*logits.shape):
        predicted = decision.labels(logits[rows], multilabel=y.dim() == 2)
        true = label_matrix(y[rows], logits.size(1))
        for name, mask in masks.items():
            counts[name] += label_counts(predicted[mask[rows]], true[mask[rows]])
    return counts


def scores(
    logits: Tensor, y: Tensor, masks: dict[str, Tensor], decision: Decision
) -> dict[str, F1]:
    """Return the F1 of each masked set of nodes."""
    return {name: F1.of(c) for name, c in count_parts(logits, y, masks, decision).items()}


MAX_CELLS = 1 << 24
"""Maximum number of probabilities to sort; of more nodes, every second or third is enough."""


def probability_scores(p: Tensor, true: Tensor, *, multilabel: bool) -> dict[str, float]:
    """Return log loss, ROC-AUC, average precision and the lift of the top decile.

    The last three are those of the rarer of two exclusive labels; else they are means over the
    labels, each against the rest, and missing if every label has all nodes or none.

    Args:
        p: Probabilities, ``[n, C]``.
        true: The labels, bool, ``[n, C]``.
        multilabel: Whether nodes have several labels; the log loss is then a mean over labels.
    """
    from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

    step = -(-p.numel() // MAX_CELLS) or 1
    known = slice(None, None, step) if multilabel else true.any(1).nonzero().flatten()[::step]
    chance, there = p[known].double().cpu().numpy(), true[known].cpu().numpy()
    if not len(there):
        return {}
    count, labels = there.sum(0), range(there.shape[1])
    if multilabel:
        loss = log_loss(there.flatten(), chance.flatten(), labels=[False, True])
    else:
        loss = log_loss(there.argmax(1), chance / chance.sum(1, keepdims=True), labels=labels)
    ranked = [i for i in labels if 0 < count[i] < len(there)]
    if not multilabel and len(labels) == 2:
        ranked = [i for i in ranked if i == int(count[1] <= count[0])]
    if not ranked:
        return {"log_loss": float(loss)}
    lifts = [_lift(chance[:, i], there[:, i]) for i in ranked]
    return {
        "log_loss": float(loss),
        "roc_auc": float(roc_auc_score(there[:, ranked], chance[:, ranked])),
        "average_precision": float(average_precision_score(there[:, ranked], chance[:, ranked])),
        "lift": float(np.mean(lifts)),
    }


def _lift(chance: NDArray[np.float64], there: NDArray[np.bool_]) -> float:
    """Return the rate of a label in the top decile over its rate; ties are shared evenly."""
    top = -(-len(chance) // 10)
    last = np.sort(chance)[-top]
    above, tied = chance > last, chance == last
    hits = there[above].sum() + there[tied].mean() * (top - above.sum())
    return float(hits / top / there.mean())


def f1_interval(
    predicted: Tensor, true: Tensor, *, draws: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return 95 % intervals of micro and macro F1 by the bootstrap over nodes.

    Nodes that are alike in ``predicted`` and ``true``, bool ``[n, C]``, are drawn together, so the
    cost does not grow with their number.
    """
    both = torch.cat([predicted, true], 1).cpu().numpy()
    _, first, counts = np.unique(
        np.packbits(both, axis=1), axis=0, return_index=True, return_counts=True
    )
    said, there = np.split(both[first], 2, axis=1)
    each = csr_array(np.hstack([said & there, said.astype(np.int64) + there]))
    random, share = np.random.default_rng(seed), counts / len(both)
    drawn = np.empty((draws, each.shape[1]), np.int64)
    for rows in blocks(draws, len(counts)):
        drawn[rows] = random.multinomial(len(both), share, rows.stop - rows.start) @ each
    hits, total = np.split(drawn, 2, axis=1)
    micro = 2 * hits.sum(1) / np.maximum(1, total.sum(1))
    macro = (2 * hits / np.maximum(1, total)).mean(1)
    low, high = np.quantile(np.stack([micro, macro]), [0.025, 0.975], axis=1).tolist()
    return {"micro": (low[0], high[0]), "macro": (low[1], high[1])}


def wilson_interval(correct: int, nodes: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of correct nodes."""
    z = 1.96  # 97.5 % of a normal distribution are below it
    share, spread = correct / nodes, z * z / nodes
    centre = share + spread / 2
    width = math.sqrt(share * (1 - share) * spread + spread**2 / 4)
    return max(0.0, (centre - width) / (1 + spread)), min(1.0, (centre + width) / (1 + spread))
