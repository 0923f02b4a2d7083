"""Second derivatives: compiled code has gradients of its own, which PyTorch cannot differentiate.

Inside a backward pass, gradients are enabled if and only if it was called with ``create_graph``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hanme.errors import HanmeError


def check_first_order(backend: str) -> None:
    """Refuse ``create_graph=True`` in a backward pass that has no second derivatives."""
    if torch.is_grad_enabled():
        raise HanmeError(
            f"backend {backend} has no second derivatives (create_graph=True): pass "
            "backend='chunked' or backend='eager'"
        )


def plain_gradients(
    formula: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a formula in plain PyTorch, which can be differentiated again."""
    learned = [x for x in inputs if x.requires_grad]
    found = iter(torch.autograd.grad(formula(*inputs), learned, grad, create_graph=True))
    return tuple(next(found) if x.requires_grad else None for x in inputs)
