"""What a backend of :func:`metapath_attention` is given, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hanme.chain import Chain
from hanme.errors import HanmeError
from hanme.ops.coefficients import Coefficients, Constant, LinkProduct, PairSigmoid


@dataclass(frozen=True)
class Problem:
    """The arguments of :func:`metapath_attention`, which documents them."""

    chain: Chain
    values: tuple[Tensor | None, ...]
    coefficients: Coefficients
    root_score: Tensor
    attention: Tensor
    roots: Tensor
    negative_slope: float
    dropout: float
    seed: int

    @property
    def heads(self) -> int:
        return self.attention.size(0)

    @property
    def channels(self) -> int:
        return self.attention.size(1)

    @property
    def positions(self) -> list[int]:
        """The positions that have values; the others contribute nothing."""
        return [i for i, value in enumerate(self.values) if value is not None]

    def value(self, position: int) -> Tensor:
        value = self.values[position]
        assert value is not None
        return value


def check(
    chain: Chain,
    values: Sequence[Tensor | None],
    coefficients: Coefficients,
    root_score: Tensor,
    attention: Tensor,
    dropout: float,
) -> None:
    """Refuses arguments whose shapes do not fit the chain, naming the one at fault."""
    if attention.dim() != 2:
        raise HanmeError(f"Expected `attention` to be [K, D], but got {list(attention.shape)}")
    heads, channels = attention.shape
    hops = len(chain)
    if not 0 <= dropout < 1:
        raise HanmeError(f"Expected `dropout` to be in [0, 1), but got {dropout}")
    if len(values) != hops + 1:
        raise HanmeError(f"Expected `values` to have {hops + 1} positions, but got {len(values)}")
    for position, value in enumerate(values):
        if value is not None:
            _shape(f"values[{position}]", value, (chain.sizes[position], heads, channels))
    _shape("root_score", root_score, (chain.sizes[0], heads))
    match coefficients:
        case Constant(c):
            if len(c) != hops + 1:
                raise HanmeError(f"Expected {hops + 1} constants, but got {len(c)}")
        case LinkProduct(root, links):
            _shape("coefficients.root", root, (chain.sizes[0], heads))
            for hop, link in enumerate(links):
                _shape(f"coefficients.links[{hop}]", link, (chain.indices[hop].numel(), heads))
        case PairSigmoid(query, keys):
            _shape("coefficients.query", query, (chain.sizes[0], heads, channels))
            for position, key in enumerate(keys):
                size = chain.sizes[position]
                _shape(f"coefficients.keys[{position}]", key, (size, heads, channels))


def _shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != torch.Size(shape):
        raise HanmeError(f"Expected `{name}` to be {list(shape)}, but got {list(tensor.shape)}")
