"""Tensors in blocks of eight heads for compiled code, and threads that work on the blocks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.ops.streaming.simd import LANES

_T = TypeVar("_T")


def to_blocks(x: Tensor) -> Tensor:
    """Turn ``[N, K]`` or ``[N, K, D]`` into ``[K / 8, N, (D) 8]``; zeros fill up K."""
    x = x[:, None] if x.dim() == 2 else x.transpose(1, 2)
    if x.size(2) % LANES:
        x = F.pad(x, (0, -x.size(2) % LANES))
    x = torch.unflatten(x, 2, (x.size(2) // LANES, LANES))
    return x.permute(2, 0, 1, 3).flatten(2).contiguous()


def arrays(*tensors: Tensor | None) -> list[Any]:
    """Return tensors as contiguous arrays, which compiled code takes; None stays."""
    return [None if x is None else x.detach().contiguous().numpy() for x in tensors]


def in_order(
    function: Callable[[int, slice], _T],
    blocks: int,
    parts: Sequence[slice],
    stop: Event | None = None,
) -> Iterator[tuple[int, _T]]:
    """Call on all blocks and parts, on torch's number of threads; yield in a fixed order.

    Given ``stop``, for long work, this thread only waits, because Ctrl-C is not heard within
    compiled code; ``stop`` is set when it is interrupted, for ``function`` to see.
    """
    tasks = [(block, part) for block in range(blocks) for part in parts]
    threads = torch.get_num_threads()
    if threads == 1 and stop is None:
        yield from ((block, function(block, part)) for block, part in tasks)
        return
    pool = _pool(threads)
    futures = deque((block, pool.submit(function, block, part)) for block, part in tasks)
    try:
        while futures:
            yield futures[0][0], futures[0][1].result()
            futures.popleft()
    except BaseException:
        if stop is not None:
            stop.set()
        for _, future in futures:
            future.cancel()
        raise


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "hanme")


if hasattr(os, "register_at_fork"):  # threads do not live on in a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
