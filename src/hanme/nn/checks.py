"""Checks of what a model or a layer is given, in one voice."""

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor

from hanme.common.options import check_options
from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import checked_roots

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


def make(
    what: str,
    given: str | type[T] | T,
    known: Mapping[str, type[T]],
    own: Mapping[str, object],
    options: Mapping[str, object] | None = None,
) -> T:
    """Make a part of a model from its name or class, ``own`` arguments and options, or take it."""
    if not isinstance(given, str | type):
        return given
    if isinstance(given, str):
        check_choice(what, given, known)
    kind = known[given] if isinstance(given, str) else given
    check_options(f"{what} {kind.__name__}", kind, options or {}, tuple(own))
    return kind(*own.values(), **options or {})


def features_of(x_dict: Mapping[str, Tensor], node_type: str) -> Tensor:
    """Return the features of a node type."""
    if node_type not in x_dict:
        raise HanmeError(f"node type {node_type!r} has no features, and the model reads them")
    return x_dict[node_type]


def some(x: Tensor, roots: Tensor | None) -> Tensor:
    """Return the rows of some roots, or all of them."""
    return x if roots is None else x.index_select(0, checked_roots(roots, x.size(0)))
