"""Vectors side by side."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hanme.nn.fusions.base import Fusion


class Concat(Fusion):
    """Put the vectors of all channels side by side: the head weighs each number by itself."""

    def __init__(self, vectors: int, channels: int) -> None:
        super().__init__(vectors, channels)
        self.out_channels = vectors * channels

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return ``[R, vectors * channels]``."""
        return torch.cat(list(vectors), 1)
