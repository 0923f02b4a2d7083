"""Logistic regression on sparse rows: one convex fit, without a step size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hanme.decision.losses import total_loss
from hanme.errors import HanmeError


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
    The steps are taken as if columns had a mean of 0, which the bias makes up for: a column that
    is large and hardly differs would otherwise take hundreds of them.

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
    transposed = rows.t().to_sparse_csr() if rows.layout == torch.sparse_csr else rows.t()
    size = rows.size(1)
    if start is None:
        share = given.double().mean(0).clamp(1e-4, 1 - 1e-4)
        start = torch.zeros(size + 1, given.size(1), dtype=rows.dtype)
        start[-1] = torch.logit(share) if several else share.log()

    mean = torch.mv(transposed, torch.full_like(given[:, 0], 1 / max(1, len(given))))[None]
    start = torch.cat([start[:-1], start[-1:] + mean @ start[:-1]])
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=8,
        tolerance_grad=1e-5 * max(1, len(given)),
        tolerance_change=1e-6,
        line_search_fn="strong_wolfe",
    )

    @torch.no_grad()
    def closure() -> Tensor:
        logits = torch.mm(rows, weights[:-1]) + (weights[-1:] - mean @ weights[:-1])
        loss, slope = total_loss(logits, given, several=several)
        total = slope.sum(0, keepdim=True)
        change = torch.mm(transposed, slope) - mean.t() @ total + strength * weights[:-1]
        weights.grad = torch.cat([change, total])
        return loss + strength / 2 * weights[:-1].double().square().sum()

    try:
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        raise HanmeError("the wide part cannot be fitted: its numbers are too large") from None
    found = weights.detach()
    return torch.cat([found[:-1], found[-1:] - mean @ found[:-1]])
