"""The memory that attention over a metapath needs, estimated beforehand."""

from __future__ import annotations

from hanme.graph.chain import Chain
from hanme.ops import chunked


def memory(backend: str, chain: Chain, heads: int, channels: int) -> int:
    """Estimate how many bytes a backend needs for forward and backward in float32.

    This is what it allocates beside its arguments and their gradients. The factors of eager and
    chunked are rough; they were matched by eye to the peaks in ``docs/results/speed.md``.
    """
    counts = chain.count()
    instances, most = int(counts.sum()), int(counts.max()) if counts.numel() else 0
    positions = len(chain) + 1
    hidden = heads * channels
    if backend == "eager":
        return instances * (positions + 5) * hidden * 4
    if backend == "chunked":
        block = min(instances, max(most, chunked.BLOCK))
        return block * positions * (hidden * 4 + 64 * heads)
    nodes, links = sum(chain.sizes), sum(indices.numel() for indices in chain.indices)
    return 8 * 4 * (nodes * hidden + links * heads)


def readable(count: float) -> str:
    """Write a number of bytes as 12 kB or 3.4 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"
