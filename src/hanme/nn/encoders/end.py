"""HAN's view of a metapath: the node at its end, nothing in between."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn.encoders.base import Encoder, Terms
from hanme.ops import Constant


class End(Encoder):
    r""":math:`e(p) = h_{v_L}`, each distinct end of a root's instances once."""

    def node_types(self, metapath: Metapath) -> Sequence[str]:
        """Return the types of root and end."""
        return metapath.node_types[0], metapath.node_types[-1]

    def view(self, chain: Chain) -> Chain:
        """Return the chain from each root to its distinct ends."""
        return chain.ends

    def pick(self, metapath: Metapath, nodes: Tensor) -> tuple[Metapath, Tensor]:
        """Return the distinct ends of each root's instances."""
        return metapath.in_one_step(), torch.unique(nodes[:, [0, -1]], dim=0)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        return [
            Terms((None, h[chain.metapath.node_types[-1]]), Constant((0.0, 1.0)))
            for chain in chains
        ]
