"""Naive Bayes: weights of a block's rows in closed form, which few labels are enough for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme.decision import calibrate
from hanme.decision.losses import node_losses

BEFORE = 0.5
"""What each column is taken to have been seen with each label before any node is looked at."""

WIDTH = 0.5
"""How far slopes are expected from 0, for logits with a mean square of 1."""

FOLDS = 4
LEAST = 0.02
"""A block with a smaller slope is left out."""

FEWEST = 50
"""Fewer nodes cannot say whether it helps."""

CLEAR = 1.0
"""Blocks are taken if the loss falls by more than so many of its standard errors."""


def log_shares(sums: Tensor, *, several: bool, absent: int = 0) -> Tensor:
    """Return weights ``[D, C]``: how much likelier each column is with a label than without.

    Args:
        sums: The sum of the rows of nodes that have each label, and in the last column that of all
            nodes, ``[D, C + 1]``. Sums below 0 count as 0.
        several: Whether nodes have several labels: then a label is weighed against its absence, and
            else against the mean of all labels.
        absent: How many columns more there are, which no node has.
    """

    def shares(some: Tensor) -> Tensor:
        seen = some.double().clamp(min=0) + BEFORE
        return (seen / (seen.sum(0) + absent * BEFORE)).log()

    found = shares(sums[:, :-1])
    if not several:
        return found - found.mean(1, keepdim=True)
    return found - shares(sums[:, -1:] - sums[:, :-1])


def out_of_fold(rows: csr_array, given: Tensor, *, several: bool) -> Tensor | None:
    """Return the logits of nodes by the others, ``[n, C]``; None if a row has a negative number.

    Args:
        rows: The rows of nodes in a random order.
        given: Their labels as 0 and 1, ``[n, C]``.
        several: Whether nodes have several labels.
    """
    if rows.data.min(initial=0) < 0:
        return None
    used = np.unique(rows.indices)  # of two million ids the sample may have a thousand
    absent, rows = rows.shape[1] - len(used), csr_array(rows[:, used])
    told = torch.cat([given, torch.ones_like(given[:, :1])], 1).double()
    fold, found = torch.arange(len(given)) % FOLDS, torch.zeros_like(given, dtype=torch.double)
    for i in range(FOLDS):
        seen, held = (fold != i).numpy(), (fold == i).numpy()
        sums = torch.from_numpy(rows[seen].T @ told[seen].numpy())
        weights = log_shares(sums, several=several, absent=absent)
        found[held] = torch.from_numpy(rows[held] @ weights.numpy())
    return found


def choose_bayes(
    mixed: Sequence[Tensor], naive: Mapping[int, Tensor], y: Tensor
) -> tuple[dict[int, float], Tensor]:
    """Choose the blocks whose naive Bayes adds to what mixtures say.

    Args:
        mixed: The out-of-fold logits of each mixture, ``[n, C]``.
        naive: By block, those of naive Bayes.
        y: Labels as 0 and 1, ``[n, C]``, or numbers of labels, ``[n]``.

    Returns:
        What the logits of each block are multiplied by; none if they do not clearly lower the loss
        of nodes that no slope was fitted to. And the sum.
    """
    sizes = {i: float((z - z.mean(0)).square().mean().sqrt()) or 1.0 for i, z in naive.items()}
    bare, more = list(mixed), [naive[i] / size for i, size in sizes.items()]
    likely = [(1 / len(bare), WIDTH)] * len(bare)
    expected = [*likely, *[(0.0, WIDTH)] * len(more)]
    fold = torch.arange(len(y)) // 2 % FOLDS  # other folds than those of the logits
    gained = torch.zeros(len(y), dtype=torch.double)
    for i in range(FOLDS):
        seen, held = fold != i, fold == i
        for sign, parts, where in ((1, bare, likely), (-1, bare + more, expected)):
            slopes, bias = calibrate([part[seen] for part in parts], y[seen], where)
            logits = sum(s * part[held] for s, part in zip(slopes, parts, strict=True)) + bias
            gained[held] += sign * node_losses(logits, y[held]).double()
    nothing = torch.zeros_like(bare[0])
    if not float(gained.mean()) > CLEAR * float(gained.std()) / len(y) ** 0.5:
        return {}, nothing
    slopes, _ = calibrate(bare + more, y, expected)
    kept = zip(sizes, slopes[len(bare) :], strict=True)
    scales = {i: slope / sizes[i] for i, slope in kept if slope > LEAST}
    total = sum((scale * naive[i] for i, scale in scales.items()), nothing)
    (slope,), _ = calibrate([total], y)
    if not slope > 0:
        return {}, nothing
    return {i: slope * scale for i, scale in scales.items()}, slope * total
