"""A forest: decision trees as sparse rows, with a 1 for each leaf that a root falls into.

Boosted trees add up the numbers of these leaves, so they are a linear function of such rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.errors import HanmeError
from hanme.ops.streaming.kernels import kernel

COLUMNS = 5


class Forest:
    """Trees, as one table of all their nodes.

    Args:
        table: By node its feature (-1 for a leaf), threshold, left and right child (a leaf's: the
            leaf itself), and how many roots it was grown from, ``[nodes, 5]`` in double. A root
            whose feature is at most the threshold goes left. Children come after their parents.
    """

    def __init__(self, table: Tensor) -> None:
        values = table.detach().cpu().numpy()
        self.threshold, self.cover = values[:, [1, 4]].T.copy()
        with np.errstate(invalid="ignore"):  # what is no number is refused below
            self.feature, self.left, self.right = values[:, [0, 2, 3]].T.astype(np.int64)
        number = np.arange(len(values))
        self.inner = self.feature >= 0
        after = np.where(self.inner, number < self.left, number == self.left)
        after &= np.where(self.inner, number < self.right, number == self.right)
        if not after.all() or (np.maximum(self.left, self.right) >= len(values)).any():
            raise HanmeError("the trees of the wide part do not fit together: train it again")
        below = np.zeros(len(values), bool)
        below[self.left[self.inner]] = below[self.right[self.inner]] = True
        self.first = number[~below]
        self.used, asked = np.unique(self.feature[self.inner], return_inverse=True)
        self.asked = np.full(len(values), -1)  # the feature, as its place among those used
        self.asked[self.inner] = asked
        self.leaf = np.cumsum(~self.inner) - 1
        self.width = int((~self.inner).sum())

    @staticmethod
    def table(trees: Sequence[Any], columns: NDArray[np.int64] | None = None) -> Tensor:
        """Return the table of trees that scikit-learn has grown, each as its ``tree_``.

        They were grown on these columns of the features (default: on all).
        """
        tables, size = [torch.zeros(0, COLUMNS, dtype=torch.double)], 0
        for tree in trees:
            number = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            given = np.zeros((tree.node_count, COLUMNS))
            feature = np.where(leaf, 0, tree.feature)
            given[:, 0] = np.where(leaf, -1, feature if columns is None else columns[feature])
            given[:, 1] = np.where(leaf, 0, tree.threshold)
            given[:, 2] = np.where(leaf, number, tree.children_left) + size
            given[:, 3] = np.where(leaf, number, tree.children_right) + size
            given[:, 4] = tree.n_node_samples
            tables.append(torch.from_numpy(given))
            size += tree.node_count
        return torch.cat(tables)

    def rows(self, features: csr_array) -> csr_array:
        """Return the leaves that roots with features ``[R, D]`` fall into, ``[R, leaves]``."""
        if self.used.max(initial=-1) >= features.shape[1]:
            raise HanmeError(
                f"the trees of the wide part read more than {features.shape[1]} features"
            )
        x = features[:, self.used].toarray()
        at = np.empty((len(x), len(self.first)), np.int64)
        _fall(x, self.first, self.asked, self.threshold, self.left, self.right, at)
        ends = np.arange(len(x) + 1) * len(self.first)
        ones = np.ones(at.size, np.float32)
        return csr_array((ones, self.leaf[at].ravel(), ends), shape=(len(x), self.width))

    def shares(
        self, x: NDArray[np.float32], weight: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Divide what the leaves of one root add among the features that led there.

        A node of a tree is worth the mean of its children, by the roots it was grown from. A step
        down adds the difference to the share of its feature; the worth of the first nodes is the
        share of no feature.

        Args:
            x: The root's features, ``[D]``.
            weight: What each leaf adds, ``[leaves, C]``.

        Returns:
            The features, D for none of them, and their shares, ``[features, C]``.
        """
        worth = self._worth(weight)
        total = np.zeros((len(x) + 1, weight.shape[1]))
        at = self.first
        total[-1] = worth[at].sum(0)
        while len(at := at[self.inner[at]]):
            feature = self.feature[at]
            down = np.where(x[feature] <= self.threshold[at], self.left[at], self.right[at])
            np.add.at(total, feature, worth[down] - worth[at])
            at = down
        used = np.flatnonzero(total.any(1))
        return used, total[used]

    def _worth(self, weight: NDArray[Any]) -> NDArray[np.float64]:
        """Return what each node is worth: a leaf what it adds, others the mean of both children."""
        worth = np.zeros((len(self.feature), weight.shape[1]))
        worth[~self.inner] = weight
        levels = [self.first]
        while len(at := levels[-1][self.inner[levels[-1]]]):
            levels.append(np.concatenate([self.left[at], self.right[at]]))
        for level in levels[::-1]:
            at = level[self.inner[level]]
            left, right = self.left[at], self.right[at]
            share = (self.cover[left] / (self.cover[left] + self.cover[right]))[:, None]
            worth[at] = share * worth[left] + (1 - share) * worth[right]
        return worth

    def pruned(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the table and the weights of the trees that add something."""
        sizes = np.diff([*self.first, len(self.feature)])
        tree = np.repeat(np.arange(len(sizes)), sizes)  # the one that each node belongs to
        adds = np.bincount(tree[~self.inner], weight.any(1).numpy(), len(sizes)) > 0
        kept = adds[tree]
        moved = np.cumsum(kept) - 1
        columns = [self.feature, self.threshold, moved[self.left], moved[self.right], self.cover]
        table = torch.from_numpy(np.stack(columns, 1)[kept])
        return table, weight[torch.from_numpy(kept[~self.inner])]


@kernel
def _fall(x, first, feature, threshold, left, right, at):  # type: ignore[no-untyped-def]
    """Let each root fall down each tree, as far as its leaf."""
    for root in range(at.shape[0]):
        for tree in range(at.shape[1]):
            node = first[tree]
            while feature[node] >= 0:
                node = left[node] if x[root, feature[node]] <= threshold[node] else right[node]
            at[root, tree] = node
