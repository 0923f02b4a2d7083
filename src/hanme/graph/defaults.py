"""Choose default metapaths: those that reach other nodes and have few enough instances.

Nothing here lists an instance or sorts a link: both questions cost a pass over the links per hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hanme.common.text import short
from hanme.graph.graph import Graph
from hanme.graph.metapath import Metapath, metapaths_between

BUDGET = 4_000_000
"""Maximum number of instances of all default metapaths together: seconds per epoch."""

LEAST = 0.01
"""Minimum number of instances per target node of a default metapath, if there is another one."""

LIMIT = 4_000_000
"""Maximum number of instances of a single default metapath, where it is the only one."""

BACK_LIMIT = 200_000
"""Maximum number of instances of a default metapath that only leads back: it tells the network what
aggregates tell other learners, and memory grows with the rows on the way."""

ROOTS = 150_000
"""Maximum number of roots of all default metapaths together, each of which takes as long as
hundreds of instances."""


def with_defaults(graph: Graph, candidates: Sequence[str], *, stored: bool = False) -> Graph:
    """Return a copy whose default metapaths are the useful ones of some candidates.

    Left out is a metapath that leads from every root back to this root alone, or that hardly any
    root has, if another one is there. Of the others, those with the fewest instances are kept as
    far as ``BUDGET`` goes, and the smallest in any case if it has fewer than ``LIMIT`` instances.
    If all lead back, those with more than ``BACK_LIMIT`` instances are left out.
    If these are too many for ``ROOTS``, those stay by which most roots reach other nodes; a graph
    that is ``stored`` has no such limit, for it is trained in batches. A metapath without any is
    kept: training refuses it and says why.
    """
    counts, joined, back = dict[str, int](), dict[str, int](), set[str]()
    for text in candidates:
        metapath = Metapath.parse(text, graph.metadata())
        by_root = _instances_by_root(metapath, graph)
        counts[text] = _total(by_root)
        joined[text] = int((by_root > (len(metapath) > 1)).sum())  # one leads back, over two hops
        if leads_back(metapath, graph):
            back.add(text)
    some = sorted((text for text in candidates if counts[text]), key=counts.__getitem__)
    few = {text for text in some if counts[text] < LEAST * graph.targets.num_nodes}
    useful = [text for text in some if text not in back | few]
    if not useful or counts[useful[0]] >= LIMIT:  # what leads back is better than nothing
        back, few = {text for text in back if counts[text] > BACK_LIMIT}, set()
        useful = [text for text in some if text not in back]
    kept, total = set[str](), 0
    for text in useful:
        total += counts[text]
        if total <= BUDGET or (not kept and counts[text] < LIMIT):
            kept.add(text)
    most = len(kept) if stored else max(1, ROOTS // max(1, graph.targets.num_nodes))
    busiest = sorted(kept, key=lambda text: (-joined[text], counts[text], text))[:most]
    left_out = {
        text: f"it leads from every {graph.target} back to the same {graph.target} only; linear "
        "model and trees aggregate its rows"
        if text in back
        else f"only {counts[text]} instances"
        if text in few
        else f"there is time for {len(busiest)}, and others join as many nodes or more"
        if text in kept
        else f"{short(counts[text])} instances"
        for text in some
        if text not in busiest
    }
    kept_texts = [text for text in candidates if text not in left_out]
    return replace(graph, metapaths=kept_texts).with_provenance(left_out_metapaths=left_out)


def there_and_back(graph: Graph) -> Graph:
    """Return a graph with default metapaths; one that has none yet gets those of two hops."""
    if graph.metapaths or graph.provenance.left_out_metapaths:
        return graph
    found = metapaths_between(graph.metadata(), graph.target, 2)
    return with_defaults(graph, [metapath.text for metapath in found])


def why_none(graph: Graph) -> str:
    """Say why a graph has no default metapath."""
    left_out = graph.provenance.left_out_metapaths
    if not left_out:
        return _why_no_candidate(graph)
    return (
        "no default metapath is useful and small enough: "
        f"{', '.join(f'{text} ({why})' for text, why in left_out.items())}; -m uses one all "
        "the same, with --per-root 32 some of its instances"
    )


def _why_no_candidate(graph: Graph) -> str:
    """Say which relation is missing for a metapath of two hops."""
    target, steps = graph.target, graph.edge_types
    out = [step for step in steps if step[0] == target]
    into = [step for step in steps if step[2] == target]
    if not out and not into:
        return f"no relation starts or ends at {target}"
    ends = ", ".join(dict.fromkeys(step[2] for step in out))
    missing = f"leads from {ends} back to {target}" if out else f"starts at {target}"
    return f"no relation {missing} (add the reverse of {(out or into)[0]}, see PyG's ToUndirected)"


def instances(metapath: Metapath, graph: Graph) -> int:
    """Count the instances of a metapath; from 2^53 on, about, and never more than 10^300."""
    return _total(_instances_by_root(metapath, graph))


def _instances_by_root(metapath: Metapath, graph: Graph) -> Tensor:
    ways = torch.ones(graph.sizes[metapath.node_types[-1]], dtype=torch.double)
    for step in reversed(metapath.steps):
        found = torch.zeros(graph.sizes[step[0]], dtype=torch.double)
        for source, target in graph.link_chunks(step):
            found.index_add_(0, source, ways[target])
        ways = found
    return ways


def _total(by_root: Tensor) -> int:
    return int(by_root.sum().clamp(max=1e300))


def leads_back(metapath: Metapath, graph: Graph) -> bool:
    """Return whether a metapath has instances and all of them end at the node they start from.

    The first and the last of the roots that reach a node are enough to know: of an end, both have
    to be the end itself.
    """
    if metapath.node_types[-1] != metapath.root:
        return False
    size = graph.sizes[metapath.root]
    roots = torch.arange(size)
    first, last = roots, roots
    for step in metapath.steps:
        nodes = graph.sizes[step[2]]
        lowest, highest = torch.full((nodes,), size), torch.full((nodes,), -1)
        for source, target in graph.link_chunks(step):
            lowest.scatter_reduce_(0, target, first[source], "amin")
            highest.scatter_reduce_(0, target, last[source], "amax")
        first, last = lowest, highest
    reached = last >= 0
    return bool(reached.any() and ((first == roots) & (last == roots))[reached].all())
