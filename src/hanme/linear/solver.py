"""Logistic regression with an L2 penalty, fitted by L-BFGS."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.decision.losses import base_rate_logits, total_loss
from hanme.errors import HanmeError

TOLERANCE = 3e-4
"""Gradient, in preconditioned coordinates, at which a fit ends: a loss within about 1e-4 of the
minimum per node, below the noise of any validation set."""


def logistic_regression(
    rows: Tensor,
    y: Tensor,
    strength: float,
    *,
    labels: int | None = None,
    start: Tensor | None = None,
    max_iter: int = 100,
) -> Tensor:
    """Minimise Σ loss + strength / 2 ‖W‖²; the bias is not penalised.

    The loss is cross-entropy, binary for multi-label targets. It is a sum, so the strength is the
    precision of a Gaussian prior and does not depend on the number of rows. L-BFGS runs in
    preconditioned coordinates: columns are centred, which the bias compensates, and divided by the
    root of their curvature at the start (h Σ x² + strength, where h is the variance of a label).
    Large constant columns and rare ones would otherwise take hundreds of iterations.

    Args:
        rows: ``[n, D]``, dense or sparse CSR.
        y: Multi-hot labels ``[n, C]``, or class numbers ``[n]``.
        strength: Strength of the penalty.
        labels: C, for class numbers (default: the largest plus 1).
        start: Initial weights, as returned by an earlier fit.
        max_iter: Maximum number of iterations.

    Returns:
        The weights and, in the last row, the bias, ``[D + 1, C]``.
    """
    multilabel = y.dim() == 2
    targets = (y if multilabel else F.one_hot(y, labels or -1)).to(rows.dtype)
    transposed = rows.t().to_sparse_csr() if rows.layout == torch.sparse_csr else rows.t()
    count, size = len(targets), rows.size(1)
    share = targets.double().mean(0).clamp(1e-4, 1 - 1e-4)
    if start is None:
        start = torch.zeros(size + 1, targets.size(1), dtype=rows.dtype)
        start[-1] = base_rate_logits(y, targets.size(1))

    mean, scatter = _moments(transposed, max(1, count))
    variance = (share * (1 - share)).to(rows.dtype)
    curvature = torch.cat([scatter[:, None] * variance, count * variance[None]]) + strength
    unit = curvature.rsqrt()
    start = torch.cat([start[:-1], start[-1:] + mean @ start[:-1]])
    scaled = (start / unit).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled],
        max_iter=max_iter,
        max_eval=2 * max_iter,
        history_size=8,
        tolerance_grad=TOLERANCE,
        tolerance_change=1e-6,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def closure() -> Tensor:
        weights = unit * scaled
        logits = torch.mm(rows, weights[:-1]) + (weights[-1:] - mean @ weights[:-1])
        loss, gradient = total_loss(logits, targets, multilabel=multilabel)
        total = gradient.sum(0, keepdim=True)
        change = torch.mm(transposed, gradient) - mean.t() @ total + strength * weights[:-1]
        scaled.grad = unit * torch.cat([change, total])
        return loss + strength / 2 * weights[:-1].double().square().sum()

    try:
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        raise HanmeError("the linear model cannot be fitted: scale the features") from None
    weights = unit * scaled.detach()
    return torch.cat([weights[:-1], weights[-1:] - mean @ weights[:-1]])


def _moments(columns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the mean of each column, ``[1, D]``, and the sum of squared deviations, ``[D]``.

    In double precision: float32 loses the deviations of a column far from 0.
    """
    exact = columns.double()
    ones = torch.ones(columns.size(1), dtype=torch.double)
    mean = torch.mv(exact, ones) / count
    scatter = (torch.mv(exact * exact, ones) - count * mean.square()).clamp(min=0)
    return mean.to(columns.dtype)[None], scatter.to(columns.dtype)
