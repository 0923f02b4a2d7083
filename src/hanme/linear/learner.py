"""The interface of base learners, and what they say about a single node."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.graph import Graph
from hanme.graph.metapath import Walk

if TYPE_CHECKING:
    from hanme.linear.aggregates import Column

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """What a block adds to the logits of a node, divided among what it reads.

    It reads neighbours of the node (``node_type`` is set), aggregates of linked rows (``columns``
    is set), columns of its own (``phrases`` is set), or the node's own features.

    Args:
        block: The block, as configurations write it.
        numbers: Numbers of the neighbours, of the aggregates in ``columns``, or of the node's
            features, ``[n]``.
        values: What they add, ``[n, C]``.
        node_type: The type of the neighbours. A walk counts for the first node on its way.
        columns: The aggregates.
        phrases: Columns of its own and their values, in words: ``number of awards: 3``.
    """

    block: str
    numbers: NDArray[np.integer[Any]]
    values: Values
    node_type: str | None = None
    columns: Sequence[Column] = ()
    phrases: Sequence[str] = ()


@dataclass(frozen=True)
class Contributions:
    """The logits of a node as a sum: ``bias`` ``[C]`` and the values of all parts."""

    bias: Values
    parts: Sequence[Part] = ()

    def __add__(self, other: Contributions) -> Contributions:
        return Contributions(self.bias + other.bias, [*self.parts, *other.parts])

    def __rmul__(self, slope: float) -> Contributions:
        parts = [replace(part, values=slope * part.values) for part in self.parts]
        return Contributions(slope * self.bias, parts)

    @property
    def logits(self) -> Values:
        """The sum, ``[C]``."""
        return sum((part.values.sum(0) for part in self.parts), start=self.bias)


class Learner(Protocol):
    """A fitted model of the labels of target nodes that explains its logits column by column."""

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block adds to the logits, ``[n, C]`` by name; the sum is the logits."""

    def contributions(
        self, graph: Graph, node: int, missing: Collection[Column] = ()
    ) -> Contributions:
        """Return what neighbours, aggregates and own features add to the logits of a node.

        Aggregates in ``missing`` are taken as unknown.
        """

    def walks(self) -> list[Walk]:
        """Return the sequences of relations along which it reads the graph."""

    def aligned_to(self, graph: Graph) -> Learner:
        """Return the learner with the weights of ids in the order of a graph's nodes."""

    def frozen(self, graph: Graph) -> Learner:
        """Return the learner for subgraphs of a graph: what it reads beyond its walks is held."""

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what to save: values for JSON, and tensors."""
