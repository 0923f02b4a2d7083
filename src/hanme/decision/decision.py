"""The rule that turns the logits of a node into its labels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from hanme.decision.calibration import calibrate
from hanme.errors import HanmeError

Rule = Literal["micro", "macro", "half", "fallback"]
RULES: tuple[str, ...] = get_args(Rule)


class Costs(NamedTuple):
    """The cost of missing each label, ``[C]``, and of giving a label to a node without it."""

    missed: tuple[float, ...]
    false_alarm: float

    @classmethod
    def parse(cls, text: str, labels: Sequence[str]) -> Costs:
        """Parse ``missed LABEL=COST, ..., false alarm=COST``.

        A false alarm costs 1 by default, and a label that is not named as much as a false alarm.
        """
        costs: dict[str, float] = {}
        pattern = r"\s*(?:missed\s+(.+?)|(false alarm))\s*=\s*([0-9]*\.?[0-9]+)\s*(?:,|$)"
        place = 0
        while match := re.compile(pattern).match(text, place):
            label, place = match[1] or "", match.end()
            if label and label not in labels:
                names = ", ".join(labels)
                raise HanmeError(f"cost: there is no label {label!r}; the labels are {names}")
            costs[label] = float(match[3])
        if text[place:].strip() or not costs or min(costs.values()) <= 0:
            raise HanmeError(
                f"cost {text!r}: expected costs over 0 such as "
                f"'missed {labels[-1]}=50, false alarm=1'"
            )
        alarm = costs.get("", 1.0)
        return cls(tuple(costs.get(label, alarm) for label in labels), alarm)


class Decision(BaseModel):
    """Calibration and thresholds, fixed when a model is trained.

    A node's labels depend on its own logits alone, never on other nodes in the same request.
    Where nodes have one label each, it is the most likely one, or that of the largest weighted
    probability.

    Args:
        rule: ``"micro"`` and ``"macro"``: the thresholds that maximise the expected micro or macro
            F1. ``"half"``: every label over 0.5, the rule of the Heterogeneous Graph Benchmark.
            ``"fallback"``: the same, and the most likely label where none is over 0.5, the paper's.
            ``"cost"``: the labels of the least expected cost.
        slope: What logits are multiplied by before they are probabilities.
        bias: What is then added, per label; empty for nothing.
        thresholds: For several labels per node, the least probability of each; empty for 0.5.
        weights: For one label per node, what the probability of each is multiplied by before the
            largest is chosen; empty for 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rule: Rule | Literal["cost"] = "fallback"
    slope: float = 1.0
    bias: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    @classmethod
    def fit(
        cls,
        rule: Rule,
        logits: Tensor,
        y: Tensor,
        everyone: Tensor,
        *,
        costs: Costs | None = None,
        calibrated: bool = False,
    ) -> Decision:
        """Fit calibration and thresholds to nodes that the weights have not seen.

        Args:
            rule: The rule.
            logits: The logits of labelled nodes, ``[n, C]``.
            y: Their labels, ``[n]`` or ``[n, C]``.
            everyone: The logits of all nodes that the weights have not seen, labelled or not: the
                expected F1 is over these, and needs no label.
            costs: Minimise the expected cost instead of applying the rule.
            calibrated: Whether the logits are calibrated already.
        """
        if rule in ("half", "fallback") and costs is None:
            return cls(rule=rule)
        fitted = cls(rule="cost" if costs else rule)
        if not calibrated:
            (slope,), bias = calibrate([logits], y)
            fitted = fitted.model_copy(update={"slope": slope, "bias": tuple(bias.tolist())})
        multilabel = y.dim() == 2
        p = fitted.probabilities(everyone, multilabel=multilabel)
        if multilabel and costs:
            alarm = costs.false_alarm
            found = {"thresholds": tuple(alarm / (alarm + missed) for missed in costs.missed)}
        elif multilabel:
            found = {"thresholds": expected_f1_thresholds(p, rule)}
        elif costs:
            found = {"weights": costs.missed}
        elif rule == "macro" and p.size(1) == 2:
            threshold = binary_threshold(p[:, 1])
            found = {"weights": (threshold, 1 - threshold)}
        else:
            return fitted
        return fitted.model_copy(update=found)

    def calibrated(self, logits: Tensor) -> Tensor:
        """Return calibrated logits."""
        if self.slope == 1 and not self.bias:
            return logits
        return self.slope * logits + logits.new_tensor(self.bias or (0.0,))

    def probabilities(self, logits: Tensor, *, multilabel: bool) -> Tensor:
        """Return the calibrated probability of each label, ``[N, C]``."""
        logits = self.calibrated(logits)
        return torch.sigmoid(logits) if multilabel else torch.softmax(logits, 1)

    def labels(self, logits: Tensor, *, multilabel: bool) -> Tensor:
        """Choose the labels of each node, as a bool matrix ``[N, C]``."""
        logits = self.calibrated(logits)
        if self.weights and not multilabel:
            logits = logits + logits.new_tensor(self.weights).log()
        likeliest = F.one_hot(logits.argmax(1), logits.size(1)).bool()
        if not multilabel:
            return likeliest
        if self.thresholds:
            return logits > torch.logit(logits.new_tensor(self.thresholds))
        chosen = logits > 0
        if self.rule == "fallback":
            chosen = chosen | (likeliest & ~chosen.any(1, keepdim=True))
        return chosen

    def surprise(self, logits: Tensor, labels: Tensor, *, multilabel: bool) -> Tensor:
        """Return -log2 of the probability of each node's given labels, in bits, ``[N]``.

        Where nodes have several labels, that is of all that a node has and of none that it has
        not, a sum over labels. It is NaN for a node without any label.
        """
        logits, given = self.calibrated(logits), labels.to(logits.dtype)
        if multilabel:
            found = F.binary_cross_entropy_with_logits(logits, given, reduction="none").sum(1)
        else:
            found = -(F.log_softmax(logits, 1) * given).sum(1)
        return (found / math.log(2)).masked_fill(~labels.any(1), torch.nan)

    def uncertainty(self, logits: Tensor, *, multilabel: bool) -> Tensor:
        """Return the surprise to expect of each node, ``[N]``: the entropy of its labels.

        It is the mean of :meth:`surprise` under the calibrated probabilities themselves, and needs
        no label.
        """
        logits, p = self.calibrated(logits), self.probabilities(logits, multilabel=multilabel)
        if multilabel:
            found = F.binary_cross_entropy_with_logits(logits, p, reduction="none").sum(1)
        else:
            found = -(F.log_softmax(logits, 1) * p).sum(1)
        return found / math.log(2)


def expected_f1_thresholds(p: Tensor, rule: Rule) -> tuple[float, ...]:
    """Return the threshold of each label that maximises the expected F1 of calibrated `p`.

    If the k most likely are given a label, the expected F1 is about 2 Σ_k p / (k + Σ p). At its
    maximum F*, a node is worth giving the label if its p is over F* / 2. ``"macro"`` takes each
    label by itself, ``"micro"`` all together.
    """
    columns = p.double().t() if rule == "macro" else p.double().reshape(1, -1)
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
