"""SeHGNN's fusion: the vectors of a root attend to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.nn.fusions.base import Fusion
from hanme.nn.inits import reset

BLOCK = 256
"""Nodes whose tokens are fused at a time: what is between fits a cache."""


class Transformer(Fusion):
    """Turn each vector into a token, let the tokens of a root attend to each other, join them.

    Args:
        hidden_channels: The size of a token, all heads together, and of the result (default:
            ``channels``).
        heads: The number of attention heads.
        residual: Add the first vector to what the tokens give.
        dropout: Dropout on tokens.
        attention_dropout: Dropout on the attention between tokens.
    """

    def __init__(
        self,
        vectors: int,
        channels: int,
        hidden_channels: int | None = None,
        *,
        heads: int = 1,
        residual: bool = False,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__(vectors, channels)
        size = self.out_channels = channels if hidden_channels is None else hidden_channels
        self.project = nn.Sequential(
            TokenLayer(vectors, channels, size, dropout), TokenLayer(vectors, size, size, dropout)
        )
        self.attention = TokenAttention(size, heads, attention_dropout)
        self.concat = nn.Linear(vectors * size, size)
        self.own = nn.Linear(channels, size, bias=False) if residual else None

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for part in self.children():
            reset(part)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Fuse M vectors per root, each ``[R, C]``, into one, ``[R, out_channels]``."""
        blocks = zip(*(torch.split(x, BLOCK) for x in vectors), strict=True)
        out = torch.cat([self._fuse(block) for block in blocks])
        return out if self.own is None else out + self.own(vectors[0])

    def _fuse(self, vectors: Sequence[Tensor]) -> Tensor:
        tokens = self.attention(self.project(torch.stack(list(vectors), 1)))
        fused: Tensor = self.concat(tokens.flatten(1))
        return fused


class TokenLayer(nn.Module):
    """A matrix for each token, ``[N, M, C]`` to ``[N, M, D]``, then norm, PReLU and dropout.

    The norm is over all tokens of a node together.
    """

    def __init__(self, tokens: int, before: int, after: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, before, after))
        self.bias = nn.Parameter(torch.empty(tokens, after))
        self.norm = nn.Sequential(nn.LayerNorm([tokens, after]), nn.PReLU(), nn.Dropout(dropout))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        xavier(self.weight, self.bias)
        reset(self.norm)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[N, M, D]``."""
        out: Tensor = self.norm(torch.einsum("nmc,mcd->nmd", x, self.weight) + self.bias)
        return out


class TokenAttention(nn.Module):
    """Self-attention over the tokens of each node, ``[N, M, C]``, behind a gate that opens from 0.

    ``dropout`` is on the attention weights.
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
        """Draw the weights anew and shut the gate."""
        for lin in (self.query, self.key, self.value):
            xavier(lin.weight, lin.bias)
        nn.init.zeros_(self.gate)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[N, M, C]``."""
        q, k, v = (
            lin(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for lin in (self.query, self.key, self.value)
        )
        beta = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)), dim=-1)
        beta = F.dropout(beta, self.dropout, self.training)
        attended: Tensor = (beta @ v).transpose(1, 2).reshape(x.shape)
        return x + self.gate * attended


def xavier(weight: Tensor, bias: Tensor | None) -> None:
    """Draw weights as for ReLU, from the last two dimensions; no bias at first."""
    bound = math.sqrt(2) * math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
    nn.init.uniform_(weight, -bound, bound)
    if bias is not None:
        nn.init.zeros_(bias)
