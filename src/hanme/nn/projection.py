"""The type-specific projection h = M x, for dense and for sparse features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear
from torch_geometric.nn.module_dict import ModuleDict

from hanme.errors import HanmeError

_transposed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class _SparseProduct(torch.autograd.Function):
    """X W' for sparse X; X is data and has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        return torch.sparse.mm(x, weight.t().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, torch.sparse.mm(_transpose(ctx.x), grads[0].contiguous()).t().contiguous()


def _transpose(x: Tensor) -> Tensor:
    """Made once per graph, not once per epoch; again if the values were changed in place."""
    version, transposed = _transposed.get(x, (None, None))
    if transposed is None or version != x.values()._version:
        transposed = x.to_sparse_coo().t().coalesce().to_sparse_csr()
        _transposed[x] = (x.values()._version, transposed)
    return transposed


def sparse_product(x: Tensor, weight: Tensor) -> Tensor:
    """X W for sparse CSR X, with a gradient for W."""
    return _SparseProduct.apply(x, weight.t())


class Projection(Linear):
    """PyG's :class:`Linear` (lazy ``-1`` included) that also takes sparse CSR features."""

    def forward(self, x: Tensor, heads: int | None = None) -> Tensor:
        """``[N, out_channels]``, or split among K heads, ``[N, K, D]``."""
        if x.dtype != self.weight.dtype:
            raise HanmeError(
                f"Expected features of the weights' type, {self.weight.dtype}, but got {x.dtype}"
            )
        if x.layout == torch.strided:
            out = super().forward(x)
            return out if heads is None else out.unflatten(1, (heads, -1))
        if heads is None:
            out = _SparseProduct.apply(x, self.weight)
            return out if self.bias is None else out + self.bias
        # The heads of a channel side by side in memory, as compiled code reads them.
        weight = self.weight.unflatten(0, (heads, -1)).transpose(0, 1).flatten(0, 1)
        out = _SparseProduct.apply(x, weight).unflatten(1, (-1, heads)).transpose(1, 2)
        return out if self.bias is None else out + self.bias.unflatten(0, (heads, -1))


class Projections(ModuleDict):
    """A projection per node type, whatever the types are called.

    Args:
        types: The node types.
        in_channels: The size of their features, of all or by type; ``-1`` to derive it.
        out_channels: The size of a node's vector.
    """

    CLASS_ATTRS = (*ModuleDict.CLASS_ATTRS, "training")  # names that a module has a use for

    def __init__(
        self, types: Iterable[str], in_channels: int | Mapping[str, int], out_channels: int
    ) -> None:
        sizes = {t: in_channels if isinstance(in_channels, int) else in_channels[t] for t in types}
        super().__init__({t: Projection(size, out_channels) for t, size in sizes.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())
