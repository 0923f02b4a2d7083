"""The multihop attention encoder: attention diffused along the instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn.encoders.base import Encoder, Terms
from hanme.nn.inits import glorot
from hanme.ops import LinkProduct, tanh_scores


class Multihop(Encoder):
    r"""MAGNA's diffusion :math:`\sum_m \gamma (1-\gamma)^m A^m` on the chain v0 <- v1 <- ... <- vL.

    .. math::
        e(p) = \gamma\, a(v_0, v_0) h_{v_0}
        + \sum_{i=1}^{L} \gamma (1-\gamma)^i \Big(\prod_{j=1}^{i} a(v_{j-1}, v_j)\Big) h_{v_i},
        \qquad a(u, w) = \sigma(\mathrm{LeakyReLU}(v_a \cdot \tanh[W_h h_u \,\Vert\, W_t h_w]))

    The parameters are shared by all metapaths.

    Args:
        gamma: The share γ that stays at each hop, in (0, 1).
        negative_slope: LeakyReLU's slope below 0.
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        metapaths: Sequence[Metapath] = (),
        *,
        gamma: float = 0.4,
        negative_slope: float = 0.2,
    ) -> None:
        super().__init__(heads, channels, metapaths)
        if not 0 < gamma < 1:
            raise HanmeError(f"Expected `gamma` to be between 0 and 1, but got {gamma}")
        self.gamma = gamma
        self.negative_slope = negative_slope
        self.W_h = nn.Parameter(torch.empty(heads, channels, channels))
        self.W_t = nn.Parameter(torch.empty(heads, channels, channels))
        self.v_a = nn.Parameter(torch.empty(heads, 2 * channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        glorot(self.W_h)
        glorot(self.W_t)
        glorot(self.v_a)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        # tanh acts on each half of the concatenation by itself, so that
        # v_a · tanh([W_h h_u ‖ W_t h_w]) = s[u] + t[w]: two numbers per node and head.
        types = dict.fromkeys(t for chain in chains for t in chain.metapath.node_types)
        weight, v = torch.stack([self.W_h, self.W_t]), torch.unflatten(self.v_a, 1, (2, -1))
        scores = {t: tanh_scores(h[t], weight, v.transpose(0, 1)) for t in types}
        starts = dict.fromkeys(chain.metapath.root for chain in chains)
        roots = {t: self.gamma * self._weight(scores[t][0] + scores[t][1]) for t in starts}
        return [self._terms(h, scores, roots[chain.metapath.root], chain) for chain in chains]

    def _terms(
        self, h: Mapping[str, Tensor], scores: Mapping[str, Tensor], root: Tensor, chain: Chain
    ) -> Terms:
        types = chain.metapath.node_types
        s, t = zip(*(scores[node_type] for node_type in types), strict=True)  # by position
        links = [
            (1 - self.gamma)
            * self._weight(
                s[hop].index_select(0, chain.sources(hop)) + t[hop + 1].index_select(0, indices)
            )
            for hop, indices in enumerate(chain.indices)
        ]
        links[0] = self.gamma * links[0]  # so that each prefix product holds γ once
        return Terms(tuple(h[node_type] for node_type in types), LinkProduct(root, tuple(links)))

    def _weight(self, score: Tensor) -> Tensor:
        return torch.sigmoid(F.leaky_relu(score, self.negative_slope))

    def extra_repr(self) -> str:
        """Name sizes and γ."""
        return f"{super().extra_repr()}, gamma={self.gamma}"
