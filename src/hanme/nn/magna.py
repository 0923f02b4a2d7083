"""The model MAGNA: attention diffused over several hops, on all node types in one graph."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.common.arrays import indptr_of
from hanme.errors import HanmeError
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain, Restriction
from hanme.graph.metapath import Metadata
from hanme.nn.batch import Batch
from hanme.nn.homogeneous import HOP, Homogeneous, Links, around
from hanme.nn.model import Model
from hanme.nn.parts import check_counts, check_dropouts, check_heads, glorot, linear
from hanme.ops.derivative import plain_gradients
from hanme.ops.problem import widen


class MAGNA(Model):
    r"""MAGNA, of `"Multi-hop Attention Graph Neural Network" <https://arxiv.org/abs/2009.14332>`_.

    A block diffuses one-hop attention A over ``hops`` hops, :math:`Z \gets (1-\alpha) A Z + \alpha
    Z_0`, joins its heads by a matrix W_o, and is followed by a feed-forward block; each is preceded
    by a layer norm and added to what goes into it. Between them a score is
    :math:`\mathrm{LeakyReLU}(v \cdot \tanh[W_h h_i \,\Vert\, W_t h_j \,\Vert\, r])`, with a vector
    r for each relation.

    Arguments that are not listed are those of :class:`HANME`.

    Args:
        hidden_channels: The size of a node's vector, all heads together.
        heads: The number of attention heads.
        layers: The number of blocks.
        hops: K, how often attention is applied in a block.
        alpha: The share α that stays at each hop.
        dropout: Dropout on features.
        attention_dropout: Dropout on the attention weights.
        negative_slope: LeakyReLU's slope below 0.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        hidden_channels: int = 128,
        heads: int = 8,
        layers: int = 2,
        hops: int = 6,
        alpha: float = 0.1,
        dropout: float = 0.5,
        attention_dropout: float = 0.5,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__()
        check_heads(hidden_channels, heads)
        check_counts(1, 100, layers=layers, hops=hops)
        check_dropouts(dropout=dropout, attention_dropout=attention_dropout)
        if not 0 < alpha <= 1:
            raise HanmeError(f"Expected `alpha` to be in (0, 1], but got {alpha}")
        self.dropout = dropout
        self.reach = layers * hops  # no node farther away changes a logit
        self.graph = Homogeneous(metadata, target, in_channels, hidden_channels)
        kinds = len(metadata[1]) + 1  # one more for the loops
        self.attention = nn.ModuleList(
            Diffusion(hidden_channels, heads, kinds, hops, alpha, attention_dropout, negative_slope)
            for _ in range(layers)
        )
        self.feed_forward = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(hidden_channels),
                nn.Linear(hidden_channels, 4 * hidden_channels),
                nn.ReLU(),
                nn.Linear(4 * hidden_channels, hidden_channels),
            )
            for _ in range(layers)
        )
        self.lin = nn.Linear(hidden_channels, out_channels)
        self._edges: GraphCache[Edges] = GraphCache()

    def forward(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``.

        For some roots, only nodes within ``layers * hops`` hops of them are computed.
        """
        links, nodes = self.graph.links(batch), None
        kinds = len(self.graph.edge_types)
        edges = self._edges.get([links.edge_index], lambda: Edges.with_loops(links, kinds))
        wanted = links.loops[0, links.target]
        if batch.roots is not None:
            numbers = links.numbers(batch.roots)
            piece, wanted = around(edges.chain, numbers, self.reach)
            nodes, edges = piece.nodes["node"], edges.within(piece)
        h = self.graph(batch, links, nodes)
        for i, attention in enumerate(self.attention):
            h = h + self._drop(attention(h, edges))
            if i == len(self.attention) - 1:
                h = h[wanted]  # from here on each node by itself
            h = h + self._drop(self.feed_forward[i](h))
        logits: Tensor = self.lin(h)
        return logits

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class Diffusion(nn.Module):
    """A block's attention, ``[N, C]`` to ``[N, C]``; the arguments are those of the model."""

    def __init__(
        self,
        channels: int,
        heads: int,
        kinds: int,
        hops: int,
        alpha: float,
        dropout: float,
        negative_slope: float,
    ) -> None:
        super().__init__()
        self.heads, self.hops, self.alpha = heads, hops, alpha
        self.dropout, self.negative_slope = dropout, negative_slope
        size = channels // heads
        self.norm = nn.LayerNorm(channels)
        draw = functools.partial(nn.init.xavier_normal_, gain=math.sqrt(2))
        self.lin = linear(channels, channels, draw)
        self.W_h = linear(channels, channels, draw)
        self.W_t = linear(channels, channels, draw)
        self.W_o = linear(channels, channels, draw)
        self.v = nn.Parameter(glorot(torch.empty(3, heads, size)))
        self.r = nn.Parameter(torch.empty(kinds, heads, size).normal_(std=1 / math.sqrt(size)))

    def forward(self, h: Tensor, edges: Edges) -> Tensor:
        """Return ``[N, C]``."""
        h = self.norm(h)
        weight = F.dropout(self.weight(h, edges), self.dropout, self.training)
        z = diffuse(weight, self._by_head(self.lin(h)), edges, self.hops, self.alpha)
        out: Tensor = self.W_o(z.flatten(1))
        return out

    def weight(self, h: Tensor, edges: Edges) -> Tensor:
        """Return A's entries: each link's attention, which sums to 1 over the links into a node."""
        # tanh acts on each part of the concatenation by itself: numbers per node, not per link.
        s = (self._by_head(self.W_h(h)).tanh() * self.v[0]).sum(-1)
        t = (self._by_head(self.W_t(h)).tanh() * self.v[1]).sum(-1)
        score = s.index_select(0, edges.end) + t.index_select(0, edges.start)
        score = score + (self.r.tanh() * self.v[2]).sum(-1).index_select(0, edges.kind)
        score = F.leaky_relu(score, self.negative_slope)
        counts, links = edges.indptr.diff(), len(score)
        top = torch.segment_reduce(score.detach(), "max", offsets=edges.indptr)
        weight = (score - top.repeat_interleave(counts, 0, output_size=links)).exp()
        total = torch.segment_reduce(weight, "sum", offsets=edges.indptr)
        return weight / total.repeat_interleave(counts, 0, output_size=links)

    def _by_head(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 1, (self.heads, -1))


@dataclass(frozen=True)
class Edges:
    """Links in the order of the node they lead to, and how to go through them the other way."""

    start: Tensor
    end: Tensor
    kind: Tensor  # the relation of each; loops have one of their own
    indptr: Tensor
    back: Tensor
    back_indptr: Tensor

    @classmethod
    def with_loops(cls, links: Links, relations: int) -> Edges:
        """Sort all links and a loop per node."""
        loops = links.loops
        kind = torch.cat([links.relation, torch.full_like(loops[0], relations)])
        return cls.of(torch.cat([links.edge_index, loops], 1), kind, links.first[-1])

    @classmethod
    def of(cls, edge_index: Tensor, kind: Tensor, nodes: int) -> Edges:
        """Sort links ``[2, E]`` and their kinds ``[E]``."""
        order = torch.argsort(edge_index[1], stable=True)
        start, end = edge_index[:, order]
        back = torch.argsort(start, stable=True)
        into, out = (indptr_of(torch.bincount(ids, minlength=nodes)) for ids in (end, start))
        return cls(start, end, kind[order], into, back, out)

    @property
    def chain(self) -> Chain:
        """The chain from each node to those that lead to it."""
        nodes = self.indptr.numel() - 1
        return Chain(HOP, (nodes, nodes), (self.indptr,), (self.start,))

    def gathered(self, a: Tensor, z: Tensor) -> Tensor:
        """Return A Z per head, ``[K, N, D]``, by links × channels numbers in between."""
        moved = a[..., None] * z.index_select(1, self.start)
        return torch.zeros_like(z).index_add(1, self.end, moved)

    def within(self, piece: Restriction) -> Edges:
        """Return the links of a restriction of the chain."""
        ends = torch.stack([piece.chain.indices[0], piece.chain.sources(0)])
        return Edges.of(ends, self.kind[piece.links[0]], piece.chain.sizes[0])


def diffuse(weight: Tensor, z0: Tensor, edges: Edges, hops: int, alpha: float) -> Tensor:
    """Repeat Z <- (1-α) A Z + α Z_0 from Z_0 on, ``hops`` times; A's entries are ``[E, K]``."""
    a, first = (widen(x).transpose(0, 1).contiguous() for x in (weight, z0))
    z = first
    for _ in range(hops):
        moved: Tensor = _Product.apply(a, z, edges)  # type: ignore[no-untyped-call]
        z = (1 - alpha) * moved + alpha * first
    return z.transpose(0, 1).to(z0.dtype)


class _Product(torch.autograd.Function):
    """A Z per head, ``[K, E]`` times ``[K, N, D]``; makes nothing of size links × channels."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, a: Tensor, z: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(a, z)
        ctx.edges = edges
        return _multiply(edges.indptr, edges.start, a, z)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, z = ctx.saved_tensors
        edges, grad = ctx.edges, grads[0].contiguous()
        if torch.is_grad_enabled():
            return *plain_gradients(edges.gathered, (a, z), grad), None
        d_z = _multiply(edges.back_indptr, edges.end[edges.back], a[:, edges.back], grad)
        nodes, entries = z.size(1), torch.zeros_like(a[0])
        # PyTorch refuses more entries than a matrix has places: few nodes, with many links between.
        width = max(nodes, -(-entries.numel() // max(1, nodes)))
        links = torch.sparse_csr_tensor(edges.indptr, edges.start, entries, (nodes, width))
        d_a = [
            torch.sparse.sampled_addmm(links, g, x.t(), beta=0.0).values()  # <g_end, x_start>
            for g, x in zip(grad, F.pad(z, (0, 0, 0, width - nodes)), strict=True)
        ]
        return torch.stack(d_a), d_z, None


def _multiply(indptr: Tensor, indices: Tensor, a: Tensor, z: Tensor) -> Tensor:
    size = (z.size(1), z.size(1))
    matrices = (torch.sparse_csr_tensor(indptr, indices, entries, size) for entries in a)
    return torch.stack([torch.sparse.mm(m, x) for m, x in zip(matrices, z, strict=True)])
