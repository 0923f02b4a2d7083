"""Divide the logits of a node among its neighbours, aggregates of linked rows, and its own columns.

Every learner is a sum over walks or columns, so the division is exact. A walk counts for the first
node on its way. What a metapath instance reads of the root itself, such as its first position,
counts for the root's own columns: its values there are linear in the root's features. Of an encoder
that is any function of the path, all counts for the first node on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from hanme.explain.removal import Path, Root
from hanme.graph import Graph
from hanme.graph.metapath import Metapath
from hanme.linear import Contributions, Part
from hanme.linear.matrices import GraphMatrices
from hanme.nn import ChannelModel
from hanme.nn.batch import Batch
from hanme.ops import PathFunction, Problem
from hanme.ops.eager import coefficient, group_sum


def attribute(root: Root, columns: Sequence[range]) -> Contributions:
    """Divide the logits of a node.

    Args:
        root: The node.
        columns: The features of each of its columns; the first represents the column. A channel of
            the network that is no sum over instances is feature -1.
    """
    opened = root.model
    total = opened.model.contributions(opened.graph, root.node)
    total = total + Contributions(opened.bias.numpy())
    zeros = np.zeros(len(total.bias))
    for name in opened.channels:
        part = Part(name, np.array([-1]), root.others[name].numpy()[None])
        total = total + Contributions(zeros, [part])
    probes = _probes(root, columns) if root.paths else []
    starts = np.array([column.start for column in columns], np.int64)
    for name, path, probe in zip(opened.paths, root.paths, probes, strict=True):
        metapath = Metapath.parse(name, opened.graph.metadata())
        found = _divide(path)
        numbers, values = found.numbers, path.summands(found.vectors)
        if metapath.steps != path.problem.chain.metapath.steps:  # HAN's, from end to end
            numbers, values = _among_walks(opened.graph, root.node, metapath, numbers, values)
        own = path.summands(found.of_columns(probe)).numpy()
        through = Part(name, numbers.numpy(), values.numpy(), metapath.node_types[1])
        total = total + Contributions(own[-1], [through, Part(name, starts, own[:-1])])
    return total


@dataclass(frozen=True)
class Division:
    """The sum z of a root's encoded instances, divided by the first node on their way.

    Args:
        numbers: The numbers of these nodes, ``[n]``.
        vectors: What each adds to z, ``[n, K D]``.
        own: What the values of the root itself add, ``[K, D]``.
        weights: By position, the weight of the root's values there, ``[K]``.
    """

    numbers: Tensor
    vectors: Tensor
    own: Tensor
    weights: dict[int, Tensor]

    def of_columns(self, probe: Problem) -> Tensor:
        """Divide ``own`` among columns, ``[G + 1, K D]``; the last row belongs to no column.

        ``probe`` holds the values of nodes with one column each, and of one with none.
        """
        columns = self.own.new_zeros(1, *self.own.shape)
        for position, weight in self.weights.items():
            columns = columns + weight[:, None] * probe.value(position).double()
        each = columns[:-1] - columns[-1:]
        return torch.cat([each, self.own[None] - each.sum(0, keepdim=True)]).flatten(1)


def _divide(path: Path) -> Division:
    problem = path.problem
    types = problem.chain.metapath.node_types
    own = torch.zeros_like(path.z)
    weights = {i: own.new_zeros(problem.heads) for i in problem.positions if types[i] == types[0]}
    numbers, vectors = [torch.empty(0, dtype=torch.long)], [own.new_zeros(0, own.numel())]
    for some in path.blocks():
        nodes, total = problem.chain.nodes_of(some.instances), torch.zeros_like(some.vector)
        positions = problem.positions
        if isinstance(problem.coefficients, PathFunction):  # no sum over positions
            total, positions = some.weight[..., None] * some.vector, []
        for i in positions:
            weight = coefficient(problem, some.instances, i).double() * some.weight
            value = problem.value(i)[some.instances.nodes[:, i]].double()
            if i in weights:
                itself = nodes[:, i] == nodes[:, 0]
                weights[i] += weight[itself].sum(0)
                own += (weight[itself][..., None] * value[itself]).sum(0)
                weight = weight.masked_fill(itself[:, None], 0)
            total += weight[..., None] * value
        first, place = torch.unique(nodes[:, 1], return_inverse=True)
        numbers.append(first)
        vectors.append(group_sum(total.flatten(1), place, first.numel()))
    first, place = torch.unique(torch.cat(numbers), return_inverse=True)
    return Division(first, group_sum(torch.cat(vectors), place, first.numel()), own, weights)


def _probes(root: Root, columns: Sequence[range]) -> list[Problem]:
    """Trace nodes without links that have one column of the root each, and one that has none."""
    network, graph = root.model.model.network, root.model.graph
    assert isinstance(network, ChannelModel)
    x = {t: torch.zeros(0, each.size(1), dtype=each.dtype) for t, each in graph.x_dict.items()}
    row = graph.targets.rows(torch.tensor([root.node]))
    if row is not None:
        row = row.to_dense()[0]
        x[graph.target] = row.new_zeros(len(columns) + 1, row.numel())
        for i, column in enumerate(columns):
            part = slice(column.start, column.stop)
            x[graph.target][i, part] = row[part]
    links = {e: torch.empty(2, 0, dtype=torch.long) for e in graph.links}
    training = network.training
    try:
        network.train(False)
        none = {e: features[:0] for e, features in graph.edge_attr.items()}
        traced = [part.trace(Batch(x, links, edge_attr=none)) for part in network.parts]
    finally:
        network.train(training)
    return [one.problem for some in traced if some is not None for one in some]


def _among_walks(
    graph: Graph, node: int, metapath: Metapath, ends: Tensor, values: Tensor
) -> tuple[Tensor, Tensor]:
    """Divide values of ends among the first nodes on the way, by their numbers of walks."""
    first, *others = GraphMatrices(graph).links(metapath)
    row = csr_array(first[[node]])
    place = np.arange(row.nnz), row.indices
    walks = csr_array((row.data, place), shape=(row.nnz, first.shape[1]))
    for links in others:
        walks = csr_array(walks @ links)
    through = walks[:, ends.numpy()].toarray().astype(np.float64)
    share = torch.from_numpy(through / np.maximum(through.sum(0), 1))
    return torch.from_numpy(row.indices.astype(np.int64)), share @ values
