"""The graph with its types forgotten, for models that know no metapaths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.metapath import EdgeType, Metadata
from hanme.nn.cache import GraphCache
from hanme.nn.checks import features_of
from hanme.nn.projection import Projections


@dataclass(frozen=True)
class Links:
    """All links of a graph whose nodes are numbered through.

    Args:
        edge_index: From and to, ``[2, E]``.
        relation: The number of each link's edge type, ``[E]``.
        target: Where the nodes to classify are.
    """

    edge_index: Tensor
    relation: Tensor
    target: slice


class Homogeneous(nn.Module):
    """Put the nodes of all types into one graph, with features projected to one size by type.

    Args:
        metadata: Node types and edge types, as :meth:`Graph.metadata` gives.
        target: The node type to classify.
        in_channels: The size of the features, one for all or by type; ``-1`` derives it.
        channels: The size of a node's vector.
    """

    def __init__(
        self, metadata: Metadata, target: str, in_channels: int | Mapping[str, int], channels: int
    ) -> None:
        super().__init__()
        node_types, self.edge_types = metadata
        if target not in node_types:
            raise HanmeError(f"Expected `target` to be one of {node_types}, but got {target!r}")
        self.target = target
        self.proj = Projections(node_types, in_channels, channels)
        self._links: GraphCache[Links] = GraphCache()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.proj.reset_parameters()

    def forward(
        self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
    ) -> tuple[Tensor, Links]:
        """Return the projected features of all nodes, ``[N, channels]``, and their links."""
        x = {t: features_of(x_dict, t) for t in self.proj}
        sizes = {t: values.size(0) for t, values in x.items()}
        used = [edge_index_dict[e] for e in self.edge_types]
        links = self._links.get(used, lambda: self._join(used, sizes), list(sizes.values()))
        return torch.cat([self.proj[t](values) for t, values in x.items()]), links

    def _join(self, links: list[Tensor], sizes: Mapping[str, int]) -> Links:
        """Join the links of all relations, with nodes numbered through, type after type."""
        first, total = dict[str, int](), 0
        for t, size in sizes.items():
            first[t] = total
            total += size
        shifted = [
            edge_index + edge_index.new_tensor([[first[e[0]]], [first[e[2]]]])
            for e, edge_index in zip(self.edge_types, links, strict=True)
        ]
        relation = [
            torch.full((edge_index.size(1),), i, device=edge_index.device)
            for i, edge_index in enumerate(shifted)
        ]
        device = next(self.proj.parameters()).device
        none = torch.empty(2, 0, dtype=torch.long, device=device)  # a graph may have no relation
        begin = first[self.target]
        target = slice(begin, begin + sizes[self.target])
        return Links(torch.cat([none, *shifted], 1), torch.cat([none[0], *relation]), target)
