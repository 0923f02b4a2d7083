"""The linear encoder: MAGNN's second, for comparison."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn.encoders.base import Terms
from hanme.nn.encoders.mean import Mean
from hanme.nn.inits import glorot


class Linear(Mean):
    r""":math:`e(p) = W_\Phi \frac{1}{L+1} \sum_l h_{v_l}`, a matrix per metapath and head."""

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__(heads, channels, metapaths)
        self.W = nn.Parameter(torch.empty(len(metapaths), heads, channels, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        # All begin alike: metapaths are added up, which takes encodings that can be compared.
        glorot(self.W[:1])
        with torch.no_grad():
            self.W[1:] = self.W[:1]

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        # The matrix of a mean is the mean of the matrices' products: once per node.
        terms = []
        for W, chain in zip(self.W, chains, strict=True):
            types = set(chain.metapath.node_types)
            turned = {t: torch.einsum("nkd,kde->nke", h[t], W) for t in types}
            terms += super().forward(turned, [chain])
        return terms
