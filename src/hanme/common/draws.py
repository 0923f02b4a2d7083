"""Draws that are a function of a key, not of the order in which they are made."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hanme.common.csr import repeat

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio, odd: spreads consecutive keys


def keyed(seed: int | Tensor, numbers: Tensor) -> Tensor:
    """Return a key for each number, 64 bits that depend on it and on the seed alone."""
    return mix64(numbers * signed(GOLDEN) + seed)


def distinct(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw at most ``n`` distinct numbers below each row's count; every set of ``n`` is as likely.

    What is drawn for a row depends on its key (see :func:`keyed`) and count alone, and costs what
    is drawn. Rows and numbers are returned, ascending.
    """
    few, many = (x.nonzero().flatten() for x in (counts <= 2 * n, counts > 2 * n))
    drawn = [_fewest(keys[few], counts[few], n), _first(keys[many], counts[many], n)]
    row, order = torch.cat([few[drawn[0][0]], many[drawn[1][0]]]).sort(stable=True)
    return row, torch.cat([drawn[0][1], drawn[1][1]])[order]


def _fewest(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Rank all numbers below a count by their hash, and keep the first ``n``."""
    row = repeat(counts)
    number = within(row)
    rank = keyed(keys[row], number)
    order = torch.from_numpy(np.lexsort((rank.numpy(), row.numpy())))
    kept = torch.zeros_like(row, dtype=torch.bool)
    kept[order[number < n]] = True
    return row[kept], number[kept]


def _first(keys: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Draw with replacement until ``n`` distinct numbers are there, ascending within a row."""
    row = number = torch.empty(0, dtype=torch.long)
    made, missing = torch.zeros_like(counts), torch.full_like(counts, n)
    while missing.any():
        more = repeat(missing)
        fresh = _below(keyed(keys[more], made[more] + within(more)), counts[more])
        full = missing[row] == 0  # the others are sorted again
        some, theirs = torch.cat([row[~full], more]), torch.cat([number[~full], fresh])
        order = torch.from_numpy(np.lexsort((theirs.numpy(), some.numpy())))
        some, theirs = some[order], theirs[order]
        new = torch.ones_like(some, dtype=torch.bool)
        new[1:] = (some.diff() != 0) | (theirs.diff() != 0)
        row, number = torch.cat([row[full], some[new]]), torch.cat([number[full], theirs[new]])
        made += missing
        missing = n - torch.bincount(row, minlength=counts.numel())
    return row, number


def _below(bits: Tensor, limit: Tensor) -> Tensor:
    """Turn 64 random bits into a number below a limit."""
    share = (bits >> 11 & ((1 << 53) - 1)).double() * 2.0**-53
    return torch.minimum((share * limit).long(), limit - 1)


def within(row: Tensor) -> Tensor:
    """Return 0, 1, 2, ... within each run of equal rows."""
    counts = torch.bincount(row)
    return torch.arange(row.numel(), device=row.device) - (counts.cumsum(0) - counts)[row]


def mix64(x: Tensor) -> Tensor:
    """Mix 64 bits (splitmix64)."""
    x = (x ^ _shift(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right, filling with zeros: torch has no unsigned 64-bit arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def signed(constant: int) -> int:
    """Return the 64-bit integer of the same bits."""
    return constant - (1 << 64) if constant >= 1 << 63 else constant
