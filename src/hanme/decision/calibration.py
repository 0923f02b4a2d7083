"""Calibrate logits: a slope for each part of a model and a bias for each label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from hanme.decision.losses import node_losses

PRIOR = 0.5
"""How strongly slopes are held at 1 and biases at 0: as if by a Gaussian of this width."""


def calibrate(parts: Sequence[Tensor], y: Tensor) -> tuple[list[float], Tensor]:
    r"""Find slopes s >= 0 and a bias b with the least loss of Σ s_i logits_i + b.

    With one part this is calibration. With several it also says how far to trust each: a part
    that has nothing to add gets a slope near 0.

    Args:
        parts: Logits of nodes that the weights have not seen, each ``[n, C]``.
        y: Their labels, ``[n]`` or ``[n, C]``.

    Returns:
        The slope of each part, and the bias, ``[C]``.
    """
    stacked = torch.stack([part.detach().double().cpu() for part in parts])
    y = y.detach().cpu()
    size, start = len(parts), 1 / len(parts)

    @torch.enable_grad()
    def objective(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, object]:
        free = torch.tensor(values, requires_grad=True)
        slopes, bias = free[:size], free[size:]
        logits = torch.einsum("p,pnc->nc", slopes, stacked) + bias
        loss = node_losses(logits, y.double() if y.dim() == 2 else y).sum()
        if y.dim() == 2:
            loss = loss * y.size(1)
        loss = loss + ((slopes - start) ** 2).sum() / (2 * PRIOR**2)
        loss = loss + (bias**2).sum() / (2 * PRIOR**2)
        loss.backward()  # type: ignore[no-untyped-call]
        assert free.grad is not None
        return float(loss.detach()), free.grad.numpy()

    labels = stacked.size(2)
    first = np.concatenate([np.full(size, start), np.zeros(labels)])
    bounds = [(0.0, 10.0)] * size + [(-10.0, 10.0)] * labels
    found = minimize(objective, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[:size].tolist(), torch.from_numpy(found[size:]).float()
