"""The type-specific projection h = M x, for dense and for sparse features."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from hanme.errors import HanmeError
from hanme.graph.cache import GraphCache
from hanme.nn.inits import reset

_transposed: GraphCache[Tensor] = GraphCache()


class _SparseProduct(torch.autograd.Function):
    """X W' for sparse X; X is data and has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        return torch.mm(x, weight.t().contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        transposed = _transposed.get([ctx.x], lambda: ctx.x.t().to_sparse_csr())
        return None, torch.mm(transposed, grads[0].contiguous()).t().contiguous()


def sparse_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply X W for sparse CSR X, with a gradient for W."""
    product: Tensor = _SparseProduct.apply(x, weight.t())  # type: ignore[no-untyped-call]
    return product


class Projection(nn.Module):
    """A linear layer that also takes sparse CSR features.

    Args:
        in_channels: The size of the features; ``-1`` derives it from the first input.
        out_channels: The size of the output.
        bias: Whether to add a bias.
    """

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.weight = (
            UninitializedParameter()
            if in_channels == -1
            else nn.Parameter(torch.empty(out_channels, in_channels))
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, once their size is known."""
        if not is_lazy(self.weight):
            bound = 1 / math.sqrt(max(1, self.weight.size(1)))
            nn.init.uniform_(self.weight, -bound, bound)
            if self.bias is not None:
                nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, heads: int | None = None) -> Tensor:
        """Return ``[N, out_channels]``, or split among K heads, ``[N, K, D]``."""
        if isinstance(self.weight, UninitializedParameter):
            self.weight.materialize((self.out_channels, x.size(1)))
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


class Projections(nn.ModuleDict):
    """A projection per node type; a type may have any name."""

    def __init__(
        self, types: Iterable[str], in_channels: int | Mapping[str, int], out_channels: int
    ) -> None:
        sizes = {t: in_channels if isinstance(in_channels, int) else in_channels[t] for t in types}
        super().__init__()
        self._types = dict.fromkeys(sizes)
        for t, size in sizes.items():
            self.add_module(_key(t), Projection(size, out_channels))

    def __getitem__(self, node_type: str) -> nn.Module:
        return super().__getitem__(_key(node_type))

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def keys(self) -> KeysView[str]:
        """Return the node types."""
        return self._types.keys()

    def items(self) -> ItemsView[str, nn.Module]:
        """Return node types and projections."""
        return dict(zip(self._types, self.values(), strict=True)).items()

    def reset_parameters(self) -> None:
        """Draw the weights of all types anew."""
        reset(*self.values())


def _key(node_type: str) -> str:
    """Return a name that PyTorch accepts for a module: without dots, and not that of a member."""
    key = node_type.replace("%", "%25").replace(".", "%2E")
    taken = not key or key[0] == "_" or hasattr(nn.ModuleDict(), key) or key == "reset_parameters"
    return f"%{key}" if taken else key
