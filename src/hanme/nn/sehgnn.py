"""The model SeHGNN: features aggregated along every metapath, fused by a transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn.inits import reset

from hanme.errors import HanmeError
from hanme.metapath import Metadata
from hanme.nn.aggregate import Aggregated, aggregate, type_paths
from hanme.nn.cache import GraphCache
from hanme.nn.checks import MOST_CHANNELS, check_counts, check_dropouts, check_heads
from hanme.nn.projection import Projection, sparse_product

BLOCK = 256
"""Nodes whose tokens are fused at a time: what is between fits a cache."""


class SeHGNN(nn.Module):
    r"""`"Simple and Efficient Heterogeneous Graph Neural Network"
    <https://arxiv.org/abs/2207.02547>`_.

    A metapath is here a sequence of node types; relations that join the same two types are one. The
    features at its end are averaged step by step towards its root, and so are the training labels
    along metapaths that return to the target, without a node's own. Each is embedded and gives a
    token :math:`\mathrm{MLP}_\Phi(A_1 \cdots A_L X E_\Phi)`; the tokens of a node attend to each
    other, and a network on all of them, side by side, gives the logits. While training only the
    nodes under ``train_mask`` are computed, as its authors do; the other logits are 0.

    Args:
        metadata: Node types and edge types, as :meth:`HeteroData.metadata` gives.
        target: The node type to classify.
        out_channels: The number of labels.
        in_channels: The size of the features, ``-1`` (default) to derive it.
        embed_channels: The size of what is embedded (default: ``hidden_channels``).
        hidden_channels: The size of a token, all heads together, and of the network's layers.
        heads: The number of attention heads.
        hops: The length of the longest metapath for features.
        label_hops: The length of the longest metapath for labels; 0 for none.
        without: Node types that no metapath passes through.
        layers: The number of layers of the network after the tokens.
        residual: Add the target's own features to all tokens' sum.
        input_dropout: Dropout on what is embedded.
        dropout: Dropout on tokens and hidden layers.
        attention_dropout: Dropout on the attention between tokens.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        embed_channels: int | None = None,
        hidden_channels: int = 512,
        heads: int = 1,
        hops: int = 4,
        label_hops: int = 4,
        without: list[str] | None = None,
        layers: int = 4,
        residual: bool = False,
        input_dropout: float = 0.1,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(hidden_channels, heads)
        embed_channels = hidden_channels if embed_channels is None else embed_channels
        check_counts(1, MOST_CHANNELS, embed_channels=embed_channels)
        check_counts(0, 20, hops=hops, label_hops=label_hops)
        check_counts(1, 100, layers=layers)
        check_dropouts(
            input_dropout=input_dropout, dropout=dropout, attention_dropout=attention_dropout
        )
        for t in [target, *(without or [])]:
            if t not in metadata[0]:
                raise HanmeError(f"unknown node type {t!r}; there are {', '.join(metadata[0])}")
        self.target, self.out_channels, self.input_dropout = target, out_channels, input_dropout
        self.paths = type_paths(metadata, target, hops, without or [])
        longest = type_paths(metadata, target, label_hops, without or [])
        self.label_paths = [p for p in longest if len(p) > 1 and p[-1] == target]
        tokens = len(self.paths) + len(self.label_paths)
        sizes = {
            t: in_channels if isinstance(in_channels, int) else in_channels[t] for t in metadata[0]
        }
        self.embed = nn.ModuleList(
            [Embedding(sizes[path[-1]], embed_channels) for path in self.paths]
            + [Embedding(out_channels, embed_channels) for _ in self.label_paths]
        )
        self.project = nn.Sequential(
            TokenLayer(tokens, embed_channels, hidden_channels, dropout),
            TokenLayer(tokens, hidden_channels, hidden_channels, dropout),
        )
        self.fusion = Fusion(hidden_channels, heads, attention_dropout)
        self.concat = nn.Linear(tokens * hidden_channels, hidden_channels)
        self.own = nn.Linear(embed_channels, hidden_channels, bias=False) if residual else None
        self.head = _head(hidden_channels, out_channels, layers, dropout)
        self._graph: GraphCache[Aggregated] = GraphCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in self.children():
            reset(part)
        for part in (self.concat, self.own, *self.head):
            if isinstance(part, nn.Linear):
                _xavier(part.weight, part.bias)

    def forward(self, data: HeteroData) -> Tensor:
        """A logit per node of the target type and label, ``[N, out_channels]``."""
        graph = self.aggregated(data)
        nodes = (
            int(data[self.target].train_mask.sum())
            if self.training
            else data[self.target].num_nodes
        )
        if nodes < 2:
            raise HanmeError(f"SeHGNN normalises over nodes: expected 2 or more, but got {nodes}")
        embedded = [
            F.dropout(_multiply(factors, lin), self.input_dropout, self.training)
            for factors, lin in zip(graph.factors(self.training), self.embed, strict=True)
        ]
        blocks = zip(*(x.split(BLOCK) for x in embedded), strict=True)
        out = torch.cat([self._fuse(block) for block in blocks])
        if self.own is not None:
            out = out + self.own(embedded[0])
        logits = self.head(out)
        if not self.training:
            return logits
        rows = data[self.target].train_mask.nonzero().expand(-1, self.out_channels)
        return logits.new_zeros(data[self.target].num_nodes, self.out_channels).scatter(
            0, rows, logits
        )

    def _fuse(self, embedded: Sequence[Tensor]) -> Tensor:
        """From what is embedded of some nodes to one vector per node."""
        x = self.project(torch.stack(list(embedded), 1))
        return self.concat(self.fusion(x).flatten(1))

    def aggregated(self, data: HeteroData) -> Aggregated:
        """What of the graph goes into the tokens, made when a graph is first seen."""
        store = data[self.target]
        for name in ("y", "train_mask"):
            if name not in store:
                raise HanmeError(f"node type {self.target} has no {name}")
        used = [data[e].edge_index for e in data.edge_types]
        used += [data[t].x for t in dict.fromkeys(path[-1] for path in self.paths)]
        return self._graph.get(
            [*used, store.y, store.train_mask],
            lambda: aggregate(data, self.target, self.paths, self.label_paths, self.out_channels),
        )


def _multiply(factors: Sequence[Tensor], lin: nn.Module) -> Tensor:
    """F_1 (F_2 ... (F_n W)): the last factor is the widest, so the product starts there."""
    *others, last = factors
    x: Tensor = lin(last)
    for factor in reversed(others):
        x = sparse_product(factor, x)
    return x


def _head(hidden: int, labels: int, layers: int, dropout: float) -> nn.Sequential:
    """PReLU and dropout, then linear layers, each followed by a norm over the nodes."""
    parts: list[nn.Module] = [nn.PReLU(), nn.Dropout(dropout)]
    for _ in range(layers - 1):
        parts += [nn.Linear(hidden, hidden), _batch_norm(hidden), nn.PReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(hidden, labels, bias=False), _batch_norm(labels))


def _batch_norm(size: int) -> nn.BatchNorm1d:
    """As its authors have it: the mean and variance of the nodes at hand, nothing learned."""
    return nn.BatchNorm1d(size, affine=False, track_running_stats=False)


def _xavier(weight: Tensor, bias: Tensor | None) -> None:
    """As for ReLU, from the last two dimensions; no bias at first."""
    bound = math.sqrt(2) * math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.zeros_(bias)


class Embedding(Projection):
    """A matrix without a bias; its numbers are as large for a wide input as for a narrow one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        if self.in_channels > 0:
            nn.init.uniform_(self.weight, -0.5, 0.5)


class TokenLayer(nn.Module):
    """A matrix for each token, ``[N, M, C]`` to ``[N, M, D]``, a layer norm over all tokens of a
    node together, PReLU and dropout.

    Args:
        tokens: M.
        before: C.
        after: D.
        dropout: The dropout.
    """

    def __init__(self, tokens: int, before: int, after: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, before, after))
        self.bias = nn.Parameter(torch.empty(tokens, after))
        self.norm = nn.Sequential(nn.LayerNorm([tokens, after]), nn.PReLU(), nn.Dropout(dropout))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _xavier(self.weight, self.bias)
        reset(self.norm)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(torch.einsum("nmc,mcd->nmd", x, self.weight) + self.bias)
        return out


class Fusion(nn.Module):
    """Self-attention over the tokens of each node, ``[N, M, C]``, behind a gate that opens from 0.

    Args:
        channels: C.
        heads: The number of heads.
        dropout: Dropout on the attention weights.
    """

    def __init__(self, channels: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        small = heads * max(1, channels // heads // 4)
        self.query = nn.Linear(channels, small)
        self.key = nn.Linear(channels, small)
        self.value = nn.Linear(channels, channels)
        self.gate = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for lin in (self.query, self.key, self.value):
            _xavier(lin.weight, lin.bias)
        nn.init.zeros_(self.gate)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            lin(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for lin in (self.query, self.key, self.value)
        )
        beta = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)), dim=-1)
        beta = F.dropout(beta, self.dropout, self.training)
        return x + self.gate * (beta @ v).transpose(1, 2).reshape(x.shape)
