"""Which labelled nodes to train on and which to validate on."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.errors import HanmeError


def split(labelled: Tensor, *, val_share: float = 0.2, seed: int) -> tuple[Tensor, Tensor]:
    r"""Draws validation nodes out of the labelled ones; the others are for training.

    The draw has a generator of its own: it depends on nothing but the arguments and disturbs no
    other draw. It is the one of the paper's code, whose seed is 42: of a permutation of the
    labelled nodes, the last ones.

    Args:
        labelled: The labelled nodes outside the test set, a bool mask of shape ``[num_nodes]``.
        val_share: The share of them to validate on, rounded up to whole nodes.
        seed: The seed of the draw.

    Returns:
        The training mask and the validation mask, disjoint, together `labelled`.
    """
    if not 0 <= val_share < 1:
        raise HanmeError(f"Expected `val_share` to be at least 0 and below 1, but got {val_share}")
    nodes = labelled.nonzero().view(-1)
    # 0.07 * 100 is 7.000000000000001 in floating point, and still seven nodes.
    size = math.ceil(round(val_share * len(nodes), 6))
    key = seed if seed < 2**32 else [seed % 2**32, seed >> 32]  # what NumPy takes
    order = np.random.RandomState(key).permutation(len(nodes))
    val = torch.zeros_like(labelled)
    val[nodes[torch.from_numpy(order[len(nodes) - size :]).to(nodes.device)]] = True
    return labelled & ~val, val


def stratified_split(
    stratum: NDArray[np.integer], *, val_share: float, test_share: float, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Deals labelled nodes out for training, validation and test, so that each has its share of
    every stratum.

    The first node of a stratum is for training, hence a label seen once is. The others come in
    evenly mixed, stratum by stratum, in an order drawn by seed.

    Args:
        stratum: What a node counts as, -1 for an unlabelled one.
        val_share: The share of the labelled nodes to validate on; at least one node.
        test_share: The share to test on; at least one node if it is not 0.
        seed: The seed of the draw.

    Returns:
        Three disjoint masks, together the labelled nodes.
    """
    masks = [torch.zeros(len(stratum), dtype=torch.bool) for _ in range(3)]
    nodes = np.flatnonzero(stratum >= 0)
    nodes = np.random.default_rng(seed).permutation(nodes)
    nodes = nodes[np.argsort(stratum[nodes], kind="stable")]
    first = np.flatnonzero(np.diff(stratum[nodes], prepend=-1))
    masks[0][nodes[first]] = True
    rest = np.delete(nodes, first)

    wanted = [
        max(1, round(share * len(nodes))) if share else 0 for share in (val_share, test_share)
    ]
    val = min(wanted[0], len(rest))
    test = min(wanted[1], len(rest) - val)
    counts = [len(rest) - val - test, val, test]
    # Each part's nodes at equal distances along the line, the parts shuffled into each other.
    position = np.concatenate([(np.arange(n) + 0.5) / max(1, n) for n in counts])
    part = np.repeat(np.arange(3), counts)[np.argsort(position, kind="stable")]
    for i, mask in enumerate(masks):
        mask[rest[part == i]] = True
    return masks[0], masks[1], masks[2]
