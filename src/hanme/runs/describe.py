"""What is in a graph, and what its metapaths would cost."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.graph.defaults import instances, leads_back
from hanme.graph.metapath import Metapath, count_between, metapaths_between
from hanme.ops import BACKENDS
from hanme.ops.cost import memory
from hanme.runs.build import pace
from hanme.runs.config import ModelConfig

LARGEST = 4096
"""The largest hidden size with which an epoch is tried."""
DEFAULT, BACK = "default", "leads back only"


def describe(graph: Graph, hops: int, hidden: int, heads: int, limit: int) -> dict[str, Any]:
    """Return node types, relations, target and metapaths that return to it, as JSON has it.

    Args:
        graph: The graph.
        hops: The greatest length of a metapath.
        hidden: The hidden size to estimate memory and time for.
        heads: The number of heads to estimate them for.
        limit: How many metapaths: those used by default, then the shortest.
    """
    given, metadata = graph.label_matrix, graph.metadata()
    sorted_links = {e: graph.adjacency(e).edge_index() for e in graph.links}  # once for all
    defaults, left_out = (
        {Metapath.parse(text, metadata): None for text in texts}
        for texts in (graph.metapaths, graph.provenance.left_out_metapaths)
    )
    short = (m for m in metapaths_between(metadata, graph.target, hops) if m not in defaults)
    some = [*(m for m in defaults if len(m) <= hops), *islice(short, max(0, limit - len(defaults)))]
    metapaths = list[dict[str, Any]]()
    for metapath in some:
        chain = Chain.build(metapath, sorted_links, graph.sizes)
        count = chain.count()
        back = leads_back(metapath, graph)
        use = BACK if back else "left out" if metapath in left_out else ""
        metapaths.append(
            {
                "metapath": metapath.text,
                "use": DEFAULT if metapath in defaults else use,
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
                "dropped": graph.provenance.dropped_links.get(e[1], 0),
            }
            for e, links in graph.links.items()
        ],
        "notes": graph.provenance.notes,
        "target": {
            "type": graph.target,
            "labels": graph.labels,
            "counts": given.sum(0).tolist(),
            "labelled": int(given.any(1).sum()),
            "nodes": graph.targets.num_nodes,
            "multilabel": graph.multilabel,
            **{part: int(mask.sum()) for part, mask in graph.split.parts().items()},
        },
        "left_out": graph.provenance.left_out_metapaths,
        "seconds_per_epoch": _pace(graph, hidden, heads),
        "metapaths": sorted(metapaths, key=_usefulness),
        "more_metapaths": count_between(metadata, graph.target, hops) - len(some),
    }


def _pace(graph: Graph, hidden: int, heads: int) -> float | None:
    """Estimate how long an epoch takes with the default metapaths; None if none can be tried."""
    if hidden % heads or hidden > LARGEST:
        return None
    used = [
        text for text in graph.metapaths if instances(Metapath.parse(text, graph.metadata()), graph)
    ]
    options = {"metapaths": used, "hidden_channels": hidden, "heads": heads}
    return pace(ModelConfig(name="hanme", options=options), graph) if used else None


def _usefulness(row: dict[str, Any]) -> tuple[bool, bool, int]:
    """Sort the default metapaths first and those that lead only back last, each by instances."""
    return row["use"] != DEFAULT, row["use"] == BACK, row["instances"]


def _set(x: Tensor | None) -> int:
    """Count the features that are not 0."""
    if x is None:
        return 0
    return int(x.count_nonzero()) if x.layout == torch.strided else x.values().numel()
