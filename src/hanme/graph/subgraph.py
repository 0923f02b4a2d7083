"""The part of a graph that is reachable from some target nodes, and samples of their instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from hanme.common.arrays import indptr_of, keyed, repeat, within
from hanme.errors import HanmeError
from hanme.graph.chain import checked_roots
from hanme.graph.graph import Graph
from hanme.graph.metapath import EdgeType, Walk
from hanme.graph.nodes import Nodes, Picked


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
    checked_roots(roots, graph.targets.num_nodes)
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
    walked = {e: _union(sources.get(e, [])) for e in graph.links}
    features = {e: graph.adjacency(e).features(some) for e, some in walked.items()}
    return Subgraph(
        nodes={kind: _nodes(graph.nodes[kind], some) for kind, some in ids.items()},
        links={e: _links(graph, e, some, ids) for e, some in walked.items()},
        target=graph.target,
        y=y,
        labels=graph.labels,
        split=split,
        metapaths=graph.metapaths,
        visible=None if graph.visible is None else graph.visible[ids[graph.target]],
        provenance=graph.provenance,
        edge_attr={e: x for e, x in features.items() if x is not None},
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
    names, own = (
        None if texts is None else Picked(texts, ids) for texts in (nodes.names, nodes.ids)
    )
    return Nodes(nodes.kind, ids.numel(), nodes.rows(ids), names, own, original_ids=ids)


def _union(sets: list[Tensor]) -> Tensor:
    if len(sets) == 1:
        return sets[0]
    return torch.unique(torch.cat(sets)) if sets else torch.empty(0, dtype=torch.long)


def sample_instances(graph: Graph, walk: Walk, roots: Tensor, n: int, seed: int) -> Tensor:
    """Sample at most ``n`` instances of each root along a walk, uniformly, without replacement.

    Numbers are drawn first and then walked to, by the number of completions of each node. The
    sample of a root depends on its number, the walk and the seed, not on the other roots, which
    are distinct and ascending.

    Returns:
        The nodes of each instance, ``[P, L + 1]``, by root and number.
    """
    if n < 1:
        raise HanmeError(f"Expected at least 1 instance per root, but got {n}")
    keys = keyed(crc32(repr(walk).encode()), keyed(seed, roots))
    row, number = distinct(keys, _completions(graph, walk, roots), n)
    nodes = [roots[row]]
    for hop, step in enumerate(walk[:-1], 1):
        sources, row = torch.unique(nodes[-1], return_inverse=True)
        parent, ends = graph.adjacency(step).links(sources)
        before = indptr_of(_completions(graph, walk[hop:], ends))  # through the links before each
        begin = indptr_of(torch.bincount(parent, minlength=sources.numel()))
        number = before[begin[row]] + number
        link = torch.searchsorted(before, number, right=True) - 1
        nodes.append(ends[link])
        number = number - before[link]
    last = graph.adjacency(walk[-1])
    return torch.stack([*nodes, last.ends(last.bounds(nodes[-1])[0] + number)], 1)


def _completions(graph: Graph, walk: Walk, nodes: Tensor) -> Tensor:
    """Count the ways to walk on from some nodes; longer walks are counted once per graph."""
    if len(walk) == 1:
        begin, end = graph.adjacency(walk[0]).bounds(nodes)
        return end - begin
    if walk not in graph.completions:
        counts = torch.zeros(graph.nodes[walk[0][0]].num_nodes, dtype=torch.long)
        total = 0.0
        for sources, ends in graph.link_chunks(walk[0]):
            onward = _completions(graph, walk[1:], ends)
            total += float(onward.double().sum())
            if total >= 2.0**62:
                path = "-".join([walk[0][0], *(step[2] for step in walk)])
                raise HanmeError(f"{path}: more than 2^62 instances; take a shorter metapath")
            counts.index_add_(0, sources, onward)
        graph.completions[walk] = counts
    return graph.completions[walk][nodes]


def distinct(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw at most ``n`` distinct numbers below each row's count; every set of ``n`` is as likely.

    This is Floyd's algorithm: the i-th draw is a number up to ``last``, which rises by one each
    time, and ``last`` itself if that number is there already. What is drawn for a row depends on
    its key (see :func:`keyed`) and count alone. Rows and numbers are returned, ascending.
    """
    many = (counts > n).nonzero().flatten()
    drawn = torch.empty(many.numel(), n, dtype=torch.long)
    for i in range(n if many.numel() else 0):
        last = counts[many] - n + i
        bits = keyed(keys[many], torch.full_like(many, i))
        share = (bits >> 11 & ((1 << 53) - 1)).double() * 2.0**-53
        number = torch.minimum((share * (last + 1)).long(), last)
        drawn[:, i] = torch.where((drawn[:, :i] == number[:, None]).any(1), last, number)
    few = repeat(torch.where(counts > n, 0, counts))
    row, order = torch.cat([few, many.repeat_interleave(n)]).sort(stable=True)
    return row, torch.cat([within(few), drawn.sort(1).values.flatten()])[order]
