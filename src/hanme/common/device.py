"""The device to compute on: one choice for this process and those it starts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hanme.errors import HanmeError

VARIABLE = "HANME_DEVICE"


def chosen() -> torch.device:
    """Return the device to compute on: the CPU, unless ``--device`` or HANME_DEVICE name another.

    Of several processes on a machine, each takes a GPU of its own.
    """
    name = os.environ.get(VARIABLE, "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise HanmeError(f"device {name!r}: name one such as cpu, cuda or cuda:1")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise HanmeError(f"device {name}: PyTorch finds no GPU here")
        if device.index is None:
            rank = int(os.environ.get("LOCAL_RANK", "0"))
            device = torch.device("cuda", rank % torch.cuda.device_count())
    return device


def choose(name: str) -> str:
    """Set the device of this process and those it starts."""
    os.environ[VARIABLE] = name
    chosen()
    return name


@contextmanager
def forked_rng(device: torch.device) -> Iterator[None]:
    """Restore the random state of the CPU and of a device afterwards."""
    with torch.random.fork_rng(devices=_gpus(device)):
        yield


def rng_state(device: torch.device) -> Tensor:
    """Return the random state of the CPU and, after it, of a GPU, as bytes."""
    return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in _gpus(device))])


def set_rng_state(state: Tensor, device: torch.device) -> None:
    """Set what :func:`rng_state` returned; a GPU without a state of its own is seeded from it."""
    size = torch.get_rng_state().numel()
    torch.set_rng_state(state[:size])
    for index in _gpus(device):
        if state.numel() > size:
            torch.cuda.set_rng_state(state[size:], index)
        else:
            with torch.cuda.device(index):
                torch.cuda.manual_seed(zlib.crc32(state.numpy().tobytes()))


def _gpus(device: torch.device) -> list[int]:
    """Return the index of a GPU; nothing for the CPU."""
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
