"""Fit the weights of a linear model to the labels of several sets of nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.graph.features import to_torch
from hanme.linear.blocks import DesignMatrix
from hanme.linear.solver import logistic_regression

MAX_GRAM_NODES = 3000
"""Maximum number of labelled nodes for a fit in the space that their rows span; an eigenvalue
decomposition of this size takes a few seconds."""

MAX_ITER = 60
"""Maximum number of iterations of a fit to many nodes."""

DOMINANT = 1e6
"""Ratio of the largest eigenvalue to the mean of the others at which these drown in rounding."""


class FitData(NamedTuple):
    """What weights are fitted to."""

    matrices: Sequence[DesignMatrix]  # the rows of each block
    scales: Sequence[float]  # factor of the rows of each block
    strength: float  # of the L2 penalty
    nodes: NDArray[np.int64]  # numbers of labelled nodes, [n]
    y: Tensor  # their labels
    labels: int  # the number of labels
    masks: Sequence[Tensor]  # sets of these nodes, each [n]; every set gets its own weights


def centred(gram: Tensor) -> Tensor:
    """Return the inner products of rows after subtraction of their mean."""
    mean = gram.mean(0)
    return gram - mean - mean[:, None] + mean.mean()


def fit_weights(data: FitData, start: Tensor | None = None) -> Tensor:
    """Fit weights to each set of nodes, from initial weights ``[D + 1, C]`` for large fits.

    Returns:
        The weights of the unscaled columns and in the last row the bias, ``[sets, D + 1, C]``.
    """
    width = sum(matrix.width for matrix in data.matrices)
    if len(data.y) <= MAX_GRAM_NODES and len(data.y) < width:
        return _fit_in_span(data)
    return _fit_columns(data, start)


def _fit_columns(data: FitData, start: Tensor | None) -> Tensor:
    """Fit a weight per column."""
    rows = [
        scale * csr_array(vstack([m.rows(some) for some in m.chunks(data.nodes)], format="csr"))
        for m, scale in zip(data.matrices, data.scales, strict=True)
    ]
    joined = csr_array(hstack(rows, format="csr"), dtype=np.float32)
    widths = [matrix.width for matrix in data.matrices]
    scales = np.repeat([*data.scales, 1.0], [*widths, 1])
    scale = torch.from_numpy(scales).float()[:, None]
    weights = [
        logistic_regression(
            to_torch(csr_array(joined[mask.numpy()])),
            data.y[mask],
            data.strength,
            labels=data.labels,
            start=None if start is None else start / scale,
            max_iter=MAX_ITER,
        )
        for mask in data.masks
    ]
    return scale * torch.stack(weights)


def _fit_in_span(data: FitData) -> Tensor:
    """Fit weights in the space that the rows span: there are fewer nodes than columns.

    For centred rows Q B with orthonormal rows of B, the optimal weights are B' times the optimal
    weights on Q. All labelled nodes share a basis unless a row dominates the others.
    """
    gram = torch.zeros(len(data.nodes), len(data.nodes), dtype=torch.double)
    for matrix, scale in zip(data.matrices, data.scales, strict=True):
        gram += scale**2 * matrix.gram(data.nodes)
    dual = torch.zeros(len(gram), len(data.masks), data.labels, dtype=torch.double)
    bias = torch.zeros(len(data.masks), 1, data.labels)
    shared = _basis(gram)
    for i, mask in enumerate(data.masks):
        nodes = torch.ones_like(mask) if shared.even else mask
        basis = shared if shared.even else _basis(gram[mask][:, mask])
        weights = logistic_regression(
            basis.rows[mask[nodes]], data.y[mask], data.strength, labels=data.labels
        ).double()
        dual[nodes, i] = basis.inverse @ weights[:-1]
        bias[i] = weights[-1:] - basis.mean @ dual[nodes, i]
    flat = dual.flatten(1).numpy()
    primal = torch.cat(
        [
            matrix.transposed_times(data.nodes, scale**2 * flat)
            for matrix, scale in zip(data.matrices, data.scales, strict=True)
        ]
    )
    primal = primal.reshape(-1, len(data.masks), data.labels).transpose(0, 1)
    return torch.cat([primal, bias], 1)


class _Basis(NamedTuple):
    """Rows in orthonormal coordinates of the space that they span."""

    rows: Tensor  # the centred rows, [n, k]
    inverse: Tensor  # turns weights of coordinates into weights of rows, [n, k]
    mean: Tensor  # mean inner product of each row with all rows, [n]
    even: bool  # whether no direction dominates the others


def _basis(gram: Tensor) -> _Basis:
    values, vectors = torch.linalg.eigh(centred(gram))
    largest, count = values.max(), len(values)
    kept = values > max(largest * 1e-9, gram.diagonal().max() * count * 1e-15)
    root = values[kept].sqrt()
    even = bool((values.sum() - largest) * DOMINANT > largest * count)
    rows = (vectors[:, kept] * root).float().contiguous()
    return _Basis(rows, vectors[:, kept] / root, gram.mean(0), even)
