"""Read some rows of CSR arrays at the cost of what is in them."""

from __future__ import annotations

import torch
from torch import Tensor


def repeat(counts: Tensor, total: int | None = None) -> Tensor:
    """Return 0 counts[0] times, 1 counts[1] times, and so on; ``total`` numbers, where known."""
    rows = torch.arange(counts.numel(), device=counts.device)
    return torch.repeat_interleave(rows, counts, output_size=total)


def stretches(begin: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return begin[i], begin[i] + 1, ..., counts[i] of them, for one i after another; and the i."""
    row = repeat(counts)
    offset = begin - (counts.cumsum(0) - counts)
    return offset[row] + torch.arange(row.numel(), device=row.device), row
