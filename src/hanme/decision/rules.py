"""Decision rules: from calibrated probabilities to labels."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.common.registry import Registry


class Fitted(NamedTuple):
    """What a rule is fitted to, stored with a run.

    Args:
        thresholds: For several labels per node, the least probability of each; empty for 0.5.
        weights: For one label per node, what the probability of each is multiplied by before the
            largest is chosen; empty for 1.
    """

    thresholds: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()


class DecisionRule:
    """Base class: fit thresholds or weights to probabilities, then choose labels by them.

    A node's labels depend on its own logits alone. A subclass writes :meth:`fit`, :meth:`labels` or
    both, and has no arguments.
    """

    calibrates: ClassVar[bool] = True
    """Whether logits are calibrated first; without it, a rule is not fitted."""

    def fit(self, p: Tensor, *, multilabel: bool) -> Fitted:
        """Fit to calibrated probabilities ``[n, C]`` of nodes that the weights have not seen."""
        return Fitted()

    def labels(self, logits: Tensor, fitted: Fitted, *, multilabel: bool) -> Tensor:
        """Choose the labels of each node from calibrated logits ``[N, C]``, as a bool matrix."""
        if multilabel and fitted.thresholds:
            return logits > torch.logit(logits.new_tensor(fitted.thresholds))
        if multilabel:
            return logits > 0
        if fitted.weights:
            logits = logits + logits.new_tensor(fitted.weights).log()
        return most_likely(logits)


class MicroF1(DecisionRule):
    """Maximise the expected micro F1."""

    def fit(self, p: Tensor, *, multilabel: bool) -> Fitted:
        """Return one threshold for all labels."""
        return Fitted(expected_f1_thresholds(p, macro=False)) if multilabel else Fitted()


class MacroF1(DecisionRule):
    """Maximise the expected macro F1."""

    def fit(self, p: Tensor, *, multilabel: bool) -> Fitted:
        """Return a threshold per label or, of two labels, weights that amount to one."""
        if multilabel:
            return Fitted(expected_f1_thresholds(p, macro=True))
        if p.size(1) != 2:
            return Fitted()
        threshold = binary_threshold(p[:, 1])
        return Fitted(weights=(threshold, 1 - threshold))


class Half(DecisionRule):
    """Choose every label over 0.5: the rule of the Heterogeneous Graph Benchmark."""

    calibrates = False


class Fallback(Half):
    """Choose every label over 0.5, and the most likely one where none is: the paper's rule."""

    def labels(self, logits: Tensor, fitted: Fitted, *, multilabel: bool) -> Tensor:
        """Choose at least one label for each node."""
        chosen = super().labels(logits, fitted, multilabel=multilabel)
        return chosen | (most_likely(logits) & ~chosen.any(1, keepdim=True))


RULES: Registry[type[DecisionRule]] = Registry(
    "decision rule",
    DecisionRule,
    {"micro": MicroF1, "macro": MacroF1, "half": Half, "fallback": Fallback},
)


def most_likely(logits: Tensor) -> Tensor:
    """Return the most likely label of each node, as a bool matrix ``[N, C]``."""
    return F.one_hot(logits.argmax(1), logits.size(1)).bool()


def expected_f1_thresholds(p: Tensor, *, macro: bool) -> tuple[float, ...]:
    """Return the threshold of each label that maximises the expected F1 of calibrated `p`.

    If the k most likely are given a label, the expected F1 is about 2 Σ_k p / (k + Σ p). At its
    maximum F*, a node is worth giving the label if its p is over F* / 2. ``macro`` takes each
    label by itself, else all together.
    """
    if not len(p):
        return (0.5,) * p.size(1)
    columns = p.double().t() if macro else p.double().reshape(1, -1)
    ordered = columns.sort(dim=1, descending=True).values
    k = torch.arange(1, columns.size(1) + 1, dtype=torch.float64)
    f1 = 2 * ordered.cumsum(1) / (k + columns.sum(1, keepdim=True))
    found = (f1.max(1).values / 2).clamp(1e-4, 0.5)
    return tuple(found.expand(p.size(1)).tolist())


def binary_threshold(p: Tensor) -> float:
    """Return the probability of the second of two labels from which to choose it.

    It maximises the expected macro F1 of calibrated `p`, ``[N]``: if the k largest get the second
    label, the F1 of the labels are about 2 Σ_k p / (k + Σ p), and the same of 1 - p for the rest.
    """
    ordered = p.double().sort(descending=True).values
    k, total = torch.arange(len(p) + 1, dtype=torch.float64), ordered.sum()
    hits = torch.cat([ordered.new_zeros(1), ordered.cumsum(0)])
    rest = len(p) - total - (k - hits)  # the expected hits of the first label
    f1 = 2 * hits / (k + total) + 2 * rest / (2 * len(p) - k - total)
    best = int(f1.argmax()) if len(p) else 0
    around = torch.cat([ordered.new_ones(1), ordered, ordered.new_zeros(1)])[best : best + 2]
    return float(around.mean().clamp(1e-4, 1 - 1e-4)) if len(p) else 0.5
