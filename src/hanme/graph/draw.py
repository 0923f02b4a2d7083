"""Draw metapath instances of some nodes of a graph by number, without listing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import torch
from torch import Tensor

from hanme.common.csr import indptr_of
from hanme.common.draws import distinct, keyed
from hanme.errors import HanmeError
from hanme.graph.metapath import EdgeType

if TYPE_CHECKING:
    from hanme.graph.graph import Graph

Walk = tuple[EdgeType, ...]
"""The relations that are walked from a root, one after another."""


def draw(graph: Graph, walk: Walk, roots: Tensor, n: int, seed: int) -> Tensor:
    """Draw at most ``n`` instances of each root along a walk, evenly and without replacement.

    Numbers are drawn first and then walked to, by the number of ways on from each node. So the cost
    is that of the links of the nodes on the way, up to the last hop but one. A root's draw depends
    on its number, the walk and the seed, not on the other roots, which are distinct and ascending.

    Returns:
        The nodes of each instance, ``[P, L + 1]``, by root and number.
    """
    fan = _Fan.of(graph, walk, roots)
    keys = keyed(crc32(repr(walk).encode()), keyed(seed, roots))
    row, rest = distinct(keys, fan.ways(), n)
    nodes = [roots[row]]
    for hop in range(len(walk)):
        if hop:
            met, row = torch.unique(nodes[-1], return_inverse=True)
            fan = _Fan.of(graph, walk[hop:], met)
        node, rest = fan.follow(row, rest)
        nodes.append(node)
    return torch.stack(nodes, 1)


@dataclass(frozen=True)
class _Fan:
    """The links of some nodes, and how many ways on there are through those before each.

    At the last hop there is one way through each link, and links are read when they are walked.
    """

    graph: Graph
    step: EdgeType
    begin: Tensor  # where the links of each node begin, in ``ends`` or in the relation
    total: Tensor  # of each node, at the last hop; else the ways through all links before each
    ends: Tensor | None

    @classmethod
    def of(cls, graph: Graph, walk: Walk, nodes: Tensor) -> _Fan:
        """Open the links of some distinct nodes."""
        links = graph.adjacency(walk[0])
        if len(walk) == 1:
            begin, end = links.bounds(nodes)
            return cls(graph, walk[0], begin, end - begin, None)
        parent, ends = links.links(nodes)
        begin = indptr_of(torch.bincount(parent, minlength=nodes.numel()))
        return cls(graph, walk[0], begin, indptr_of(_ways(graph, walk[1:], ends)), ends)

    def ways(self) -> Tensor:
        """Return the number of ways on from each node."""
        if self.ends is None:
            return self.total
        return self.total[self.begin[1:]] - self.total[self.begin[:-1]]

    def follow(self, row: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """Return where ways lead in one step, and their numbers among those from there.

        A way is given by the ``row`` of the node it starts from and its number there.
        """
        if self.ends is None:
            links = self.graph.adjacency(self.step)
            return links.ends(self.begin[row] + number), torch.zeros_like(number)
        number = self.total[self.begin[row]] + number
        link = torch.searchsorted(self.total, number, right=True) - 1
        return self.ends[link], number - self.total[link]


def _ways(graph: Graph, walk: Walk, nodes: Tensor) -> Tensor:
    """Count the ways to walk on from some nodes."""
    if len(walk) == 1:
        begin, end = graph.adjacency(walk[0]).bounds(nodes)
        return end - begin
    if walk not in graph.ways:
        graph.ways[walk] = _all_ways(graph, walk)
    return graph.ways[walk][nodes]


def _all_ways(graph: Graph, walk: Walk) -> Tensor:
    """Count the ways from all nodes of a type, reading some links at a time."""
    found = torch.zeros(graph.nodes[walk[0][0]].num_nodes, dtype=torch.long)
    total = 0.0
    for sources, ends in graph.link_chunks(walk[0]):
        onward = _ways(graph, walk[1:], ends)
        total += float(onward.double().sum())
        if total >= 2.0**62:
            path = "-".join([walk[0][0], *(step[2] for step in walk)])
            raise HanmeError(f"{path}: more than 2^62 instances; take a shorter metapath")
        found.index_add_(0, sources, onward)
    return found
