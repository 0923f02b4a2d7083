"""The links of one relation, as CSR arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from hanme.common.arrays import concat_ranges, indptr_of, repeat
from hanme.graph.metapath import EdgeType


class Adjacency:
    """The ends of each node's links, ascending. A link that is listed twice is two links.

    The links of each node begin at ``indptr``, ``[N + 1]``, and end at ``indices``, ``[E]``. They
    may have features, ``x``, ``[E, F]``.
    """

    x: Tensor | None = None

    def __init__(self, indptr: Tensor, indices: Tensor, x: Tensor | None = None) -> None:
        self.indptr, self.indices, self.x = indptr, indices, x

    @classmethod
    def of(cls, edge_index: Tensor, sources: int, x: Tensor | None = None) -> Adjacency:
        """Sort links, ``[2, E]``, of ``sources`` source nodes by source and end."""
        source, target = edge_index
        order = torch.argsort(target, stable=True)
        order = order[torch.argsort(source[order], stable=True)]
        indptr = indptr_of(torch.bincount(source, minlength=sources))
        return cls(indptr, target[order], None if x is None else x[order])

    def __len__(self) -> int:
        return self.indices.numel()

    def links(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return, for each link of some nodes, the place of its node among them, and its end."""
        begin, end = self.bounds(nodes)
        places, parent = concat_ranges(begin, end - begin)
        return parent, self.ends(places)

    def features(self, nodes: Tensor) -> Tensor | None:
        """Return the features of the links of some nodes, in the order of :meth:`links`."""
        begin, end = self.bounds(nodes)
        return None if self.x is None else self.x[concat_ranges(begin, end - begin)[0]]

    def of_node(self, node: int) -> Tensor:
        """Return the ends of one node's links."""
        return self.links(torch.tensor([node]))[1]

    def bounds(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the links of some nodes begin and end."""
        return self.indptr[nodes], self.indptr[nodes + 1]

    def ends(self, places: Tensor) -> Tensor:
        """Return the ends of the links at some places."""
        return self.indices[places]

    def chunks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of nodes with about ``size`` links each."""
        begin, nodes = 0, self.indptr.numel() - 1
        while begin < nodes:
            end = int(torch.searchsorted(self.indptr, self.indptr[begin] + size, right=True)) - 1
            yield begin, max(begin + 1, end)
            begin = max(begin + 1, end)

    def edge_index(self) -> Tensor:
        """Return all links as node numbers, ``[2, E]``."""
        return torch.stack([repeat(self.indptr.diff(), len(self)), self.indices.long()])


class Relations(Mapping[EdgeType, Tensor]):
    """Links by edge type that are CSR arrays; ``[2, E]`` is made when it is read."""

    def __init__(self) -> None:
        self.adjacency: dict[EdgeType, Adjacency] = {}
        self._made: dict[EdgeType, Tensor] = {}

    def __getitem__(self, edge_type: EdgeType) -> Tensor:
        if edge_type not in self._made:
            self._made[edge_type] = self.adjacency[edge_type].edge_index()
        return self._made[edge_type]

    def __iter__(self) -> Iterator[EdgeType]:
        return iter(self.adjacency)

    def __len__(self) -> int:
        return len(self.adjacency)
