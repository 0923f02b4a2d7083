"""What is in a graph, and what its metapaths would cost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hanme.chain import Chain
from hanme.graph import Graph
from hanme.graph.defaults import leads_back
from hanme.metapath import Metapath, metapaths_between
from hanme.ops import BACKENDS
from hanme.ops.cost import memory

DEFAULT, BACK = "default", "leads back only"


def describe(graph: Graph, hops: int, hidden: int, heads: int) -> dict[str, Any]:
    """Return node types, relations, target and the metapaths that return to it, as JSON has it."""
    given = graph.label_matrix
    sorted_links = {e: _sorted(links) for e, links in graph.links.items()}
    metapaths = list[dict[str, Any]]()
    for metapath in metapaths_between(graph.metadata(), graph.target, hops):
        chain = Chain.build(metapath, sorted_links, graph.sizes)
        count = chain.count()
        metapaths.append(
            {
                "metapath": metapath.text,
                "use": _use(metapath, graph),
                "instances": int(count.sum()),
                "roots": int((count > 0).sum()),
                "most": int(count.max()),
                "bytes": {name: memory(name, chain, heads, hidden // heads) for name in BACKENDS},
            }
        )
    return {
        "nodes": [
            {
                "type": kind,
                "nodes": nodes.num_nodes,
                "features": graph.widths.get(kind, 0),
                "set": _set(nodes.x) / max(1, nodes.num_nodes),
            }
            for kind, nodes in graph.nodes.items()
        ],
        "relations": [
            {
                "relation": "-".join(e),
                "links": links.size(1),
                "dropped": graph.dropped.get(e[1], 0),
            }
            for e, links in graph.links.items()
        ],
        "notes": graph.notes,
        "target": {
            "type": graph.target,
            "labels": graph.labels,
            "counts": given.sum(0).tolist(),
            "labelled": int(given.any(1).sum()),
            "nodes": graph.targets.num_nodes,
            "multilabel": graph.multilabel,
            **{part: int(mask.sum()) for part, mask in graph.split.parts().items()},
        },
        "left_out": graph.left_out,
        "metapaths": sorted(metapaths, key=_usefulness),
    }


def _use(metapath: Metapath, graph: Graph) -> str:
    """Return what becomes of a metapath where a user names none."""
    defaults, left_out = (
        [Metapath.parse(text, graph.metadata()) for text in texts]
        for texts in (graph.metapaths, graph.left_out)
    )
    if metapath in defaults:
        return DEFAULT
    if leads_back(metapath, graph):
        return BACK
    return "left out" if metapath in left_out else ""


def _usefulness(row: dict[str, Any]) -> tuple[bool, bool, int]:
    """Sort the default metapaths first and those that lead only back last, each by instances."""
    return row["use"] != DEFAULT, row["use"] == BACK, row["instances"]


def _sorted(edge_index: Tensor) -> Tensor:
    """Sort links once for all metapaths that go over them."""
    source, target = edge_index
    order = torch.argsort(target, stable=True)
    return edge_index[:, order[torch.argsort(source[order], stable=True)]]


def _set(x: Tensor | None) -> int:
    """Count the features that are not 0."""
    if x is None:
        return 0
    return int(x.count_nonzero()) if x.layout == torch.strided else x.values().numel()
