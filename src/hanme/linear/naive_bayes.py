"""Naive Bayes on single feature blocks: weights in closed form, for which few labels suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hanme.graph import Graph
from hanme.linear.matrices import GraphMatrices
from hanme.linear.model import Design, LinearModel
from hanme.linear.selection import LinearSpec, candidate_blocks, usable_blocks

PSEUDO_COUNT = 0.5
"""Count of each column with each label before any node is seen (Jeffreys' prior)."""


def fit_naive_bayes(
    graph: Graph, masks: Sequence[Tensor], matrices: GraphMatrices
) -> Iterator[list[LinearModel]]:
    """Fit naive Bayes to each set of nodes, on each unit block without negative entries.

    Args:
        graph: The graph.
        masks: Sets of labelled nodes, each ``[N]``.
        matrices: Matrices of the graph.

    Yields:
        Block by block, a model per set.
    """
    nodes = torch.stack(list(masks)).any(0).nonzero().flatten()
    labels = graph.label_matrix[nodes].double()
    counted = torch.cat([labels, torch.ones_like(labels[:, :1])], 1)
    by_set = torch.cat([counted * mask[nodes, None] for mask in masks], 1).numpy()
    blocks = [block for block in candidate_blocks(graph) if block.scaling == "unit"]
    for block, matrix in usable_blocks(blocks, matrices):
        if not matrix.width or matrix.minimum(nodes.numpy()) < 0:
            continue
        spec = LinearSpec(blocks=[str(block)], scales=[1.0], strength=1, loss=0)
        design = Design(matrices, [block], [matrix])
        sums = torch.split(matrix.transposed_times(nodes.numpy(), by_set), len(graph.labels) + 1, 1)
        weights = [log_ratios(each, multilabel=graph.multilabel) for each in sums]
        yield [
            LinearModel.on(design, spec, torch.cat([each, torch.zeros_like(each[:1])]))
            for each in weights
        ]


def log_ratios(sums: Tensor, *, multilabel: bool) -> Tensor:
    """Return how much likelier each column is with a label than without, as logs, ``[D, C]``.

    Args:
        sums: Sum of the rows of the nodes with each label, and in the last column of all nodes,
            ``[D, C + 1]``.
        multilabel: Compare a label with its absence, else with the mean of all labels.
    """

    def log_shares(some: Tensor) -> Tensor:
        counts = some.double().clamp(min=0) + PSEUDO_COUNT
        return (counts / counts.sum(0)).log()

    present = log_shares(sums[:, :-1])
    if multilabel:
        return (present - log_shares(sums[:, -1:] - sums[:, :-1])).float()
    return (present - present.mean(1, keepdim=True)).float()
