"""Scores of nodes, per head: a · h, and v · tanh(W h).

PyTorch would write down all that is in between, which takes far longer than to compute it; on the
CPU, with a multiple of eight heads, compiled code keeps it in registers.
"""

# The compiled functions are typed by Numba for what they are called with.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.ops.derivative import plain_gradients
from hanme.ops.problem import widen
from hanme.ops.streaming.blocks import arrays, in_order, to_blocks
from hanme.ops.streaming.kernels import RUN, inlined, kernel
from hanme.ops.streaming.simd import LANES, exp, load, spread, store, where

PARTS = 8
"""Into how many parts nodes are dealt out, whatever the number of threads."""


def head_dots(h: Tensor, a: Tensor) -> Tensor:
    """Return ⟨a_k, h[n, k]⟩, ``[N, K]``, for h ``[N, K, D]`` and a ``[K, D]``."""
    h, a = widen(h), widen(a)
    if not _compiled(h):
        return (h * a).sum(-1)
    return _from_blocks(block_dots(to_blocks(h), to_blocks(a[None])))


def tanh_scores(h: Tensor, weight: Tensor, v: Tensor) -> Tensor:
    """Return v_gk · tanh(h[n, k] W_gk), ``[G, N, K]``, for several g at once.

    h is ``[N, K, D]``, the weight W ``[G, K, D, E]``, v ``[G, K, E]``.
    """
    h, weight, v = widen(h), widen(weight), widen(v)
    if not _compiled(h):
        return (torch.tanh(torch.einsum("nkd,gkde->gnke", h, weight)) * v[:, None]).sum(-1)
    groups, heads = v.shape[:2]
    rows = (weight.permute(0, 3, 2, 1), v.transpose(1, 2))  # by (g, e, d) and by (g, e), K each
    weights, vs = (to_blocks(x.reshape(-1, heads)) for x in rows)
    s: Tensor = _Scores.apply(to_blocks(h), weights, vs, groups)  # type: ignore[no-untyped-call]
    return torch.stack([_from_blocks(x) for x in torch.split(s, LANES, dim=2)])


def _compiled(h: Tensor) -> bool:
    plain = h.device.type == "cpu" and h.dtype in (torch.float32, torch.float64)
    return plain and h.size(1) % LANES == 0 and not torch.compiler.is_compiling()


def _from_blocks(x: Tensor) -> Tensor:
    """Return ``[N, K]`` for ``[K / 8, N, 8]``."""
    return x.transpose(0, 1).flatten(1)


def block_dots(x: Tensor, a: Tensor) -> Tensor:
    """Return :func:`head_dots`, ``[B, N, 8]``, for x ``[B, N, D 8]`` and a ``[B, 1, D 8]``."""
    dots: Tensor = _Dots.apply(x, a)  # type: ignore[no-untyped-call]
    return dots


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor) -> Tensor:
        ctx.save_for_backward(x, a)
        dots = x.new_empty(*x.shape[:2], LANES)
        for given in zip(*arrays(x, a, dots), strict=True):
            _dots(*given)
        return dots

    @staticmethod
    def backward(ctx: Any, d_dots: Tensor) -> tuple[Tensor | None, ...]:
        x, a = ctx.saved_tensors
        if torch.is_grad_enabled():
            return plain_gradients(_plain_dots, (x, a), d_dots)
        d_x, d_a = x.new_empty(x.shape), a.new_zeros(a.shape)
        for given in zip(*arrays(x, a, d_dots, d_x, d_a), strict=True):
            _dots_backward(*given)
        return d_x, d_a


class _Scores(torch.autograd.Function):
    """Compute :func:`tanh_scores` in blocks of eight heads, ``[K / 8, N, G 8]``."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, v: Tensor, groups: int) -> Tensor:
        ctx.save_for_backward(h, weight, v)
        s = h.new_empty(*h.shape[:2], groups * LANES)
        xs, weights, vs, out = arrays(h, weight, v, s)

        def score(block: int, part: slice) -> None:
            _score(xs[block, part], weights[block], vs[block], out[block, part])

        for _ in in_order(score, len(h), _parts(h.size(1))):
            pass
        return s

    @staticmethod
    def backward(ctx: Any, d_s: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, v = ctx.saved_tensors
        if torch.is_grad_enabled():
            plain = partial(_plain_scores, groups=d_s.size(2) // LANES)
            return *plain_gradients(plain, (h, weight, v), d_s), None
        d_h, d_weight, d_v = (x.new_zeros(x.shape) for x in (h, weight, v))
        xs, weights, vs, d_out, d_xs, *totals = arrays(h, weight, v, d_s, d_h, d_weight, d_v)

        def score(block: int, part: slice) -> list[NDArray[Any]]:
            own = [np.zeros_like(x[block]) for x in totals]
            given = xs[block, part], weights[block], vs[block], d_out[block, part]
            _score_backward(*given, d_xs[block, part], *own)
            return own

        for block, own in in_order(score, len(h), _parts(h.size(1))):
            for total, x in zip(totals, own, strict=True):
                total[block] += x
        return d_h, d_weight, d_v, None


def _plain_dots(x: Tensor, a: Tensor) -> Tensor:
    return torch.unflatten(x * a, 2, (-1, LANES)).sum(2)


def _plain_scores(h: Tensor, weight: Tensor, v: Tensor, groups: int) -> Tensor:
    """Return what :class:`_Scores` does for W ``[B, G E D, 8]`` and v ``[B, G E, 8]``."""
    h = torch.unflatten(h, 2, (-1, LANES))
    weight = torch.unflatten(weight, 1, (v.size(1), h.size(2)))
    terms = torch.tanh(torch.einsum("bndl,bedl->bnel", h, weight)) * v[:, None]
    return torch.unflatten(terms, 2, (groups, -1)).sum(3).flatten(2)


def _parts(nodes: int) -> list[slice]:
    bounds = [nodes * part // PARTS for part in range(PARTS + 1)]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


@kernel
def _dots(x, a, dots):
    channels = a.size // LANES
    for n in range(len(x)):
        store(dots, n, _dot(x, channels * n, 1, a, 0, 1, channels))


@kernel
def _dots_backward(x, a, d_dots, d_x, d_a):
    channels = a.size // LANES
    run = np.zeros_like(a)
    for n in range(len(x)):
        d = load(d_dots, n)
        for c in range(channels):
            store(d_x, channels * n + c, d * load(a, c))
            store(run, c, load(run, c) + d * load(x, channels * n + c))
        if n % RUN == RUN - 1 or n == len(x) - 1:  # sums of runs, to keep float32 good
            d_a += run
            run[:] = 0


@kernel
def _score(h, weight, v, s):
    channels = h.shape[1] // LANES
    groups = s.shape[1] // LANES
    size = v.size // LANES // groups
    zero = spread(0.0, load(v, 0))
    for n in range(len(h)):
        for g in range(groups):
            total = zero
            for e in range(g * size, (g + 1) * size):
                total = total + load(v, e) * _tanh(
                    _dot(h, channels * n, 1, weight, channels * e, 1, channels)
                )
            store(s, groups * n + g, total)


@kernel
def _score_backward(h, weight, v, d_s, d_h, d_weight, d_v):
    """Write the gradient of h; add to those of W and v, in runs, to keep float32 good."""
    channels = h.shape[1] // LANES
    groups = d_s.shape[1] // LANES
    size = v.size // LANES // groups
    rows = groups * size
    one = spread(1.0, load(v, 0))
    run_weight, run_v, d_a = np.zeros_like(weight), np.zeros_like(v), np.empty_like(v)
    for n in range(len(h)):
        for e in range(rows):
            d = load(d_s, groups * n + e // size)
            u = _tanh(_dot(h, channels * n, 1, weight, channels * e, 1, channels))
            store(run_v, e, load(run_v, e) + d * u)
            store(d_a, e, d * load(v, e) * (one - u * u))
        for c in range(channels):
            store(d_h, channels * n + c, _dot(d_a, 0, 1, weight, c, channels, rows))
        for e in range(rows):
            d = load(d_a, e)
            for c in range(channels):
                w = channels * e + c
                store(run_weight, w, load(run_weight, w) + d * load(h, channels * n + c))
        if n % RUN == RUN - 1 or n == len(h) - 1:
            d_weight += run_weight
            d_v += run_v
            run_weight[:], run_v[:] = 0, 0


@inlined
def _dot(x, i, x_step, y, j, y_step, size):
    """Σ x[i + x_step m] y[j + y_step m], in four sums that do not wait for each other."""
    zero = spread(0.0, load(x, 0))
    a, b, c, d = zero, zero, zero, zero
    whole = size - size % 4
    for m in range(0, whole, 4):
        a = a + load(x, i + x_step * m) * load(y, j + y_step * m)
        b = b + load(x, i + x_step * (m + 1)) * load(y, j + y_step * (m + 1))
        c = c + load(x, i + x_step * (m + 2)) * load(y, j + y_step * (m + 2))
        d = d + load(x, i + x_step * (m + 3)) * load(y, j + y_step * (m + 3))
    for m in range(whole, size):
        a = a + load(x, i + x_step * m) * load(y, j + y_step * m)
    return (a + b) + (c + d)


@inlined
def _tanh(x):
    # The exponential of a number below 0 only, so that nothing overflows.
    zero, one = spread(0.0, x), spread(1.0, x)
    e = exp(where(x > zero, zero - x - x, x + x))
    t = (one - e) / (one + e)
    return where(x > zero, t, zero - t)
