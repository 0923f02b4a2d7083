"""Feature channels: features averaged along every metapath, SeHGNN's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hanme.graph.cache import GraphCache
from hanme.graph.chain import checked_roots
from hanme.graph.metapath import EdgeType
from hanme.nn.batch import Batch
from hanme.nn.channels.averages import TypePath, average_features, reached, type_paths
from hanme.nn.channels.base import Channels, Task
from hanme.nn.inits import reset
from hanme.nn.projection import Projection, sparse_product


class AverageChannels(Channels):
    """Base class of channels that are averages along sequences of node types, embedded.

    A subclass sets ``what`` is averaged and writes :meth:`widths` and :meth:`averages`, which are
    made once per graph.

    Args:
        task: What they are made for.
        out_channels: The size of a vector.
        hops: The length of the longest sequence.
        without: Node types that none passes through.
        dropout: Dropout on the vectors.
    """

    what: ClassVar[str]

    def __init__(
        self,
        task: Task,
        out_channels: int,
        *,
        hops: int = 2,
        without: Sequence[str] = (),
        dropout: float = 0.0,
    ) -> None:
        super().__init__(task, out_channels)
        widths = self.widths(task, type_paths(task.metadata, task.target, hops, without))
        self.paths, self.labels, self.dropout = list(widths), task.labels, dropout
        self.edge_types = task.metadata[1]
        self.names = [f"{self.what} of {'-'.join(path)}" for path in widths]
        self.embed = nn.ModuleList(Embedding(width, out_channels) for width in widths.values())
        self._graph: GraphCache[list[list[Tensor]]] = GraphCache()
        self._roots: GraphCache[list[list[Tensor]]] = GraphCache()

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return the sequences that count, and the size of what is averaged along each."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for embedding in self.embed:
            reset(embedding)

    def forward(self, batch: Batch) -> list[Tensor]:
        """Return the vectors along each sequence, ``[R, out_channels]``."""
        return [
            F.dropout(_multiply(factors, lin), self.dropout, self.training)
            for factors, lin in zip(self.averages(batch), self.embed, strict=True)
        ]

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return all ways to walk along the sequences."""
        relations = self.edge_types
        return [
            walk
            for path in self.paths
            for walk in product(
                *([e for e in relations if (e[0], e[2]) == pair] for pair in pairwise(path))
            )
        ]

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return what is embedded of each sequence, as the factors of a product."""
        raise NotImplementedError


class FeatureChannels(AverageChannels):
    r"""A channel per sequence of node types: :math:`A_1 \cdots A_L X E`.

    The features at its end are averaged step by step towards the root, and embedded by a matrix
    of its own. The first channel has the root's own features.
    """

    what = "features"

    @staticmethod
    def widths(task: Task, paths: list[TypePath]) -> dict[TypePath, int]:
        """Return all sequences, and the size of the features at their ends."""
        return {path: task.width(path[-1]) for path in paths}

    def averages(self, batch: Batch) -> list[list[Tensor]]:
        """Return averaged features; those of the last roots are cached."""
        x, links, roots = batch.x_dict, batch.edge_index_dict, batch.roots
        used = [*links.values(), *x.values()]
        every = self._graph.get(used, lambda: average_features(x, links, self.paths))
        if roots is None:
            return every
        asked = checked_roots(roots, every[0][0].size(0))
        return self._roots.get([*used, roots], lambda: [reached(some, asked) for some in every])


class Embedding(Projection):
    """A matrix without a bias; its numbers are as large for a wide input as for a narrow one."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draw the weights anew, once their size is known."""
        if not is_lazy(self.weight):
            nn.init.uniform_(self.weight, -0.5, 0.5)


def _multiply(factors: Sequence[Tensor], lin: nn.Module) -> Tensor:
    """Multiply F_1 (F_2 ... (F_n W)), from the last on, which is the widest."""
    *others, last = factors
    x: Tensor = lin(last)
    for factor in reversed(others):
        x = sparse_product(factor, x)
    return x
