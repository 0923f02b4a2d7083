"""Choose blocks of rows, their scale and the strength of a linear model by out-of-fold loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.training.convex import logistic

STEPS = 30
FOLDS = 4
STRENGTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
LEAST = 0.003
"""A block with less than this share of all relevance is left out."""

ALIKE = 1e-13
"""Rows are alike if the squares of what they differ by are a smaller share of their squares."""


class Relevance(NamedTuple):
    """How much each block counts in a mixture of them.

    Args:
        weights: The relevance of each block, 0 for one left out: rows are scaled by its root.
        strength: How strongly weights are held at 0.
        loss: The out-of-fold loss of a node.
        logits: The out-of-fold logits, ``[n, C]``.
    """

    weights: NDArray[np.float64]
    strength: float
    loss: float
    logits: Tensor


def centred(whole: Tensor) -> Tensor:
    """Return the products that the rows have with each other once their mean is taken off."""
    mean = whole.mean(0)
    return whole - mean - mean[:, None] + mean.mean()


def gram(whole: Tensor) -> tuple[Tensor, float]:
    """Return the products of centred rows, divided by the mean square of these, and that.

    Rows that differ by rounding errors alone have no products.

    Args:
        whole: The products of the rows with each other, ``[n, n]``.
    """
    found = centred(whole)
    spread = float(found.diagonal().mean())
    if spread <= ALIKE * float(whole.diagonal().mean()):
        return torch.zeros_like(whole, dtype=torch.float), 0.0
    return (found / spread).float(), spread


def choose(
    grams: Sequence[Tensor], y: Tensor, plain: Mapping[int, float], rare: Sequence[int] = ()
) -> list[Relevance]:
    """Choose two mixtures of blocks, each with the strength of the least out-of-fold loss.

    The first has the least leave-one-out error of ridge regression, which is known in closed form
    and has a gradient. The second, if there is one, has the plain blocks alone: all alike, or as
    they come, whichever has the smaller loss.

    Args:
        grams: The products that :func:`gram` returns of each block's rows.
        y: Labels as 0 and 1, ``[n, C]``, or numbers of labels, ``[n]``.
        plain: The blocks that a linear model by hand would have, and their spread as they come.
        rare: The blocks that hardly any node has: those nodes alone cannot say how much they count.
    """
    stacked = torch.stack(list(grams))
    learnt, alike, given = np.zeros((3, len(grams)))
    common = [i for i in range(len(grams)) if i not in rare]
    if common:
        learnt[common] = _learnt(stacked[common], y)
    alike[list(plain)] = 1
    given[list(plain)] = list(plain.values())
    first = [_mixed(stacked, learnt, LEAST, y)] if common else []
    second = [_mixed(stacked, alike, LEAST, y), _mixed(stacked, given, 0, y)] if plain else []
    return first + sorted(second, key=lambda mixture: mixture.loss)[:1]


def _mixed(grams: Tensor, weights: NDArray[np.float64], least: float, y: Tensor) -> Relevance:
    """Mix blocks, without those that have too small a share, at the best strength."""
    weights = np.where(weights < least * weights.sum(), 0, weights) / weights.sum()
    mixed = torch.einsum("b,bij->ij", torch.from_numpy(weights).float(), grams)
    return Relevance(weights, *_out_of_fold(mixed, y))


def _learnt(grams: Tensor, y: Tensor) -> NDArray[np.float64]:
    r"""Return the relevance of each block with the least leave-one-out error of ridge regression.

    With K = Σ w_b K_b and G = (K + I)^-1, the error at node i without it is (G y)_i / G_ii.
    """
    given = y.float() if y.dim() == 2 else torch.nn.functional.one_hot(y).float()
    given = given - given.mean(0)
    given = given / given.std().clamp(min=1e-6)
    free = torch.full((len(grams),), -float(np.log(len(grams))), requires_grad=True)
    optimizer = torch.optim.Adam([free], lr=0.3)
    identity = torch.eye(len(given))
    best, kept = np.inf, free.detach().clone()
    for _ in range(STEPS):
        inverse = torch.linalg.inv(torch.einsum("b,bij->ij", free.exp(), grams) + identity)
        error = ((inverse @ given) / inverse.diagonal()[:, None]).square().mean()
        if float(error.detach()) < best:
            best, kept = float(error.detach()), free.detach().clone()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return kept.double().exp().numpy()


def _out_of_fold(products: Tensor, y: Tensor) -> tuple[float, float, Tensor]:
    """Return the strength with the least out-of-fold loss, this loss, and the logits."""
    values, vectors = torch.linalg.eigh(products)
    kept = values > values.max() * 1e-6
    rows = (vectors[:, kept] * values[kept].sqrt()).contiguous()
    labels = None if y.dim() == 2 else int(y.max()) + 1
    fold = torch.arange(len(y)) % FOLDS  # the nodes come in a random order
    found: list[tuple[float, float, Tensor]] = []
    starts: list[Tensor | None] = [None] * FOLDS
    for strength in STRENGTHS:
        logits = torch.zeros(len(y), labels or y.size(1))
        for i in range(FOLDS):
            seen = fold != i
            starts[i] = weights = logistic(
                rows[seen], y[seen], strength, labels=labels, start=starts[i], steps=20
            )
            logits[~seen] = rows[~seen] @ weights[:-1] + weights[-1]
        found.append((strength, float(node_losses(logits, y).mean()), logits))
        if found[-1][1] > min(loss for _, loss, _ in found) * 1.02:
            break
    return min(found, key=itemgetter(1))
