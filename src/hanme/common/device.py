"""The device to compute on: one choice for this process and those it starts."""

from __future__ import annotations

import os

import torch

from hanme.errors import HanmeError

VARIABLE = "HANME_DEVICE"


def chosen() -> torch.device:
    """Return the device to compute on: the CPU, unless ``--device`` or HANME_DEVICE say another.

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
    """Take a device for this process and those it starts."""
    os.environ[VARIABLE] = name
    chosen()
    return name
