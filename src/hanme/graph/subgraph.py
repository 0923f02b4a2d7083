"""The part of a graph that is reachable from some target nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.graph import Graph
from hanme.graph.metapath import EdgeType, Walk
from hanme.graph.nodes import Nodes, Picked
from hanme.graph.sampling import sample_instances


@dataclass
class Subgraph(Graph):
    """A graph in memory with the nodes and links that some target nodes reach along walks.

    Args:
        roots: Positions of these target nodes in the subgraph, ``[R]``, in the order requested.
        sampled_instances: By walk, the instances to attend to, as node positions ``[P, L + 1]``
            grouped by root (default: all instances).
    """

    roots: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    sampled_instances: dict[Walk, Tensor] | None = None

    @property
    def original_ids(self) -> dict[str, Tensor]:
        """The numbers of its nodes in the original graph, by type."""
        return {t: n.original_ids for t, n in self.nodes.items() if n.original_ids is not None}


def subgraph(
    graph: Graph,
    roots: Tensor,
    walks: Sequence[Walk],
    samples: Mapping[Walk, int] | None = None,
    seed: int = 0,
) -> Subgraph:
    """Extract what walks from some roots reach; the cost is that of what is reached.

    Every node keeps all links that a walk can take from it, so whatever is computed along the walks
    is the same for these roots as on the whole graph.

    Args:
        graph: The graph.
        roots: Numbers of target nodes, in any order, possibly repeated.
        walks: The walks, each starting at the target type; none for the roots alone.
        samples: Walks to sample, and the maximum number of instances per root.
        seed: Seed of the sample.
    """
    size = graph.targets.num_nodes
    if roots.numel() and not 0 <= int(roots.min()) <= int(roots.max()) < size:
        raise HanmeError(f"Expected `roots` to be from 0 to {size - 1}, but got {roots.tolist()}")
    reached: dict[Walk, Tensor] = {(): torch.unique(roots)}  # by the part of a walk to there
    sources: dict[EdgeType, list[Tensor]] = {}
    nodes: dict[str, list[Tensor]] = {kind: [] for kind in graph.nodes}
    nodes[graph.target].append(reached[()])
    for walk in walks:
        for hop, step in enumerate(walk):
            if walk[: hop + 1] not in reached:
                source = reached[walk[:hop]]
                sources.setdefault(step, []).append(source)
                ends = torch.unique(graph.adjacency(step).links(source)[1])
                reached[walk[: hop + 1]] = ends
                nodes[step[2]].append(ends)
    sampled = {
        walk: sample_instances(graph, walk, reached[()], n, seed)
        for walk, n in (samples or {}).items()
    }
    for walk, instances in sampled.items():
        for step, ends in zip(walk, instances.t()[1:], strict=True):
            nodes[step[2]].append(torch.unique(ends))
    ids = {kind: _union(parts) for kind, parts in nodes.items()}
    y, split = graph.labels_of(ids[graph.target])
    return Subgraph(
        nodes={kind: _nodes(graph.nodes[kind], some) for kind, some in ids.items()},
        links={e: _links(graph, e, _union(sources.get(e, [])), ids) for e in graph.edge_types},
        target=graph.target,
        y=y,
        labels=graph.labels,
        split=split,
        metapaths=graph.metapaths,
        visible=None if graph.visible is None else graph.visible[ids[graph.target]],
        provenance=graph.provenance,
        roots=torch.searchsorted(ids[graph.target], roots),
        sampled_instances=None
        if samples is None
        else {walk: _positions(instances, walk, ids) for walk, instances in sampled.items()},
    )


def _positions(instances: Tensor, walk: Walk, ids: Mapping[str, Tensor]) -> Tensor:
    """Return the positions of the nodes of instances, ``[P, L + 1]``, in a subgraph."""
    types = (walk[0][0], *(step[2] for step in walk))
    columns = zip(types, instances.t().contiguous(), strict=True)
    return torch.stack([torch.searchsorted(ids[kind], some) for kind, some in columns], 1)


def _links(graph: Graph, e: EdgeType, nodes: Tensor, ids: Mapping[str, Tensor]) -> Tensor:
    """Return all links of some nodes, as positions in a subgraph, ``[2, E]``."""
    if not nodes.numel():
        return torch.empty(2, 0, dtype=torch.long)
    parent, ends = graph.adjacency(e).links(nodes)
    source = torch.searchsorted(ids[e[0]], nodes)[parent]
    return torch.stack([source, torch.searchsorted(ids[e[2]], ends)])


def _nodes(nodes: Nodes, ids: Tensor) -> Nodes:
    return Nodes(
        nodes.kind,
        ids.numel(),
        nodes.rows(ids),
        None if nodes.names is None else Picked(nodes.names, ids),
        None if nodes.ids is None else Picked(nodes.ids, ids),
        original_ids=ids,
    )


def _union(sets: list[Tensor]) -> Tensor:
    if len(sets) == 1:
        return sets[0]
    return torch.unique(torch.cat(sets)) if sets else torch.empty(0, dtype=torch.long)
