"""The scalars c_l(p) of an encoding e(p) = Σ_l c_l(p) V_l[v_l], one per head and position.

Three forms cover all encoders: constants, products of link weights along the prefix, and
a function of the pair (root, node).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True)
class Constant:
    """c_l(p) is the same for all instances: ``c`` holds one number per position."""

    c: tuple[float, ...]


@dataclass(frozen=True)
class LinkProduct:
    r"""c_0 depends on the root alone, and :math:`c_l = \prod_{j \le l} w_j` on the links walked.

    Args:
        root: c_0, ``[N_0, K]``.
        links: w_j for each hop j in the chain's link order, each ``[E_j, K]``.
    """

    root: Tensor
    links: tuple[Tensor, ...]


@dataclass(frozen=True)
class PairSigmoid:
    r"""c_l(p) = σ(⟨query[v_0], key_l[v_l]⟩).

    Args:
        query: ``[N_0, K, D]``.
        keys: For each position l, ``[N_l, K, D]``.
    """

    query: Tensor
    keys: tuple[Tensor, ...]

    def of(self, position: int, roots: Tensor, nodes: Tensor) -> Tensor:
        """Return the coefficients of some (root, node) pairs, ``[Q, K]``."""
        query, keys = self.query.index_select(0, roots), self.keys[position].index_select(0, nodes)
        return torch.sigmoid((query * keys).sum(-1))


Coefficients: TypeAlias = Constant | LinkProduct | PairSigmoid
