"""Channels, chosen by name, class or instance: what a model is told of each root."""

from __future__ import annotations

from typing import Any

from hanme.common.registry import Registry
from hanme.errors import HanmeError
from hanme.nn.channels.averages import FeatureChannels, LabelChannels
from hanme.nn.channels.base import Channels, Task, Traced
from hanme.nn.channels.metapaths import MetapathChannels
from hanme.nn.parts import make

__all__ = [
    "CHANNELS",
    "Channels",
    "FeatureChannels",
    "LabelChannels",
    "MetapathChannels",
    "Task",
    "Traced",
    "make_channels",
]

CHANNELS: Registry[type[Channels]] = Registry(
    "channel",
    Channels,
    {"metapaths": MetapathChannels, "features": FeatureChannels, "labels": LabelChannels},
)


def make_channels(
    given: str | dict[str, Any] | type[Channels] | Channels, task: Task, out_channels: int
) -> Channels:
    """Make channels from a name, a table of name and options, or a class, or take those given."""
    own = {"task": task, "out_channels": out_channels}
    made: Channels = make(given, CHANNELS, own)
    if made.out_channels != out_channels:
        raise HanmeError(f"Expected channels of size {out_channels}, but got {made.out_channels}")
    return made
