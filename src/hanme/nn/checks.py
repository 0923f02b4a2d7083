"""Checks of what a model or a layer is given, in one voice."""

from hanme.errors import HanmeError

MOST_CHANNELS = 2**13
"""Past any published size; beyond it square matrices alone fill a machine's memory."""


def check_heads(hidden_channels: int, heads: int) -> None:
    """The heads share the hidden size evenly."""
    if heads < 1 or hidden_channels < 1 or hidden_channels % heads:
        nearest = max(1, round(hidden_channels / heads)) * heads if heads >= 1 else hidden_channels
        raise HanmeError(
            f"Expected the hidden size to be a multiple of heads, but got {hidden_channels} "
            f"for {heads} heads; {nearest} would do"
        )
    check_counts(1, MOST_CHANNELS, hidden_channels=hidden_channels)


def check_counts(least: int, most: int, **counts: int) -> None:
    """Whole numbers within their range."""
    for name, value in counts.items():
        if not least <= value <= most:
            raise HanmeError(f"Expected `{name}` to be from {least} to {most}, but got {value}")


def check_dropouts(**dropouts: float) -> None:
    """Shares of what is dropped: not all of it."""
    for name, value in dropouts.items():
        if not 0 <= value < 1:
            raise HanmeError(f"Expected `{name}` to be in [0, 1), but got {value}")
