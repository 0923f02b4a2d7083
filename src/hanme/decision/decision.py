"""The rule that turns the logits of a node into its labels."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, field_validator
from torch import Tensor

from hanme.decision.calibration import calibrate
from hanme.decision.rules import RULES, DecisionRule, Fitted
from hanme.errors import HanmeError

COST = "cost"
"""The rule of a decision that minimises expected costs: thresholds that follow from these."""


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
            ``"cost"``: the labels of the least expected cost. Others are those of ``RULES``.
        slope: What logits are multiplied by before they are probabilities.
        bias: What is then added, per label; empty for nothing.
        thresholds: For several labels per node, the least probability of each; empty for 0.5.
        weights: For one label per node, what the probability of each is multiplied by before the
            largest is chosen; empty for 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rule: str = "fallback"
    slope: float = 1.0
    bias: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    @field_validator("rule")
    @classmethod
    def _known(cls, rule: str) -> str:
        if rule != COST:
            RULES.find(rule)
        return rule

    @classmethod
    def fit(
        cls,
        rule: str,
        logits: Tensor,
        y: Tensor,
        *,
        costs: Costs | None = None,
        calibrated: bool = False,
    ) -> Decision:
        """Fit calibration and thresholds to nodes that the weights have not seen.

        Args:
            rule: The rule.
            logits: The logits of labelled nodes, ``[n, C]``.
            y: Their labels, ``[n]`` or ``[n, C]``.
            costs: Minimise the expected cost instead of applying the rule.
            calibrated: Whether the logits are calibrated already.
        """
        chosen = RULES.find(rule)
        if not chosen.calibrates and costs is None:
            return cls(rule=rule)
        fitted = cls(rule=COST if costs else rule)
        if not calibrated:
            (slope,), bias = calibrate([logits], y)
            fitted = fitted.model_copy(update={"slope": slope, "bias": tuple(bias.tolist())})
        multilabel = y.dim() == 2
        if costs is None:
            p = fitted.probabilities(logits, multilabel=multilabel)
            found = chosen().fit(p, multilabel=multilabel)
        elif multilabel:
            alarm = costs.false_alarm
            found = Fitted(tuple(alarm / (alarm + missed) for missed in costs.missed))
        else:
            found = Fitted(weights=costs.missed)
        return fitted.model_copy(update=found._asdict())

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
        rule = DecisionRule if self.rule == COST else RULES.find(self.rule)
        fitted = Fitted(self.thresholds, self.weights)
        return rule().labels(self.calibrated(logits), fitted, multilabel=multilabel)

    def threshold(self, label: int, *, labels: int, multilabel: bool) -> float | None:
        """Return the probability from which on a label is chosen; None for the most likely one."""
        if multilabel:
            return self.thresholds[label] if self.thresholds else 0.5
        if labels != 2 or not self.weights:
            return None
        return self.weights[1 - label] / sum(self.weights)

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
