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


def recorded() -> bool:
    """Return whether PyTorch has to see an operator: for gradients, or to compile it.

    If not, its function is called instead: the first call of an operator imports
    ``torch._dynamo``, which takes longer than importing PyTorch.
    """
    return torch.is_grad_enabled() or torch.compiler.is_compiling()


def in_order(
    function: Callable[[int, slice], _T],
    blocks: int,
    parts: Sequence[slice],
    stop: Event | None = None,
) -> Iterator[tuple[int, _T]]:
    """Call on all blocks and parts, on torch's number of threads; yield in a fixed order.

    This thread works too: PyTorch's own threads may still be spinning on the other cores. In
    between it gives out the results whose turn it is, so that few are held at a time. Given
    ``stop``, for long work, it only waits, because Ctrl-C is not heard within compiled code;
    ``stop`` is set when this thread is interrupted, for ``function`` to see.
    """
    tasks = [(block, part) for block in range(blocks) for part in parts]
    if stop is not None:
        yield from _aside(function, tasks, stop)
        return
    waiting = iter(list(enumerate(tasks)))  # taking the next one is atomic
    results: dict[int, _T] = {}

    def work() -> Iterator[None]:
        for number, task in waiting:
            results[number] = function(*task)
            yield

    others = min(torch.get_num_threads(), len(tasks)) - 1
    helpers = [_pool(others).submit(deque, work(), 0) for _ in range(others)]
    given = 0
    for _ in work():
        while given in results:
            yield tasks[given][0], results.pop(given)
            given += 1
    for helper in helpers:
        helper.result()
    yield from ((tasks[number][0], results[number]) for number in range(given, len(tasks)))


def _aside(
    function: Callable[[int, slice], _T], tasks: Sequence[tuple[int, slice]], stop: Event
) -> Iterator[tuple[int, _T]]:
    """Work in other threads alone; stop them when this one is interrupted."""
    pool = _pool(torch.get_num_threads())
    futures = deque((task[0], pool.submit(function, *task)) for task in tasks)
    try:
        while futures:
            yield futures[0][0], futures[0][1].result()
            futures.popleft()
    finally:
        stop.set()
        for _, future in futures:
            future.cancel()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "hanme")


if hasattr(os, "register_at_fork"):  # threads do not live on in a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
