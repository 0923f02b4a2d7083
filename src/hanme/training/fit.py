"""Fit the weights of a wide part to the labels of nodes, and use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.graph import Graph
from hanme.graph.features import to_torch
from hanme.nn.batch import Batch
from hanme.nn.channels.blocks import Rows
from hanme.nn.channels.wide import WideChannels
from hanme.training.bayes import log_shares
from hanme.training.convex import logistic, one_thread
from hanme.training.relevance import centred
from hanme.training.wide import MOST_SPANNED, Mixture, Wide

STEPS = 60
"""With many nodes, a fit takes at most so many steps."""

UNEVEN = 1e6
"""A direction that is so much longer than others are on average, in squares, hides them."""


class Told(NamedTuple):
    """What weights are fitted to.

    Args:
        rows: The rows of each block.
        nodes: The numbers of labelled nodes, ``[n]``.
        y: Their labels.
        given: Their labels as 0 and 1, ``[n, C]``.
        parts: Masks of some of them, to fit to one after the other.
    """

    rows: Sequence[Rows]
    nodes: NDArray[np.int64]
    y: Tensor
    given: Tensor
    parts: Sequence[Tensor]


def fit_wide(
    part: WideChannels,
    graph: Graph,
    wide: Wide,
    parts: Sequence[Tensor],
    start: Tensor | None = None,
) -> Tensor:
    """Fit each mixture to the labels of some nodes, and of others.

    Args:
        part: The channels, which stay as they are: :func:`fill_wide` gives them weights.
        graph: The graph.
        wide: What was chosen.
        parts: Masks of labelled nodes to fit to, one after the other.
        start: Where each mixture starts, as returned by the fit to some of these nodes,
            ``[M, D + 1, C]``.

    Returns:
        By part and mixture the weights of the rows of all blocks but trees, and in the last row the
        bias, ``[P, M, D + 1, C]``.
    """
    chosen = torch.stack(list(parts)).any(0).nonzero().flatten()
    made = [rows for rows in part.rows(Batch.of(graph)) if rows.block.read != "trees"]
    y, masks = graph.y[chosen], [mask[chosen] for mask in parts]
    told = Told(made, chosen.numpy(), y, graph.label_matrix[chosen], masks)
    convex = [mixture for mixture in wide.mixtures if not mixture.bayes]
    if len(y) <= MOST_SPANNED and len(y) < sum(rows.width for rows in made):
        fitted = _spanned(told, convex)
    else:
        fitted = _stepped(told, convex, start)
    naive = [_counted(told, mixture.scales) for mixture in wide.mixtures if mixture.bayes]
    return torch.cat([fitted, *naive], 1)


def _counted(told: Told, scales: Sequence[float]) -> Tensor:
    """Return the weights of naive Bayes for each part, ``[P, 1, D + 1, C]``, the bias 0."""
    labels, several = told.given.size(1), told.y.dim() == 2
    counted = torch.cat([told.given, torch.ones_like(told.given[:, :1])], 1).double()
    matrix = torch.cat([counted * part[:, None] for part in told.parts], 1)
    found = torch.zeros(len(told.parts), 1, sum(rows.width for rows in told.rows) + 1, labels)
    at = 0
    for rows, scale in zip(told.rows, scales, strict=True):
        if scale:
            sums = torch.split(rows.transposed_times(told.nodes, matrix), labels + 1, 1)
            for weights, each in zip(found, sums, strict=True):
                weights[0, at : at + rows.width] = scale * log_shares(each, several=several)
        at += rows.width
    return found


def _stepped(told: Told, mixtures: Sequence[Mixture], start: Tensor | None) -> Tensor:
    """Fit weights to parts column by column: there are more nodes than columns, or many of both."""
    rows = [
        csr_array(vstack([each(some) for some in each.chunks(told.nodes)], format="csr"))
        for each in told.rows
    ]
    labels, found = told.given.size(1), []
    for number, mixture in enumerate(mixtures):
        scaled = [
            r * s if s else csr_array(r.shape) for r, s in zip(rows, mixture.scales, strict=True)
        ]
        scales = np.repeat([*mixture.scales, 1], [*(r.shape[1] for r in rows), 1])
        scale = torch.from_numpy(scales).float()[:, None]
        begin = None if start is None else torch.where(scale > 0, start[number] / scale, 0)
        joined = csr_array(hstack(scaled, format="csr"), dtype=np.float32)
        some = [(to_torch(csr_array(joined[part.numpy()])), told.y[part]) for part in told.parts]
        fitted = [
            logistic(*each, mixture.strength, labels=labels, start=begin, steps=STEPS)
            for each in some
        ]
        found.append(scale * torch.stack(fitted))
    return torch.stack(found, 1)


def _mixed(told: Told, mixtures: Sequence[Mixture]) -> Tensor:
    """Return the products of the rows of each mixture with each other, ``[M, n, n]``."""
    squares = torch.tensor([mixture.scales for mixture in mixtures], dtype=torch.double) ** 2
    found = torch.zeros(len(mixtures), len(told.nodes), len(told.nodes), dtype=torch.double)
    for each, square in zip(told.rows, squares.t(), strict=True):
        if square.any():
            found += square[:, None, None] * each.products(told.nodes)
    return found


def wide_logits(
    part: WideChannels, graph: Graph, weights: Tensor, nodes: NDArray[np.int64] | None = None
) -> Tensor:
    """Return the logits of target nodes for several weights, in one pass over the nodes.

    Beliefs are left out.

    Args:
        part: The channels.
        graph: The graph.
        weights: Those of the rows of all blocks, and the bias, ``[K, D + 1, C]``.
        nodes: The nodes (default: all target nodes).

    Returns:
        The logits, ``[K, N, C]``.
    """
    made = part.rows(Batch.of(graph))
    side_by_side = weights.transpose(0, 1).flatten(1)
    *blocks, bias = torch.split(side_by_side, [*(rows.width for rows in made), 1])
    nodes = np.arange(graph.targets.num_nodes) if nodes is None else nodes
    found = bias.repeat(len(nodes), 1)
    for rows, block in zip(made, blocks, strict=True):
        if block.any():
            found += rows.times(nodes, block)
    return found.reshape(len(nodes), len(weights), -1).transpose(0, 1)


def fill_wide(part: WideChannels, graph: Graph, weights: Tensor) -> None:
    """Give wide channels weights of the rows of all blocks, and the bias, ``[D + 1, C]``."""
    made = part.rows(Batch.of(graph))
    *blocks, bias = torch.split(weights, [*(rows.width for rows in made), 1])
    for i, rows in enumerate(made):
        if rows.forest is not None:  # of the trees of folds, those that count are kept
            part.trees, blocks[i] = rows.forest.pruned(blocks[i])
    part.fill(blocks, bias[0], made)


def _spanned(told: Told, mixtures: Sequence[Mixture]) -> Tensor:
    """Fit weights to parts in the space that rows span: there are fewer nodes than columns.

    For centred rows = Q B with orthonormal rows of B, the least W is B' times the least weights on
    Q, and the bias makes up for the mean, which large columns would drown the others in. The rows
    of all nodes span the space, unless one of them drowns the others.
    """
    parts, labels, found = told.parts, told.given.size(1), []
    for mixture, whole in zip(mixtures, _mixed(told, mixtures), strict=True):
        inner = torch.zeros(len(whole), len(parts), labels, dtype=torch.double)
        bias = torch.zeros(len(parts), 1, labels)
        with one_thread():
            every = _basis(whole)
            for i, part in enumerate(parts):
                nodes = torch.ones_like(part) if every.even else part
                own = every if every.even else _basis(whole[part][:, part])
                rows, y = own.span[part[nodes]], told.y[part]
                weights = logistic(rows, y, mixture.strength, labels=labels).double()
                inner[nodes, i] = own.inverse @ weights[:-1]
                bias[i] = weights[-1:] - own.mean @ inner[nodes, i]
        back = torch.cat(
            [
                rows.transposed_times(told.nodes, scale**2 * inner.flatten(1))
                if scale
                else torch.zeros(rows.width, len(parts) * labels)
                for rows, scale in zip(told.rows, mixture.scales, strict=True)
            ]
        )
        found.append(torch.cat([back.reshape(-1, len(parts), labels).transpose(0, 1), bias], 1))
    return torch.stack(found, 1)


class Basis(NamedTuple):
    """Rows in the space that they span.

    Args:
        span: The centred rows in orthonormal coordinates, ``[n, k]``.
        inverse: What makes weights of coordinates weights of rows, ``[n, k]``.
        mean: The mean of the products of rows with each other, ``[n]``.
        even: Whether no direction is so much longer than others that these are lost in it.
    """

    span: Tensor
    inverse: Tensor
    mean: Tensor
    even: bool


def _basis(products: Tensor) -> Basis:
    values, vectors = torch.linalg.eigh(centred(products))
    longest, count = values.max(), len(values)
    kept = values > max(longest * 1e-9, products.diagonal().max() * count * 1e-15)
    root = values[kept].sqrt()
    span, inverse = (vectors[:, kept] * root).float().contiguous(), vectors[:, kept] / root
    even = bool((values.sum() - longest) * UNEVEN > longest * count)
    return Basis(span, inverse, products.mean(0), even)
