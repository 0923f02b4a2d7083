"""The graph with its types forgotten, for models that know no metapaths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.metapath import Metadata
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


class OneGraph(nn.Module):
    """Puts the nodes of all types into one graph, with features projected to one size by type.

    Args:
        metadata: Node types and edge types, as :meth:`HeteroData.metadata` gives.
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

    def reset_parameters(self) -> None:
        for projection in self.proj.values():
            projection.reset_parameters()

    def forward(self, data: HeteroData) -> tuple[Tensor, Links]:
        """Projected features of all nodes, ``[N, channels]``, and their links."""
        first, total = dict[str, int](), 0
        for t in self.proj:
            if "x" not in data[t]:
                raise HanmeError(f"node type {t!r} has no features")
            first[t] = total
            total += data[t].x.size(0)
        shifted = [
            data[e].edge_index + data[e].edge_index.new_tensor([[first[e[0]]], [first[e[2]]]])
            for e in self.edge_types
        ]
        relation = [
            torch.full((links.size(1),), i, device=links.device) for i, links in enumerate(shifted)
        ]
        begin = first[self.target]
        target = slice(begin, begin + data[self.target].x.size(0))
        h = torch.cat([projection(data[t].x) for t, projection in self.proj.items()])
        none = torch.empty(2, 0, dtype=torch.long, device=h.device)  # a graph may have no relation
        edge_index = torch.cat([none, *shifted], 1)
        return h, Links(edge_index, torch.cat([none[0], *relation]), target)
