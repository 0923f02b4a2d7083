"""Dropout whose draw is a function of the instance, not of the order in which it is visited.

Whether a weight is kept depends on (seed, root, number of the instance, head) alone. So all
backends see the same draw, a second walk sees the draw of the first, and a root's draw does not
depend on which other roots are computed beside it.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.common.arrays import GOLDEN, keyed

_LOW32 = 0xFFFFFFFF


def keep(seed: int, roots: Tensor, number: Tensor, heads: int, dropout: float) -> Tensor:
    """Return which weights survive, ``[P, heads]`` of bool; each with probability 1 - dropout.

    A 64-bit mix (splitmix64) of seed, root and number makes an instance's key, a 32-bit mix
    (lowbias32) of key and head the draw.
    """
    key = keyed(keyed(seed, roots), number) & _LOW32
    head = torch.arange(heads, device=key.device) * (GOLDEN & _LOW32)
    return _mix32(key[:, None] ^ (head & _LOW32)) >= round(dropout * 2**32)


def node_dropout(x: Tensor, dropout: float, nodes: Tensor | None) -> Tensor:
    """Drop numbers of the rows of some nodes, by torch's generator.

    Args:
        x: Rows, ``[N, ...]``.
        dropout: The probability with which a number is set to 0.
        nodes: The ids of the rows where they are some of a graph's: a draw then depends on the id
            alone, not on which other nodes are there (default: rows are all nodes).
    """
    if nodes is None or dropout == 0:
        return F.dropout(x, dropout)
    seed = int(torch.randint(2**62, ()))
    kept = keep(seed, nodes, torch.zeros_like(nodes), math.prod(x.shape[1:]), dropout).view_as(x)
    return x * kept / (1 - dropout)


def _mix32(x: Tensor) -> Tensor:
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _LOW32
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _LOW32
    return x ^ (x >> 16)
