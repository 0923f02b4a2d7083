"""Give features to node types that have none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, eye_array, hstack
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.nodes import Nodes

Links = Mapping[tuple[str, str, str], Tensor]
Features = Literal["mean", "onehot", "given", "given-onehot"]
"""What node types other than the target get, see :func:`fill_features`."""


def check_features(how: str) -> None:
    """Raise if `how` is none of the choices."""
    if how not in get_args(Features):
        options = ", ".join(get_args(Features))
        raise HanmeError(f"Expected `features` to be one of {options}, but got {how!r}")


def fill_features(
    nodes: Mapping[str, Nodes],
    links: Links,
    target: str,
    how: Features = "mean",
) -> dict[str, Nodes]:
    r"""Give every node type features.

    Means spread outward from the types that have features, pass by pass: a type gets
    :math:`D^{-1} A X` of each neighbouring type (over relations into it) that has features by
    then, side by side if there are several. A node without neighbours gets a row of zeros. A type
    that no features reach gets one-hot ids.

    Args:
        nodes: The nodes by type, with or without features.
        links: By edge type, node numbers ``[2, E]``.
        target: The node type that always keeps its features.
        how: What the other types get: ``"mean"`` spreads from the target alone, as in the paper;
            ``"onehot"`` is one id per node; ``"given"`` keeps what is there and spreads to the
            types without; ``"given-onehot"`` keeps it and gives these one id per node.

    Returns:
        The same nodes with features in every type, sparse CSR where they were filled in.
    """
    check_features(how)
    if target not in nodes:
        raise HanmeError(f"Expected `target` to be one of {list(nodes)}, but got {target!r}")
    keep = how in ("given", "given-onehot")
    x = {t: n.x for t, n in nodes.items() if n.x is not None and (keep or t == target)}
    if how in ("mean", "given"):
        x |= _spread(nodes, links, x)
    for kind in nodes:
        if kind not in x:
            x[kind] = to_torch(eye_array(nodes[kind].num_nodes, dtype=np.float32, format="csr"))
    return {kind: replace(n, x=x[kind]) for kind, n in nodes.items()}


def _spread(
    nodes: Mapping[str, Nodes],
    links: Links,
    x: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return the means of the types without features, as far as features reach."""
    known = {kind: to_scipy(x[kind]) for kind in nodes if kind in x}
    found: dict[str, Tensor] = {}
    while True:
        unknown = [kind for kind in nodes if kind not in known]
        means = {kind: _neighbour_means(nodes, links, kind, known) for kind in unknown}
        reached = {kind: mean for kind, mean in means.items() if mean is not None}
        if not reached:
            return found
        known |= reached
        found |= {kind: to_torch(mean) for kind, mean in reached.items()}


def _neighbour_means(
    nodes: Mapping[str, Nodes],
    links: Links,
    kind: str,
    known: Mapping[str, csr_array],
) -> csr_array | None:
    means = []
    for neighbour, x in known.items():
        relations = [e for e in links if e[0] == neighbour and e[2] == kind]
        if relations:
            # All relations between the two types count alike.
            source, end = torch.cat([links[e] for e in relations], dim=1).cpu().numpy()
            shape = nodes[kind].num_nodes, nodes[neighbour].num_nodes
            matrix = coo_array((np.ones(len(end), np.float32), (end, source)), shape=shape).tocsr()
            scale = (1 / np.maximum(matrix.sum(axis=1), 1)).astype(np.float32)
            mean = matrix @ x
            mean.data *= np.repeat(scale, np.diff(mean.indptr))
            means.append(mean)
    if len(means) > 1:
        return csr_array(hstack(means, format="csr"))
    return means[0] if means else None


def to_scipy(x: Tensor) -> csr_array:
    """Turn a feature matrix, dense or sparse, into SciPy's CSR."""
    x = x.detach().cpu().to_sparse_csr()
    arrays = x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()
    return csr_array(arrays, shape=tuple(x.shape))


def to_torch(matrix: csr_array) -> Tensor:
    """Turn SciPy's CSR into a sparse tensor of float32 values and int64 indices."""
    if not matrix.has_canonical_format:  # products leave any order; PyTorch wants them sorted
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        size=matrix.shape,
        check_invariants=False,  # True is a state of the whole process that threads leave behind
    )
