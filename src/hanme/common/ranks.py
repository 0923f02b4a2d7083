"""Several processes that train or predict as one: those that ``torchrun`` starts.

All ranks run the same lines; :func:`from_first` lets the first do what one alone should do, such as
reading and writing files, and tells the others. Without torchrun there is one rank.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from hanme.errors import HanmeError, one_line

T = TypeVar("T")

PATIENCE = timedelta(minutes=60)
"""Time limit for waiting for another rank, e.g. while the first fits the linear model."""

MEETING = timedelta(minutes=1)
"""Time limit for finding torchrun, which was there when it started the rank."""


class Lost(HanmeError):
    """Raised where another process of the run has ended or cannot be reached."""


def under_torchrun() -> bool:
    """Return whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def restarted() -> bool:
    """Return whether torchrun has started this process again, after one of them was lost."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def count() -> int:
    """Return how many ranks there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_first() -> bool:
    """Return whether this is the process that writes files and speaks to the user."""
    return rank() == 0


_speaks = True


def _find_torchrun() -> None:
    """Refuse at once if torchrun is gone, which rendezvous would notice after a minute."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    place = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
    try:
        socket.create_connection(place, timeout=MEETING.total_seconds()).close()
    except OSError as error:
        where = ":".join(map(str, place))
        raise HanmeError(f"torchrun is not at {where}: {one_line(error)}") from None


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that torchrun has started; without torchrun, do nothing."""
    global _speaks
    if not under_torchrun():
        yield
        return
    _find_torchrun()
    try:
        store, number, size = next(rendezvous("env://", timeout=MEETING))
        store.set_timeout(PATIENCE)
        store = PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        failures = PrefixStore("failures", store)
        dist.init_process_group(
            store=PrefixStore("group", store), rank=number, world_size=size, timeout=PATIENCE
        )
    except (RuntimeError, ValueError) as error:
        raise HanmeError(f"the processes of torchrun do not find each other: {error}") from None
    try:
        yield
        with _together():
            dist.barrier()
    except BaseException:
        with suppress(RuntimeError):  # torchrun itself may be gone
            _speaks = int(failures.add("count", 1)) == 1  # before the others lose this process
        raise
    dist.destroy_process_group()


def speaks_of_failure() -> bool:
    """Return whether this process was the first to fail, so that one line is printed, not many."""
    return _speaks


def from_first(make: Callable[[], T]) -> T:
    """Return what the first rank makes, on all ranks."""
    if count() == 1:
        return make()
    made: list[Any] = [make() if is_first() else None]
    with _together():
        dist.broadcast_object_list(made)
    result: T = made[0]
    return result


def first_before_others(make: Callable[[], T]) -> T:
    """Return what each rank makes; the others find what the first has left in a cache."""
    made = make() if is_first() else None
    from_first(lambda: None)
    return make() if made is None else made


def share(x: Tensor) -> Tensor:
    """Return this rank's part of some rows; the parts follow each other by rank."""
    return x if count() == 1 else torch.tensor_split(x, count())[rank()]


def total(x: Tensor) -> Tensor:
    """Return the sum over all ranks, with a gradient."""
    if count() == 1:
        return x
    summed: Tensor = _Total.apply(x)  # type: ignore[no-untyped-call]
    return summed


def mean(x: Tensor, dim: int) -> Tensor:
    """Return the mean over the rows of all ranks, which may have different numbers of them."""
    if count() == 1:
        return x.mean(dim)
    rows = total(torch.tensor(float(x.size(dim)), device=x.device))
    return total(x.sum(dim)) / rows


def gathered(part: Tensor, rows: int) -> Tensor:
    """Return the rows of all ranks, whose parts are those of :func:`share`, one after another."""
    if count() == 1:
        return part
    whole = part.new_zeros(rows, *part.shape[1:])
    whole[share(torch.arange(rows, device=part.device))] = part
    return total(whole)


def add_gradients(parameters: list[torch.nn.Parameter], loss: Tensor) -> float:
    """Replace gradients by their sum over all ranks; return that of the loss."""
    if count() == 1:
        return float(loss)
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([loss.view(1), *(grad.flatten() for grad in grads)])
    with _together():
        dist.all_reduce(flat)
    first, *parts = torch.split(flat, [1, *(grad.numel() for grad in grads)])
    for grad, summed in zip(grads, parts, strict=True):
        grad.copy_(summed.view_as(grad))
    return float(first)


class _Total(torch.autograd.Function):
    """A sum over all ranks. Each adds the loss of its own rows, so gradients are summed, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone(memory_format=torch.contiguous_format)
        with _together():
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return total(grads[0])


@contextmanager
def _together() -> Iterator[None]:
    """Say in one line that another process is gone, instead of what its closed connection gives."""
    try:
        yield
    except RuntimeError as error:
        raise Lost(
            "another process of this run has ended or cannot be reached; torchrun starts it again "
            f"with --max-restarts ({one_line(error, 120)})"
        ) from None
