"""What if: a node's logits on a graph without some links, with others, without some instances.

Only what the node's walks touch matters to its logits. So a changed graph is never made whole: the
walks of all channels are followed from the node over the links as they would be, and the model is
opened on the subgraph they reach. The weights β of metapaths, the features of nodes and the
predictions of other nodes are held as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.explain.removal import BLOCK, OpenModel, Root
from hanme.graph import Graph
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.metapath import EdgeType

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


@dataclass(frozen=True)
class Walk:
    """An instance: its metapath and the numbers of its nodes, root first."""

    metapath: str
    nodes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.metapath} {' '.join(map(str, self.nodes))}"


class WhatIf:
    """Answers what a model would say of a node if some links or instances were not there, or were.

    ``reverse`` names the relations that are each other's reverse, if that is known already.
    """

    def __init__(
        self, opened: OpenModel, graph: Graph, reverse: Mapping[EdgeType, EdgeType] | None = None
    ) -> None:
        self.open, self.graph = opened, graph
        self._frozen = opened.model.frozen(graph)
        self.reverse = reverses(graph) if reverse is None else reverse

    @torch.no_grad()
    def logits(
        self,
        node: int,
        *,
        remove: Sequence[Link] = (),
        add: Sequence[Link] = (),
        instances: Sequence[Walk] = (),
        pause: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, int]:
        """Return a node's logits on the changed graph, ``[C]``, and how many instances it has then.

        A link goes, or comes, with its reverse. Links of which there are several go together.

        Args:
            node: The node.
            remove: The links to take away.
            add: The links to add.
            instances: The instances to leave out of its attention, by their nodes.
            pause: Called before each block of instances; what it raises ends the work.
        """
        if remove or add:
            root, numbers = self._changed(node, remove, add, pause)
        else:
            root, numbers = self.open.root(node, pause), None
        taken = [
            _find(root, i, [w for w in instances if w.metapath == name], numbers)
            for i, name in enumerate(self.open.paths)
        ]
        for walk in instances:
            if walk.metapath not in self.open.paths:
                names = ", ".join(self.open.paths)
                raise HanmeError(f"unknown metapath {walk.metapath!r}; there are {names}")
        return root.logits_without(taken), len(root) - sum(t.numel() for t in taken)

    def _changed(
        self, node: int, remove: Sequence[Link], add: Sequence[Link], pause: Callable[[], None]
    ) -> tuple[Root, dict[str, Tensor] | None]:
        """Return the node on the changed graph, and the numbers of the nodes there, by type."""
        away, more = self._with_reverse(remove), self._with_reverse(add)
        self._check(away, more)
        links = Relations()
        for e in self.graph.links:
            given, own = (away.get(e, set()), more.get(e, set())), self.graph.adjacency(e)
            links.adjacency[e] = Changed(own, *given) if any(given) else own
        changed = self._frozen.subgraph(replace(self.graph, links=links), torch.tensor([node]))
        place = int(changed.roots)
        opened = OpenModel(self._frozen, changed, self.open.weights, place)
        return Root(opened, place, pause), changed.original_ids

    def _with_reverse(self, given: Iterable[Link]) -> Pairs:
        found: dict[EdgeType, set[tuple[int, int]]] = {}
        for link in given:
            if link.relation not in self.graph.links:
                names = ", ".join("-".join(e) for e in self.graph.links)
                raise HanmeError(f"link {link}: no such relation; there are {names}")
            found.setdefault(link.relation, set()).add((link.source, link.target))
            if link.relation in self.reverse:
                back = found.setdefault(self.reverse[link.relation], set())
                back.add((link.target, link.source))
        return found

    def _check(self, away: Pairs, more: Pairs) -> None:
        """Refuse to remove a link that is not there, or to add one that is."""
        for given, there in ((away, True), (more, False)):
            for e, pairs in given.items():
                for pair in pairs:
                    self.graph.nodes[e[0]].find(pair[0])  # refuses numbers of no node
                    self.graph.nodes[e[2]].find(pair[1])
                    if (pair[1] in self.graph.adjacency(e).of_node(pair[0])) != there:
                        why = "it is there already" if not there else "there is no such link"
                        raise HanmeError(f"link {Link(e, *pair)}: {why}")


class Changed(Adjacency):
    """The links of a relation without some and with others, each source and end."""

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
        kept = ~torch.isin(_key(nodes[parent], ends), _key(*self.away))
        source, end = self.more[:, torch.isin(self.more[0], nodes)]
        place = torch.searchsorted(nodes, source)
        return torch.cat([parent[kept], place]), torch.cat([ends[kept], end])


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


def _find(
    root: Root, path: int, walks: Sequence[Walk], numbers: Mapping[str, Tensor] | None
) -> Tensor:
    """Return the numbers of a root's instances that pass through given nodes.

    On a changed graph, where nodes have other ``numbers``, one may have gone with a link.
    """
    found = [torch.empty(0, dtype=torch.long)]
    chain = root.paths[path].problem.chain
    types = chain.metapath.node_types
    for walk in walks:
        if len(walk.nodes) != len(types):
            raise HanmeError(f"instance {walk}: expected {len(types)} nodes, {'-'.join(types)}")
    missing = dict.fromkeys(walks)
    for instances in chain.blocks(root.node, BLOCK) if walks else ():
        nodes = instances.nodes.cpu()
        if numbers is not None:
            columns = zip(types, nodes.t(), strict=True)
            nodes = torch.stack([numbers[kind][column] for kind, column in columns], 1)
        for walk in walks:
            same = (nodes == torch.tensor(walk.nodes)).all(1)
            if same.any():
                found.append(instances.number.cpu()[same])
                missing.pop(walk, None)
    for walk in missing if numbers is None else ():
        raise HanmeError(f"instance {walk}: the node has no such instance")
    return torch.cat(found)
