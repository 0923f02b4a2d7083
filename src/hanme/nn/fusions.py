"""Fusions make one vector per root of the vectors that the channels give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.common import ranks
from hanme.common.registry import Registry
from hanme.nn.parts import glorot, linear, make

BLOCK = 256
"""Number of nodes whose tokens the transformer fuses at a time, so that they fit a cache."""


class Fusion(nn.Module):
    """Base class. A subclass writes :meth:`forward`; its constructor draws its weights.

    Args:
        vectors: Number of vectors to fuse, M.
        channels: Size of a vector, C.
    """

    out_channels: int
    """Size of the result."""

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__()
        self.vectors, self.out_channels = vectors, channels

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Fuse M vectors per root, each ``[R, C]``, into one, ``[R, out_channels]``."""
        raise NotImplementedError

    def weights(self, vectors: Sequence[Tensor]) -> Tensor | None:
        """Return β, ``[M]``, if the result is Σ β_m z_m: what an explanation needs."""
        return None


class Concat(Fusion):
    """Concatenate the vectors of all channels."""

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.out_channels = vectors * channels

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return ``[R, vectors * channels]``."""
        return torch.cat(list(vectors), 1)


class SemanticAttention(Fusion):
    r"""Weigh the channels, as HAN does: :math:`Z = \sum_\Phi \beta_\Phi z^\Phi`.

    :math:`\beta = \mathrm{softmax}_\Phi(w_\Phi)` with :math:`w_\Phi` the mean of
    :math:`q \cdot \tanh(W z^\Phi + b)` over all roots of a batch. Training in batches keeps a
    running ``mean`` of w for inference, so that a prediction does not depend on the other roots of
    its batch; without it, β depends on the roots.
    """

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.k_lin = nn.Linear(channels, channels)
        self.q = nn.Parameter(glorot(torch.empty(1, channels)))
        self.mean: Tensor | None
        self.register_buffer("mean", None)
        self._last: Tensor | None = None

    @torch.no_grad()
    def update_running_mean(self, momentum: float) -> None:
        """Move ``mean`` towards the w of the last batch: mean + momentum (w - mean)."""
        assert self._last is not None
        before = self._last if self.mean is None else self.mean
        self.mean = torch.lerp(before, self._last, momentum)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return Z, ``[R, C]``, from z of each channel, ``[R, C]``."""
        z = torch.stack(list(vectors))
        return torch.einsum("p,pnc->nc", self._beta(z), z).to(z.dtype)  # autocast narrows it

    def weights(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return β."""
        return self._beta(torch.stack(list(vectors)))

    def _beta(self, z: Tensor) -> Tensor:
        if self.mean is not None and not self.training:
            return torch.softmax(self.mean, dim=0)
        rows = torch.tanh(self.k_lin(z))
        w = (self.q * (ranks.mean(rows, 1) if self.training else rows.mean(1))).sum(-1)
        if not torch.compiler.is_exporting():
            self._last = w.detach()
        return torch.softmax(w, dim=0)

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Make room for the running mean, which only training in batches has."""
        mean = state.get(f"{prefix}mean")
        self.mean = None if mean is None else torch.empty_like(mean, device=self.q.device)
        super()._load_from_state_dict(state, prefix, *rest)


class Transformer(Fusion):
    """SeHGNN's: turn each vector into a token, let the tokens of a root attend to each other.

    ``hidden_channels`` is the size of a token, all heads together, and of the result (default:
    ``channels``). With ``residual``, the first vector is added to the result.
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

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Fuse M vectors per root, each ``[R, C]``, into one, ``[R, out_channels]``."""
        blocks = zip(*(torch.split(x, BLOCK) for x in vectors), strict=True)
        tokens = (self.attention(self.project(torch.stack(block, 1))) for block in blocks)
        out = torch.cat([self.concat(some.flatten(1)) for some in tokens])
        return out if self.own is None else out + self.own(vectors[0])


class TokenLayer(nn.Module):
    """A matrix per token, ``[N, M, C]`` to ``[N, M, D]``, then norm over a node, PReLU, dropout."""

    def __init__(self, tokens: int, before: int, after: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(xavier(torch.empty(tokens, before, after)))
        self.bias = nn.Parameter(torch.zeros(tokens, after))
        self.norm = nn.Sequential(nn.LayerNorm([tokens, after]), nn.PReLU(), nn.Dropout(dropout))

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
        self.query = linear(channels, small, xavier, bias=True)
        self.key = linear(channels, small, xavier, bias=True)
        self.value = linear(channels, channels, xavier, bias=True)
        self.gate = nn.Parameter(torch.zeros(1))

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


def xavier(weight: Tensor) -> Tensor:
    """Draw a weight as for ReLU, by the size of the last two dimensions."""
    bound = math.sqrt(2) * math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
    return nn.init.uniform_(weight, -bound, bound)


FUSIONS: Registry[type[Fusion]] = Registry(
    "fusion",
    Fusion,
    {"semantic": SemanticAttention, "concat": Concat, "transformer": Transformer},
)


def make_fusion(
    fusion: str | dict[str, Any] | type[Fusion] | Fusion, vectors: int, channels: int
) -> Fusion:
    """Make a fusion from a name, a table of name and options, or a class, or take the one given."""
    return make(fusion, FUSIONS, {"vectors": vectors, "channels": channels})
