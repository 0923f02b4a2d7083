"""What models share: checks of options, initialisation, and projections of sparse features."""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from hanme.common.options import check_options
from hanme.common.registry import Registry
from hanme.errors import HanmeError
from hanme.graph.cache import GraphCache
from hanme.graph.chain import checked_roots
from hanme.ops.problem import widen

T = TypeVar("T")

MOST_CHANNELS = 2**13
"""Maximum size of a vector: beyond it, square matrices alone fill the memory of a machine."""


def check_heads(hidden_channels: int, heads: int) -> None:
    """Refuse heads that do not share the hidden size evenly."""
    if heads < 1 or hidden_channels < 1 or hidden_channels % heads:
        nearest = max(1, round(hidden_channels / heads)) * heads if heads >= 1 else hidden_channels
        raise HanmeError(
            f"Expected the hidden size to be a multiple of heads, but got {hidden_channels} "
            f"for {heads} heads; {nearest} would do"
        )
    check_counts(1, MOST_CHANNELS, hidden_channels=hidden_channels)


def check_counts(least: int, most: int, **counts: int) -> None:
    """Refuse whole numbers outside their range."""
    for name, value in counts.items():
        if not least <= value <= most:
            raise HanmeError(f"Expected `{name}` to be from {least} to {most}, but got {value}")


def check_dropouts(**dropouts: float) -> None:
    """Refuse probabilities of dropout outside [0, 1)."""
    for name, value in dropouts.items():
        if not 0 <= value < 1:
            raise HanmeError(f"Expected `{name}` to be in [0, 1), but got {value}")


def make(
    given: str | dict[str, Any] | type[T] | T,
    known: Registry[type[T]],
    own: Mapping[str, object],
    options: Mapping[str, object] | None = None,
) -> T:
    """Make a component from its name or class, ``own`` arguments and options, or take it.

    A table holds the ``name`` and options, as in ``{"name": "transformer", "heads": 4}``.
    """
    if isinstance(given, dict):
        options = {k: v for k, v in given.items() if k != "name"} | dict(options or {})
        if "name" not in given:
            raise HanmeError(f"{known.kind}: a table of options needs the name of a {known.kind}")
        given = str(given["name"])
    if not isinstance(given, str | type):
        if options:
            raise HanmeError(f"{known.kind}: an instance takes no {', '.join(options)}")
        return given
    kind = known.find(given) if isinstance(given, str) else given
    check_options(f"{known.kind} {kind.__name__}", kind, options or {}, tuple(own))
    return kind(*own.values(), **options or {})


def features_of(x_dict: Mapping[str, Tensor], node_type: str) -> Tensor:
    """Return the features of a node type."""
    if node_type not in x_dict:
        raise HanmeError(f"node type {node_type!r} has no features, and the model reads them")
    return x_dict[node_type]


def some(x: Tensor, roots: Tensor | None) -> Tensor:
    """Return the rows of some roots, or all of them."""
    return x if roots is None else x.index_select(0, checked_roots(roots, x.size(0)))


@torch.no_grad()
def glorot(weight: Tensor) -> Tensor:
    """Draw a weight from Glorot's uniform distribution, by the size of its last two dimensions."""
    bound = math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
    return weight.uniform_(-bound, bound)


def linear(
    before: int, after: int, draw: Callable[[Tensor], object], *, bias: bool = False
) -> nn.Linear:
    """Return a linear layer whose matrix is drawn by ``draw``, once, and whose bias is 0."""
    lin: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, before, after, bias=bias
    )
    draw(lin.weight)
    if bias:
        nn.init.zeros_(lin.bias)
    return lin


_transposed: GraphCache[Tensor] = GraphCache()


class _SparseProduct(torch.autograd.Function):
    """X W for sparse X, which is data and has no gradient; on the CPU always in float32 or 64."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.x = x
        return torch.mm(x, weight.contiguous())

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        transposed = _transposed.get([ctx.x], lambda: ctx.x.t().to_sparse_csr())
        product: Tensor = _SparseProduct.apply(transposed, grads[0])  # type: ignore[no-untyped-call]
        return None, product


def sparse_product(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply X W for sparse CSR X, with a gradient for W."""
    product: Tensor = _SparseProduct.apply(widen(x), widen(weight))  # type: ignore[no-untyped-call]
    return product.to(weight.dtype)


class Projection(nn.Module):
    """A linear layer that also takes sparse CSR features; a size of -1 is that of the first."""

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

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save weights whose size is not known yet as they are, as PyG's layers do."""
        if not is_lazy(self.weight):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            return
        destination[f"{prefix}weight"] = self.weight
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias if keep_vars else self.bias.detach()

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take the size of the weights from those that are loaded."""
        given = state.get(f"{prefix}weight")
        if isinstance(self.weight, UninitializedParameter):
            if isinstance(given, UninitializedParameter):
                return
            if given is not None:
                self.weight.materialize(given.shape)
        super()._load_from_state_dict(state, prefix, *rest)

    def forward(self, x: Tensor, heads: int | None = None) -> Tensor:
        """Return ``[N, out_channels]``, or split among K heads, ``[N, K, D]``."""
        if isinstance(self.weight, UninitializedParameter):
            self.weight.materialize((self.out_channels, x.size(1)))
            self.reset_parameters()
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        device = x.device.type
        if torch.is_autocast_enabled(device) and x.dtype == torch.get_autocast_dtype(device):
            x = x.to(weight.dtype)  # the output of a layer before this one
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
        super().__init__()
        self._types = dict.fromkeys(types)
        for t in self._types:
            size = in_channels if isinstance(in_channels, int) else in_channels[t]
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


def _key(node_type: str) -> str:
    """Return a name that PyTorch accepts for a module: without dots, and not that of a member."""
    key = node_type.replace("%", "%25").replace(".", "%2E")
    taken = not key or key[0] == "_" or hasattr(nn.ModuleDict(), key)
    return f"%{key}" if taken else key
