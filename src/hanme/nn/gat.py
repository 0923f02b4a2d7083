"""The model GAT, on the graph with its types forgotten."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metadata
from hanme.nn.batch import Batch
from hanme.nn.homogeneous import HOP, STEP, Homogeneous, Links, around
from hanme.nn.model import Model
from hanme.nn.parts import check_counts, check_dropouts, check_heads, glorot, linear, some
from hanme.ops import Constant, head_dots, metapath_attention
from hanme.ops.dropout import node_dropout


class GAT(Model):
    """GAT as a baseline of the Heterogeneous Graph Benchmark.

    Of `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ and `"Are we really making
    much progress?" <https://dl.acm.org/doi/10.1145/3447548.3467350>`_: features are projected by
    type, then all nodes and links are in one graph, with a loop at each node.

    Arguments that are not listed are those of :class:`HANME`.

    Args:
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
        self.graph = Homogeneous(metadata, target, in_channels, channels)
        sizes = [(channels, channels, heads), *[(hidden_channels, channels, heads)] * (layers - 1)]
        self.convs = nn.ModuleList(
            Conv(*size, negative_slope, attention_dropout, residual and i > 0)
            for i, size in enumerate([*sizes, (hidden_channels, out_channels, 1)])
        )
        self._chain: GraphCache[Chain] = GraphCache()

    def forward(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``.

        For some roots, only nodes within as many hops as there are layers are computed.
        """
        links, ids, last = self.graph.links(batch), None, None
        chain = self._chain.get([links.edge_index], lambda: chain_of(links))
        if batch.roots is not None:
            piece, last = around(chain, links.numbers(batch.roots), len(self.convs))
            chain, ids = piece.chain, piece.nodes["node"]
        h: Tensor = self.graph(batch, links, ids)
        for i, conv in enumerate(self.convs):
            h = F.elu(h) if i > 0 else h
            h = node_dropout(h, self.dropout if self.training else 0.0, ids)
            h = conv(h, chain, last if i == len(self.convs) - 1 else None)
        return h[links.target] if last is None else h


class Conv(nn.Module):
    """PyG's :class:`GATConv`, with the same weights and result, through the one operator.

    A node's links are the instances of a metapath with one hop.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int,
        negative_slope: float,
        dropout: float,
        residual: bool,
    ) -> None:
        super().__init__()
        self.heads, self.negative_slope, self.dropout = heads, negative_slope, dropout
        size = heads * out_channels
        self.lin = linear(in_channels, size, glorot)
        self.res = linear(in_channels, size, glorot) if residual else None
        self.att_src = nn.Parameter(glorot(torch.empty(1, heads, out_channels)))
        self.att_dst = nn.Parameter(glorot(torch.empty(1, heads, out_channels)))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor, chain: Chain, roots: Tensor | None = None) -> Tensor:
        """Return ``[R, heads * out_channels]`` for some nodes (default: all)."""
        h: Tensor = self.lin(x).unflatten(1, (self.heads, -1))
        z = metapath_attention(
            chain,
            (None, h),
            Constant((0.0, 1.0)),
            head_dots(h, self.att_dst[0]),
            self.att_src[0],
            roots=roots,
            negative_slope=self.negative_slope,
            dropout=self.dropout if self.training else 0.0,
        )
        out: Tensor = z.flatten(1) + self.bias
        return out if self.res is None else out + self.res(some(x, roots))


def chain_of(links: Links) -> Chain:
    """Make the chain from each node along its links, seen from where they lead to, and a loop."""
    apart = links.edge_index[:, links.edge_index[0] != links.edge_index[1]]
    reversed_links = torch.cat([apart, links.loops], 1).flip(0)
    return Chain.build(HOP, {STEP: reversed_links}, {"node": links.first[-1]})
