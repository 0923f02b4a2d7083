"""The model ``linear``: logistic regression on what each root is, whom it meets and their like."""

from __future__ import annotations

from collections.abc import Mapping

from hanme.graph.metapath import Metadata
from hanme.nn.channels import Task, WideChannels
from hanme.nn.model import ChannelModel


class Linear(ChannelModel):
    """Wide channels alone: the baseline that the papers forgot.

    Arguments that are not listed are those of :class:`HANME`.

    Args:
        blocks: What it sees of each node, see :class:`~hanme.nn.channels.WideChannels`. Where none
            are given, training chooses them.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        blocks: list[str] | None = None,
    ) -> None:
        task = Task(metadata, target, out_channels, in_channels)
        super().__init__(target, [WideChannels(task, blocks=blocks or [])])
