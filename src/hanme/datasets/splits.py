"""Which labelled nodes to train on and which to validate on."""

from __future__ import annotations

import math

import numpy as np
import torch
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
