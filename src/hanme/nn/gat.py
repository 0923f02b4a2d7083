"""The model GAT, on the graph with its types forgotten."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv
from torch_geometric.nn.inits import reset
from torch_geometric.utils import add_self_loops, remove_self_loops

from hanme.chain import Chain
from hanme.metapath import Metadata, Metapath
from hanme.nn.cache import GraphCache
from hanme.nn.checks import check_counts, check_dropouts, check_heads
from hanme.nn.one_graph import OneGraph
from hanme.ops import Constant, head_dots, metapath_attention


class GAT(nn.Module):
    """`"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ as a baseline of the
    `Heterogeneous Graph Benchmark <https://dl.acm.org/doi/10.1145/3447548.3467350>`_: features are
    projected by type, then all nodes and links are in one graph, with a loop at each node.

    Args:
        metadata: Node types and edge types, as :meth:`HeteroData.metadata` gives.
        target: The node type to classify.
        out_channels: The number of labels.
        in_channels: The size of the features, ``-1`` (default) to derive it.
        hidden_channels: The size of a node's vector, all heads together.
        heads: The number of attention heads.
        layers: The number of layers before the last, which has one head and gives the logits.
        dropout: Dropout on the features that go into a layer.
        attention_dropout: Dropout on the attention weights.
        negative_slope: LeakyReLU's slope below 0.
        residual: Add what goes into a layer to what comes out, from the second layer on.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        hidden_channels: int = 512,
        heads: int = 8,
        layers: int = 3,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
        negative_slope: float = 0.05,
        residual: bool = False,
    ) -> None:
        super().__init__()
        check_heads(hidden_channels, heads)
        check_counts(1, 100, layers=layers)
        check_dropouts(dropout=dropout, attention_dropout=attention_dropout)
        self.dropout = dropout
        channels = hidden_channels // heads
        self.graph = OneGraph(metadata, target, in_channels, channels)
        sizes = [(channels, channels, heads), *[(hidden_channels, channels, heads)] * (layers - 1)]
        self.convs = nn.ModuleList(
            Conv(
                before,
                after,
                k,
                negative_slope=negative_slope,
                dropout=attention_dropout,
                residual=residual and i > 0,
            )
            for i, (before, after, k) in enumerate([*sizes, (hidden_channels, out_channels, 1)])
        )
        self._graph: GraphCache[Chain] = GraphCache()

    def reset_parameters(self) -> None:
        for part in self.children():
            reset(part)

    def forward(self, data: HeteroData) -> Tensor:
        """A logit per node of the target type and label, ``[N, out_channels]``."""
        h, links = self.graph(data)
        used = [data[e].edge_index for e in self.graph.edge_types]
        sizes = [data[t].x.size(0) for t in self.graph.proj]
        chain = self._graph.get(used, lambda: _chain(links.edge_index, len(h)), sizes)
        for i, conv in enumerate(self.convs):
            h = F.elu(h) if i > 0 else h
            h = conv(F.dropout(h, self.dropout, self.training), chain)
        return h[links.target]


class Conv(GATConv):
    """PyG's :class:`GATConv`, its weights and its result, through the one operator: a node's links
    are instances of a metapath with one hop."""

    def forward(self, x: Tensor, chain: Chain) -> Tensor:
        h = self.lin(x).unflatten(1, (self.heads, -1))
        z = metapath_attention(
            chain,
            (None, h),
            Constant((0.0, 1.0)),
            head_dots(h, self.att_dst[0]),
            self.att_src[0],
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        )
        out = z.flatten(1) + self.bias
        return out if self.res is None else out + self.res(x)


def _chain(edge_index: Tensor, nodes: int) -> Chain:
    """Every node's links, seen from the node they lead to, and a loop."""
    links = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=nodes)[0]
    step = ("node", "to", "node")
    return Chain.build(Metapath((step,), "node-node"), {step: links.flip(0)}, {"node": nodes})
