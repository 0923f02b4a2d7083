"""The interface of base learners, and what they say about a single node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.graph import Graph
from hanme.graph.metapath import Walk

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ColumnContributions:
    """What the columns of a block add to the logits of a node.

    Args:
        block: The block, as configurations write it.
        columns: Numbers of the columns that add something, ``[n]``.
        values: What they add, ``[n, C]``.
        phrase: Returns a column in words.
        node_type: The node type whose nodes are the columns; None if columns are no nodes.
    """

    block: str
    columns: NDArray[np.integer[Any]]
    values: Values
    phrase: Callable[[int], str]
    node_type: str | None = None

    def __add__(self, other: ColumnContributions) -> ColumnContributions:
        """Add the contributions of the same block in another model, column by column."""
        columns = np.concatenate([self.columns, other.columns])
        columns, position = np.unique(columns, return_inverse=True)
        values = np.zeros((len(columns), self.values.shape[1]))
        np.add.at(values, position, np.concatenate([self.values, other.values]))
        return replace(self, columns=columns, values=values)


@dataclass(frozen=True)
class Contributions:
    """The logits of a node as a sum: ``bias`` ``[C]`` and the values of all columns."""

    bias: Values
    blocks: Sequence[ColumnContributions] = ()

    def __add__(self, other: Contributions) -> Contributions:
        blocks = {one.block: one for one in self.blocks}
        for one in other.blocks:
            blocks[one.block] = blocks[one.block] + one if one.block in blocks else one
        return Contributions(self.bias + other.bias, list(blocks.values()))

    def __rmul__(self, slope: float) -> Contributions:
        blocks = [replace(one, values=slope * one.values) for one in self.blocks]
        return Contributions(slope * self.bias, blocks)

    @property
    def logits(self) -> Values:
        """The sum, ``[C]``."""
        return sum((one.values.sum(0) for one in self.blocks), start=self.bias)


class Learner(Protocol):
    """A fitted model of the labels of target nodes that explains its logits column by column."""

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block adds to the logits, ``[n, C]`` by name; the sum is the logits."""

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node."""

    def walks(self) -> list[Walk]:
        """Return the sequences of relations along which it reads the graph."""

    def aligned_to(self, graph: Graph) -> Learner:
        """Return the learner with the weights of ids in the order of a graph's nodes."""

    def frozen(self, graph: Graph) -> Learner:
        """Return the learner for subgraphs of a graph: what it reads beyond its walks is held."""

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what to save: values for JSON, and tensors."""
