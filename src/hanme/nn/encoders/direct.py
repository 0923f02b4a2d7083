"""The direct attention encoder: the root attends to every node of the instance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hanme.errors import check_choice
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn.encoders.base import Encoder, Terms
from hanme.nn.inits import glorot
from hanme.ops import PairSigmoid


class Direct(Encoder):
    r"""The sum of all positions, each as far as the root attends to it.

    :math:`e(p) = \sum_i \sigma(\langle q, k_i \rangle / \sqrt{D})\, h_{v_i}` with
    :math:`q = h_{v_0} W_t` and :math:`k_i = h_{v_i} W_h`. The parameters are shared by
    all metapaths.

    Args:
        values: What is summed: ``"projected"`` features h, which the paper's figures are made
            with, or ``"transformed"`` ones, the paper's formula (k_i, and q at the root).
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        metapaths: Sequence[Metapath] = (),
        *,
        values: Literal["projected", "transformed"] = "projected",
    ) -> None:
        super().__init__(heads, channels, metapaths)
        check_choice("values", values, ("projected", "transformed"))
        self.values = values
        self.W_h = nn.Parameter(torch.empty(heads, channels, channels))
        self.W_t = nn.Parameter(torch.empty(heads, channels, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        glorot(self.W_h)
        glorot(self.W_t)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        types = dict.fromkeys(t for chain in chains for t in chain.metapath.node_types)
        k = {t: torch.einsum("nkd,kde->nke", h[t], self.W_h) for t in types}
        roots = dict.fromkeys(chain.metapath.root for chain in chains)
        q = {t: torch.einsum("nkd,kde->nke", h[t], self.W_t) for t in roots}
        terms = []
        for chain in chains:
            root, *others = chain.metapath.node_types
            query = q[root] / math.sqrt(self.channels)
            if self.values == "projected":
                keys = (k[root], *(k[t] for t in others))
                values = tuple(h[t] for t in chain.metapath.node_types)
            else:
                keys = values = (q[root], *(k[t] for t in others))
            terms.append(Terms(values, PairSigmoid(query, keys)))
        return terms

    def extra_repr(self) -> str:
        """Name sizes and values."""
        return f"{super().extra_repr()}, values={self.values}"
