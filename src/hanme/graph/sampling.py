"""Sample metapath instances by number, without listing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import torch
from torch import Tensor

from hanme.common.csr import indptr_of
from hanme.common.draws import distinct, keyed
from hanme.errors import HanmeError
from hanme.graph.metapath import EdgeType, Walk

if TYPE_CHECKING:
    from hanme.graph.graph import Graph


def sample_instances(graph: Graph, walk: Walk, roots: Tensor, n: int, seed: int) -> Tensor:
    """Sample at most ``n`` instances of each root along a walk, uniformly, without replacement.

    Numbers are drawn first and then walked to, by the number of completions of each node. So the
    cost is that of the links of the nodes on the way, up to the last hop but one. The sample of a
    root depends on its number, the walk and the seed, not on the other roots.

    Args:
        graph: The graph.
        walk: The relations, from the root on.
        roots: Numbers of the roots, distinct and ascending.
        n: Maximum number of instances per root.
        seed: Seed of the sample.

    Returns:
        The nodes of each instance, ``[P, L + 1]``, by root and number.
    """
    index = LinkIndex.of(graph, walk, roots)
    keys = keyed(crc32(repr(walk).encode()), keyed(seed, roots))
    row, number = distinct(keys, index.completions(), n)
    nodes = [roots[row]]
    for hop in range(len(walk)):
        if hop:
            sources, row = torch.unique(nodes[-1], return_inverse=True)
            index = LinkIndex.of(graph, walk[hop:], sources)
        node, number = index.step(row, number)
        nodes.append(node)
    return torch.stack(nodes, 1)


@dataclass(frozen=True)
class LinkIndex:
    """The links of some nodes, with the number of completions through the links before each.

    At the last hop there is one completion per link, and links are read when they are walked.
    """

    graph: Graph
    edge_type: EdgeType
    begin: Tensor  # where the links of each node begin, in ``ends`` or in the relation
    total: Tensor  # at the last hop, the links of each node; else completions before each link
    ends: Tensor | None

    @classmethod
    def of(cls, graph: Graph, walk: Walk, nodes: Tensor) -> LinkIndex:
        """Index the links of some distinct nodes."""
        links = graph.adjacency(walk[0])
        if len(walk) == 1:
            begin, end = links.bounds(nodes)
            return cls(graph, walk[0], begin, end - begin, None)
        parent, ends = links.links(nodes)
        begin = indptr_of(torch.bincount(parent, minlength=nodes.numel()))
        return cls(graph, walk[0], begin, indptr_of(_completions(graph, walk[1:], ends)), ends)

    def completions(self) -> Tensor:
        """Return the number of ways to walk on from each node."""
        if self.ends is None:
            return self.total
        return self.total[self.begin[1:]] - self.total[self.begin[:-1]]

    def step(self, row: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step of some instances.

        Args:
            row: The position of the node that each is at, ``[P]``.
            number: Its number among the completions from there, ``[P]``.

        Returns:
            The next node of each, and its number among the completions from that node.
        """
        if self.ends is None:
            links = self.graph.adjacency(self.edge_type)
            return links.ends(self.begin[row] + number), torch.zeros_like(number)
        number = self.total[self.begin[row]] + number
        link = torch.searchsorted(self.total, number, right=True) - 1
        return self.ends[link], number - self.total[link]


def _completions(graph: Graph, walk: Walk, nodes: Tensor) -> Tensor:
    """Count the ways to walk on from some nodes; longer walks are counted once per graph."""
    if len(walk) == 1:
        begin, end = graph.adjacency(walk[0]).bounds(nodes)
        return end - begin
    if walk not in graph.completions:
        graph.completions[walk] = _all_completions(graph, walk)
    return graph.completions[walk][nodes]


def _all_completions(graph: Graph, walk: Walk) -> Tensor:
    """Count the ways to walk on from all nodes of a type, reading some links at a time."""
    counts = torch.zeros(graph.nodes[walk[0][0]].num_nodes, dtype=torch.long)
    total = 0.0
    for sources, ends in graph.link_chunks(walk[0]):
        onward = _completions(graph, walk[1:], ends)
        total += float(onward.double().sum())
        if total >= 2.0**62:
            path = "-".join([walk[0][0], *(step[2] for step in walk)])
            raise HanmeError(f"{path}: more than 2^62 instances; take a shorter metapath")
        counts.index_add_(0, sources, onward)
    return counts
