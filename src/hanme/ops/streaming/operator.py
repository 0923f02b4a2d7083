"""``hanme::attend``, the operator that the streaming backend gives to PyTorch.

It takes a chain's own arrays, so that ``torch.compile`` sees tensors and numbers alone, and keeps
the form that compiled code walks as long as these arrays live.
"""

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


def attend_in_blocks(
    indptr: Sequence[Tensor],
    indices: Sequence[Tensor],
    owner: Sequence[int],
    roots: Tensor,
    root_ids: Tensor,
    tau: Tensor,
    values: Tensor,
    score: Tensor,
    first: Tensor | None,
    links: Tensor | None,
    query: Tensor | None,
    keys: Tensor | None,
    slope: float,
    dropout: float,
    seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend to the instances of some roots, eight heads to a block.

    - ``indptr``, ``indices``: the chain's relations.
    - ``owner``: for each position, the first one with the same values.
    - ``roots``: the roots, ``[R]``; ``root_ids``: their ids in the whole graph, which key dropout.
    - ``tau``, ``values``: τ ``[K / 8, rows, 8]`` and V ``[K / 8, rows, D 8]``, a row for each node
      of each position that is its own owner.
    - ``score``: r, ``[K / 8, N_0, 8]``.
    - ``first``, ``links``: c_0 by root and w by link, where coefficients are products of links.
    - ``query``, ``keys``: those of root and row, where coefficients are sigmoids of pairs.
    - ``slope``: LeakyReLU's slope below 0.
    - ``dropout``: the probability with which an instance's weight is set to 0.
    - ``seed``: what fixes the draw, a whole number.

    Returns:
        z, ``[K / 8, R, D 8]``, and what the backward pass makes an instance's weight of: m and
        1 / Σ_p exp(score(p) - m), each ``[K / 8, R, 8]``.
    """
    tensors = (tau, values, score, first, links, query, keys)
    work = _Work.of(indptr, indices, owner, roots, root_ids, *tensors, slope, dropout, seed)
    z, reference, weight = (x.zero_() for x in _blank(roots, values))
    out = arrays(z, reference, weight)

    def walk(block: int, part: slice) -> None:
        for piece in work.pieces(part):
            kernels.attend(*work.arguments(block, piece), *_pick(out, block, piece))

    for _ in in_order(walk, len(z), work.parts, work.stop):
        pass
    return z, reference, weight


attend = torch.library.custom_op("hanme::attend", attend_in_blocks, mutates_args=())
_GIVEN = torch.library.infer_schema(attend_in_blocks, mutates_args=()).split(" -> ")[0].strip("()")


@torch.library.custom_op(
    "hanme::attend_backward",
    mutates_args=(),
    schema=f"({_GIVEN}, Tensor z, Tensor reference, Tensor weight, Tensor d_z) -> Tensor[]",
)
def attend_backward(*arguments: Any) -> list[Tensor]:
    """Return the gradients of :func:`attend` for those of ``tau`` to ``keys`` that are given.

    Its arguments are those of :func:`attend`, what that returned, and the gradient of z.
    """
    *before, z, reference, weight, d_z = arguments
    work, tensors, roots = _Work.of(*before), before[_FLOATS], before[3]
    out = arrays(z, reference, weight, d_z)
    gradients = [
        None
        if x is None
        else x.new_zeros(len(x), roots.numel() if of_root else x.size(1), x.size(2))
        for x, of_root in zip(tensors, _OF_ROOT, strict=True)
    ]
    totals = arrays(*gradients)

    def walk(block: int, part: slice) -> list[NDArray[Any] | None]:
        make = np.asarray if part is work.parts[0] else np.zeros_like  # the first adds in place
        own = [
            None if x is None else x[block] if of_root else make(x[block])
            for x, of_root in zip(totals, _OF_ROOT, strict=True)
        ]
        for piece in work.pieces(part):
            kernels.attend_backward(
                *work.arguments(block, piece),
                *_pick(out, block, piece),
                *(
                    x[piece] if x is not None and of_root else x
                    for x, of_root in zip(own, _OF_ROOT, strict=True)
                ),
            )
        return own

    for i, (block, own) in enumerate(in_order(walk, len(z), work.parts, work.stop)):
        for total, x, of_root in zip(totals, own, _OF_ROOT, strict=True):
            if total is not None and not of_root and i % len(work.parts):
                total[block] += x
    return [
        torch.zeros_like(x).index_add_(1, roots, gradient) if of_root else gradient
        for x, gradient, of_root in zip(tensors, gradients, _OF_ROOT, strict=True)
        if x is not None and gradient is not None  # a batch may contain a root more than once
    ]


_FLOATS = slice(5, 12)
"""Which arguments are τ to keys, that want gradients."""
_OF_ROOT = (False, False, True, True, False, True, False)
"""Which of them belong to roots: the walks make their gradients by place in ``roots``."""


def _blank(roots: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors of the shapes that :func:`attend` returns."""
    blocks, _, width = values.shape
    shapes = ((blocks, roots.numel(), size) for size in (width, LANES, LANES))
    z, reference, weight = (values.new_empty(shape) for shape in shapes)
    return z, reference, weight


attend.register_fake(lambda *given: _blank(given[3], given[6]))
attend_backward.register_fake(
    lambda *given: [torch.empty_like(x) for x in given[_FLOATS] if x is not None]
)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    indptr, indices, ctx.owner, *tensors, ctx.slope, ctx.dropout, seed = inputs
    ctx.hops = len(indptr)
    ctx.save_for_backward(*indptr, *indices, *tensors, seed, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, d_z: Tensor | None, *_: None) -> tuple[Any, ...]:
    saved, hops = ctx.saved_tensors, ctx.hops
    indptr, indices, rest = saved[:hops], saved[hops : 2 * hops], saved[2 * hops :]
    *tensors, seed, z, reference, weight = rest
    found = iter(
        [] if d_z is None else
        attend_backward(
            list(indptr), list(indices), ctx.owner, *tensors, ctx.slope, ctx.dropout, seed,
            z, reference, weight, d_z,
        )
    )  # fmt: skip
    gradients = (None if x is None else next(found, None) for x in tensors[2:])
    nothing = [None] * hops
    return nothing, nothing, None, None, None, *gradients, None, None, None


attend.register_autograd(_backward, setup_context=_remember)


@dataclass(frozen=True)
class _Layers:
    """A chain as one layered graph, in the form that :mod:`kernels` describes."""

    ptr: NDArray[np.int64]
    target: NDArray[np.uint32]
    shift: NDArray[np.int64]
    counts: NDArray[np.float64]  # the number of instances of each root

    @classmethod
    def of(
        cls, indptr: Sequence[Tensor], indices: Sequence[Tensor], owner: Sequence[int]
    ) -> _Layers:
        """Make it from a chain's arrays."""
        starts, targets = [x.numpy() for x in indptr], [x.numpy() for x in indices]
        sizes = [of_hop.size - 1 for of_hop in starts]  # of all positions but the last
        rows = [size if owner[position] == position else 0 for position, size in enumerate(sizes)]
        first_row = _starts(rows)[list(owner)]
        first_link = _starts([of_hop.size for of_hop in targets])
        ptr = [of_hop[:-1] + first_link[hop] for hop, of_hop in enumerate(starts)]
        target = [of_hop + first_row[hop + 1] for hop, of_hop in enumerate(targets)]
        counts = np.ones(targets[-1].max(initial=0) + 1)  # of the ways to walk on, by node
        for of_hop, begin in zip(reversed(targets), reversed(starts), strict=True):
            counts = np.diff(_starts(counts[of_hop])[begin])
        return cls(
            np.concatenate([*ptr, first_link[-1:]]),
            np.concatenate(target).astype(np.uint32),
            _starts(sizes) - first_row,
            counts,
        )


_layers: GraphCache[_Layers] = GraphCache()


def _starts(sizes: Sequence[int] | NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True)
class _Work:
    """What the walks need, forward and backward; ``given`` are the arrays of τ to keys."""

    layers: _Layers
    given: list[Any]
    roots: NDArray[np.int64]
    root_ids: NDArray[np.int64]
    parts: list[slice]
    stop: Event | None
    slope: float
    dropout: float
    seed: int

    @classmethod
    def of(cls, *given: Any) -> _Work:
        """Return it for the arguments of :func:`attend`."""
        indptr, indices, owner, roots, root_ids, _, values, *_, keys, slope, dropout, seed = given
        chain = [*indptr, *indices]
        layers = _layers.get(chain, lambda: _Layers.of(indptr, indices, owner), tuple(owner))
        places, ids = roots.contiguous().numpy(), root_ids.contiguous().numpy()
        # What a part needs for gradients of its own: those of τ, V and keys by row, and of links.
        width = LANES + values.size(2) * (1 if keys is None else 2)
        numbers = values.size(1) * width + layers.target.size * LANES
        counts = layers.counts[places]
        parts = _parts(counts, numbers * values.element_size())
        stop = Event() if counts.sum() > LONG else None
        return cls(
            layers, arrays(*given[_FLOATS]), places, ids, parts, stop, slope, dropout, int(seed)
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

    def arguments(self, block: int, piece: slice) -> tuple[Any, ...]:
        """Return what the walks of some roots take first, for one block of eight heads.

        What :func:`hanme.ops.dropout.keep` does with the dropout is here a bound to exceed.
        """
        layers, threshold = self.layers, round(self.dropout * 2**32)
        scale = 1 / (1 - self.dropout) if threshold else 1.0
        head = np.arange(block * LANES, (block + 1) * LANES, dtype=np.uint64) * np.uint64(GOLDEN)
        seed, bound = np.uint64(self.seed % 2**64), np.uint32(max(threshold - 1, 0))
        return (
            layers.ptr, layers.target, layers.shift, self.roots[piece], self.root_ids[piece],
            *_pick(self.given, block),
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
