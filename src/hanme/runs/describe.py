"""Describe a graph, and estimate the memory of attention over its metapaths."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from hanme.common.text import short
from hanme.graph import Graph
from hanme.graph.defaults import leads_back
from hanme.graph.metapath import Metapath, count_between, metapaths_between
from hanme.linear.search import search_metapaths
from hanme.nn.batch import Batch
from hanme.nn.model import Model
from hanme.ops import BACKENDS, choose_backend
from hanme.ops.cost import memory, readable
from hanme.runs.build import metapath_channels

DEFAULT, BACK = "default", "leads back only"


def describe(graph: Graph, hops: int, hidden: int, heads: int, limit: int) -> dict[str, Any]:
    """Describe node types, relations, target and the metapaths that return to it, as JSON.

    Args:
        graph: The graph.
        hops: Maximum length of a metapath.
        hidden: Hidden size for which memory is estimated.
        heads: Number of heads for which it is estimated.
        limit: Number of metapaths: the default ones, then the shortest.
    """
    labels, dropped = graph.label_matrix, graph.provenance.dropped_links
    metapaths = _metapaths(graph, hops, hidden, heads, limit)
    return {
        "nodes": [
            {
                "type": kind,
                "nodes": nodes.num_nodes,
                "features": graph.widths.get(kind, 0),
                "nonzero_per_node": _nonzero(nodes.x) / max(1, nodes.num_nodes),
            }
            for kind, nodes in graph.nodes.items()
        ],
        "relations": [
            {"relation": "-".join(e), "links": links.size(1), "dropped": dropped.get(e[1], 0)}
            for e, links in graph.links.items()
        ],
        "notes": graph.provenance.notes,
        "target": {
            "type": graph.target,
            "labels": graph.labels,
            "counts": labels.sum(0).tolist(),
            "labelled": int(labels.any(1).sum()),
            "nodes": graph.targets.num_nodes,
            "multilabel": graph.multilabel,
            **{part: int(mask.sum()) for part, mask in graph.split.parts().items()},
        },
        "left_out": graph.provenance.left_out_metapaths,
        "metapaths": metapaths,
        "more_metapaths": count_between(graph.metadata(), graph.target, hops) - len(metapaths),
    }


def _nonzero(x: Tensor | None) -> int:
    if x is None:
        return 0
    return int(x.count_nonzero()) if x.layout == torch.strided else x.values().numel()


def _metapaths(
    graph: Graph, hops: int, hidden: int, heads: int, limit: int
) -> list[dict[str, Any]]:
    """Describe the default metapaths, then the shortest ones that return to the target."""
    metadata = graph.metadata()
    defaults, left_out = (
        {Metapath.parse(text, metadata): None for text in texts}
        for texts in (graph.metapaths, graph.provenance.left_out_metapaths)
    )
    others = (m for m in metapaths_between(metadata, graph.target, hops) if m not in defaults)
    chosen = [m for m in defaults if len(m) <= hops]
    rows = []
    for metapath in [*chosen, *islice(others, max(0, limit - len(defaults)))]:
        chain = graph.chain(metapath)
        count = chain.count()
        use = "left out" if metapath in left_out else ""
        use = BACK if leads_back(metapath, graph) else use
        rows.append(
            {
                "metapath": metapath.text,
                "use": DEFAULT if metapath in defaults else use,
                "instances": int(count.sum()),
                "nodes_with_instances": int((count > 0).sum()),
                "largest_per_node": int(count.max()),
                "bytes": {name: memory(name, chain, heads, hidden // heads) for name in BACKENDS},
            }
        )
    order = {DEFAULT: 0, BACK: 2}
    return sorted(rows, key=lambda row: (order.get(row["use"], 1), row["instances"]))


def searched(graph: Graph, hops: int, limit: int, budget: int) -> list[dict[str, Any]]:
    """Rank the shortest metapaths that return to the target, see :func:`search_metapaths`."""
    candidates = islice(metapaths_between(graph.metadata(), graph.target, hops), limit)
    found = search_metapaths(graph, candidates, budget)
    return [row._asdict() | {"metapath": row.metapath.text} for row in found]


def costs(model: Model, graph: Graph) -> list[str]:
    """Describe instances and memory per metapath, a line each; a stored graph is not counted."""
    parts, batch = metapath_channels(model), Batch(graph.x_dict, graph.edge_index_dict)
    lines = []
    for part in parts if not graph.stored else ():
        backend = choose_backend(part.backend, graph.y.device)
        for chain in part.chains(batch):
            needed = readable(memory(backend, chain, part.heads, part.out_channels // part.heads))
            count = short(int(chain.count().sum()))
            lines.append(f"{chain.metapath}: {count} instances, backend {backend}, about {needed}")
    if parts and [name for part in parts for name in part.names] == graph.metapaths:
        lines += [
            f"{metapath}: left out, {why}; -m names the metapaths to use, such as this one"
            for metapath, why in graph.provenance.left_out_metapaths.items()
        ]
    return lines
