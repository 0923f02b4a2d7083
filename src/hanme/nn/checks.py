"""Checks of what a model or a layer is given, in one voice."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor

from hanme.errors import HanmeError

T = TypeVar("T")

MOST_CHANNELS = 2**13
"""Past any published size; beyond it square matrices alone fill a machine's memory."""


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
    """Refuse shares that are none, or all of what there is."""
    for name, value in dropouts.items():
        if not 0 <= value < 1:
            raise HanmeError(f"Expected `{name}` to be in [0, 1), but got {value}")


def named(what: str, given: str | type[T], known: Mapping[str, type[T]]) -> type[T]:
    """Return the class that a name stands for, or the class given."""
    if not isinstance(given, str):
        return given
    if given not in known:
        raise HanmeError(f"Expected `{what}` to be one of {', '.join(known)}, but got {given!r}")
    return known[given]


def features_of(x_dict: Mapping[str, Tensor], node_type: str) -> Tensor:
    """Return the features of a node type."""
    if node_type not in x_dict:
        raise HanmeError(f"node type {node_type!r} has no features, and the model reads them")
    return x_dict[node_type]


def some(x: Tensor, roots: Tensor | None) -> Tensor:
    """Return the rows of some roots, or all of them."""
    return x if roots is None else x.index_select(0, checked_roots(roots, x.size(0)))


def checked_roots(roots: Tensor, nodes: int) -> Tensor:
    """Return roots, if they are ids of so many nodes."""
    whole = roots.dim() == 1 and roots.dtype in (torch.int64, torch.int32)
    if not whole or (roots.numel() and not 0 <= int(roots.min()) <= int(roots.max()) < nodes):
        raise HanmeError(
            f"Expected `roots` to be ids of nodes, [R], from 0 to {nodes - 1}, but got "
            f"{list(roots.shape)} of {roots.dtype}: {roots.flatten()[:9].tolist()}"
        )
    return roots
