"""Search metapaths by what the known labels at their ends say about a node, within a budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from hanme.decision import calibrate
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.defaults import BUDGET, instances, leads_back
from hanme.graph.metapath import Metapath
from hanme.linear.matrices import GraphMatrices, TooLarge
from hanme.linear.smoothing import label_shares, path_means, soft_labels

MIN_GAIN = 2.0
"""Minimum reduction of the loss for another metapath, in nats over all training nodes: a likelihood
ratio that one superfluous slope exceeds once in twenty times."""

CLOSE = 0.9
"""Share of the largest gain that makes a metapath as good: of these, the one with the fewest
instances is taken."""

WIDTH = 1.0
"""Prior standard deviation of slopes, for label means with a mean square of 1."""


class Relevance(NamedTuple):
    """What the labels along a metapath say about its roots.

    Args:
        metapath: The metapath.
        instances: The number of its instances.
        alone: Share of the base rate's loss that it explains by itself.
        rank: Place in the order of selection, from 1; None if it was not selected.
        gain: Share of the base rate's loss that it explains beyond those selected before it.
    """

    metapath: Metapath
    instances: int
    alone: float
    rank: int | None = None
    gain: float = 0.0


def search_metapaths(
    graph: Graph, candidates: Iterable[Metapath], budget: int = BUDGET
) -> list[Relevance]:
    """Select metapaths greedily by how well known labels at their ends predict those of the roots.

    For each training node and metapath, the mean label of the other training nodes at the ends is
    a column. A node's own label is not part of its column, so the loss of a regression on a few
    columns is that of nodes it has not seen. The cheapest metapath of those that lower the loss
    most is added until none lowers it by ``MIN_GAIN``, or the instances exceed the budget.

    Args:
        graph: The graph, in memory.
        candidates: Metapaths from the target back to it.
        budget: Maximum number of instances of all selected metapaths together.

    Returns:
        The candidates with instances: the selected ones in order, then the others by what they
        explain alone.
    """
    if graph.stored:
        raise HanmeError("the search reads the whole graph: it does not work on a stored graph")
    train = graph.split.train.nonzero().flatten()
    y, shares = graph.y[train], label_shares(graph).clamp(1e-4, 1 - 1e-4)
    odds = torch.logit(shares) if graph.multilabel else shares.log()
    base = odds.expand(len(train), -1)
    columns, counts = _columns(graph, candidates, train)

    def loss(chosen: list[Metapath]) -> float:
        parts = [base, *(columns[path] for path in chosen)]
        prior = [1.0] + [0.0] * len(chosen)
        slopes, bias = calibrate(parts, y, prior, WIDTH)
        logits = bias + sum(s * part for s, part in zip(slopes, parts, strict=True))
        return float(node_losses(logits, y).sum())

    first = least = loss([])
    alone = {path: loss([path]) for path in columns}
    left, chosen, gains = budget, list[Metapath](), list[float]()
    while fits := [p for p in columns if p not in chosen and counts[p] <= left]:
        found = {path: loss([*chosen, path]) if chosen else alone[path] for path in fits}
        largest = least - min(found.values())
        if largest < MIN_GAIN:
            break
        close = [path for path in fits if least - found[path] >= CLOSE * largest]
        best = min(close, key=lambda path: counts[path])
        chosen.append(best)
        gains.append((least - found[best]) / first)
        least, left = found[best], left - counts[best]

    def row(path: Metapath) -> Relevance:
        explained = 1 - alone[path] / first
        if path not in chosen:
            return Relevance(path, counts[path], explained)
        place = chosen.index(path)
        return Relevance(path, counts[path], explained, place + 1, gains[place])

    others = [path for path in columns if path not in chosen]
    return [row(path) for path in [*chosen, *sorted(others, key=lambda path: alone[path])]]


def _columns(
    graph: Graph, candidates: Iterable[Metapath], train: Tensor
) -> tuple[dict[Metapath, Tensor], dict[Metapath, int]]:
    """Return mean labels ``[n, C]`` of training nodes, and instances, by metapath."""
    matrices, nothing = GraphMatrices(graph), torch.zeros(len(graph.y), len(graph.labels))
    soft = soft_labels(graph, nothing, label_shares(graph))
    soft = soft * graph.split.train[:, None]  # a node without a known label says nothing
    columns, counts = dict[Metapath, Tensor](), dict[Metapath, int]()
    for path in candidates:
        count = instances(path, graph)
        if not count or leads_back(path, graph):
            continue
        try:
            means = path_means(matrices, path, soft, train)
        except TooLarge:
            continue
        size = means.square().mean().sqrt()
        if size > 0:
            columns[path], counts[path] = means / size, count
    return columns, counts
