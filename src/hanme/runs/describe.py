"""Describe a graph, and estimate what attention over its metapaths costs on this machine."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from hanme.common.text import duration, short
from hanme.graph import Graph
from hanme.graph.defaults import instances, leads_back
from hanme.graph.metapath import Metapath, count_between, metapaths_between
from hanme.nn.batch import Batch
from hanme.nn.channels import MetapathChannels
from hanme.nn.model import Model
from hanme.ops import BACKENDS, choose_backend
from hanme.ops.cost import memory, readable
from hanme.runs.build import build_network
from hanme.runs.config import ModelConfig

LARGEST = 4096
"""Largest hidden size for which the time per epoch is measured: a larger one takes too long."""
DEFAULT, BACK = "default", "leads back only"
SAMPLE = 1_000_000
"""Number of instances that a measurement visits, if there are more: below a second."""


def describe(graph: Graph, hops: int, hidden: int, heads: int, limit: int) -> dict[str, Any]:
    """Describe node types, relations, target and the metapaths that return to it, as JSON.

    Args:
        graph: The graph.
        hops: Maximum length of a metapath.
        hidden: Hidden size for which memory and time are estimated.
        heads: Number of heads for which they are estimated.
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
        "seconds_per_epoch": _seconds(graph, hidden, heads),
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


def _seconds(graph: Graph, hidden: int, heads: int) -> float | None:
    """Estimate the time per epoch with the default metapaths; None if it cannot be measured."""
    metadata = graph.metadata()
    used = [text for text in graph.metapaths if instances(Metapath.parse(text, metadata), graph)]
    if hidden % heads or hidden > LARGEST or not used:
        return None
    options = {"metapaths": used, "hidden_channels": hidden, "heads": heads}
    model = build_network(ModelConfig(name="hanme", options=options), graph)
    return seconds_per_epoch(model, graph)


def costs(model: Model, graph: Graph) -> list[str]:
    """Describe instances and memory per metapath, and the time per epoch, a line each.

    The time is unknown, and left out, for a stored graph and for sampled instances.
    """
    parts, batch = _metapath_channels(model), Batch(graph.x_dict, graph.edge_index_dict)
    if not parts:
        return []
    lines = []
    for part in parts if not graph.stored else ():
        backend = choose_backend(part.backend, graph.y.device)
        for chain in part.chains(batch):
            needed = readable(memory(backend, chain, part.heads, part.out_channels // part.heads))
            count = short(int(chain.count().sum()))
            lines.append(f"{chain.metapath}: {count} instances, backend {backend}, about {needed}")
    if [name for part in parts for name in part.names] == graph.metapaths:
        lines += [
            f"{metapath}: left out, {why}; -m names the metapaths to use, such as this one"
            for metapath, why in graph.provenance.left_out_metapaths.items()
        ]
    if graph.stored or any(part.per_root for part in parts):
        return lines
    seconds = duration(seconds_per_epoch(model, graph))
    return [*lines, f"An epoch takes about {seconds} on this machine"]


def seconds_per_epoch(model: Model, graph: Graph) -> float:
    """Estimate the seconds per epoch: a training step, and the scores after it.

    All features are projected, and a random sample of roots attends to its instances, as in an
    epoch. What follows attention is left out: it takes little.
    """
    parts, batch = _metapath_channels(model), Batch(graph.x_dict, graph.edge_index_dict)
    with torch.random.fork_rng(devices=[]):
        chains = [chain for part in parts for chain in part.chains(batch)]
        counts = torch.stack([chain.count().double() for chain in chains]).sum(0) + 1
        order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0))
        total = counts[order].cumsum(0)
        sample = order[: int((total < SAMPLE).sum()) + 1].sort().values
        without = _pass(parts, batch, torch.zeros(1, dtype=torch.long))  # loads compiled code
        without = min(without, _pass(parts, batch, torch.zeros(1, dtype=torch.long)))
        sampled = _pass(parts, batch, sample)
    return without + max(0.0, sampled - without) * float(total[-1] / total[len(sample) - 1])


def _metapath_channels(model: Model) -> list[MetapathChannels]:
    return [part for part in model.modules() if isinstance(part, MetapathChannels)]


def _pass(parts: list[MetapathChannels], batch: Batch, roots: Tensor) -> float:
    """Attend to the instances of some roots as an epoch does; return the seconds it took."""
    began = time.perf_counter()
    for training in (True, False):
        with torch.set_grad_enabled(training):
            for part in parts:
                part.train(training)
                backend = BACKENDS[choose_backend(part.backend, roots.device)]
                vectors = [
                    backend(replace(traced.problem, roots=roots, dropout=training * part.dropout))
                    for traced in part.trace(batch)
                ]
                if training:
                    torch.stack([z.sum() for z in vectors]).sum().backward()  # type: ignore[no-untyped-call]
                    part.zero_grad(set_to_none=True)
    return time.perf_counter() - began
