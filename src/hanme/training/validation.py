"""Validation nodes: those that select the epoch, and those that may be scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hanme.decision import RULES, Decision
from hanme.decision.calibration import weighted_sum
from hanme.graph import Graph
from hanme.graph.splits import Split, without_fold
from hanme.training.config import TrainingConfig

MIN_SCORED = 200
"""Minimum number of validation nodes that selected nothing to score a model on; fewer tell less
than the out-of-fold logits of the base learners."""


class ValidationNodes(NamedTuple):
    """Validation nodes by what they decide: a node that selects the epoch fits and scores nothing.

    Args:
        selection: Mask ``[N]`` of the nodes that select the epoch of the network.
        others: Numbers of the nodes that slopes, calibration and thresholds are fitted to.
        half: 0 or 1 for each of the others: what is fitted to one half scores the other.
    """

    selection: Tensor
    others: Tensor
    half: Tensor

    @classmethod
    def of(
        cls, graph: Graph, config: TrainingConfig, *, network: bool, stack: bool
    ) -> ValidationNodes:
        """Divide the validation nodes of a graph, those of each label evenly.

        Without a network, none selects an epoch. Without anything to fit to the others, as in the
        recipes of the papers, all do.

        Args:
            graph: The graph.
            config: How to train.
            network: Whether a network is trained.
            stack: Whether it is stacked with the base learners.
        """
        val, none = graph.split.val, torch.zeros_like(graph.split.val)
        fits = stack or config.cost is not None or RULES.find(config.decide).calibrates
        selection = val
        if not network:
            selection = none
        elif fits and int(val.sum()) >= 2:
            half = _half(graph, val, config.seed)
            selection = half if half.any() else val  # a single group is not divided
        others = val & ~selection
        half = _half(graph, others, config.seed + 1) if int(others.sum()) >= 2 else none
        nodes = others.nonzero().flatten()
        return cls(selection, nodes, half[nodes].long())

    @property
    def scored(self) -> bool:
        """Whether the others are enough to score a model."""
        return len(self.others) >= MIN_SCORED


def _half(graph: Graph, mask: Tensor, seed: int) -> Tensor:
    """Return a stratified half of some nodes as a mask ``[N]``; groups are not divided."""
    none = torch.zeros_like(mask)
    return without_fold(Split(none, mask, none), graph.y, 1, 2, seed=seed, groups=graph.groups).val


class Composed(NamedTuple):
    """What is fitted to validation nodes: slopes and bias of the parts, and the decision."""

    slopes: Sequence[float]
    bias: Tensor
    decision: Decision

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the logits of some nodes from those of the parts, ``[n, C]``."""
        return weighted_sum(parts, self.slopes, self.bias)


Compose = Callable[[Sequence[Tensor], Tensor], Composed]
"""Fits a composition to the logits of some nodes by part, ``[n, C]`` each, and their labels."""


class Judged(NamedTuple):
    """Predictions of nodes that selected nothing, by what was fitted to others.

    Args:
        part: ``"val"`` for validation nodes, ``"oof"`` for out-of-fold training nodes.
        nodes: Their numbers, ``[n]``.
        logits: ``[n, C]``.
        p: Calibrated probabilities, ``[n, C]``.
        labels: Predicted labels, bool, ``[n, C]``.
    """

    part: Literal["val", "oof"]
    nodes: Tensor
    logits: Tensor
    p: Tensor
    labels: Tensor


def judge(
    part: Literal["val", "oof"],
    nodes: Tensor,
    group: Tensor,
    parts: Sequence[Tensor],
    y: Tensor,
    compose: Compose,
) -> Judged | None:
    """Predict the nodes of each group by what is fitted to the other groups; None without nodes.

    Args:
        part: Where the nodes are.
        nodes: Their numbers, ``[n]``.
        group: The group of each, ``[n]``.
        parts: Their logits by part, ``[n, C]`` each.
        y: Their labels.
        compose: Fits a composition.
    """
    if not len(nodes):
        return None
    logits = torch.zeros_like(parts[0])
    p, labels = logits.clone(), torch.zeros(logits.shape, dtype=torch.bool)
    for number in set(group.tolist()):
        mine, rest = group == number, group != number
        fitted = compose([each[rest] for each in parts], y[rest])
        logits[mine] = fitted.logits([each[mine] for each in parts])
        several = y.dim() == 2
        p[mine] = fitted.decision.probabilities(logits[mine], multilabel=several)
        labels[mine] = fitted.decision.labels(logits[mine], multilabel=several)
    return Judged(part, nodes, logits, p, labels)
