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
from hanme.nn.channels import Inputs, WideChannels
from hanme.nn.channels.blocks import MOST_NUMBERS, Block
from hanme.training.wide import MOST_SPANNED, Wide, can_be_made, fit_wide, walks

FOLDS = 5
MOST_PATHS = 24
WIDTH = 0.2
"""How far slopes are expected from 0, for means along a path with a mean square of 1."""


class Fold(NamedTuple):
    """A fit of the wide part without a fold of the labelled nodes.

    Args:
        graph: The graph, with the fold to validate on.
        weights: What was fitted, see :func:`~hanme.training.fit_wide`.
        logits: The logits of all target nodes.
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
    if graph.targets.num_nodes * len(graph.labels) > MOST_NUMBERS:
        return []
    made = (block for block in _candidates(graph) if can_be_made(block, graph))
    return [str(block) for block in islice(made, MOST_PATHS)]


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
    """Fit the wide part without each fold of the labelled nodes in turn.

    Nothing is returned where there are so many labelled nodes that validation nodes will do.
    """
    if not wide.beliefs or int(graph.split.labelled.sum()) > MOST_SPANNED:
        return []
    found = []
    for number in range(1, FOLDS + 1):
        split = without_fold(graph.split, graph.y, number, FOLDS, seed=seed)
        fold = replace(graph, split=split)
        weights = fit_wide(part, fold, wide, split.train)
        found.append(Fold(fold, weights, wide_logits(part, fold)))
    return found


def weigh_beliefs(part: WideChannels, folds: Sequence[Fold], graph: Graph, seen: Tensor) -> Trust:
    """Find how far to trust the wide part and its beliefs, on nodes that its weights have not seen.

    Beliefs are trusted if validation nodes have a smaller loss with them, judged by weights that
    saw training nodes alone: where a split keeps groups or years apart, folds do not.

    Args:
        part: The wide part.
        folds: What :func:`cross_fit` gives; if nothing, validation nodes are weighed on alone.
        graph: The graph.
        seen: The logits of all target nodes, of weights fitted to the training nodes.
    """
    none = Trust(1.0, [], torch.zeros(len(graph.labels)))
    if all(block.read != "beliefs" for block in part.blocks):
        return none
    held_out = [(fold.graph, fold.logits) for fold in folds] or [(graph, seen)]
    own, others, y = zip(*(_parts(part, *each) for each in held_out), strict=True)
    logits, means, true = torch.cat(own), torch.cat(others, 1), torch.cat(y)
    size = means.square().mean((1, 2)).sqrt()
    means = means / size.clamp(min=1e-9)[:, None, None]
    slopes, bias = calibrate([logits, *means], true, [(1.0, 0.5)] + [(0.0, WIDTH)] * len(means))
    trust = Trust(slopes[0], (torch.tensor(slopes[1:]) / size.clamp(min=1e-9)).tolist(), bias)
    (alone,), shift = calibrate([logits], true)
    without = Trust(alone, [], shift)
    own_val, others_val, y_val = _parts(part, graph, seen)
    losses = [node_losses(t.of(own_val, others_val), y_val).mean() for t in (trust, without)]
    return trust if losses[0] < losses[1] else without if folds else none


def trusted(part: WideChannels, graph: Graph, logits: Tensor, trust: Trust) -> Tensor:
    """Return the wide part's logits of all target nodes with what it believes of the others."""
    if not trust.slopes:
        return trust.of(logits)
    found, nodes = trust.of(logits), np.arange(len(logits))
    for rows, slope in zip(
        part.reading(_inputs(graph), believed(graph, logits)), trust.slopes, strict=True
    ):
        means = [torch.from_numpy(rows(some).toarray()) for some in rows.chunks(nodes)]
        found = found + slope * torch.cat(means)
    return found


def wide_logits(part: WideChannels, graph: Graph) -> Tensor:
    """Return what the wide part adds to the logits of all target nodes."""
    return torch.stack(part(_inputs(graph))).sum(0)


def _parts(part: WideChannels, graph: Graph, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return validation nodes' logits, beliefs of the others along each path, and labels."""
    val = graph.split.val.nonzero().flatten()
    rows = part.reading(_inputs(graph), believed(graph, logits))
    means = [torch.from_numpy(each(val.numpy()).toarray()) for each in rows]
    return logits[val], torch.stack(means), graph.y[val]


def _inputs(graph: Graph) -> Inputs:
    return Inputs(graph.x_dict, graph.edge_index_dict, labels=graph.training_labels)
