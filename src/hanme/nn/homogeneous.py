"""The graph with its types forgotten, for models that know no metapaths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from hanme.common.arrays import repeat, take_rows
from hanme.errors import check_choice
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain, Restriction, checked_roots
from hanme.graph.metapath import Metadata, Metapath
from hanme.nn.batch import Batch
from hanme.nn.parts import Projections, features_of

STEP = ("node", "to", "node")
HOP = Metapath((STEP,), "node-node")
"""From a node to those that lead to it."""


@dataclass(frozen=True)
class Links:
    """All links of a graph whose nodes are numbered through, type after type."""

    edge_index: Tensor  # from and to, ``[2, E]``
    relation: Tensor  # the number of each link's edge type, ``[E]``
    first: tuple[int, ...]  # the number of the first node of each type, and the number of nodes
    target: slice  # where the nodes to classify are

    @property
    def loops(self) -> Tensor:
        """A link from each node to itself, ``[2, N]``."""
        return torch.arange(self.first[-1], device=self.edge_index.device).expand(2, -1)

    def numbers(self, roots: Tensor) -> Tensor:
        """Return the numbers of some target nodes."""
        begin: int = self.target.start
        return checked_roots(roots, self.target.stop - begin).to(self.edge_index.device) + begin


class Homogeneous(nn.Module):
    """Put the nodes of all types into one graph, with features projected to one size by type."""

    def __init__(
        self, metadata: Metadata, target: str, in_channels: int | Mapping[str, int], channels: int
    ) -> None:
        super().__init__()
        node_types, self.edge_types = metadata
        check_choice("target", target, node_types)
        self.target = target
        self.proj = Projections(node_types, in_channels, channels)
        self._links: GraphCache[Links] = GraphCache()

    def links(self, batch: Batch) -> Links:
        """Return the links of all relations, joined when a graph is first seen."""
        x = [features_of(batch.x_dict, t) for t in self.proj]
        used = [batch.edge_index_dict[e] for e in self.edge_types]
        return self._links.get([*x, *used], lambda: self._join(used, [len(rows) for rows in x]))

    def forward(self, batch: Batch, links: Links, nodes: Tensor | None = None) -> Tensor:
        """Return the projected features of some nodes (ascending; default: all), ``[N, C]``."""
        x = [features_of(batch.x_dict, t) for t in self.proj]
        if nodes is not None:
            begins = torch.tensor(links.first[:-1], device=nodes.device)
            parts = nodes.tensor_split(torch.searchsorted(nodes, begins[1:]).tolist())
            x = [take_rows(*of) for of in zip(x, map(torch.sub, parts, begins), strict=True)]
        return torch.cat([lin(rows) for lin, rows in zip(self.proj.values(), x, strict=True)])

    def _join(self, links: list[Tensor], sizes: list[int]) -> Links:
        first = tuple(accumulate(sizes, initial=0))
        place = {t: i for i, t in enumerate(self.proj)}
        shifted = [
            edge_index + edge_index.new_tensor([[first[place[e[0]]]], [first[place[e[2]]]]])
            for e, edge_index in zip(self.edge_types, links, strict=True)
        ]
        device = next(self.proj.parameters()).device
        none = torch.empty(2, 0, dtype=torch.long, device=device)  # a graph may have no relation
        counts = [edge_index.size(1) for edge_index in shifted]
        relation = repeat(torch.tensor(counts, dtype=torch.long, device=device))
        begin = place[self.target]
        return Links(
            torch.cat([none, *shifted], 1), relation, first, slice(*first[begin : begin + 2])
        )


def around(chain: Chain, nodes: Tensor, hops: int) -> tuple[Restriction, Tensor]:
    """Return what is within some hops of some nodes, and the positions of these nodes in it.

    The chain has one hop, from each node to those that lead to it, itself among them.
    """
    near = nodes
    for _ in range(hops - 1):
        before, near = near, chain.restrict(near).nodes["node"]
        if torch.equal(before, near):
            break
    piece = chain.restrict(near)
    return piece, torch.searchsorted(piece.nodes["node"], nodes)
