"""What channels are: each gives every root a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from hanme.graph.metapath import EdgeType, Metadata, Walk
from hanme.nn.batch import Batch
from hanme.ops import Problem


@dataclass(frozen=True)
class Task:
    """What channels are made for."""

    metadata: Metadata  # node types and edge types, as :meth:`Graph.metadata` gives
    target: str  # the node type to classify, whose nodes are the roots
    labels: int  # number of labels
    # size of the features, one for all types or by type; -1 derives it from the first input
    in_channels: int | Mapping[str, int] = -1
    edge_dim: Mapping[EdgeType, int] | None = None  # size of link features, by relation

    def width(self, node_type: str) -> int:
        """Return the size of a type's features."""
        sizes = self.in_channels
        return sizes if isinstance(sizes, int) else sizes[node_type]


@dataclass(frozen=True)
class Traced:
    """A vector that comes from metapath instances: the activation of the operator's result."""

    problem: Problem
    activation: Callable[[Tensor], Tensor]


class Channels(nn.Module):
    """Base class of one or several channels, which may share weights.

    A subclass sets ``names`` and writes :meth:`forward`; its constructor draws its weights.

    Args:
        task: What they are made for.
        out_channels: The size of a vector.
    """

    names: Sequence[str]
    """What each channel is called."""

    def __init__(self, task: Task, out_channels: int) -> None:
        super().__init__()
        self.out_channels = out_channels

    def forward(self, batch: Batch) -> list[Tensor]:
        """Return a vector per root from each channel, ``[R, out_channels]``."""
        raise NotImplementedError

    def prepare(self, batch: Batch) -> None:
        """Make ready what :meth:`forward` reads of the graph for some roots, in another thread."""

    def walks(self) -> list[Walk] | None:
        """Return the walks from a root that they read; None if they read the whole graph."""
        return None

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances they sample, and the maximum number per root."""
        return {}

    def trace(self, batch: Batch) -> list[Traced] | None:
        """Return how each vector comes from metapath instances; None if it does not."""
        return None
