"""The mean encoder: MAGNN's simplest, for comparison."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from hanme.graph.chain import Chain
from hanme.nn.encoders.base import Encoder, Terms
from hanme.ops import Constant


class Mean(Encoder):
    r""":math:`e(p) = \frac{1}{L+1} \sum_l h_{v_l}`."""

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        return [mean_of(tuple(h[t] for t in chain.metapath.node_types)) for chain in chains]


def mean_of(values: tuple[Tensor, ...]) -> Terms:
    """Return the terms of the mean of all positions."""
    return Terms(values, Constant((1 / len(values),) * len(values)))
