"""Grow the trees of a wide part: gradient boosting, each tree for all labels at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.graph import Graph
from hanme.graph.features import to_scipy
from hanme.nn.channels import WideChannels
from hanme.nn.channels.forest import Forest

MOST_FEATURES = 2**10
MOST_NUMBERS = 2**26
"""Features of labelled nodes, at the most."""

MOST_LOGITS = 2**23
"""Labelled nodes times labels, at the most."""

MOST_CELLS = 2.5e8
"""Numbers that all trees look at before their first split, at the most."""

CHEAP = 16
"""So many labels double the time that a number takes."""

MOST_TREES = 150
PATIENCE = 15
"""Growing ends when so many trees have not lowered the loss of nodes that they have not seen."""

LEAVES = 16
LEAST_NODES = 10
STEP = 0.1
HELD = 1.0
"""How strongly what a leaf adds is held at 0."""


class Grown(NamedTuple):
    """A tree and what its leaves add.

    Args:
        tree: The tree, as scikit-learn has it.
        worth: What its leaves add, ``[leaves, C]``.
    """

    tree: Any
    worth: Tensor


def can_grow(graph: Graph) -> bool:
    """Return whether trees over the target's own features can be afforded."""
    width, labelled = graph.targets.width or 0, int(graph.split.labelled.sum())
    return (
        0 < width <= MOST_FEATURES
        and labelled * width <= MOST_NUMBERS
        and labelled * len(graph.labels) <= MOST_LOGITS
    )


def grow(
    part: WideChannels,
    graph: Graph,
    parts: Sequence[Tensor],
    held: Sequence[Tensor],
    seed: int,
    count: int | None = None,
) -> Tensor:
    """Grow a forest on some labelled nodes, and one on others; wide channels take all of them.

    There are as many trees as give the held nodes, which they have not seen, the least loss.

    Args:
        part: The wide channels.
        graph: The graph.
        parts: Masks of labelled nodes to grow a forest on, one after the other.
        held: For each of them a mask of nodes to count trees by.
        seed: Draws what each split looks at.
        count: How many trees (default: see above).

    Returns:
        By part what each leaf of all forests adds and, in the last row, the bias,
        ``[P, leaves + 1, C]``.
    """
    given, labels = graph.targets.x, len(graph.labels)
    assert given is not None
    chosen = torch.stack([*parts, *held]).any(0).nonzero().flatten()
    x = to_scipy(given)[chosen.numpy()].toarray().astype(np.float32)
    y = graph.y[chosen]
    room = MOST_CELLS / len(parts) / MOST_TREES / (1 + labels / CHEAP)
    boosts = [
        Boost(x, y, seen[chosen], unseen[chosen], labels, room, seed)
        for seen, unseen in zip(parts, held, strict=True)
    ]
    if count is None:
        count = _count(boosts)
    for boost in boosts:
        while len(boost.grown) < count:
            boost.add()
    trees = [each for boost in boosts for each in boost.grown[:count]]
    part.trees = Forest.table([each.tree for each in trees])
    leaves = sum(len(each.worth) for each in trees)
    found = torch.zeros(len(boosts), leaves + 1, labels)
    at = 0
    for i, boost in enumerate(boosts):
        found[i, -1] = boost.bias
        for each in boost.grown[:count]:
            found[i, at : at + len(each.worth)] = each.worth
            at += len(each.worth)
    return found


def _count(boosts: Sequence[Boost]) -> int:
    """Grow trees as long as they help nodes that they have not seen; return how many do."""
    losses = [sum(boost.loss() for boost in boosts)]
    while len(losses) <= MOST_TREES and len(losses) - int(np.argmin(losses)) <= PATIENCE:
        for boost in boosts:
            boost.add()
        losses.append(sum(boost.loss() for boost in boosts))
    return int(np.argmin(losses))


class Boost:
    """Boosting under way: each tree fits what the trees before it leave of the labels.

    Args:
        x: The features of labelled nodes, ``[n, D]``.
        y: Their labels.
        seen: The nodes to learn from.
        held: The nodes to measure the loss on.
        labels: How many labels there are.
        room: How many numbers a tree may look at before its first split.
        seed: Draws what each split looks at.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: Tensor,
        seen: Tensor,
        held: Tensor,
        labels: int,
        room: float,
        seed: int,
    ) -> None:
        self.x, self.y, self.held = x, y, held
        self.several = y.dim() == 2
        self.given = y.float() if self.several else torch.nn.functional.one_hot(y, labels).float()
        share = self.given[seen].mean(0).clamp(1e-4, 1 - 1e-4)
        self.bias = torch.logit(share) if self.several else share.log()
        self.logits = self.bias.repeat(len(y), 1)
        self.seen = seen.nonzero().flatten().numpy()
        self.grown: list[Grown] = []
        self.random = np.random.default_rng(seed)
        width = x.shape[1]
        most = max(1, width // 3, min(width, 10))
        self.columns = int(min(most, max(room // max(1, len(self.seen)), width**0.5)))
        self.rows = int(min(len(self.seen), max(100, room // self.columns)))

    def add(self) -> None:
        """Grow one more tree."""
        from sklearn.tree import DecisionTreeRegressor  # which takes long to import

        likely = self.logits.sigmoid() if self.several else self.logits.softmax(1)
        left, slope = self.given - likely, likely * (1 - likely)
        some = self.seen
        if self.rows < len(some):
            some = np.sort(self.random.choice(some, self.rows, replace=False))
        wanted = left[some, :1] if self.given.size(1) == 2 and not self.several else left[some]
        grown = DecisionTreeRegressor(
            max_leaf_nodes=LEAVES,
            min_samples_leaf=LEAST_NODES,
            max_features=self.columns,
            random_state=int(self.random.integers(2**31)),
        ).fit(self.x[some], wanted.numpy())
        at = torch.from_numpy(grown.apply(self.x))
        empty = torch.zeros(grown.tree_.node_count, left.size(1))
        total = empty.index_add(0, at[some], left[some])
        spread = empty.index_add(0, at[some], slope[some])
        worth = STEP * total / (spread + HELD)
        self.logits += worth[at]
        self.grown.append(
            Grown(grown.tree_, worth[torch.from_numpy(grown.tree_.children_left) < 0])
        )

    def loss(self) -> float:
        """Return the loss of the nodes held out."""
        y = self.given if self.several else self.y
        return float(node_losses(self.logits[self.held], y[self.held]).sum())
