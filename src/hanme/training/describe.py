"""What is in a graph, and what its metapaths would cost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.chain import Chain
from hanme.metapath import metapaths_between
from hanme.ops import BACKENDS
from hanme.ops.cost import memory
from hanme.training.metrics import as_matrix


def describe(graph: HeteroData, hops: int, hidden: int, heads: int) -> dict[str, Any]:
    """Node types, relations, target and the metapaths that return to it, for people or JSON."""
    store = graph[graph.target]
    dropped: dict[str, int] = graph.dropped if "dropped" in graph else {}
    sizes = {t: graph[t].num_nodes for t in graph.node_types}
    given = as_matrix(store.y, len(store.label_names))
    sorted_links = {e: _sorted(graph[e].edge_index) for e in graph.edge_types}
    metapaths = []
    for metapath in metapaths_between(graph.metadata(), graph.target, hops):
        chain = Chain.build(metapath, sorted_links, sizes)
        count = chain.count()
        instances, most = int(count.sum()), int(count.max())
        metapaths.append(
            {
                "metapath": metapath.text,
                "instances": instances,
                "roots": int((count > 0).sum()),
                "most": most,
                "bytes": {name: memory(name, chain, heads, hidden // heads) for name in BACKENDS},
            }
        )
    return {
        "nodes": [
            {
                "type": t,
                "nodes": sizes[t],
                "features": graph[t].x.size(1) if "x" in graph[t] else 0,
                "set": _set(graph[t].x) / max(1, sizes[t]) if "x" in graph[t] else 0.0,
            }
            for t in graph.node_types
        ],
        "relations": [
            {
                "relation": "-".join(e),
                "links": graph[e].edge_index.size(1),
                "dropped": dropped.get(e[1], 0),
            }
            for e in graph.edge_types
        ],
        "target": {
            "type": graph.target,
            "labels": list(store.label_names),
            "counts": given.sum(0).tolist(),
            "labelled": int(given.any(1).sum()),
            "nodes": sizes[graph.target],
            "multilabel": bool(graph.multilabel),
            **{name: int(store[f"{name}_mask"].sum()) for name in ("train", "val", "test")},
        },
        "metapaths": sorted(metapaths, key=lambda row: row["instances"]),
    }


def _sorted(edge_index: Tensor) -> Tensor:
    """Sorted once for all metapaths that go over it."""
    source, target = edge_index
    order = torch.argsort(target, stable=True)
    return edge_index[:, order[torch.argsort(source[order], stable=True)]]


def _set(x: Tensor) -> int:
    """How many features are not 0."""
    return int(x.count_nonzero()) if x.layout == torch.strided else x.values().numel()
