"""What an encoder is: it turns a metapath instance into one vector per head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.ops import Coefficients


@dataclass(frozen=True)
class Terms:
    """An encoding e(p) = Σ_l c_l(p) V_l[v_l]: the values V_l and what gives c_l."""

    values: tuple[Tensor | None, ...]
    coefficients: Coefficients


class Encoder(nn.Module):
    """Base class. A subclass writes :meth:`forward` and, with weights, `reset_parameters`.

    Chains may be restricted to what some roots touch; features are then those of the nodes left.

    Args:
        heads: K.
        channels: D, the size of a head.
        metapaths: What it will encode, for parameters that depend on it.
    """

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__()
        self.heads = heads
        self.channels = channels

    def reset_parameters(self) -> None:
        """Draw the weights anew."""

    def node_types(self, metapath: Metapath) -> Sequence[str]:
        """Return the types whose features an encoding of this metapath reads."""
        return metapath.node_types

    def view(self, chain: Chain) -> Chain:
        """Return the chain whose instances are encoded: the metapath's own, unless overridden."""
        return chain

    def pick(self, metapath: Metapath, nodes: Tensor) -> tuple[Metapath, Tensor]:
        """Return what is encoded of some instances, ``[P, L + 1]``, as :meth:`view` sees them."""
        return metapath, nodes

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Name the sizes."""
        return f"heads={self.heads}, channels={self.channels}"
