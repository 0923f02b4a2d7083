"""Initialise weights, as PyTorch Geometric does."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


@torch.no_grad()
def glorot(*weights: Tensor | Iterable[Tensor]) -> None:
    """Draw weights from Glorot's uniform distribution, by the size of their last two dimensions."""
    for weight in weights:
        if isinstance(weight, Tensor):
            bound = math.sqrt(6 / (weight.size(-2) + weight.size(-1)))
            weight.uniform_(-bound, bound)
        else:
            glorot(*weight)


def reset(*modules: nn.Module) -> None:
    """Call ``reset_parameters`` of modules, or of the modules inside those that have none."""
    for module in modules:
        if callable(method := getattr(module, "reset_parameters", None)):
            method()
        else:
            reset(*module.children())
