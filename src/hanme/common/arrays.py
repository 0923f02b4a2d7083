"""Small functions on tensors: CSR rows, and random numbers that are a function of a key."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 / the golden ratio, odd: spreads consecutive keys."""


def repeat(counts: Tensor, total: int | None = None) -> Tensor:
    """Return i, counts[i] times, for each i in turn; ``total`` is the sum of counts, if known."""
    rows = torch.arange(counts.numel(), device=counts.device)
    return torch.repeat_interleave(rows, counts, output_size=total)


def concat_ranges(begin: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return begin[i], ..., begin[i] + counts[i] - 1 for each i in turn; and the i of each."""
    row = repeat(counts)
    offset = begin - (counts.cumsum(0) - counts)
    return offset[row] + torch.arange(row.numel(), device=row.device), row


def within(row: Tensor) -> Tensor:
    """Return 0, 1, 2, ... within each run of equal rows."""
    counts = torch.bincount(row)
    return torch.arange(row.numel(), device=row.device) - (counts.cumsum(0) - counts)[row]


def indptr_of(counts: Tensor) -> Tensor:
    """Return where the entries of each row begin, ``[N + 1]``, from the number of each, ``[N]``."""
    return F.pad(counts.cumsum(0), (1, 0))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a matrix, dense or sparse CSR; the cost is that of these rows."""
    if x.layout == torch.strided:
        return x.index_select(0, rows)
    indptr = x.crow_indices()
    begin = indptr[rows]
    degree = indptr[rows + 1] - begin
    places, _ = concat_ranges(begin, degree)
    return torch.sparse_csr_tensor(
        indptr_of(degree), x.col_indices()[places], x.values()[places], (rows.numel(), x.size(1))
    )


def keyed(seed: int | Tensor, numbers: Tensor) -> Tensor:
    """Return 64 random bits for each number: a function of the number and the seed (splitmix64)."""
    x = numbers * _signed(GOLDEN) + seed
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right, filling with zeros: torch has no unsigned 64-bit arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    """Return the signed 64-bit integer of the same bits."""
    return constant - (1 << 64) if constant >= 1 << 63 else constant
