"""Grow the trees of a wide part: gradient boosting, each tree for all labels at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.graph import Graph
from hanme.graph.features import to_scipy, words_among
from hanme.nn.channels import WideChannels
from hanme.nn.channels.forest import Forest

MOST_FEATURES = 2**10
SPARSE = 0.05
"""Features of which a smaller share is not 0 are words."""

MOST_NODES = 2**16
"""Of more labelled nodes, so many are drawn."""

MOST_LOGITS = 2**23
"""Nodes times labels, at the most."""

MOST_CELLS = 1.25e8
"""Numbers that all trees of a size look at before their first split, at the most."""

CHEAP = 16
"""So many labels double the time that a number takes."""

MOST_WEIGHTS = 2**25
"""What all leaves of all forests add to all labels, in numbers, at the most."""

MOST_TREES = 150
PATIENCE = 15
"""Growing ends when so many trees have not lowered the loss of nodes that they have not seen."""

LEAVES = (16, 64)
"""How many leaves a tree may have: few suit few nodes, and many suit many."""

MANY = 20_000
"""With more nodes to learn from, trees have the most leaves, half the time, and are grown once."""

LEAST_NODES = 10
"""A leaf has at least so many nodes, and the size of a forest is chosen by five times as many."""

STEP = 0.1
HELD = 1.0
"""How strongly what a leaf adds is held at 0."""


class Size(NamedTuple):
    """The size of a forest: how many leaves its trees may have, and how many trees it has."""

    leaves: int
    trees: int


class Tree(NamedTuple):
    """A tree and what its leaves add.

    Args:
        grown: The tree, as scikit-learn has it.
        worth: What its leaves add, ``[leaves, C]``.
    """

    grown: Any
    worth: Tensor


def can_grow(graph: Graph) -> bool:
    """Return whether trees over the target's own features can be afforded."""
    nodes = min(MOST_NODES, int(graph.split.labelled.sum()))
    few = nodes * len(graph.labels) <= MOST_LOGITS
    return few and 0 < len(_columns(graph)) <= MOST_FEATURES


def _columns(graph: Graph) -> NDArray[np.int64]:
    """Return the features that trees look at: all of them or, if these are many, all but words.

    Where nothing is known of features and hardly any of a node's are not 0, they count as words.
    """
    width, x = graph.targets.width or 0, graph.targets.x
    words = np.array(words_among(graph, graph.target), bool)
    if x is not None and len(words) != width:
        return np.arange(width if to_scipy(x).nnz >= SPARSE * x.numel() else 0)
    return np.flatnonzero(~words) if width > MOST_FEATURES else np.arange(width)


def grow(
    part: WideChannels,
    graph: Graph,
    parts: Sequence[Tensor],
    held: Sequence[Tensor],
    seed: int,
    size: Size | None = None,
) -> tuple[Tensor, Size]:
    """Grow a forest on some labelled nodes, and one on others; wide channels take all of them.

    They have the size with the least loss of held nodes, which they have not seen.

    Args:
        part: The wide channels.
        graph: The graph.
        parts: Masks of labelled nodes to grow a forest on, one after the other.
        held: For each of them a mask of nodes to choose the size by.
        seed: Draws nodes, where there are many, and what each split looks at.
        size: The size (default: see above).

    Returns:
        By part what each leaf of all forests adds and, in the last row, the bias,
        ``[P, leaves + 1, C]``; and the size.
    """
    given, labels = graph.targets.x, len(graph.labels)
    assert given is not None
    chosen = torch.stack([*parts, *held]).any(0).nonzero().flatten()
    if len(chosen) > MOST_NODES:
        drawn = np.random.default_rng(seed).choice(len(chosen), MOST_NODES, replace=False)
        chosen = chosen[np.sort(drawn)]
    columns = _columns(graph)
    x = to_scipy(given)[chosen.numpy()][:, columns].toarray().astype(np.float32)
    y = graph.y[chosen]
    many = max(int(seen.sum()) for seen in parts) > MANY
    room = MOST_CELLS / (1 + many) / len(parts) / MOST_TREES / (1 + labels / CHEAP)

    def begun(leaves: int) -> list[Boost]:
        return [
            Boost(x, y, seen[chosen], unseen[chosen], labels, leaves, room, seed)
            for seen, unseen in zip(parts, held, strict=True)
        ]

    if size is None:
        most = MOST_WEIGHTS // (3 * labels * len(parts) ** 2)  # for each of about three mixtures
        tried = LEAVES[-1:] if many else LEAVES
        sized = [_sized(begun(leaves), leaves, most // leaves) for leaves in tried]
        _, size, boosts = min(sized, key=itemgetter(0))
    else:
        boosts = begun(size.leaves)
        for _ in range(size.trees):
            for boost in boosts:
                boost.add()
    forests = [boost.trees[: size.trees] for boost in boosts]
    part.trees = Forest.table([tree.grown for forest in forests for tree in forest], columns)
    found = torch.zeros(len(boosts), sum(len(t.worth) for f in forests for t in f) + 1, labels)
    at = 0
    for weights, boost, forest in zip(found, boosts, forests, strict=True):
        weights[-1] = boost.bias
        for tree in forest:
            weights[at : at + len(tree.worth)] = tree.worth
            at += len(tree.worth)
    return found, size


def _sized(boosts: list[Boost], leaves: int, most: int) -> tuple[float, Size, list[Boost]]:
    """Grow trees as long as they help nodes that they have not seen; return the least loss too."""
    losses = [sum(boost.loss() for boost in boosts)]
    few = sum(int(boost.held.sum()) for boost in boosts) < 5 * LEAST_NODES
    most = 0 if few else min(MOST_TREES, most)
    while len(losses) <= most and len(losses) - int(np.argmin(losses)) <= PATIENCE:
        for boost in boosts:
            boost.add()
        losses.append(sum(boost.loss() for boost in boosts))
    return min(losses), Size(leaves, int(np.argmin(losses))), boosts


class Boost:
    """Boosting under way: each tree fits what the trees before it leave of the labels.

    Args:
        x: The features of labelled nodes, ``[n, D]``.
        y: Their labels.
        seen: The nodes to learn from.
        held: The nodes to measure the loss on.
        labels: How many labels there are.
        leaves: How many leaves a tree may have.
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
        leaves: int,
        room: float,
        seed: int,
    ) -> None:
        self.x, self.y, self.held, self.leaves = x, y, held, leaves
        self.several = y.dim() == 2
        self.given = y.float() if self.several else torch.nn.functional.one_hot(y, labels).float()
        share = self.given[seen].mean(0).clamp(1e-4, 1 - 1e-4)
        self.bias = torch.logit(share) if self.several else share.log()
        self.logits = self.bias.repeat(len(y), 1)
        self.seen = seen.nonzero().flatten().numpy()
        self.trees: list[Tree] = []
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
            max_leaf_nodes=self.leaves,
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
        leaf = torch.from_numpy(grown.tree_.children_left < 0)
        self.trees.append(Tree(grown.tree_, worth[leaf]))

    def loss(self) -> float:
        """Return the loss of the nodes held out."""
        y = self.given if self.several else self.y
        return float(node_losses(self.logits[self.held], y[self.held]).sum())
