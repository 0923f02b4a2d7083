"""Tensors in blocks of eight heads for compiled code, and threads that work on the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.ops.lanes import LANES

_T = TypeVar("_T")


def to_blocks(x: Tensor) -> Tensor:
    """``[N, K]`` or ``[N, K, D]`` by eight heads, ``[K / 8, N, (D) 8]``; zeros fill up K."""
    x = x[:, None] if x.dim() == 2 else x.transpose(1, 2)
    if x.size(2) % LANES:
        x = F.pad(x, (0, -x.size(2) % LANES))
    x = x.unflatten(2, (x.size(2) // LANES, LANES))
    return x.permute(2, 0, 1, 3).flatten(2).contiguous()


def in_order(
    function: Callable[[int, slice], _T], blocks: int, parts: Sequence[slice]
) -> Iterator[tuple[int, _T]]:
    """Calls on all blocks and parts, on torch's number of threads; results in a fixed order."""
    tasks = [(block, part) for block in range(blocks) for part in parts]
    threads = min(torch.get_num_threads(), len(tasks))
    if threads < 2:
        yield from ((block, function(block, part)) for block, part in tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        results = pool.map(lambda task: function(*task), tasks)
        yield from zip((block for block, _ in tasks), results, strict=True)
