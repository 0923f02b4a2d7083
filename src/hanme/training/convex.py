"""Logistic regression on sparse rows: one convex fit, without a step size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

Flat = NDArray[np.float64]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread: for small matrices the others wait longer than they work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def logistic(
    rows: Tensor, y: Tensor, strength: float, *, start: Tensor | None = None, steps: int = 100
) -> Tensor:
    """Minimise Σ loss + strength / 2 ‖W‖², the bias apart, by L-BFGS.

    The loss is cross-entropy, binary where nodes have several labels. As it is a sum, the right
    strength does not depend on the number of nodes: it is the precision of a Gaussian prior.

    Args:
        rows: ``[n, D]``, dense or sparse CSR.
        y: Labels as 0 and 1, ``[n, C]``, or numbers of labels, ``[n]``.
        strength: How strongly weights are held at 0.
        start: Where to start, as returned.
        steps: At most so many steps.

    Returns:
        The weights and, in the last row, the bias, ``[D + 1, C]``.
    """
    several = y.dim() == 2
    given = y if several else torch.nn.functional.one_hot(y)
    given = given.to(rows.dtype)
    transposed = rows.t().to_sparse_csr() if rows.layout == torch.sparse_csr else rows.t()
    size, labels = rows.size(1), given.size(1)
    if start is None:
        share = given.double().mean(0).clamp(1e-4, 1 - 1e-4)
        start = torch.zeros(size + 1, labels, dtype=rows.dtype)
        start[-1] = torch.logit(share) if several else share.log()

    def objective(values: Flat) -> tuple[float, Flat]:
        weights = torch.from_numpy(values).to(rows.dtype).view(size + 1, labels)
        logits = torch.mm(rows, weights[:-1].contiguous()) + weights[-1]
        if several:
            loss = torch.nn.functional.softplus(logits).sum() - (given * logits).sum()
            slope = torch.sigmoid(logits) - given
        else:
            loss = torch.logsumexp(logits, 1).sum() - (given * logits).sum()
            slope = torch.softmax(logits, 1) - given
        gradient = torch.empty_like(weights)
        gradient[:-1] = torch.mm(transposed, slope) + strength * weights[:-1]
        gradient[-1] = slope.sum(0)
        loss = loss + strength / 2 * (weights[:-1] ** 2).sum()
        return float(loss), gradient.double().view(-1).numpy()

    found = minimize(
        objective,
        start.double().reshape(-1).numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxcor": 8, "ftol": 1e-7, "gtol": 1e-4 * max(1, len(given))},
    )
    return torch.from_numpy(found.x).to(rows.dtype).view(size + 1, labels)
