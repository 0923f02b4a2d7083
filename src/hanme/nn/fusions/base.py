"""What a fusion is: it makes one vector of several."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Fusion(nn.Module):
    """Base class. A subclass writes :meth:`forward` and, with weights, `reset_parameters`.

    Args:
        vectors: M, how many vectors it will fuse.
        channels: C, their size.
    """

    out_channels: int
    """The size of the one vector."""

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__()
        self.out_channels = channels

    def reset_parameters(self) -> None:
        """Draw the weights anew."""

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Fuse M vectors per root, each ``[R, C]``, into one, ``[R, out_channels]``."""
        raise NotImplementedError

    def weights(self, vectors: Sequence[Tensor]) -> Tensor | None:
        """Return β, ``[M]``, if the result is Σ β_m z_m: what an explanation needs."""
        return None
