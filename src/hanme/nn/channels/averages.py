"""What lies at the ends of metapaths, averaged step by step: products of sparse matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, diags_array
from torch import Tensor

from hanme.common.arrays import take_rows
from hanme.errors import HanmeError
from hanme.graph.features import to_scipy, to_torch
from hanme.graph.metapath import EdgeType, Metadata
from hanme.nn.checks import features_of

TypePath = tuple[str, ...]

MOST_PATHS = 1000
"""Maximum number of metapaths: each is a channel with weights of its own."""

MOST_WORK = 2**26
"""Multiplications that are tried to see whether a product is smaller than its factors."""


def type_paths(
    metadata: Metadata, target: str, hops: int, without: Sequence[str] = ()
) -> list[TypePath]:
    """Return all sequences of linked node types from ``target`` on, of at most ``hops`` hops."""
    for t in (target, *without):
        if t not in metadata[0]:
            raise HanmeError(f"unknown node type {t!r}; there are {', '.join(metadata[0])}")
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


def average_features(
    x_dict: Mapping[str, Tensor], links: Mapping[EdgeType, Tensor], paths: Sequence[TypePath]
) -> list[list[Tensor]]:
    """Average the features at the end of each path towards its root, for all roots.

    Each average is a product of factors A_1 ... A_L X, multiplied out as far as that makes it
    smaller: an average over many hops is full of small numbers, its factors are sparse.
    """
    x = {path[-1]: features_of(x_dict, path[-1]) for path in paths}
    sparse = {t: to_scipy(values) for t, values in x.items()}
    means = _means(x_dict, links, paths)
    factors = [[*(means[pair] for pair in pairwise(path)), sparse[path[-1]]] for path in paths]
    device = next(iter(x.values())).device
    return [[to_torch(factor).to(device) for factor in _smallest(given)] for given in factors]


def average_labels(
    x_dict: Mapping[str, Tensor],
    links: Mapping[EdgeType, Tensor],
    paths: Sequence[TypePath],
    labels: Tensor,
) -> list[Tensor]:
    """Average labels ``[N, C]`` along paths that return to the target, for all roots.

    Each is (A - diag A) Y for A = A_1 ... A_L: what the others' labels say, never a node's own.
    """
    means = _means(x_dict, links, paths)
    y: NDArray[np.float32] = labels.detach().cpu().numpy()
    return [
        torch.from_numpy(_spread([means[pair] for pair in pairwise(path)], y)).to(labels.device)
        for path in paths
    ]


def reached(factors: Sequence[Tensor], roots: Tensor) -> list[Tensor]:
    """Return some rows of a product, without the nodes in between that they do not reach."""
    *others, last = factors
    result = []
    for factor in others:
        rows = take_rows(factor, roots)
        roots, columns = torch.unique(rows.col_indices(), return_inverse=True)
        size = (rows.size(0), roots.numel())
        result.append(torch.sparse_csr_tensor(rows.crow_indices(), columns, rows.values(), size))
    return [*result, take_rows(last, roots)]


def _means(
    x_dict: Mapping[str, Tensor], links: Mapping[EdgeType, Tensor], paths: Sequence[TypePath]
) -> dict[tuple[str, str], csr_array]:
    """Return D^-1 A of each step: over all relations that join two types, each pair once.

    A node without neighbours has a row of zeros. Within one type a node is its own neighbour too,
    as the papers of ACM are for SeHGNN's authors.
    """
    means: dict[tuple[str, str], csr_array] = {}
    for source, end in dict.fromkeys(pair for path in paths for pair in pairwise(path)):
        joined = [pairs.cpu() for e, pairs in links.items() if (e[0], e[2]) == (source, end)]
        shape = features_of(x_dict, source).size(0), features_of(x_dict, end).size(0)
        if source == end:
            joined.append(torch.arange(shape[0]).expand(2, -1))
        row, column = torch.cat(joined, 1).numpy()
        matrix = coo_array((np.ones(len(row), np.float32), (row, column)), shape=shape).tocsr()
        matrix.data[:] = 1  # a pair in several relations counts once
        degree = np.maximum(matrix.sum(axis=1), 1)
        means[source, end] = csr_array(diags_array((1 / degree).astype(np.float32)) @ matrix)
    return means


def _spread(steps: Sequence[csr_array], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiply out (A_1 ... A_L - its diagonal) Y."""
    half = (len(steps) + 1) // 2
    left: csr_array = reduce(lambda a, b: a @ b, steps[:half])
    if half < len(steps):
        right: csr_array = reduce(lambda a, b: a @ b, steps[half:])
        own = np.asarray(left.multiply(right.T.tocsr()).sum(axis=1)).reshape(-1)
    else:
        own = left.diagonal()
    spread: NDArray[np.float32] = reduce(lambda z, step: step @ z, reversed(steps), y)
    return (spread - own[:, None] * y).astype(np.float32)


def _smallest(factors: list[csr_array]) -> list[csr_array]:
    """Return the same product, multiplied out from the right while that leaves fewer numbers."""
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
