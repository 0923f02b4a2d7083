"""Features for node types that have none."""

from __future__ import annotations

import copy

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, eye_array, hstack
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError

CHOICES = ("mean", "onehot", "given", "given-onehot")


def check_choice(features: str) -> None:
    """Refuses what is none of the choices."""
    if features not in CHOICES:
        raise HanmeError(
            f"Expected `features` to be one of {', '.join(CHOICES)}, but got {features!r}"
        )


def fill_features(data: HeteroData, target: str, how: str = "mean") -> HeteroData:
    r"""Gives every node type features.

    Means spread outward from the types that have features, pass by pass: a type gets
    :math:`D^{-1} A X` of each neighbouring type (over relations into it) that has features by
    then, side by side if there are several. A node without neighbours gets a row of zeros. A type
    that no features reach gets one-hot ids.

    Args:
        data: The graph. ``data[type].x`` may be missing, dense or sparse; ``num_nodes`` must be
            known.
        target: The node type that always keeps its features.
        how: What the other types get: ``"mean"`` spreads from the target alone, as in the paper;
            ``"onehot"`` is one id per node; ``"given"`` keeps what is there and spreads to the
            types without; ``"given-onehot"`` keeps it and gives these one id per node.

    Returns:
        A shallow copy of `data` in which every type has ``x``, sparse CSR where it was filled in.
    """
    check_choice(how)
    if target not in data.node_types:
        raise HanmeError(f"Expected `target` to be one of {data.node_types}, but got {target!r}")

    data = copy.copy(data)
    for kind in data.node_types:
        data[kind].num_nodes = data[kind].num_nodes  # it may be known by x alone, which may go
        if kind != target and how in ("mean", "onehot"):
            data[kind].pop("x", None)
    if how in ("mean", "given"):
        _spread(data)
    for kind in data.node_types:
        if "x" not in data[kind]:
            identity = eye_array(data[kind].num_nodes, dtype=np.float32, format="csr")
            data[kind].x = to_torch(identity)
    return data


def _spread(data: HeteroData) -> None:
    known = {kind: to_scipy(data[kind].x) for kind in data.node_types if "x" in data[kind]}
    while True:
        reached = {
            kind: mean
            for kind in data.node_types
            if kind not in known and (mean := _neighbour_means(data, kind, known)) is not None
        }
        if not reached:
            return
        known |= reached
        for kind, mean in reached.items():
            data[kind].x = to_torch(mean)


def _neighbour_means(data: HeteroData, kind: str, known: dict[str, csr_array]) -> csr_array | None:
    means = []
    for neighbour, x in known.items():
        relations = [e for e in data.edge_types if e[0] == neighbour and e[2] == kind]
        if relations:
            # All relations between the two types count alike.
            source, end = torch.cat([data[e].edge_index for e in relations], dim=1).cpu().numpy()
            shape = data[kind].num_nodes, data[neighbour].num_nodes
            links = coo_array((np.ones(len(end), np.float32), (end, source)), shape=shape).tocsr()
            scale = (1 / np.maximum(links.sum(axis=1), 1)).astype(np.float32)
            mean = links @ x
            mean.data *= np.repeat(scale, np.diff(mean.indptr))
            means.append(mean)
    if len(means) > 1:
        return csr_array(hstack(means, format="csr"))
    return means[0] if means else None


def to_scipy(x: Tensor) -> csr_array:
    """Turns a feature matrix, dense or sparse, into SciPy's CSR."""
    x = x.detach().cpu().to_sparse_csr()
    arrays = x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()
    return csr_array(arrays, shape=tuple(x.shape))


def to_torch(matrix: csr_array) -> Tensor:
    """Turns SciPy's CSR into a sparse tensor of float32 values and int64 indices."""
    if not matrix.has_sorted_indices:  # products leave them in any order, which PyTorch rules out
        matrix = matrix.sorted_indices()
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        size=matrix.shape,
        check_invariants=True,
    )
