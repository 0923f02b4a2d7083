"""What channels are: each gives every root a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from hanme.graph.metapath import EdgeType, Metadata
from hanme.ops import Problem


@dataclass(frozen=True)
class Task:
    """What channels are made for."""

    metadata: Metadata  # node types and edge types, as :meth:`Graph.metadata` gives
    target: str  # the node type to classify, whose nodes are the roots
    labels: int  # how many there are
    # the size of the features, one for all types or by type; -1 derives it from the first input
    in_channels: int | Mapping[str, int] = -1

    def width(self, node_type: str) -> int:
        """Return the size of a type's features."""
        sizes = self.in_channels
        return sizes if isinstance(sizes, int) else sizes[node_type]


@dataclass(frozen=True)
class Inputs:
    """What a :class:`~hanme.nn.Model` is called with, which documents it."""

    x_dict: Mapping[str, Tensor]
    edge_index_dict: Mapping[EdgeType, Tensor]
    roots: Tensor | None = None
    labels: Tensor | None = None
    ids: Mapping[str, Tensor] | None = None
    drawn: Mapping[tuple[EdgeType, ...], Tensor] | None = None


@dataclass(frozen=True)
class Followed:
    """A vector that comes from instances: the activation of what the operator gives for it."""

    problem: Problem
    activation: Callable[[Tensor], Tensor]


class Channels(nn.Module):
    """Base class of one or several channels, which may share weights.

    A subclass sets ``names``, writes :meth:`forward` and, with weights, `reset_parameters`.

    Args:
        task: What they are made for.
        out_channels: The size of a vector.
    """

    wide: ClassVar[bool] = False
    """Whether they give logits, ``[R, labels]``, which are added to the head's, and no vectors."""

    reads_labels: ClassVar[bool] = True
    """Whether they look at labels: without any that does, a model is given none in batches."""

    names: Sequence[str]
    """What each channel is called."""

    def __init__(self, task: Task, out_channels: int) -> None:
        super().__init__()
        self.out_channels = out_channels

    def reset_parameters(self) -> None:
        """Draw the weights anew."""

    def forward(self, inputs: Inputs) -> list[Tensor]:
        """Return a vector per root from each channel, ``[R, out_channels]``."""
        raise NotImplementedError

    def prepare(self, inputs: Inputs) -> None:
        """Make ready what :meth:`forward` reads of the graph for some roots, in another thread."""

    def walks(self) -> list[tuple[EdgeType, ...]] | None:
        """Return the relations it walks from a root, walk by walk; None if it reads all nodes."""
        return None

    def draws(self) -> dict[tuple[EdgeType, ...], int]:
        """Return the walks of which it attends to so many instances per root, drawn evenly."""
        return {}

    def follow(self, inputs: Inputs) -> list[Followed] | None:
        """Return how the vector of each channel comes from instances; None where it does not."""
        return None
