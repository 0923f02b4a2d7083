"""Read some rows of CSR arrays at the cost of what is in them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
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


def indptr_of(counts: Tensor) -> Tensor:
    """Return where the links of each node begin, from the number of links of each."""
    return F.pad(counts.cumsum(0), (1, 0))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a matrix, dense or sparse CSR, at the cost of what is in them."""
    if x.layout == torch.strided:
        return x.index_select(0, rows)
    indptr = x.crow_indices()
    begin = indptr[rows]
    degree = indptr[rows + 1] - begin
    places, _ = stretches(begin, degree)
    return torch.sparse_csr_tensor(
        indptr_of(degree), x.col_indices()[places], x.values()[places], (rows.numel(), x.size(1))
    )
