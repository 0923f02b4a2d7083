"""Naive Bayes on single feature blocks: weights in closed form, for which few labels suffice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from hanme.graph import Graph
from hanme.linear.matrices import GraphMatrices
from hanme.linear.model import LinearModel
from hanme.linear.selection import candidate_blocks, usable_blocks

PSEUDO_COUNT = 0.5
"""Count of each column with each label before any node is seen (Jeffreys' prior)."""

MAX_BLOCKS = 40
"""Maximum number of blocks, short metapaths first."""


def fit_naive_bayes(
    graph: Graph, masks: Sequence[Tensor], matrices: GraphMatrices
) -> Iterator[list[LinearModel]]:
    """Yield a model per set of nodes ``[N]``, for each unit block without negative entries."""
    nodes = torch.stack(list(masks)).any(0).nonzero().flatten()
    labels = graph.label_matrix[nodes].double()
    counted = torch.cat([labels, torch.ones_like(labels[:, :1])], 1)
    by_set = torch.cat([counted * mask[nodes, None] for mask in masks], 1).numpy()
    blocks = [b for b in islice(candidate_blocks(graph), MAX_BLOCKS) if b.scaling == "unit"]
    for block, design in usable_blocks(blocks, matrices):
        rows = design.rows(nodes.numpy())
        if not design.width or rows.data.min(initial=0) < 0:
            continue
        sums = torch.split(torch.from_numpy(rows.T @ by_set), len(graph.labels) + 1, 1)
        weights = [log_ratios(each, multilabel=graph.multilabel) for each in sums]
        is_kept = block.key in matrices.blocks
        matrices.blocks[block.key] = design
        yield [
            LinearModel.on(matrices, [block], torch.cat([each, torch.zeros_like(each[:1])]))
            for each in weights
        ]
        if not is_kept:  # the rows of all blocks would take too much memory
            del matrices.blocks[block.key]


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
