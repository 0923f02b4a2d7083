"""Logistic regression on sparse rows: one convex fit, without a step size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hanme.decision.losses import total_loss
from hanme.errors import HanmeError

CLOSE = 3e-4
"""A fit ends where the objective, in steps as long as it is curved, is no steeper than this."""


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
    rows: Tensor,
    y: Tensor,
    strength: float,
    *,
    labels: int | None = None,
    start: Tensor | None = None,
    steps: int = 100,
) -> Tensor:
    """Minimise Σ loss + strength / 2 ‖W‖², the bias apart, by L-BFGS.

    The loss is cross-entropy, binary where nodes have several labels. As it is a sum, the right
    strength does not depend on the number of nodes: it is the precision of a Gaussian prior.
    The steps are taken as if columns had a mean of 0, which the bias makes up for, and were as long
    as the objective is curved along them at the start (h Σ x² + strength, with h the variance of a
    label): a large column that hardly differs, or a rare one, would otherwise take hundreds.

    Args:
        rows: ``[n, D]``, dense or sparse CSR.
        y: Labels as 0 and 1, ``[n, C]``, or numbers of labels, ``[n]``.
        strength: How strongly weights are held at 0.
        labels: C, where `y` are numbers and some may not be there (default: the largest and 1).
        start: Where to start, as returned.
        steps: At most so many steps.

    Returns:
        The weights and, in the last row, the bias, ``[D + 1, C]``.
    """
    several = y.dim() == 2
    given = y if several else torch.nn.functional.one_hot(y, labels or -1)
    given = given.to(rows.dtype)
    sparse = rows.layout == torch.sparse_csr
    transposed = rows.t().to_sparse_csr() if sparse else rows.t()
    count, size = len(given), rows.size(1)
    share = given.double().mean(0).clamp(1e-4, 1 - 1e-4)
    if start is None:
        start = torch.zeros(size + 1, given.size(1), dtype=rows.dtype)
        start[-1] = torch.logit(share) if several else share.log()

    mean, length = _moments(transposed, max(1, count))
    variance = (share * (1 - share)).to(rows.dtype)
    curved = torch.cat([length[:, None] * variance + strength, count * variance[None] + strength])
    unit = curved.rsqrt()  # how long a step is along each weight, and the bias
    start = torch.cat([start[:-1], start[-1:] + mean @ start[:-1]])
    steered = (start / unit).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [steered],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=8,
        tolerance_grad=CLOSE,
        tolerance_change=1e-6,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def closure() -> Tensor:
        weights = unit * steered
        logits = torch.mm(rows, weights[:-1]) + (weights[-1:] - mean @ weights[:-1])
        loss, slope = total_loss(logits, given, multilabel=several)
        total = slope.sum(0, keepdim=True)
        change = torch.mm(transposed, slope) - mean.t() @ total + strength * weights[:-1]
        steered.grad = unit * torch.cat([change, total])
        return loss + strength / 2 * weights[:-1].double().square().sum()

    try:
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        raise HanmeError("the wide part cannot be fitted: its numbers are too large") from None
    found = unit * steered.detach()
    return torch.cat([found[:-1], found[-1:] - mean @ found[:-1]])


def _moments(columns: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the mean of each row, ``[1, D]``, and the squares of what its numbers differ from it.

    Both are summed up in double precision: of a column far from 0 hardly anything else is left.

    Args:
        columns: ``[D, n]``, dense or sparse CSR.
        count: n, or 1 if that is 0.
    """
    exact = columns.double()
    squares = exact.square() if columns.layout != torch.sparse_csr else _squared(exact)
    ones = torch.ones(columns.size(1), dtype=torch.double)
    mean = torch.mv(exact, ones) / count
    length = (torch.mv(squares, ones) - count * mean.square()).clamp(min=0)
    return mean.to(columns.dtype)[None], length.to(columns.dtype)


def _squared(rows: Tensor) -> Tensor:
    """Return the squares of the numbers of a sparse CSR matrix."""
    places, values = (rows.crow_indices(), rows.col_indices()), rows.values().square()
    return torch.sparse_csr_tensor(*places, values, rows.shape)
