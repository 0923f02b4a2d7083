"""Fit the weights of a linear model to labelled nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.graph.features import to_torch
from hanme.linear.matrices import DesignMatrix
from hanme.linear.solver import logistic_regression

MAX_GRAM_NODES = 3000
"""Maximum number of labelled nodes for a fit in the space that their rows span; an eigenvalue
decomposition of this size takes a few seconds."""

SPARSE = 0.1
"""Share of nonzero entries below which sparse products are faster than dense ones."""


class TrainingRows:
    """The rows of labelled nodes, to fit weights to.

    Few nodes with many columns are fitted in the space that their rows span: with centred rows Q B,
    where the rows of B are orthonormal, the optimal weights are B' times the optimal weights on Q.

    Args:
        designs: The rows of each block.
        scales: Factor of the rows of each block.
        nodes: Numbers of the nodes, ``[n]``.
        y: Their labels, ``[n]`` or ``[n, C]``.
        labels: The number of labels, C.
    """

    def __init__(
        self,
        designs: Sequence[DesignMatrix],
        scales: Sequence[float],
        nodes: NDArray[np.int64],
        y: Tensor,
        labels: int,
    ) -> None:
        self.designs, self.scales, self.nodes = designs, scales, nodes
        self.y, self.labels = y, labels
        width = sum(design.width for design in designs)
        self.in_span = len(nodes) <= MAX_GRAM_NODES and len(nodes) < width
        if not self.in_span:
            self.rows = csr_array(hstack(list(self._scaled()), format="csr"), dtype=np.float32)
            return
        gram = reduce(np.add, map(inner_products, self._scaled()))
        values, vectors = np.linalg.eigh(centred(gram))
        kept = values > gram.diagonal().max() * len(gram) * 1e-15  # the others are rounding errors
        root = np.sqrt(values[kept])
        self.rows = np.ascontiguousarray(vectors[:, kept] * root, np.float32)
        dual = vectors[:, kept] / root  # with a sum of 0, but for rounding errors
        self._dual, self._mean = dual - dual.mean(0), gram.mean(0)

    def _scaled(self) -> Iterator[csr_array]:
        for design, scale in zip(self.designs, self.scales, strict=True):
            yield scale * csr_array(vstack(list(design.chunks(self.nodes)), format="csr"))

    def fit(
        self, mask: Tensor, strength: float, start: Tensor | None = None, max_iter: int = 100
    ) -> Tensor:
        """Fit weights to some of the nodes ``[n]``, from ``start`` if it is given.

        Returns:
            The weights of the columns of ``rows`` and in the last row the bias, ``[k + 1, C]``.
        """
        rows, y = self.rows[mask.numpy()], self.y[mask]
        tensor = torch.from_numpy(rows) if self.in_span else to_torch(csr_array(rows))
        return logistic_regression(
            tensor, y, strength, labels=self.labels, start=start, max_iter=max_iter
        )

    def logits(self, mask: Tensor, weights: Tensor) -> Tensor:
        """Return the logits of some of the nodes ``[n]`` for weights that were fitted."""
        return torch.from_numpy(self.rows[mask.numpy()] @ weights[:-1].numpy()) + weights[-1]

    def fit_each(self, masks: Sequence[Tensor], strength: float) -> list[Tensor]:
        """Fit weights to each set of nodes ``[n]``.

        A fit to the set before and further nodes starts from the weights of that set.

        Returns:
            The weights of the blocks' columns and in the last row the bias, ``[D + 1, C]`` each.
        """
        fitted: list[Tensor] = []
        for i, mask in enumerate(masks):
            if i and torch.equal(mask, masks[i - 1]):
                fitted.append(fitted[-1])
            else:
                nested = i > 0 and not (masks[i - 1] & ~mask).any()
                fitted.append(self.fit(mask, strength, fitted[-1] if nested else None))
        joined = torch.cat(fitted, 1)
        weights, bias = joined[:-1], joined[-1:]
        if self.in_span:
            dual = self._dual @ weights.double().numpy()
            bias = bias - torch.from_numpy(self._mean @ dual).float()
            scaled = [rows.T @ dual for rows in self._scaled()]
        else:
            scaled = np.split(weights.numpy(), np.cumsum([d.width for d in self.designs])[:-1])
        parts = [scale * part for part, scale in zip(scaled, self.scales, strict=True)]
        columns = torch.from_numpy(np.concatenate(parts)).float()
        each = torch.split(torch.cat([columns, bias]), self.labels, 1)
        return [one.contiguous() for one in each]


def inner_products(rows: csr_array) -> NDArray[np.float64]:
    """Return the inner products of rows, ``[n, n]``."""
    rows = rows.astype(np.float64)
    if rows.nnz < SPARSE * rows.shape[0] * rows.shape[1]:
        return np.asarray((rows @ rows.T).toarray())
    dense = rows.toarray()
    return np.asarray(dense @ dense.T)


def centred(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inner products of rows after subtraction of their mean."""
    mean = gram.mean(0)
    return np.asarray(gram - mean - mean[:, None] + mean.mean())
