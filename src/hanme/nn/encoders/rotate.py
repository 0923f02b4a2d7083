"""The RotatE encoder: MAGNN's third, for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath
from hanme.nn.encoders.base import Encoder, Terms
from hanme.nn.encoders.mean import mean_of


class RotatE(Encoder):
    r"""The mean of the positions, each turned by the relations that lead from it to the root.

    The halves of h are the real and the imaginary parts of D / 2 complex numbers. Each relation
    has as many unit complex numbers :math:`e^{i \theta}`, its inverse their conjugates; position l
    is turned by the product of the relations of its l steps towards the root, each the inverse of
    one of the metapath's. D is even.
    """

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__(heads, channels, metapaths)
        if channels % 2:
            raise HanmeError(
                f"Expected the size of a head to be even for RotatE, but got {channels}"
            )
        self._place: dict[EdgeType, tuple[int, int]] = {}  # which angles, and their sign
        pairs = 0
        for step in (step for metapath in metapaths for step in metapath.steps):
            if step not in self._place:
                self._place[step] = (pairs, 1)
                for inverse in _inverses(step):
                    self._place.setdefault(inverse, (pairs, -1))
                pairs += 1
        self.angle = nn.Parameter(torch.empty(pairs, heads, channels // 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        return [mean_of(self._turned(h, chain.metapath)) for chain in chains]

    def _turned(self, h: Mapping[str, Tensor], metapath: Metapath) -> tuple[Tensor, ...]:
        values = [h[metapath.root]]
        angle = torch.zeros_like(self.angle[0])
        for step in metapath.steps:
            place, sign = self._place[step]
            angle = angle - sign * self.angle[place]  # the step back
            real, imaginary = h[step[2]].chunk(2, dim=-1)
            cos, sin = angle.cos(), angle.sin()
            turned = (real * cos - imaginary * sin, real * sin + imaginary * cos)
            values.append(torch.cat(turned, dim=-1))
        return tuple(values)


def _inverses(step: EdgeType) -> list[EdgeType]:
    """Return what a relation's inverse may be called: the same, or with or without ``rev_``."""
    source, relation, target = step
    names = [relation, f"rev_{relation}", relation.removeprefix("rev_")]
    return [(target, name, source) for name in names if (target, name, source) != step]
