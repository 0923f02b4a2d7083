"""Features and labels averaged along metapaths, before any training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import coo_array, csr_array, diags_array
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets.features import to_scipy, to_torch
from hanme.errors import HanmeError
from hanme.metapath import Metadata

TypePath = tuple[str, ...]

MOST_PATHS = 1000

MOST_WORK = 2**26
"""Multiplications that are tried to see whether a product is smaller than its factors."""


@dataclass(frozen=True)
class Aggregated:
    """What is averaged along each metapath, features first, then labels.

    Each is a product of factors A_1 ... A_L X, multiplied out as far as that makes it smaller: an
    average over many hops is full of small numbers, its factors are sparse.

    Args:
        every: The factors for all roots.
        train: The factors for the roots under ``train_mask``.
    """

    every: list[list[Tensor]]
    train: list[list[Tensor]]

    def factors(self, training: bool) -> list[list[Tensor]]:
        return self.train if training else self.every


def type_paths(
    metadata: Metadata, target: str, hops: int, without: Sequence[str] = ()
) -> list[TypePath]:
    """All sequences of linked node types from ``target`` on, of at most so many hops."""
    joined = dict.fromkeys((a, b) for a, _, b in metadata[1] if not {a, b} & set(without))
    frontier: list[TypePath] = [(target,)]
    paths = list(frontier)
    for _ in range(hops):
        frontier = [(*path, b) for path in frontier for a, b in joined if a == path[-1]]
        paths += frontier
        if len(paths) > MOST_PATHS:
            raise HanmeError(
                f"Expected at most {MOST_PATHS} metapaths, but {target} has more of up to {hops} "
                "hops; fewer hops would do, or leaving node types out with `without`"
            )
    return paths


def aggregate(
    data: HeteroData,
    target: str,
    paths: Sequence[TypePath],
    label_paths: Sequence[TypePath],
    labels: int,
) -> Aggregated:
    """Averages features along ``paths`` and training labels along ``label_paths``."""
    for t in dict.fromkeys(path[-1] for path in paths):
        if "x" not in data[t]:
            raise HanmeError(f"node type {t!r} has no features; a metapath ends there")
    means = {pair: _mean(data, *pair) for path in (*paths, *label_paths) for pair in pairwise(path)}
    x = {path[-1]: to_scipy(data[path[-1]].x) for path in paths}
    rows = data[target].train_mask.cpu().numpy().nonzero()[0]
    every, train = [], []
    for path in paths:
        factors = _smallest([means[pair] for pair in pairwise(path)] + [x[path[-1]]])
        every.append([to_torch(factor) for factor in factors])
        train.append([to_torch(factor) for factor in _reached(factors, rows)])
    y = training_labels(data, target, labels)
    for path in label_paths:
        spread = torch.from_numpy(spread_labels([means[pair] for pair in pairwise(path)], y))
        every.append([spread])
        train.append([spread[torch.from_numpy(rows)]])
    device = data[target].y.device
    return Aggregated(
        [[factor.to(device) for factor in factors] for factors in every],
        [[factor.to(device) for factor in factors] for factors in train],
    )


def training_labels(data: HeteroData, target: str, labels: int) -> np.ndarray[Any, Any]:
    """The labels of training nodes as 0 and 1, ``[N, labels]``; zeros for every other node."""
    store = data[target]
    mask = store.train_mask
    y = torch.zeros(store.num_nodes, labels, device=mask.device)
    y[mask] = (store.y[mask] if store.y.dim() == 2 else F.one_hot(store.y[mask], labels)).float()
    return y.cpu().numpy()


def spread_labels(steps: Sequence[csr_array], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(A - diag A) Y for A = A_1 ... A_L: what the others' labels say, never a node's own."""
    half = (len(steps) + 1) // 2
    left: csr_array = reduce(lambda a, b: a @ b, steps[:half])
    if half < len(steps):
        right: csr_array = reduce(lambda a, b: a @ b, steps[half:])
        own = np.asarray(left.multiply(right.T.tocsr()).sum(axis=1)).reshape(-1)
    else:
        own = left.diagonal()
    spread = reduce(lambda z, step: step @ z, reversed(steps), y)
    return (spread - own[:, None] * y).astype(np.float32)


def _mean(data: HeteroData, source: str, end: str) -> csr_array:
    """D^-1 A over all relations from one type to another: a row of zeros without neighbours.

    Within one type a node is its own neighbour too, as the papers of ACM are for its authors.
    """
    links = [data[e].edge_index for e in data.edge_types if (e[0], e[2]) == (source, end)]
    if source == end:
        links.append(torch.arange(data[end].num_nodes, device=links[0].device).expand(2, -1))
    row, column = torch.cat(links, 1).cpu().numpy()
    shape = data[source].num_nodes, data[end].num_nodes
    matrix = coo_array((np.ones(len(row), np.float32), (row, column)), shape=shape).tocsr()
    degree = np.maximum(matrix.sum(axis=1), 1)
    return csr_array(diags_array((1 / degree).astype(np.float32)) @ matrix)


def _reached(factors: list[csr_array], rows: np.ndarray[Any, Any]) -> list[csr_array]:
    """Some rows of the product, without the nodes in between that they do not reach."""
    *others, last = factors
    result = []
    for factor in others:
        factor = factor[rows]
        rows = np.unique(factor.indices)
        result.append(factor[:, rows])
    return [*result, last[rows]]


def _smallest(factors: list[csr_array]) -> list[csr_array]:
    """The same product, multiplied out from the right while that leaves fewer numbers."""
    *others, last = factors
    result = [last]
    for factor in reversed(others):
        work = int(np.diff(factor.tocsc().indptr) @ np.diff(result[0].indptr))
        product = factor @ result[0] if work <= MOST_WORK else None
        if product is not None and product.nnz <= factor.nnz + result[0].nnz:
            result[0] = product
        else:
            result.insert(0, factor)
    return result
