"""Beliefs: what the wide part says of other nodes along metapaths, and how far to trust that.

A node that shares authors with papers on databases is likely a paper on databases, whether these
papers have labels or the wide part only believes so. What it believes of the others is averaged
along each metapath, and a slope per metapath says how much that adds to the same label's logit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hanme.decision import calibrate
from hanme.decision.losses import node_losses
from hanme.graph import Graph
from hanme.graph.metapath import Metapath
from hanme.graph.splits import without_fold
from hanme.nn.batch import Batch
from hanme.nn.channels import WideChannels
from hanme.nn.channels.blocks import Block, TooLarge
from hanme.training.fit import fit_wide, wide_logits
from hanme.training.trees import MANY, Size, grow
from hanme.training.wide import MOST_SPANNED, Wide, rows_of, walks

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
    found: list[str] = []
    shared: dict[Any, Any] = {}
    for block in islice(_candidates(graph), MOST_PATHS):
        with suppress(TooLarge):
            rows_of(block, graph, shared)
            found.append(str(block))
    return found


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
    seen = graph.split.train if graph.visible is None else graph.visible
    given = graph.label_matrix.float()
    likely = logits.sigmoid() if graph.multilabel else logits.softmax(1)
    return torch.where(seen[:, None], given, likely) - given[graph.split.train].mean(0)


class Blend(NamedTuple):
    """How mixtures and trees are added up.

    Args:
        slopes: What each of them is multiplied by, ``[M]``.
        bias: What is added, ``[C]``.
    """

    slopes: Tensor
    bias: Tensor

    def of(self, fitted: Tensor) -> Tensor:
        """Return the sum of weights ``[..., M, D + 1, C]``, whose last row is the bias."""
        found = torch.einsum("m,...mdc->...dc", self.slopes, fitted)
        found[..., -1, :] += self.bias
        return found


class CrossFit(NamedTuple):
    """The wide part fitted to the training nodes, and without each fold of the labelled nodes.

    Args:
        first: The fit to the training nodes.
        folds: Those without each fold. There are none where so many nodes have labels that
            validation nodes will do, or fewer than folds.
        blend: How mixtures and trees were added up.
        fitted: The mixtures of the first fit, ``[M, D + 1, C]``.
        leaves: What the leaves of its trees add, and the bias, ``[leaves + 1, C]``.
        size: The size of each forest.
    """

    first: Fold
    folds: list[Fold]
    blend: Blend
    fitted: Tensor
    leaves: Tensor
    size: Size


def refit(part: WideChannels, graph: Graph, wide: Wide, found: CrossFit, seed: int) -> Tensor:
    """Return the weights of a fit to all labelled nodes, ``[D + 1, C]``; trees may change."""
    every, leaves = graph.split.labelled, found.leaves[None]
    fitted = fit_wide(part, graph, wide, [every], found.fitted)
    if len(part.trees):
        if int(every.sum()) <= MANY:
            leaves, _ = grow(part, graph, [every], [torch.zeros_like(every)], seed, found.size)
        fitted = _with_leaves(fitted, leaves)
    return found.blend.of(fitted)[0]


def _with_leaves(fitted: Tensor, leaves: Tensor) -> Tensor:
    """Add trees as one more mixture: weights of blocks, of leaves, the bias."""
    parts, count, size, labels = fitted.shape
    found = fitted.new_zeros(parts, count + 1, size + leaves.size(1) - 1, labels)
    found[:, :-1, : size - 1], found[:, :-1, -1] = fitted[:, :, :-1], fitted[:, :, -1]
    found[:, -1, size - 1 :] = leaves
    return found


def cross_fit(part: WideChannels, graph: Graph, wide: Wide, seed: int) -> CrossFit:
    """Fit the wide part to the training nodes, then without each fold of the labelled nodes."""
    graphs = [graph]
    if FOLDS <= int(graph.split.labelled.sum()) <= MOST_SPANNED:
        for number in range(1, FOLDS + 1):
            split = without_fold(graph.split, graph.y, number, FOLDS, seed=seed)
            graphs.append(replace(graph, split=split))
    several = any(block.read == "labels" for block in part.blocks)  # rows differ from fold to fold
    groups = [[each] for each in graphs] if several else [graphs]
    fitted = [fit_wide(part, some[0], wide, [each.split.train for each in some]) for some in groups]
    mixtures = fitted[0][0]
    held, size, leaves = _held_out(graphs), Size(0, 0), mixtures[:, :0]
    if wide.trees:
        leaves, size = grow(part, graph, [each.split.train for each in graphs], held, seed)
        if size.trees:
            shares = torch.split(leaves, [len(some) for some in groups])
            fitted = [_with_leaves(*both) for both in zip(fitted, shares, strict=True)]
    blend = _blend(part, groups, fitted, held)
    blended = [blend.of(weights) for weights in fitted]
    read = any(block.read == "beliefs" for block in part.blocks)
    asked = zip(groups, blended, strict=True) if read else [(groups[0][:1], blended[0][:1])]
    logits = [z for some, weights in asked for z in wide_logits(part, some[0], weights)]
    logits += [logits[0][:0]] * (len(graphs) - len(logits))
    first, *folds = [Fold(*each) for each in zip(graphs, torch.cat(blended), logits, strict=True)]
    return CrossFit(first, folds, blend, mixtures, leaves[0], size)


def _held_out(graphs: Sequence[Graph]) -> list[Tensor]:
    """Return masks of nodes that no weight of each fit has seen.

    With folds, validation nodes are not among them: they are kept for judging.
    """
    first, *folds = graphs
    if not folds:
        return [first.split.val]
    return [each.split.val & first.split.train for each in graphs]


def _blend(
    part: WideChannels,
    groups: Sequence[Sequence[Graph]],
    fitted: Sequence[Tensor],
    held: Sequence[Tensor],
) -> Blend:
    """Find slopes of mixtures and trees on nodes which no weight has seen."""
    first, count = groups[0][0], fitted[0].size(1)
    if count == 1:
        return Blend(torch.ones(1), torch.zeros(len(first.labels)))
    nodes, masks, parts, y = torch.stack(list(held)).any(0).nonzero().flatten(), iter(held), [], []
    for some, weights in zip(groups, fitted, strict=True):
        logits = wide_logits(part, some[0], weights.flatten(0, 1), nodes.numpy())
        for found in logits.reshape(*weights.shape[:2], *logits.shape[1:]):
            unseen = next(masks)[nodes]
            parts.append(found[:, unseen])
            y.append(first.y[nodes[unseen]])
    expected = [(1 / count, BLEND)] * count
    slopes, bias = calibrate(list(torch.cat(parts, 1)), torch.cat(y), expected)
    return Blend(torch.tensor(slopes), bias)


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
        rows = part.reading(Batch.of(graph), believed(graph, logits))
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
    reading = part.reading(Batch.of(graph), believed(graph, logits))
    for rows, slope in zip(reading, trust.slopes, strict=True):
        means = [torch.from_numpy(rows(some).toarray()) for some in rows.chunks(nodes)]
        found = found + slope * torch.cat(means)
    return found
