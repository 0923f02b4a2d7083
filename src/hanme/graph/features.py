"""Features: fill in those of node types that have none; name those of tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, eye_array, hstack
from torch import Tensor

from hanme.errors import check_choice
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Nodes

if TYPE_CHECKING:
    from hanme.graph.graph import Graph

Features = Literal["mean", "onehot", "given", "given-onehot", "names"]
"""What node types other than the target get, see :func:`fill_features`."""

NAME_WORD = re.compile(r"[^\W_]+")
"""A word of a name such as ``death_of_wife`` or ``James_Cameron``."""


def check_features(how: str) -> None:
    """Raise if `how` is none of the choices."""
    check_choice("features", how, get_args(Features))


def fill_features(
    nodes: Mapping[str, Nodes], links: Mapping[EdgeType, Tensor], target: str, how: Features
) -> dict[str, Nodes]:
    r"""Return the nodes with features in every type, sparse CSR where they were filled in.

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
            types without; ``"given-onehot"`` keeps it and gives these one id per node;
            ``"names"`` is the words of the nodes' names, and as ``"mean"`` for types without names.
    """
    check_features(how)
    check_choice("target", target, nodes)
    if how == "names":
        nodes = {t: n if t == target else replace(n, x=name_words(n)) for t, n in nodes.items()}
    plan = dict(to_fill(nodes, links, target, how))
    read = {other for neighbours in plan.values() for other in neighbours}
    x = {t: to_scipy(n.x) for t, n in nodes.items() if t in read - plan.keys() and n.x is not None}
    for kind, neighbours in plan.items():
        size, means = nodes[kind].num_nodes, []
        for other, relations in neighbours.items():  # relations between two types count alike
            source, end = torch.cat([links[e] for e in relations], dim=1).cpu().numpy()
            means.append(mean_rows(end, source, size, x[other]))
        x[kind] = csr_array(hstack(means) if means else eye_array(size, dtype=np.float32))
    return {t: replace(n, x=to_torch(x[t])) if t in plan else n for t, n in nodes.items()}


def to_fill(
    nodes: Mapping[str, Nodes], edge_types: Collection[EdgeType], target: str, how: Features
) -> Iterator[tuple[str, dict[str, list[EdgeType]]]]:
    """Yield the node types to fill in, in an order in which each has what it needs.

    With each, the relations into it by neighbouring type; none for a type that gets one-hot ids.
    """
    keep = how in ("given", "given-onehot", "names")
    known = [k for k, n in nodes.items() if n.width is not None and (keep or k == target)]
    reached = known if how in ("mean", "given", "names") else []
    while reached:
        reached = []
        for kind in (kind for kind in nodes if kind not in known):
            into = {t: [e for e in edge_types if (e[0], e[2]) == (t, kind)] for t in known}
            if neighbours := {other: some for other, some in into.items() if some}:
                reached.append(kind)
                yield kind, neighbours
        known += reached
    yield from ((kind, {}) for kind in nodes if kind not in known)


def name_words(nodes: Nodes) -> Tensor | None:
    """Return which words the name of each node has, of those in at least two names."""
    if nodes.names is None:
        return None
    words = [{w.lower() for w in NAME_WORD.findall(name)} for name in nodes.names]
    count = Counter(w for some in words for w in some)
    place = {w: i for i, w in enumerate(sorted(w for w, n in count.items() if n > 1))}
    rows = [[place[w] for w in sorted(some) if w in place] for some in words]
    indices = np.array([i for row in rows for i in row], np.int64)
    indptr = np.cumsum([0, *map(len, rows)])
    ones = np.ones(len(indices), np.float32)
    return to_torch(csr_array((ones, indices, indptr), shape=(len(rows), len(place))))


def mean_rows(
    row: NDArray[np.int64], place: NDArray[np.int64], rows: int, x: csr_array | NDArray[np.float32]
) -> csr_array:
    """Return for each of some rows the mean of the rows of `x` at its places."""
    ones = np.ones(len(row), np.float32)
    matrix = coo_array((ones, (row, place)), shape=(rows, x.shape[0])).tocsr()
    scale = (1 / np.maximum(matrix.sum(axis=1), 1)).astype(np.float32)
    mean = csr_array(matrix @ x)
    mean.data *= np.repeat(scale, np.diff(mean.indptr))
    return mean


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


def feature_names(graph: Graph, node_type: str) -> list[str]:
    """Name each feature of a node type by its columns, or by those of which it has the means.

    Without columns there are no names.
    """
    columns = (graph.provenance.fitted or {}).get("features", {})
    names = {
        kind: [name for column, learnt in own.items() for name in _names_of(column, learnt)]
        for kind, own in columns.items()
    }
    if names.get(node_type) or node_type not in graph.nodes:
        return names.get(node_type, [])
    beside = [t for t in graph.nodes if any(e[0] == t and e[2] == node_type for e in graph.links)]
    means = [f"mean {name} of {t}" for t in beside for name in names.get(t, [])]
    return means if len(means) == graph.nodes[node_type].width else []


def _names_of(column: str, learnt: Mapping[str, Any]) -> list[str]:
    if "values" in learnt or "words" in learnt:
        return [f"{column}: {value}" for value in learnt.get("values", learnt.get("words"))]
    if isinstance(learnt.get("mean"), list):
        return [f"{column}[{i}]" for i in range(len(learnt["mean"]))]
    near = [f"{column} near {knot:g}" for knot in learnt.get("knots", [])]
    return [column, *near, *[f"{column} empty"] * learnt.get("gaps", False)]
