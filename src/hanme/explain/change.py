"""What if: a node's logits on a graph without some links, with others, without some instances.

Only what the node's walks touch matters to its logits. So a changed graph is never made whole: the
walks of all channels are followed from the node over the links as they would be, and the model is
opened on the piece they touch. The weights β of metapaths and the features of nodes are held as
they are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.errors import HanmeError
from hanme.explain.folds import OpenFolds
from hanme.explain.removal import BLOCK, OpenModel, Root
from hanme.graph import Graph, Nodes, Split
from hanme.metapath import EdgeType, Metapath
from hanme.nn import Model
from hanme.nn.channels import MetapathChannels, WideChannels
from hanme.training import wide_part

Ints = NDArray[np.int64]


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


class LinkIndex:
    """The links of a graph by relation and source, and which relations are each other's reverse.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.links = {e: Links.of(x, graph.sizes[e[0]]) for e, x in graph.links.items()}
        self.reverse = reverses(graph)


class WhatIf:
    """Answers what a model would say of a node if some links or instances were not there, or were.

    Args:
        opened: The model, opened on its graph.
        graph: The graph.
        index: The graph's links, if they are indexed already.
    """

    def __init__(self, opened: OpenModel, graph: Graph, index: LinkIndex | None = None) -> None:
        self.open = opened
        self.graph = graph
        self.index = index or LinkIndex(graph)
        folds = opened.folds if isinstance(opened, OpenFolds) else []
        self.folds = [WhatIf(each, graph, self.index) for each in folds]
        self.paths = [] if folds else _walked(opened)

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
        if self.folds:
            found = [
                each.logits(node, remove=remove, add=add, instances=instances, pause=pause)
                for each in self.folds
            ]
            return torch.stack([logits for logits, _ in found]).mean(0), found[0][1]
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
    ) -> tuple[Root, dict[str, Ints]]:
        """Return the node on the changed graph, and the numbers there of the nodes by type."""
        away, more = self._with_reverse(remove), self._with_reverse(add)
        self._check(away, more)
        links = {
            e: known.changed(away.get(e, set()), more.get(e, set()))
            for e, known in self.index.links.items()
        }
        graph, numbers = _piece(self.graph, self.paths, links, node)
        opened = OpenModel(_fitted(self.open, numbers), graph, self.open.weights)
        return Root(opened, 0, pause), numbers

    def _with_reverse(self, given: Iterable[Link]) -> dict[EdgeType, set[tuple[int, int]]]:
        found: dict[EdgeType, set[tuple[int, int]]] = {}
        for link in given:
            if link.relation not in self.graph.links:
                names = ", ".join("-".join(e) for e in self.graph.links)
                raise HanmeError(f"link {link}: no such relation; there are {names}")
            found.setdefault(link.relation, set()).add((link.source, link.target))
            if link.relation in self.index.reverse:
                back = found.setdefault(self.index.reverse[link.relation], set())
                back.add((link.target, link.source))
        return found

    def _check(
        self,
        away: Mapping[EdgeType, set[tuple[int, int]]],
        more: Mapping[EdgeType, set[tuple[int, int]]],
    ) -> None:
        """Refuse to remove a link that is not there, or to add one that is."""
        for given, there in ((away, True), (more, False)):
            for e, pairs in given.items():
                for pair in pairs:
                    self.graph.nodes[e[0]].find(pair[0])  # refuses numbers of no node
                    self.graph.nodes[e[2]].find(pair[1])
                    if (pair[1] in self.index.links[e].of_node(pair[0])) != there:
                        why = "it is there already" if not there else "there is no such link"
                        raise HanmeError(f"link {Link(e, *pair)}: {why}")


@dataclass(frozen=True)
class Links:
    """The links of a relation in the order of their sources, and others that come to them.

    Args:
        begin: Where the links of each source begin, ``[N + 1]``.
        target: The node that each leads to.
        more: Links that are added, ``[2, n]``; they count from ``len(target)`` on.
        without: Which of all links are taken away, ascending.
    """

    begin: Ints
    target: Ints
    more: Ints
    without: Ints

    @classmethod
    def of(cls, edge_index: Tensor, sources: int) -> Links:
        """Sort the links of a relation."""
        source, target = edge_index.cpu().numpy()
        order = np.argsort(source, kind="stable")
        begin = np.concatenate([[0], np.bincount(source, minlength=sources).cumsum()])
        none = np.empty(0, np.int64)
        return cls(begin, target[order], none.reshape(2, 0), none)

    def of_node(self, source: int) -> Ints:
        """Return the nodes that the links of one node lead to."""
        return self.target[self.begin[source] : self.begin[source + 1]]

    def changed(self, away: set[tuple[int, int]], more: set[tuple[int, int]]) -> Links:
        """Return them without some and with others."""
        if not away and not more:
            return self
        gone = [self.begin[a] + np.flatnonzero(self.of_node(a) == b) for a, b in away]
        added = np.array(sorted(more), np.int64).reshape(-1, 2).T
        without = np.sort(np.concatenate(gone)) if gone else self.without
        return replace(self, more=added, without=without)

    def follow(self, nodes: Ints) -> Ints:
        """Return the places of the links that start from some nodes."""
        first, counts = self.begin[nodes], self.begin[nodes + 1] - self.begin[nodes]
        offset = np.repeat(first - (counts.cumsum() - counts), counts)
        own = np.setdiff1d(offset + np.arange(len(offset)), self.without)
        return np.concatenate(
            [own, len(self.target) + np.flatnonzero(np.isin(self.more[0], nodes))]
        )

    def ends(self, places: Ints) -> Ints:
        """Return the two nodes of each link, ``[2, n]``."""
        own, new = places[places < len(self.target)], places[places >= len(self.target)]
        source = np.searchsorted(self.begin, own, side="right") - 1
        return np.concatenate(
            [np.stack([source, self.target[own]]), self.more[:, new - len(self.target)]], axis=1
        )


def reverses(graph: Graph) -> dict[EdgeType, EdgeType]:
    """Return the relations that hold the same links the other way round, both ways."""
    keys = {e: _key(links, graph.sizes[e[2]]) for e, links in graph.links.items()}
    found: dict[EdgeType, EdgeType] = {}
    for e, links in graph.links.items():
        back = _key(links.flip(0), graph.sizes[e[0]])
        for other in graph.links:
            free = other != e and e not in found and other not in found
            if free and (other[0], other[2]) == (e[2], e[0]) and np.array_equal(keys[other], back):
                found[e], found[other] = other, e
    return found


def _key(links: Tensor, width: int) -> Ints:
    source, target = links.cpu().numpy()
    return np.sort(source * max(1, width) + target)


def _walked(opened: OpenModel) -> list[Metapath]:
    """Return the metapaths that a model's channels walk from a root."""
    paths: list[Metapath] = []
    for part in opened.model.parts:
        if isinstance(part, MetapathChannels):
            paths += part.metapaths
        elif isinstance(part, WideChannels):
            if any(block.read == "labels" for block in part.active):
                raise HanmeError("its wide part reads labels of other nodes: no links can change")
            paths += [block.path for block in part.active if block.path is not None]
        else:
            raise HanmeError(f"channels {type(part).__name__}: their links cannot be changed")
    return list(dict.fromkeys(paths))


def _piece(
    graph: Graph, paths: Sequence[Metapath], links: Mapping[EdgeType, Links], node: int
) -> tuple[Graph, dict[str, Ints]]:
    """Cut out what a node's walks touch; it is node 0 there.

    Returns:
        The piece, and by type the number there of each node of the graph, -1 for the others.
    """
    touched: dict[EdgeType, list[Ints]] = {e: [] for e in graph.links}
    seen: dict[tuple[EdgeType, ...], Ints] = {(): np.array([node])}
    for path in paths:
        for hop, step in enumerate(path.steps):
            if path.steps[: hop + 1] not in seen:
                places = links[step].follow(seen[path.steps[:hop]])
                touched[step].append(places)
                seen[path.steps[: hop + 1]] = np.unique(links[step].ends(places)[1])
    pairs = {
        e: links[e].ends(np.unique(np.concatenate(found))) if found else np.empty((2, 0), np.int64)
        for e, found in touched.items()
    }
    numbers: dict[str, Ints] = {}
    nodes: dict[str, Nodes] = {}
    kept: dict[str, Tensor] = {}
    for kind, whole in graph.nodes.items():
        first = [node] if kind == graph.target else []
        met = [pair[i] for e, pair in pairs.items() for i in (0, 1) if e[2 * i] == kind]
        others = np.setdiff1d(np.concatenate([*met, np.empty(0, np.int64)]), first)
        ids = np.concatenate([np.array(first, np.int64), others])
        ids = ids if len(ids) else np.zeros(1, np.int64)  # no model is given a type without nodes
        numbers[kind] = np.full(whole.num_nodes, -1)
        numbers[kind][ids] = np.arange(len(ids))
        kept[kind] = torch.from_numpy(ids)
        nodes[kind] = Nodes(kind, len(ids), whole.rows(kept[kind]))
    here = {
        e: torch.from_numpy(np.stack([numbers[e[0]][pair[0]], numbers[e[2]][pair[1]]]))
        for e, pair in pairs.items()
    }
    own = kept[graph.target]
    split = Split(*(mask[own] for mask in graph.split))
    piece = Graph(nodes, here, graph.target, graph.y[own], graph.labels, split)
    return piece, numbers


def _fitted(opened: OpenModel, numbers: Mapping[str, Ints]) -> Model:
    """Return a copy of the model for a piece: the same weights, those of ids renumbered."""
    shared = {id(p): p for p in opened.model.parameters()}
    model = copy.deepcopy(opened.model, shared)
    part = wide_part(model)
    if part is not None:
        for kind in part.id_types:
            places = numbers[kind]
            part.renumber(kind, torch.from_numpy(places), int(places.max()) + 1)
    return model


def _find(
    root: Root, path: int, walks: Sequence[Walk], numbers: Mapping[str, Ints] | None
) -> Tensor:
    """Return the numbers of a root's instances that pass through given nodes."""
    found = [torch.empty(0, dtype=torch.long)]
    chain, node = root.paths[path].problem.chain, root.node
    types = chain.metapath.node_types
    for walk in walks:
        if len(walk.nodes) != len(types):
            raise HanmeError(f"instance {walk}: expected {len(types)} nodes, {'-'.join(types)}")
    there = {walk: _numbered(walk, types, numbers) for walk in walks}
    missing = dict.fromkeys(walks)
    for instances in chain.blocks(node, BLOCK) if walks else ():
        for walk, nodes in there.items():
            same = (instances.nodes.cpu() == torch.tensor(nodes)).all(1)
            if same.any():
                found.append(instances.number.cpu()[same])
                missing.pop(walk, None)
    if numbers is None:  # on a changed graph it may have gone with a link
        for walk in missing:
            raise HanmeError(f"instance {walk}: the node has no such instance")
    return torch.cat(found)


def _numbered(walk: Walk, types: Sequence[str], numbers: Mapping[str, Ints] | None) -> list[int]:
    if numbers is None:
        return list(walk.nodes)
    return [
        int(numbers[kind][n]) if 0 <= n < len(numbers[kind]) else -1
        for kind, n in zip(types, walk.nodes, strict=True)
    ]
