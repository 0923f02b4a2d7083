"""What if: a node's logits on a graph without some links, with others, or with other features.

Only what the node's walks touch matters to its logits. So a changed graph is never made whole: the
walks of all channels are followed from the node over the links as they would be, and the model is
opened on the subgraph they reach. The weights β of metapaths, the features of nodes and the
predictions of other nodes are held as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.explain.removal import OpenModel, Pause, open_at
from hanme.explain.sources import Source, blank
from hanme.graph import Graph
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.metapath import EdgeType
from hanme.linear import Column

Pairs = Mapping[EdgeType, set[tuple[int, int]]]
"""The numbers of both nodes of some links, by relation."""


@dataclass(frozen=True)
class Link:
    """A link: its relation and the numbers of its two nodes."""

    relation: EdgeType
    source: int
    target: int

    def __str__(self) -> str:
        return f"{'-'.join(self.relation)} {self.source} {self.target}"


class WhatIf:
    """Predicts a node as if some links were absent, others present, or its columns different.

    Args:
        opened: The model, opened on the graph.
        graph: The graph.
        reverse: The relations that are each other's reverse, if that is known already.
    """

    def __init__(
        self, opened: OpenModel, graph: Graph, reverse: Mapping[EdgeType, EdgeType] | None = None
    ) -> None:
        self.open, self.graph = opened, graph
        self.frozen = opened.model.frozen(graph)
        self.reverse = reverses(graph) if reverse is None else reverse

    @torch.no_grad()
    def logits(
        self,
        node: int,
        *,
        remove: Sequence[Link] = (),
        add: Sequence[Link] = (),
        row: Tensor | None = None,
        missing: Collection[Column] = (),
        pause: Pause = lambda: None,
    ) -> tuple[Tensor, int]:
        """Return a node's logits on the changed graph, ``[C]``, and its number of instances there.

        A link goes, or comes, with its reverse. Parallel links go together.

        Args:
            node: The node.
            remove: The links to remove.
            add: The links to add.
            row: Other features of the node, ``[F]``.
            missing: Aggregates of linked rows to take as unknown.
            pause: Called before each block of instances; what it raises ends the work.
        """
        opened = self.open
        if remove or add or missing or row is not None:
            graph = self._changed(remove, add) if remove or add else self.graph
            weights = self.open.weights
            opened = open_at(self.frozen, graph, node, weights, row=row, missing=missing)
        root = opened.root(node, pause)
        return root.logits, len(root)

    def without(self, node: int, source: Source) -> Tensor:
        """Return a node's logits without a neighbour or with a column missing, ``[C]``."""
        if source.channel or (source.kind and self.frozen.samples()):
            raise HanmeError("the model cannot be computed without it")
        row = None
        if source.own is not None:
            own = self.graph.targets.rows(torch.tensor([node]))
            assert own is not None
            row = blank(own.to_dense()[0], source.own)
        if source.kind:
            remove = []
            for e in self.graph.links:
                if (e[0], e[2]) == (self.graph.target, source.kind):
                    ends = set(self.graph.adjacency(e).of_node(node).tolist())
                    remove += [Link(e, node, end) for end in source.numbers if end in ends]
            return self.logits(node, remove=remove, row=row)[0]
        return self.logits(node, row=row, missing=frozenset(source.aggregates))[0]

    def _changed(self, remove: Sequence[Link], add: Sequence[Link]) -> Graph:
        """Return the graph without some links and with others."""
        away, more = self._pairs(remove, present=True), self._pairs(add, present=False)
        links = Relations()
        for e in self.graph.links:
            links.adjacency[e] = self.graph.adjacency(e)
            if e in away or e in more:
                given = away.get(e, set()), more.get(e, set())
                links.adjacency[e] = Changed(links.adjacency[e], *given)
        return replace(self.graph, links=links, edge_attr={})

    def _pairs(self, links: Sequence[Link], *, present: bool) -> Pairs:
        """Return links and their reverse by relation; check whether they are in the graph."""
        pairs: dict[EdgeType, set[tuple[int, int]]] = {}
        for link in links:
            e, source, target = link.relation, link.source, link.target
            if e not in self.graph.links:
                names = ", ".join("-".join(e) for e in self.graph.links)
                raise HanmeError(f"link {link}: no such relation; there are {names}")
            self.graph.nodes[e[0]].find(source)  # refuses numbers of no node
            self.graph.nodes[e[2]].find(target)
            if (target in self.graph.adjacency(e).of_node(source)) != present:
                why = "there is no such link" if present else "it is there already"
                raise HanmeError(f"link {link}: {why}")
            pairs.setdefault(e, set()).add((source, target))
            if e in self.reverse:
                pairs.setdefault(self.reverse[e], set()).add((target, source))
        return pairs


class Changed(Adjacency):
    """The links of a relation without some and with others, each source and end.

    The features of other links are zeros.
    """

    def __init__(
        self, given: Adjacency, away: set[tuple[int, int]], more: set[tuple[int, int]]
    ) -> None:
        self.given = given
        self.away, self.more = (
            torch.tensor(sorted(some), dtype=torch.long).view(-1, 2).t() for some in (away, more)
        )

    def links(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the links of some nodes, ascending: the place of each one's node, and its end."""
        parent, ends = self.given.links(nodes)
        kept = self._kept(nodes, parent, ends)
        source, end = self.more[:, torch.isin(self.more[0], nodes)]
        place = torch.searchsorted(nodes, source)
        return torch.cat([parent[kept], place]), torch.cat([ends[kept], end])

    def features(self, nodes: Tensor) -> Tensor | None:
        """Return the features of the links of some nodes, in the order of :meth:`links`."""
        x, more = self.given.features(nodes), int(torch.isin(self.more[0], nodes).sum())
        if x is None:
            return None
        kept = x[self._kept(nodes, *self.given.links(nodes))]
        return torch.cat([kept, x.new_zeros(more, *x.shape[1:])])

    def _kept(self, nodes: Tensor, parent: Tensor, ends: Tensor) -> Tensor:
        return ~torch.isin(_key(nodes[parent], ends), _key(*self.away))


def _key(source: Tensor, end: Tensor) -> Tensor:
    return source * 2**31 + end


def reverses(graph: Graph) -> dict[EdgeType, EdgeType]:
    """Return the relations that hold the same links the other way round, both ways."""
    found: dict[EdgeType, EdgeType] = {}
    for e, links in graph.links.items():
        back = [o for o in graph.links if (o[0], o[2]) == (e[2], e[0]) and o != e]
        if e in found or not back:
            continue
        turned = Adjacency.of(links.flip(0), graph.sizes[e[2]]).edge_index()
        for other in (other for other in back if other not in found):
            if torch.equal(turned, graph.adjacency(other).edge_index()):
                found[e], found[other] = other, e
                break
    return found
