"""Find one text among millions: a hash of each, sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BASE, MIX = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)


def hashes(text: NDArray[np.uint8], offsets: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return a hash of each text, Σ_i (byte_i + 1) BASE^i modulo 2^64, its bits mixed."""
    sizes = np.diff(offsets)
    place = np.arange(len(text)) - np.repeat(offsets[:-1] - offsets[0], sizes)
    powers = np.full(int(sizes.max(initial=0)) + 1, BASE)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    total = np.zeros(len(text) + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * powers[place], out=total[1:])
    ends = offsets - offsets[0]
    found = (total[ends[1:]] - total[ends[:-1]]) * MIX
    mixed: NDArray[np.int64] = (found ^ (found >> np.uint64(29))).view(np.int64)
    return mixed
