"""The type-specific projection h = M x, for dense and for sparse features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear
from torch_geometric.nn.module_dict import ModuleDict

from hanme.errors import HanmeError

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


class Projection(Linear):  # type: ignore[misc]
    """PyG's :class:`Linear` (lazy ``-1`` included) that also takes sparse CSR features."""

    def forward(self, x: Tensor, heads: int | None = None) -> Tensor:
        """Return ``[N, out_channels]``, or split among K heads, ``[N, K, D]``."""
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


class Projections(ModuleDict):  # type: ignore[misc]
    """A projection per node type, whatever the types are called."""

    # The names in use, which no type may take.
    CLASS_ATTRS = (*ModuleDict.CLASS_ATTRS, *vars(torch.nn.Module()), "reset_parameters")

    def __init__(
        self, types: Iterable[str], in_channels: int | Mapping[str, int], out_channels: int
    ) -> None:
        sizes = {t: in_channels if isinstance(in_channels, int) else in_channels[t] for t in types}
        super().__init__({t: Projection(size, out_channels) for t, size in sizes.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def reset_parameters(self) -> None:
        """Draw the weights of all types anew."""
        for projection in self.values():
            projection.reset_parameters()
