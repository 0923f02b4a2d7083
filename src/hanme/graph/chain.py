"""A metapath on a graph: its relations as CSR arrays, and its instances counted and listed.

An instance is a walk (v0, v1, ..., vL) along the metapath's relations. The instances of a root are
numbered in the order in which a depth-first walk over the CSR arrays meets them; that number names
an instance whatever way it was found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.arrays import concat_ranges, indptr_of, repeat, within
from hanme.errors import HanmeError
from hanme.graph.cache import GraphCache
from hanme.graph.metapath import EdgeType, Metapath


@dataclass(frozen=True)
class Instances:
    """Some instances of one metapath."""

    nodes: Tensor  # node ids by position, ``[P, L + 1]``; column 0 is the root
    links: Tensor  # the CSR positions of the links walked, ``[P, L]``
    number: Tensor  # each instance's number among those of its root, ``[P]``

    def __len__(self) -> int:
        return self.nodes.size(0)


@dataclass(frozen=True, eq=False)
class Chain:
    """The relations of a metapath as CSR arrays, without the links that lead to a dead end.

    Args:
        metapath: What it was made from.
        sizes: The number of nodes at each of the L + 1 positions.
        indptr: For each hop l, where the links of each node at position l - 1 begin.
        indices: For each hop l, the node at position l that each link leads to.
        root_ids: The ids that the nodes at position 0 have in the whole graph, where the chain is
            a restricted one: dropout is drawn by these.
        branches: The node ids that each branch of an unfolded chain walks, ``[P, L + 1]``, see
            :meth:`unfold`.
        features: By hop, the features of its links in their order, ``[E_j, F]``, None where they
            have none; empty for no features at all. Chains made of this one do not have them.
    """

    metapath: Metapath
    sizes: tuple[int, ...]
    indptr: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    root_ids: Tensor | None = None
    branches: Tensor | None = None
    features: tuple[Tensor | None, ...] = ()

    @classmethod
    def build(
        cls,
        metapath: Metapath,
        edge_index_dict: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
    ) -> Chain:
        """Read a metapath's relations off a graph. Links listed twice are two links."""
        sizes = tuple(num_nodes[t] for t in metapath.node_types)
        indptr: list[Tensor] = []
        indices: list[Tensor] = []
        last = edge_index_dict[metapath.steps[-1]]
        alive = torch.ones(sizes[-1], dtype=torch.bool, device=last.device)
        for hop in reversed(range(len(metapath))):
            source, target = _checked(edge_index_dict, metapath.steps[hop], sizes[hop : hop + 2])
            order = _order(source, target, alive)
            degree = torch.bincount(source[order], minlength=sizes[hop])
            indptr.insert(0, indptr_of(degree))
            indices.insert(0, target[order])
            alive = degree > 0
        return cls(metapath, sizes, tuple(indptr), tuple(indices))

    @classmethod
    def along(
        cls, metapath: Metapath, nodes: Tensor, num_nodes: Mapping[str, int], root_ids: Tensor
    ) -> tuple[Chain, Instances]:
        """Return a chain of the links that some instances walk, and the instances on it.

        ``nodes`` are those of the instances, ``[P, L + 1]``, grouped by root, ascending.
        """
        sizes = tuple(num_nodes[t] for t in metapath.node_types)
        indptr, indices, links = [], [], []
        for hop, size in enumerate(sizes[1:]):
            walked, link = torch.unique(
                nodes[:, hop] * size + nodes[:, hop + 1], return_inverse=True
            )
            degree = torch.bincount(walked // max(size, 1), minlength=sizes[hop])
            indptr.append(indptr_of(degree))
            indices.append(walked % max(size, 1))
            links.append(link)
        chain = cls(metapath, sizes, tuple(indptr), tuple(indices), root_ids)
        return chain, Instances(nodes, torch.stack(links, 1), within(nodes[:, 0]))

    @classmethod
    def cached(
        cls,
        metapath: Metapath,
        edge_index_dict: Mapping[EdgeType, Tensor],
        num_nodes: Mapping[str, int],
        root_ids: Tensor | None = None,
    ) -> Chain:
        """Return what :meth:`build` returns, built once for the same links."""
        links = [checked_links(edge_index_dict.get(step), step) for step in metapath.steps]

        def build() -> Chain:
            return replace(cls.build(metapath, edge_index_dict, num_nodes), root_ids=root_ids)

        sizes = tuple(num_nodes[t] for t in metapath.node_types)
        key = metapath.steps, sizes, root_ids is not None
        return _chains.get(links if root_ids is None else [*links, root_ids], build, key)

    def __len__(self) -> int:
        """Return the number of hops, L."""
        return len(self.indices)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.indices[0].device

    @cached_property
    def _before(self) -> tuple[Tensor, ...]:
        """For each hop, the number of ways to the end through the links before each link."""
        before: list[Tensor] = []
        ways = torch.ones(self.sizes[-1], dtype=torch.long, device=self.device)
        for indptr, indices in zip(reversed(self.indptr), reversed(self.indices), strict=True):
            onward = ways[indices]
            if float(onward.double().sum()) >= 2.0**62:
                raise HanmeError(
                    f"metapath {self.metapath}: more than 2^62 instances; take a shorter metapath"
                )
            before.insert(0, indptr_of(onward))
            ways = before[0][indptr].diff()
        return tuple(before)

    def count(self) -> Tensor:
        """Return the number of instances of each root, ``[N_0]``, without listing one."""
        return self._before[0][self.indptr[0]].diff()

    def instances(self, roots: Tensor | None = None) -> Instances:
        """List the instances of some roots (default: all), grouped by root in the order given."""
        if roots is None:
            roots = torch.arange(self.sizes[0], device=self.device)
        row = repeat(self.count()[roots])
        return self.walk(roots.to(self.device)[row], within(row))

    def blocks(self, root: int, size: int) -> Iterator[Instances]:
        """List one root's instances in the order of their numbers, ``size`` at a time."""
        every = torch.arange(int(self.count()[root]), device=self.device)
        for number in torch.split(every, size):
            yield self.walk(torch.full_like(number, root), number)

    def walk(self, roots: Tensor, number: Tensor) -> Instances:
        """Return the instances with the given roots and numbers, without passing any other."""
        node, rest = roots, number
        nodes, links = [roots], []
        for indptr, indices, before in zip(self.indptr, self.indices, self._before, strict=True):
            rest = before[indptr[node]] + rest
            link = torch.searchsorted(before, rest, right=True) - 1
            rest = rest - before[link]
            node = indices[link]
            nodes.append(node)
            links.append(link)
        return Instances(torch.stack(nodes, 1), torch.stack(links, 1), number)

    @cached_property
    def ends(self) -> Chain:
        """The one-hop chain from roots to the distinct ends of their instances: HAN's."""
        product = self._matrix(0)
        for hop in range(1, len(self)):
            product = product @ self._matrix(hop)
            product.data[:] = 1  # whether, not how often: also keeps long products from overflow
        product.sum_duplicates()
        product.sort_indices()
        indptr = torch.from_numpy(product.indptr.astype("int64")).to(self.device)
        indices = torch.from_numpy(product.indices.astype("int64")).to(self.device)
        sizes = self.sizes[0], self.sizes[-1]
        return Chain(self.metapath.in_one_step(), sizes, (indptr,), (indices,), self.root_ids)

    def unfold(self, instances: Instances, roots: Tensor) -> tuple[Chain, list[Tensor]]:
        """Return a chain of some roots whose instances are those given, each with its own end.

        Instances of a root that follow each other share the nodes up to where they part. Also
        return, for each hop, an instance through each of its links.

        Args:
            instances: Instances of the roots, grouped by root, ascending.
            roots: The roots, distinct and ascending; they are numbered in this order.
        """
        parts = torch.ones(len(instances), dtype=torch.bool, device=self.device)
        parts[1:] = instances.nodes[:, 0].diff() != 0
        place = torch.searchsorted(roots, instances.nodes[:, 0].contiguous())
        size, indptr, through = roots.numel(), [], []
        for hop, links in enumerate(instances.links.t(), 1):
            parts[1:] |= links.diff() != 0 if hop < len(self) else True
            through.append(parts.nonzero().flatten())
            indptr.append(indptr_of(torch.bincount(place[through[-1]], minlength=size)))
            place, size = parts.cumsum(0) - 1, through[-1].numel()
        each = tuple(torch.arange(rows.numel(), device=self.device) for rows in through)
        sizes = (roots.numel(), *(rows.numel() for rows in through))
        ids, nodes = self.original(roots), instances.nodes
        return Chain(self.metapath, sizes, tuple(indptr), each, ids, nodes), through

    def nodes_of(self, instances: Instances) -> Tensor:
        """Return the node ids of some instances by position, ``[P, L + 1]``."""
        if self.branches is None:
            return instances.nodes
        return self.branches[instances.nodes[:, -1]]

    def restrict(self, roots: Tensor) -> Restriction:
        """Keep what some roots reach, at the cost of what they reach.

        Nodes are renumbered by type, in one way for all positions, and in the order of their ids.
        Links keep their order, and so do the instances of a root.

        Args:
            roots: Ids of nodes at position 0, in any order, possibly repeated.
        """
        roots = checked_roots(roots, self.sizes[0]).to(self.indices[0])
        types, node = self.metapath.node_types, torch.unique(roots)
        touched: dict[str, list[Tensor]] = {types[0]: [node]}
        hops = []  # the distinct nodes that each starts from, their numbers of links, the links
        for indptr, indices, end in zip(self.indptr, self.indices, types[1:], strict=True):
            degree = indptr[node + 1] - indptr[node]
            links, _ = concat_ranges(indptr[node], degree)
            hops.append((node, degree, links))
            node = torch.unique(indices[links])
            touched.setdefault(end, []).append(node)
        nodes = {t: torch.unique(torch.cat(ids)) for t, ids in touched.items()}
        held = [nodes[t] for t in types]
        starts, ends = [], []
        for hop, (node, degree, links) in enumerate(hops):
            count = degree.new_zeros(held[hop].numel())  # no links from nodes that no walk leaves
            count[torch.searchsorted(held[hop], node)] = degree
            starts.append(indptr_of(count))
            ends.append(torch.searchsorted(held[hop + 1], self.indices[hop][links]))
        sizes, ids = tuple(some.numel() for some in held), self.original(held[0])
        chain = Chain(self.metapath, sizes, tuple(starts), tuple(ends), ids)
        place = torch.searchsorted(held[0], roots)
        return Restriction(chain, nodes, place, tuple(links for _, _, links in hops))

    def original(self, roots: Tensor) -> Tensor:
        """Return the ids that some nodes at position 0 have in the whole graph."""
        return roots if self.root_ids is None else self.root_ids[roots]

    def sources(self, hop: int) -> Tensor:
        """Return the node that each link of a hop starts from, beside ``indices[hop]``."""
        return repeat(self.indptr[hop].diff(), self.indices[hop].numel())

    def link_ids(self, hop: int, edge_index: Tensor) -> Tensor:
        """Return the column of ``edge_index`` that each link of a hop was built from."""
        alive = torch.ones(self.sizes[hop + 1], dtype=torch.bool, device=self.device)
        if hop + 1 < len(self):
            alive = self.indptr[hop + 1].diff() > 0
        return _order(edge_index[0], edge_index[1], alive)

    def with_features(self, features: Sequence[Tensor | None]) -> Chain:
        """Return the chain with features of its links; what was counted is kept."""
        chain = copy(self)
        object.__setattr__(chain, "features", tuple(features))
        return chain

    def _matrix(self, hop: int) -> csr_array:
        indices, indptr = self.indices[hop].cpu().numpy(), self.indptr[hop].cpu().numpy()
        ones = torch.ones(len(indices), dtype=torch.int32).numpy()
        shape = self.sizes[hop : hop + 2]
        matrix = csr_array((ones, indices, indptr), shape=shape, copy=True)  # the chain is shared
        matrix.sum_duplicates()
        return matrix


def _order(source: Tensor, target: Tensor, alive: Tensor) -> Tensor:
    """Return the links whose target is alive, by source and target, then as listed."""
    kept = alive[target].nonzero().flatten()
    key = source[kept].long() * alive.numel() + target[kept]  # int32 would overflow
    if (key[1:] >= key[:-1]).all():  # large relations come sorted where it matters
        return kept
    return kept[torch.argsort(key, stable=True)]


_chains: GraphCache[Chain] = GraphCache()


@dataclass(frozen=True, eq=False)
class Restriction:
    """What some roots reach along a chain: the chain renumbered to it, and its nodes."""

    chain: Chain  # with the links that the roots can reach alone
    nodes: dict[str, Tensor]  # by type, the ids of the nodes left, ascending
    roots: Tensor  # the position of each root in ``nodes`` of its type
    links: tuple[Tensor, ...]  # by hop, the places of the links it holds


def checked_roots(roots: Tensor, nodes: int) -> Tensor:
    """Return roots if they are ids below the number of nodes."""
    if roots.dtype not in (torch.int64, torch.int32) or roots.dim() != 1:
        raise HanmeError(
            f"Expected `roots` to be node ids, [R] and whole, but got {list(roots.shape)} of "
            f"{roots.dtype}"
        )
    if torch.compiler.is_exporting():  # there are no numbers yet
        return roots
    if roots.numel() and not 0 <= int(roots.min()) <= int(roots.max()) < nodes:
        raise HanmeError(
            f"Expected `roots` to be from 0 to {nodes - 1}, but got {int(roots.min())} to "
            f"{int(roots.max())}"
        )
    return roots


def checked_links(links: object, edge_type: EdgeType) -> Tensor:
    """Return the links of an edge type if they are node numbers, ``[2, E]``."""
    expected = f"relation {edge_type}: expected edge_index of integers, [2, E], but"
    if links is None:
        raise HanmeError(f"{expected} the input has no such relation")
    if not isinstance(links, Tensor) or links.layout != torch.strided:
        kind = links.layout if type(links) is Tensor else type(links).__name__
        raise HanmeError(
            f"{expected} got {kind}; of a sparse adjacency, pass torch.stack([row, col]) of its "
            "entries, with the ends swapped if it is adj_t, or leave out ToSparseTensor"
        )
    if links.dim() != 2 or links.size(0) != 2 or links.is_floating_point():
        raise HanmeError(f"{expected} got {links.dtype} {list(links.shape)}")
    return links


def _checked(
    edge_index_dict: Mapping[EdgeType, Tensor], step: EdgeType, sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return a relation's two rows as int64 if every id is one of its type."""
    edge_index = edge_index_dict[step].long()
    for row, size, node_type in zip(edge_index, sizes, (step[0], step[2]), strict=True):
        if row.numel() and (int(row.min()) < 0 or int(row.max()) >= size):
            raise HanmeError(
                f"relation {step}: it names nodes {int(row.min())} to {int(row.max())} of "
                f"{node_type}, which has {size:,} nodes"
            )
    return edge_index[0], edge_index[1]
