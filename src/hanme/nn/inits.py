"""Draw weights as PyTorch Geometric does, without its import, which takes longer than PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor, nn


def glorot(weights: Tensor | Iterable[Tensor]) -> None:
    """Draw matrices, or stacks of them, from Glorot's uniform distribution."""
    for weight in (weights,) if isinstance(weights, Tensor) else weights:
        bound = math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
        weight.data.uniform_(-bound, bound)


def reset(module: nn.Module) -> None:
    """Draw the weights of a module anew, or those of its parts if it has no such method."""
    if callable(draw := getattr(module, "reset_parameters", None)):
        draw()
        return
    for part in module.children():
        reset(part)
