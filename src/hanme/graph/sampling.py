"""Sample metapath instances by number, without listing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from hanme.common.arrays import indptr_of, keyed, repeat, within
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
    if n < 1:
        raise HanmeError(f"Expected at least 1 instance per root, but got {n}")
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


def distinct(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw at most ``n`` distinct numbers below each row's count; every set of ``n`` is as likely.

    What is drawn for a row depends on its key (see :func:`keyed`) and count alone, and costs what
    is drawn. Rows and numbers are returned, ascending.
    """
    few, many = (x.nonzero().flatten() for x in (counts <= 2 * n, counts > 2 * n))
    drawn = [_fewest(keys[few], counts[few], n), _first(keys[many], counts[many], n)]
    row, order = torch.cat([few[drawn[0][0]], many[drawn[1][0]]]).sort(stable=True)
    return row, torch.cat([drawn[0][1], drawn[1][1]])[order]


def _fewest(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Rank all numbers below a count by their hash, and keep the first ``n``."""
    row = repeat(counts)
    number = within(row)
    rank = keyed(keys[row], number)
    order = torch.from_numpy(np.lexsort((rank.numpy(), row.numpy())))
    kept = torch.zeros_like(row, dtype=torch.bool)
    kept[order[number < n]] = True
    return row[kept], number[kept]


def _first(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw with replacement until ``n`` distinct numbers are there, ascending within a row."""
    row = number = torch.empty(0, dtype=torch.long)
    made, missing = torch.zeros_like(counts), torch.full_like(counts, n)
    while missing.any():
        more = repeat(missing)
        fresh = _below(keyed(keys[more], made[more] + within(more)), counts[more])
        full = missing[row] == 0  # the others are sorted again
        some, theirs = torch.cat([row[~full], more]), torch.cat([number[~full], fresh])
        order = torch.from_numpy(np.lexsort((theirs.numpy(), some.numpy())))
        some, theirs = some[order], theirs[order]
        new = torch.ones_like(some, dtype=torch.bool)
        new[1:] = (some.diff() != 0) | (theirs.diff() != 0)
        row, number = torch.cat([row[full], some[new]]), torch.cat([number[full], theirs[new]])
        made += missing
        missing = n - torch.bincount(row, minlength=counts.numel())
    return row, number


def _below(bits: Tensor, limit: Tensor) -> Tensor:
    """Turn 64 random bits into a number below a limit."""
    share = (bits >> 11 & ((1 << 53) - 1)).double() * 2.0**-53
    return torch.minimum((share * limit).long(), limit - 1)
