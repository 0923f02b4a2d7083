"""The walks of the streaming backend as a function of PyTorch, with gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.arrays import GOLDEN
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain
from hanme.ops.derivative import check_first_order
from hanme.ops.problem import PairSigmoid, Problem
from hanme.ops.streaming import kernels
from hanme.ops.streaming.blocks import arrays, in_order
from hanme.ops.streaming.simd import LANES

PARTS = 16
"""How many parts there are at most: what bounds the threads that can help."""
PART_INSTANCES = 1 << 16
"""About how many instances make another part worth its gradients."""
PART_BYTES = 1 << 29
"""About how much the gradients of all parts may take, if there are more than two."""
LONG = 1 << 25
"""Number of instances above which a walk checks for Ctrl-C: it takes about a second."""


class Attend(torch.autograd.Function):
    """Attend to the instances of some roots, eight heads to a block.

    Its arguments, after what to walk:

    - ``tau``, ``values``: τ ``[K / 8, rows, 8]`` and V ``[K / 8, rows, D 8]``, a row for each node
      of each position that is its own owner.
    - ``score``: r, ``[K / 8, N_0, 8]``.
    - ``first``, ``links``: c_0 by root and w by link, where coefficients are products of links.
    - ``query``, ``keys``: those of root and row, where coefficients are sigmoids of pairs.

    The result is z, ``[K / 8, R, D 8]``.
    """

    @staticmethod
    def forward(ctx: Any, walks: Walks, *tensors: Tensor | None) -> Tensor:
        """Return z; keep what the backward pass makes weights of."""
        values = tensors[1]
        assert values is not None
        given, roots = arrays(*tensors), walks.roots.size
        # Beside z, what the backward pass makes an instance's weight of: m and
        # 1 / Σ_p exp(score(p) - m).
        z, reference, weight = (
            values.new_zeros(len(values), roots, size) for size in (values.size(2), LANES, LANES)
        )
        out = arrays(z, reference, weight)

        def walk(block: int, part: slice) -> None:
            for piece in walks.pieces(part):
                kernels.attend(*walks.arguments(given, block, piece), *_pick(out, block, piece))

        for _ in in_order(walk, len(z), walks.parts, walks.stop):
            pass
        ctx.walks = walks
        ctx.save_for_backward(*tensors, z, reference, weight)
        return z

    @staticmethod
    def backward(ctx: Any, d_z: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the tensors."""
        check_first_order("streaming")
        walks: Walks = ctx.walks
        *tensors, z, reference, weight = ctx.saved_tensors
        given, out = arrays(*tensors), arrays(z, reference, weight, d_z)
        gradients = [
            None
            if x is None
            else x.new_zeros(len(x), walks.roots.size if of_root else x.size(1), x.size(2))
            for x, of_root in zip(tensors, _OF_ROOT, strict=True)
        ]
        totals = arrays(*gradients)

        def walk(block: int, part: slice) -> list[NDArray[Any] | None]:
            make = np.asarray if part is walks.parts[0] else np.zeros_like  # the first in place
            own = [
                None if x is None else x[block] if of_root else make(x[block])
                for x, of_root in zip(totals, _OF_ROOT, strict=True)
            ]
            for piece in walks.pieces(part):
                kernels.attend_backward(
                    *walks.arguments(given, block, piece),
                    *_pick(out, block, piece),
                    *(
                        x[piece] if x is not None and of_root else x
                        for x, of_root in zip(own, _OF_ROOT, strict=True)
                    ),
                )
            return own

        for i, (block, own) in enumerate(in_order(walk, len(z), walks.parts, walks.stop)):
            for total, x, of_root in zip(totals, own, _OF_ROOT, strict=True):
                if total is not None and not of_root and i % len(walks.parts):
                    total[block] += x
        roots = torch.from_numpy(walks.roots)
        return None, *(
            torch.zeros_like(x).index_add_(1, roots, gradient)  # a root may be there several times
            if gradient is not None and of_root
            else gradient
            for x, gradient, of_root in zip(tensors, gradients, _OF_ROOT, strict=True)
        )


_OF_ROOT = (False, False, True, True, False, True, False)
"""Which of τ to keys belong to roots: the walks make their gradients by place in ``roots``."""


@dataclass(frozen=True)
class Layers:
    """A chain as one layered graph, in the form that :mod:`kernels` describes."""

    ptr: NDArray[np.int64]
    target: NDArray[np.uint32]
    shift: NDArray[np.int64]
    counts: NDArray[np.float64]  # the number of instances of each root

    @classmethod
    def of(cls, chain: Chain, owner: Sequence[int]) -> Layers:
        """Lay out a chain; ``owner`` is, for each position, the first one with the same values."""
        starts, targets = [x.numpy() for x in chain.indptr], [x.numpy() for x in chain.indices]
        sizes = chain.sizes[:-1]
        rows = [size if owner[position] == position else 0 for position, size in enumerate(sizes)]
        first_row = _starts(rows)[list(owner)]
        first_link = _starts([of_hop.size for of_hop in targets])
        ptr = [of_hop[:-1] + first_link[hop] for hop, of_hop in enumerate(starts)]
        target = [of_hop + first_row[hop + 1] for hop, of_hop in enumerate(targets)]
        return cls(
            np.concatenate([*ptr, first_link[-1:]]),
            np.concatenate(target).astype(np.uint32),
            _starts(sizes) - first_row,
            chain.count().double().numpy(),
        )


_layers: GraphCache[Layers] = GraphCache()


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True)
class Walks:
    """What is walked, forward and backward, and in which parts."""

    layers: Layers
    roots: NDArray[np.int64]
    root_ids: NDArray[np.int64]  # in the whole graph, which key dropout
    parts: list[slice]
    stop: Event | None
    slope: float
    dropout: float
    seed: int

    @classmethod
    def of(cls, problem: Problem, owner: Sequence[int], values: Tensor) -> Walks:
        """Plan the walks of a problem whose V is ``values``, ``[K / 8, rows, D 8]``."""
        chain, roots = problem.chain, problem.roots.long()
        links = [*chain.indptr, *chain.indices]
        layers = _layers.get(links, lambda: Layers.of(chain, owner), tuple(owner))
        places = roots.contiguous().numpy()
        counts = layers.counts[places]
        # What a part needs for gradients of its own: those of τ, V and keys by row, and of links.
        wide = 2 if isinstance(problem.coefficients, PairSigmoid) else 1
        numbers = values.size(1) * (LANES + wide * values.size(2)) + layers.target.size * LANES
        return cls(
            layers,
            places,
            chain.original(roots).contiguous().numpy(),
            _parts(counts, numbers * values.element_size()),
            Event() if counts.sum() > LONG else None,
            problem.negative_slope,
            problem.dropout,
            problem.seed,
        )

    def pieces(self, part: slice) -> Iterator[slice]:
        """Cut a part into runs of roots that are walked one after the other until told to stop."""
        if self.stop is None:
            yield part
            return
        counts = self.layers.counts[self.roots[part]]
        cuts = np.flatnonzero(np.diff(np.cumsum(counts) // LONG)) + 1
        for a, b in pairwise([0, *cuts.tolist(), counts.size]):
            if not self.stop.is_set():
                yield slice(part.start + a, part.start + b)

    def arguments(self, given: list[Any], block: int, piece: slice) -> tuple[Any, ...]:
        """Return what the walks of some roots take first, for one block of eight heads.

        What :func:`hanme.ops.dropout.keep` does with the dropout is here a bound to exceed.
        """
        layers, threshold = self.layers, round(self.dropout * 2**32)
        scale = 1 / (1 - self.dropout) if threshold else 1.0
        head = np.arange(block * LANES, (block + 1) * LANES, dtype=np.uint64) * np.uint64(GOLDEN)
        seed, bound = np.uint64(self.seed % 2**64), np.uint32(max(threshold - 1, 0))
        return (
            layers.ptr, layers.target, layers.shift, self.roots[piece], self.root_ids[piece],
            *_pick(given, block),
            self.slope, threshold > 0, bound, scale, seed, head.astype(np.uint32),
        )  # fmt: skip


def _parts(counts: NDArray[np.float64], size: int) -> list[slice]:
    """Cut roots into runs with about as many instances each; a root is never split."""
    parts = max(2, min(PARTS, counts.sum() // PART_INSTANCES, PART_BYTES // max(1, size)))
    cost = np.cumsum(counts + 1)
    ends = np.searchsorted(cost, cost[-1:] * np.arange(1, parts) / parts) if cost.size else []
    bounds = [0, *ends, cost.size]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


def _pick(given: list[Any], block: int, part: slice = slice(None)) -> list[Any]:
    """Return one block of eight heads of each array, and of it the roots of one part."""
    return [None if x is None else x[block, part] for x in given]
