"""Softmax and sums over the rows that share a group."""

import torch
from torch import Tensor


def segment_sum(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums the rows of ``x`` by group, ``[groups, ...]``."""
    return x.new_zeros(groups, *x.shape[1:]).index_add(0, group, x)


def segment_softmax(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Softmax over the rows of each group, column by column."""
    index = group[:, None].expand_as(x)
    top = x.new_full((groups, x.size(1)), -torch.inf)
    top = top.scatter_reduce(0, index, x.detach(), "amax")
    weight = torch.exp(x - top.index_select(0, group))
    return weight / segment_sum(weight, group, groups).index_select(0, group)
