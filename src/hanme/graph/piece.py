"""Cut out of a graph what some target nodes touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.draw import Walk, draw
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Nodes
from hanme.graph.texts import Picked

if TYPE_CHECKING:
    from hanme.graph.graph import Graph


def cut(
    graph: Graph,
    roots: Tensor,
    walks: Sequence[Walk],
    draws: Mapping[Walk, int] | None = None,
    seed: int = 0,
) -> tuple[Graph, Tensor]:
    """Return what walks from some roots touch, as a graph in memory, and where the roots are in it.

    Every node keeps all links that a walk can take from it, so whatever is computed along the walks
    is the same for these roots as on the whole graph. The cost is that of what is touched.

    Args:
        graph: The graph.
        roots: Numbers of target nodes, in any order; one may be asked for more than once.
        walks: The walks, each from the target on; none for the roots alone.
        draws: Walks of whose instances only so many are drawn per root: ``drawn`` of the piece.
        seed: Fixes these draws.
    """
    size = graph.targets.num_nodes
    if roots.numel() and not 0 <= int(roots.min()) <= int(roots.max()) < size:
        raise HanmeError(f"Expected `roots` to be from 0 to {size - 1}, but got {roots.tolist()}")
    reached: dict[Walk, Tensor] = {(): torch.unique(roots)}  # by the part of a walk to there
    left: dict[EdgeType, list[Tensor]] = {}
    touched: dict[str, list[Tensor]] = {kind: [] for kind in graph.nodes}
    touched[graph.target].append(reached[()])
    for walk in walks:
        for hop, step in enumerate(walk):
            if walk[: hop + 1] not in reached:
                begin = reached[walk[:hop]]
                left.setdefault(step, []).append(begin)
                ends = torch.unique(graph.adjacency(step).links(begin)[1])
                reached[walk[: hop + 1]] = ends
                touched[step[2]].append(ends)
    drawn = {walk: draw(graph, walk, reached[()], n, seed) for walk, n in (draws or {}).items()}
    for walk, found in drawn.items():
        for step, ends in zip(walk, found.t()[1:], strict=True):
            touched[step[2]].append(torch.unique(ends))
    numbers = {kind: _union(found) for kind, found in touched.items()}
    links = {e: _links(graph, e, _union(left.get(e, [])), numbers) for e in graph.edge_types}
    nodes = {kind: _nodes(graph.nodes[kind], some) for kind, some in numbers.items()}
    piece = graph.of(nodes, links, numbers)
    if draws is not None:
        piece.drawn = {walk: _renumbered(found, walk, numbers) for walk, found in drawn.items()}
    return piece, torch.searchsorted(numbers[graph.target], roots)


def _renumbered(nodes: Tensor, walk: Walk, numbers: Mapping[str, Tensor]) -> Tensor:
    """Return the nodes of instances, ``[P, L + 1]``, in the numbers of the piece."""
    types = (walk[0][0], *(step[2] for step in walk))
    columns = zip(types, nodes.t().contiguous(), strict=True)
    return torch.stack([torch.searchsorted(numbers[kind], some) for kind, some in columns], 1)


def _links(graph: Graph, e: EdgeType, nodes: Tensor, numbers: dict[str, Tensor]) -> Tensor:
    """Return all links of some nodes, in the numbers of the piece."""
    if not nodes.numel():
        return torch.empty(2, 0, dtype=torch.long)
    parent, ends = graph.adjacency(e).links(nodes)
    source = torch.searchsorted(numbers[e[0]], nodes)[parent]
    return torch.stack([source, torch.searchsorted(numbers[e[2]], ends)])


def _nodes(nodes: Nodes, numbers: Tensor) -> Nodes:
    return Nodes(
        nodes.kind,
        numbers.numel(),
        nodes.rows(numbers),
        None if nodes.names is None else Picked(nodes.names, numbers),
        None if nodes.ids is None else Picked(nodes.ids, numbers),
        numbers=numbers,
    )


def _union(sets: list[Tensor]) -> Tensor:
    if len(sets) == 1:
        return sets[0]
    return torch.unique(torch.cat(sets)) if sets else torch.empty(0, dtype=torch.long)
