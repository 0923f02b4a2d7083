"""Calibration and stacking: a slope for each part of a model and a bias for each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import total_loss

CALIBRATION_WIDTH = 0.5
"""Prior standard deviation of a calibration slope and of biases: a few nodes overrule it."""

STACKING_WIDTH = 0.3
"""Prior standard deviation of slopes in a stack of several parts, some of which add nothing."""

MAX_LOGITS = 1 << 24
"""Maximum number of logits to fit to; of more nodes, every second or third is enough."""


def calibrate(
    parts: Sequence[Tensor],
    y: Tensor,
    prior: Sequence[float] | None = None,
    width: float = CALIBRATION_WIDTH,
) -> tuple[list[float], Tensor]:
    r"""Fit slopes s >= 0 and a bias b that minimise the loss of Σ s_i logits_i + b.

    With one part this is calibration (Platt scaling). With several it is stacking: a part that adds
    nothing gets a slope near 0.

    Args:
        parts: Logits of nodes that the parts were not fitted to, each ``[n, C]``.
        y: Their labels, ``[n]`` or ``[n, C]``.
        prior: Prior mean of each slope (default: equal, with a sum of 1).
        width: Prior standard deviation of slopes.

    Returns:
        The slope of each part, and the bias, ``[C]``.
    """
    step = -(-parts[0].numel() // MAX_LOGITS) or 1
    stacked = torch.stack([part[::step].detach().double().cpu().flatten() for part in parts])
    y, (size, labels) = y[::step].detach().cpu(), (len(parts), parts[0].size(1))
    multilabel = y.dim() == 2
    targets = (y if multilabel else F.one_hot(y, labels)).double()
    mean = torch.tensor([1 / size] * size if prior is None else list(prior), dtype=torch.double)

    def objective(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slopes, bias = torch.split(torch.tensor(values), [size, labels])
        off, shift = (slopes - mean) / width, bias / CALIBRATION_WIDTH
        logits = (slopes @ stacked).view(-1, labels) + bias
        loss, gradient = total_loss(logits, targets, multilabel=multilabel)
        by_bias = gradient.sum(0) + shift / CALIBRATION_WIDTH
        change = [stacked @ gradient.flatten() + off / width, by_bias]
        loss = loss + (off @ off + shift @ shift) / 2
        return float(loss), torch.cat(change).numpy()

    start = np.concatenate([mean.numpy(), np.zeros(labels)])
    bounds = [(0.0, 10.0)] * size + [(-10.0, 10.0)] * labels
    from scipy.optimize import minimize  # half a second, and predictions do not need it

    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[:size].tolist(), torch.from_numpy(found[size:]).float()


class Crossed(NamedTuple):
    """What :func:`calibrate` finds, and logits that may be scored on the same nodes.

    Args:
        slopes: The slope of each part.
        bias: ``[C]``.
        logits: Σ s_i logits_i + b, ``[n, C]``, with slopes and bias of the other groups.
        others: Slopes and bias without each group.
    """

    slopes: list[float]
    bias: Tensor
    logits: Tensor
    others: list[tuple[list[float], Tensor]]


def cross_calibrate(
    parts: Sequence[Tensor],
    y: Tensor,
    group: Tensor,
    prior: Sequence[float] | None = None,
    width: float = CALIBRATION_WIDTH,
) -> Crossed:
    """Calibrate on all nodes, and each group of nodes, ``[n]``, by the other groups."""
    slopes, bias = calibrate(parts, y, prior, width)
    logits, others = torch.zeros_like(parts[0]), []
    for number in range(int(group.max()) + 1 if len(group) else 0):
        rest, mine = group != number, group == number
        found = calibrate([part[rest] for part in parts], y[rest], prior, width)
        logits[mine] = weighted_sum([part[mine] for part in parts], *found)
        others.append(found)
    return Crossed(slopes, bias, logits, others)


def shrinkage(logits: Tensor, y: Tensor, rates: Tensor) -> float:
    """Return the factor, 0 to 1, of what logits say beyond the base rate.

    It is the factor that minimises the loss of held-out nodes, shrunk by James and Stein's rule:
    logits that reduce the summed log loss by g keep 1 - 1 / g of it, and nothing if g is at most 1,
    as one superfluous slope would.

    Args:
        logits: Logits of nodes that the model was not fitted to, ``[n, C]``.
        y: Their labels, ``[n]`` or ``[n, C]``.
        rates: The logits of the base rates, ``[C]``.
    """
    if not len(y):
        return 1.0
    multilabel, rates = y.dim() == 2, rates.double()
    targets = (y if multilabel else F.one_hot(y, logits.size(1))).double()
    beyond = logits.double() - rates

    def loss(factor: float) -> float:
        return float(total_loss(rates + factor * beyond, targets, multilabel=multilabel)[0])

    from scipy.optimize import minimize_scalar

    best = float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
    gain = loss(0.0) - loss(best)
    return best * max(0.0, 1 - 1 / gain) if gain > 0 else 0.0


def weighted_sum(parts: Sequence[Tensor], slopes: Sequence[float], bias: Tensor) -> Tensor:
    """Return Σ s_i logits_i + b."""
    return bias + sum(slope * part for slope, part in zip(slopes, parts, strict=True))
