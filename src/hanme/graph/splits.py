"""Which target nodes to train, to validate and to test on."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.errors import HanmeError

PARTS = ("train", "val", "test")

GROUPS = "hanme.groups"
"""Name of the tensor of group numbers among a node type's extra tensors."""


class Split(NamedTuple):
    """Three disjoint masks over the target nodes, ``[N]``; nodes under none are not used."""

    train: Tensor
    val: Tensor
    test: Tensor

    @classmethod
    def of(cls, part: Tensor) -> Split:
        """Return the split of nodes by their part, 0 to 2; another number is none of them."""
        return cls(*(part == i for i in range(len(PARTS))))

    def parts(self) -> dict[str, Tensor]:
        """Return the masks by name."""
        return self._asdict()

    @property
    def labelled(self) -> Tensor:
        """The nodes outside the test part: what a model may learn from or be chosen by."""
        return self.train | self.val


def hold_out(labelled: Tensor, test: Tensor, *, val: float = 0.2, seed: int) -> Split:
    """Validate on a share of the labelled nodes, rounded up, and train on the others.

    The draw is that of the paper's code, whose seed is 42: the last nodes of a permutation of the
    labelled ones. It has a generator of its own.
    """
    if not 0 <= val < 1:
        raise HanmeError(f"Expected `val` to be at least 0 and below 1, but got {val}")
    nodes = labelled.nonzero().view(-1)
    # 0.07 * 100 is 7.000000000000001 in floating point, and still seven nodes.
    size = math.ceil(round(val * len(nodes), 6))
    key = seed if seed < 2**32 else [seed % 2**32, seed >> 32]  # what NumPy takes
    order = np.random.RandomState(key).permutation(len(nodes))
    drawn = torch.zeros_like(labelled)
    drawn[nodes[torch.from_numpy(order[len(nodes) - size :]).to(nodes.device)]] = True
    return Split(labelled & ~drawn, drawn, test)


def stratified(
    y: Tensor, *, val: float, test: float, seed: int, groups: Tensor | None = None
) -> Split:
    """Split the labelled nodes at random so that each part has its share of every label.

    A node counts as its label, or as the rarest of several. The first node of a label is for
    training, hence a label seen once is. Parts whose share is not 0 get at least one node.

    Args:
        y: Labels, ``[N]`` with -1 for unlabelled nodes, or 0 and 1, ``[N, C]``.
        val: The share of the labelled nodes to validate on.
        test: The share to test on.
        seed: The seed of the draw.
        groups: Group numbers ``[N]``: the nodes of a group are drawn together.
    """
    stratum = _strata(y)
    part = np.full(len(stratum), -1)
    nodes = np.flatnonzero(stratum >= 0)
    nodes = np.random.default_rng(seed).permutation(nodes)
    nodes = nodes[np.argsort(stratum[nodes], kind="stable")]
    first = np.flatnonzero(np.diff(stratum[nodes], prepend=-1))
    part[nodes[first]] = 0
    rest = np.delete(nodes, first)
    wanted = [max(1, round(share * len(nodes))) if share else 0 for share in (val, test)]
    vals = min(wanted[0], len(rest))
    tests = min(wanted[1], len(rest) - vals)
    counts = [len(rest) - vals - tests, vals, tests]
    # Each part's nodes at equal distances along the line, the parts shuffled into each other.
    position = np.concatenate([(np.arange(n) + 0.5) / max(1, n) for n in counts])
    part[rest] = np.repeat(np.arange(3), counts)[np.argsort(position, kind="stable")]
    if groups is not None:  # a label's first node takes its group along, else a random node does
        pinned, drawn = nodes[first], np.random.default_rng(seed + 1).permutation(rest)
        _draw_together(part, np.concatenate([pinned, drawn]), groups)
    return Split.of(torch.from_numpy(part))


def without_fold(
    split: Split, y: Tensor, fold: int, folds: int, *, seed: int, groups: Tensor | None = None
) -> Split:
    """Validate on a stratified fold of the labelled nodes, counted from 1; train on the others.

    The nodes of a group ``[N]`` are in one fold.
    """
    nodes = split.labelled.nonzero().flatten().cpu().numpy()
    if len(nodes) < folds:
        raise HanmeError(
            f"{folds} folds: only {len(nodes)} nodes have labels outside the test part"
        )
    nodes = np.random.default_rng(seed).permutation(nodes)
    strata = _strata(y[torch.from_numpy(nodes).to(y.device)])  # rarity among these nodes
    nodes = nodes[np.argsort(strata, kind="stable")]
    number = np.full(len(y), -1)
    number[nodes] = np.arange(len(nodes)) % folds
    if groups is not None:
        _draw_together(number, np.random.default_rng(seed + 1).permutation(nodes), groups)
    val = torch.from_numpy(number == fold - 1).to(split.val.device)
    return Split(split.labelled & ~val, val, split.test)


def _draw_together(part: NDArray[np.int64], nodes: NDArray[np.int64], groups: Tensor) -> None:
    """Give the nodes of each group the part of the first of them, in place.

    If ``nodes`` are in random order, that draws groups with the shares of single nodes.
    """
    _, leader, group = np.unique(groups.numpy()[nodes], return_index=True, return_inverse=True)
    part[nodes] = part[nodes[leader[group]]]


def _strata(y: Tensor) -> NDArray[np.int64]:
    """Return a node's label, of several its rarest one, -1 for an unlabelled node."""
    if y.dim() == 1:
        return y.cpu().numpy()
    given = y.cpu().numpy() > 0
    rarity = np.where(given, given.sum(axis=0), np.iinfo(np.int64).max)
    return np.where(given.any(axis=1), rarity.argmin(axis=1), -1)
