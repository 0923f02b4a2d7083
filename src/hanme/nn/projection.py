"""The type-specific projection h = M x, for dense and for sparse features."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import Parameter, UninitializedParameter, is_lazy
from torch.utils.weak import WeakTensorKeyDictionary

from hanme.errors import HanmeError
from hanme.nn.inits import reset

_transposed = WeakTensorKeyDictionary()


class _SparseProduct(torch.autograd.Function):
    """X W' for sparse X; X is data and has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        return torch.mm(x, weight.t().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, torch.mm(_transpose(ctx.x), grads[0].contiguous()).t().contiguous()


def _transpose(x: Tensor) -> Tensor:
    """Transpose once per graph, not once per epoch; again if the values were changed in place."""
    version = x.values()._version
    if x not in _transposed or _transposed[x][0] != version:
        _transposed[x] = (version, x.t().to_sparse_csr())
    transposed: Tensor = _transposed[x][1]
    return transposed


def sparse_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply X W for sparse CSR X, with a gradient for W."""
    product: Tensor = _SparseProduct.apply(x, weight.t())  # type: ignore[no-untyped-call]
    return product


class Projection(nn.Module):
    """A linear layer for dense and for sparse CSR features, initialised as PyTorch's.

    Args:
        in_channels: The number of features; ``-1`` takes it from the first input.
        out_channels: The size of the result.
        bias: Whether to add a bias.
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        known = in_channels > 0
        self.weight: Parameter | UninitializedParameter = (
            Parameter(torch.empty(out_channels, in_channels)) if known else UninitializedParameter()
        )
        self.bias: Parameter | None = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, once their size is known."""
        if self.in_channels > 0:
            bound = 1 / math.sqrt(self.in_channels)
            for parameter in self.parameters():
                parameter.data.uniform_(-bound, bound)

    def _set_size(self, in_channels: int) -> None:
        if isinstance(self.weight, UninitializedParameter):
            self.in_channels = in_channels
            self.weight.materialize((self.out_channels, in_channels))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        if prefix + "weight" in state_dict:
            self._set_size(state_dict[prefix + "weight"].size(1))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Tensor, heads: int | None = None) -> Tensor:
        """Return ``[N, out_channels]``, or split among K heads, ``[N, K, D]``."""
        if is_lazy(self.weight):
            self._set_size(x.size(1))
            self.reset_parameters()
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if x.dtype != weight.dtype:
            raise HanmeError(
                f"Expected features of the weights' type, {weight.dtype}, but got {x.dtype}"
            )
        if heads is not None:  # those of a channel side by side in memory, as compiled code reads
            weight = torch.unflatten(weight, 0, (heads, -1)).transpose(0, 1).flatten(0, 1)
            bias = None if bias is None else torch.unflatten(bias, 0, (heads, -1)).t().flatten()
        if x.layout == torch.strided:
            out = F.linear(x, weight, bias)
        else:
            out = sparse_product(x, weight.t())
            out = out if bias is None else out + bias
        return out if heads is None else torch.unflatten(out, 1, (-1, heads)).transpose(1, 2)


class Projections(nn.Module):
    """A projection per node type; types may have any name."""

    def __init__(
        self, types: Iterable[str], in_channels: int | Mapping[str, int], out_channels: int
    ) -> None:
        super().__init__()
        sizes = {t: in_channels if isinstance(in_channels, int) else in_channels[t] for t in types}
        self.types = list(sizes)
        self.layers = nn.ModuleList(Projection(size, out_channels) for size in sizes.values())

    def __getitem__(self, kind: str) -> nn.Module:
        return self.layers[self.types.index(kind)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.types)

    def values(self) -> Iterator[nn.Module]:
        """Iterate over the projections, in the order of the types."""
        return iter(self.layers)

    def items(self) -> Iterator[tuple[str, nn.Module]]:
        """Iterate over types and projections."""
        return zip(self.types, self.layers, strict=True)

    def reset_parameters(self) -> None:
        """Draw the weights of all types anew."""
        for projection in self.layers:
            reset(projection)
