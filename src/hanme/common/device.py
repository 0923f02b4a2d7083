"""The device to compute on: one choice for this process and those it starts."""

from __future__ import annotations

import os

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
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise HanmeError(f"device {name!r}: name one such as cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise HanmeError(f"device {name}: PyTorch finds no GPU here")
    if device.type == "cuda" and device.index is None:
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        return torch.device("cuda", rank % torch.cuda.device_count())
    return device


def choose(name: str) -> str:
    """Set the device of this process and those it starts."""
    os.environ[VARIABLE] = name
    chosen()
    return name


def rng_state(device: torch.device) -> Tensor:
    """Return the random state of the CPU and, after it, of a GPU, as bytes."""
    return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state(i) for i in gpus(device))])


def set_rng_state(state: Tensor, device: torch.device) -> None:
    """Set what :func:`rng_state` returned; a GPU without a state gets the seed of the CPU."""
    size = torch.get_rng_state().numel()
    torch.set_rng_state(state[:size])
    for index in gpus(device):
        of_gpu = state[size:]
        if not of_gpu.numel():
            of_gpu = torch.Generator(f"cuda:{index}").manual_seed(torch.initial_seed()).get_state()
        torch.cuda.set_rng_state(of_gpu, index)


def gpus(device: torch.device) -> list[int]:
    """Return the index of a GPU; nothing for the CPU."""
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
