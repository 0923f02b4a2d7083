"""The type-specific projection h = M x, for dense and for sparse features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn import Linear

from hanme.errors import HanmeError

_transposed: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


class _SparseProduct(torch.autograd.Function):
    """X W for sparse X; X is data and has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        return torch.sparse.mm(x, weight.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, torch.sparse.mm(_transpose(ctx.x), grads[0].contiguous())


def _transpose(x: Tensor) -> Tensor:
    """Made once per graph, not once per epoch; again if the values were changed in place."""
    version, transposed = _transposed.get(x, (None, None))
    if transposed is None or version != x.values()._version:
        transposed = x.to_sparse_coo().t().coalesce().to_sparse_csr()
        _transposed[x] = (x.values()._version, transposed)
    return transposed


def sparse_product(x: Tensor, weight: Tensor) -> Tensor:
    """X W for sparse CSR X, with a gradient for W."""
    return _SparseProduct.apply(x, weight)


class Projection(Linear):
    """PyG's :class:`Linear` (lazy ``-1`` included) that also takes sparse CSR features."""

    def forward(self, x: Tensor) -> Tensor:
        if x.layout == torch.strided:
            return super().forward(x)
        if x.dtype != self.weight.dtype:
            raise HanmeError(
                f"Expected features of the weights' type, {self.weight.dtype}, but got {x.dtype}"
            )
        out = sparse_product(x, self.weight.t())
        return out if self.bias is None else out + self.bias
