"""Sums and softmax over groups of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def group_sum(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Add up the rows of each group, ``[P, ...]`` to ``[G, ...]``."""
    return x.new_zeros(groups, *x.shape[1:]).index_add(0, group, x)


def group_softmax(score: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the softmax over the rows of each group, ``[P, K]``."""
    index = group[:, None].expand_as(score)
    top = score.new_full((groups, score.size(1)), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - top.index_select(0, group)).exp()
    return weight / group_sum(weight, group, groups).index_select(0, group)
