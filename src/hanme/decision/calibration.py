"""Calibrate logits: a slope for each part of a model and a bias for each label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import total_loss

PRIOR = 0.5
"""How strongly slopes and biases are held where they are expected: by a Gaussian of this width."""

MOST = 1 << 24
"""With more logits than this, every second or third node says enough."""


def calibrate(
    parts: Sequence[Tensor],
    y: Tensor,
    expected: Sequence[tuple[float, float]] | None = None,
    bias_width: float = PRIOR,
) -> tuple[list[float], Tensor]:
    r"""Find slopes s >= 0 and a bias b with the least loss of Σ s_i logits_i + b.

    With one part this is calibration. With several it also says how far to trust each: a part
    that has nothing to add gets a slope near 0.

    Args:
        parts: Logits of nodes that the weights have not seen, each ``[n, C]``.
        y: Their labels, ``[n]`` or ``[n, C]``.
        expected: Where the slope of each part is expected, as a Gaussian's mean and width (default:
            all alike, with a sum of 1).
        bias_width: How far from 0 biases are expected.

    Returns:
        The slope of each part, and the bias, ``[C]``.
    """
    step = -(-parts[0].numel() // MOST) or 1
    stacked = torch.stack([part[::step].detach().double().cpu().flatten() for part in parts])
    y, (size, labels) = y[::step].detach().cpu(), (len(parts), parts[0].size(1))
    several = y.dim() == 2
    given = (y if several else torch.nn.functional.one_hot(y, labels)).double()
    expected = [(1 / size, PRIOR)] * size if expected is None else expected
    start, width = torch.tensor(expected, dtype=torch.double).t()

    def objective(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        slopes, bias = torch.split(torch.tensor(values), [size, labels])
        off, shift = (slopes - start) / width, bias / bias_width
        logits = (slopes @ stacked).view(-1, labels) + bias
        loss, slope = total_loss(logits, given, multilabel=several)
        change = [stacked @ slope.flatten() + off / width, slope.sum(0) + shift / bias_width]
        loss = loss + (off @ off + shift @ shift) / 2
        return float(loss), torch.cat(change).numpy()

    first = np.concatenate([start.numpy(), np.zeros(labels)])
    bounds = [(0.0, 10.0)] * size + [(-10.0, 10.0)] * labels
    from scipy.optimize import minimize  # half a second, and predictions do not need it

    found = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[:size].tolist(), torch.from_numpy(found[size:]).float()
