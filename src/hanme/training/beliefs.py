"""Beliefs: what the wide part says of other nodes along metapaths, and how far to trust that.

A node that shares authors with papers on databases is likely a paper on databases, whether these
papers have labels or the wide part only believes so. What it believes of the others is averaged
along each metapath, and a slope per metapath says how much that adds to the same label's logit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hanme.decision import calibrate
from hanme.decision.losses import node_losses
from hanme.graph import Graph
from hanme.graph.splits import without_fold
from hanme.metapath import Metapath
from hanme.nn.channels import WideChannels
from hanme.nn.channels.blocks import Block
from hanme.training.wide import (
    MOST_SPANNED,
    Wide,
    can_be_made,
    fit_wide,
    inputs_of,
    walks,
    wide_logits,
)

FOLDS = 5
MOST_PATHS = 24
MOST_BELIEFS = 2**23
"""Beliefs of more nodes times labels are not read."""

FEW = 10
"""A path that fewer of the nodes to learn from have says nothing."""

BLEND = 0.2
"""How far the slopes of mixtures are expected from all alike with a sum of 1."""

WIDTH = 0.2
"""How far slopes are expected from 0, for means along a path with a mean square of 1."""


class Fold(NamedTuple):
    """A fit of the wide part to training nodes.

    Args:
        graph: The graph, with these training nodes and others to validate on.
        weights: What was fitted, the mixtures added up, ``[D + 1, C]``.
        logits: The logits of all target nodes, ``[N, C]``; of folds only where beliefs are weighed.
    """

    graph: Graph
    weights: Tensor
    logits: Tensor


class Trust(NamedTuple):
    """How far to trust the wide part.

    Args:
        slope: What its own logits are multiplied by.
        slopes: What its beliefs of the others are multiplied by, path by path; none to trust none.
        bias: What is added, ``[C]``.
    """

    slope: float
    slopes: Sequence[float]
    bias: Tensor

    def of(self, logits: Tensor, means: Tensor | None = None) -> Tensor:
        """Return logits ``[n, C]`` with what is believed of others, ``[paths, n, C]``."""
        found = self.slope * logits + self.bias
        if means is None or not self.slopes:
            return found
        return found + torch.einsum("p,pnc->nc", torch.tensor(self.slopes), means)


def belief_blocks(graph: Graph) -> list[str]:
    """Name the blocks of beliefs worth trying: paths of one, two and four hops to other targets.

    Over four hops, those there and back alone.
    """
    if graph.targets.num_nodes * len(graph.labels) > MOST_BELIEFS:
        return []
    some = islice(_candidates(graph), MOST_PATHS)
    return [str(block) for block in some if can_be_made(block, graph)]


def _candidates(graph: Graph) -> Iterator[Block]:
    for length in (1, 2, 4):
        for steps in walks(graph, length):
            types = [step[0] for step in steps] + [steps[-1][2]]
            back = types == types[::-1] and len(set(types)) > 1
            if types[-1] == graph.target and (length < 4 or back):
                yield Block(Metapath.of(list(steps), graph.metadata()), "beliefs", "plain")


def believed(graph: Graph, logits: Tensor) -> Tensor:
    """Return what is believed of each target node: labels that may be seen, else probabilities.

    The labels' shares among training nodes are taken off, so that 0 is to know nothing.

    Args:
        graph: The graph.
        logits: Those of all target nodes.
    """
    seen = graph.split.train if graph.seen is None else graph.seen
    given = graph.label_matrix.float()
    likely = logits.sigmoid() if graph.multilabel else logits.softmax(1)
    return torch.where(seen[:, None], given, likely) - given[graph.split.train].mean(0)


def cross_fit(part: WideChannels, graph: Graph, wide: Wide, seed: int) -> list[Fold]:
    """Fit the wide part to the training nodes, then without each fold of the labelled nodes.

    There are no folds where so many nodes have labels that validation nodes will do, or fewer than
    folds.
    """
    graphs = [graph]
    if FOLDS <= int(graph.split.labelled.sum()) <= MOST_SPANNED:
        for number in range(1, FOLDS + 1):
            split = without_fold(graph.split, graph.y, number, FOLDS, seed=seed)
            graphs.append(replace(graph, split=split))
    several = any(block.read == "labels" for block in part.blocks)  # rows differ from fold to fold
    groups = [[each] for each in graphs] if several else [graphs]
    fitted = [fit_wide(part, some[0], wide, [each.split.train for each in some]) for some in groups]
    blended = _blended(part, groups, fitted)
    read = any(block.read == "beliefs" for block in part.blocks)
    asked = zip(groups, blended, strict=True) if read else [(groups[0][:1], blended[0][:1])]
    logits = [z for some, weights in asked for z in wide_logits(part, some[0], weights)]
    logits += [logits[0][:0]] * (len(graphs) - len(logits))
    return [Fold(*each) for each in zip(graphs, torch.cat(blended), logits, strict=True)]


def _blended(
    part: WideChannels, groups: Sequence[Sequence[Graph]], fitted: Sequence[Tensor]
) -> list[Tensor]:
    """Add the mixtures up, each times a slope that is fitted to nodes which no weight has seen."""
    first, count = groups[0][0], fitted[0].size(1)
    slopes, bias = torch.full((count,), 1 / count), torch.zeros(len(first.labels))
    train, parts, y = first.split.train.nonzero().flatten(), [], []
    for some, weights in zip(groups, fitted, strict=True):
        logits = wide_logits(part, some[0], weights.flatten(0, 1), train.numpy())
        logits = logits.reshape(*weights.shape[:2], *logits.shape[1:])
        for each, found in zip(some, logits, strict=True):
            unseen = each.split.val[train]
            parts.append(found[:, unseen])
            y.append(first.y[train[unseen]])
    if any(len(each) for each in y):
        expected = [(1 / count, BLEND)] * count
        found_slopes, bias = calibrate(list(torch.cat(parts, 1)), torch.cat(y), expected)
        slopes = torch.tensor(found_slopes)
    blended = [torch.einsum("m,gmdc->gdc", slopes, weights) for weights in fitted]
    for weights in blended:
        weights[:, -1] += bias
    return blended


def weigh_beliefs(part: WideChannels, first: Fold, folds: Sequence[Fold]) -> Trust:
    """Find how far to trust the wide part and its beliefs, on nodes that its weights have not seen.

    Beliefs are trusted if validation nodes have a smaller loss with them, judged by slopes that
    were fitted to other nodes and weights that saw training nodes alone: where a split keeps groups
    or years apart, folds do not.

    Args:
        part: The wide part.
        first: Its fit to the training nodes.
        folds: Those without each fold; if none, validation nodes are weighed on alone.
    """
    graph = first.graph
    none = Trust(1.0, [], torch.zeros(len(graph.labels)))
    if all(block.read != "beliefs" for block in part.blocks):
        return none
    val = Weighed.of(part, first)
    if folds:
        every = Weighed.joined([Weighed.of(part, fold) for fold in folds])
        judged = [(every.some(~graph.split.val[every.nodes]), val)]
    else:
        every, half = val, torch.arange(len(val.nodes)) % 2 == 0
        judged = [(val.some(half), val.some(~half)), (val.some(~half), val.some(half))]
    gained = sum(float(on.losses(to.alone()) - on.losses(to.trust())) for to, on in judged)
    if gained > 0:
        return every.trust()
    return every.alone() if folds else none


class Weighed(NamedTuple):
    """Nodes to weigh the wide part and its beliefs on.

    Args:
        nodes: Their numbers, ``[n]``.
        logits: Those of weights that have not seen them, ``[n, C]``.
        means: What is believed of others along each path, ``[paths, n, C]``.
        y: Their labels.
    """

    nodes: Tensor
    logits: Tensor
    means: Tensor
    y: Tensor

    @classmethod
    def of(cls, part: WideChannels, fold: Fold) -> Weighed:
        """Return the validation nodes of a fit."""
        graph, _, logits = fold
        val = graph.split.val.nonzero().flatten()
        rows = part.reading(inputs_of(graph), believed(graph, logits))
        means = [torch.from_numpy(each(val.numpy()).toarray()) for each in rows]
        return cls(val, logits[val], torch.stack(means), graph.y[val])

    @classmethod
    def joined(cls, parts: Sequence[Weighed]) -> Weighed:
        """Return the nodes of all parts."""
        nodes, logits, means, y = zip(*parts, strict=True)
        return cls(torch.cat(nodes), torch.cat(logits), torch.cat(means, 1), torch.cat(y))

    def some(self, mask: Tensor) -> Weighed:
        """Return some of the nodes."""
        return Weighed(self.nodes[mask], self.logits[mask], self.means[:, mask], self.y[mask])

    def trust(self) -> Trust:
        """Fit how far to trust both; a path counts by the nodes that have it."""
        having = (self.means != 0).any(2).sum(1)
        enough = having >= FEW
        square = self.means.square().sum((1, 2)) / (having * self.means.size(2)).clamp(min=1)
        size = torch.where(enough & (square > 0), square.sqrt(), torch.inf)
        expected = [(1.0, 0.5)] + [(0.0, WIDTH)] * len(size)
        slopes, bias = calibrate(
            [self.logits, *(self.means / size[:, None, None])], self.y, expected
        )
        return Trust(slopes[0], (torch.tensor(slopes[1:]) / size).tolist(), bias)

    def alone(self) -> Trust:
        """Fit how far to trust the wide part without beliefs."""
        (slope,), bias = calibrate([self.logits], self.y)
        return Trust(slope, [], bias)

    def losses(self, trust: Trust) -> Tensor:
        """Return the sum of the nodes' losses."""
        return node_losses(trust.of(self.logits, self.means), self.y).sum()


def with_beliefs(part: WideChannels, graph: Graph, logits: Tensor, trust: Trust) -> Tensor:
    """Return the wide part's logits of all target nodes with what it believes of the others."""
    found, nodes = trust.of(logits), np.arange(len(logits))
    if not trust.slopes:
        return found
    reading = part.reading(inputs_of(graph), believed(graph, logits))
    for rows, slope in zip(reading, trust.slopes, strict=True):
        means = [torch.from_numpy(rows(some).toarray()) for some in rows.chunks(nodes)]
        found = found + slope * torch.cat(means)
    return found
