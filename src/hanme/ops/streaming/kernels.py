"""The compiled walks of :mod:`hanme.ops.streaming`, for eight heads and some roots at a time.

The positions of a chain make one layered graph. A node of it, (position, node), has its links in
``ptr``; what a node contributes, V and τ, is in a *row*, which positions with the same values
share. ``target`` holds the row that a link leads to, and ``row + shift[position]`` is the node.

An instance is met by walking a root's tree depth first, with a state per level: the running score
S, the running product c, and sums over the instances that have passed. A prefix adds to its row
and to the prefix before it once, when it closes; only the last position is touched per instance.

The coefficients c_l(p) come in three kinds, told apart when a kernel is compiled:

- ``links`` given: the product of the link weights w walked so far, c_0 = ``first``;
- ``query`` and ``keys`` given: κ = σ(⟨query, key⟩) of root and row, made once per distinct pair;
- neither: 1 (constants are multiplied into the values beforehand).

Numba's disk cache watches the file that a kernel is in, and the name of the kernel, which contains
a hash of :mod:`~hanme.ops.streaming.simd`.
"""

# The functions are compiled, and typed by Numba for what they are called with.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numba import njit

from hanme.common.arrays import GOLDEN
from hanme.ops.streaming import simd
from hanme.ops.streaming.simd import LANES, exp, load, some, spread, store, where

MARGIN = 40.0
"""How far the highest score may be from the reference, so that sums of exponentials fit."""

RUN = 256
"""How many numbers are summed in a row; sums of runs are summed in turn, to keep float32 good."""

_GOLDEN = np.uint64(GOLDEN)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_ONE = np.uint64(1)

SIMD = crc32(Path(simd.__file__).read_bytes())
"""Hash of the file of lanes, which is compiled into every kernel."""

inlined = njit(forceinline=True, error_model="numpy")


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on the first call; keep the result on disk where there is a place to write to."""
    options = {"nogil": True, "error_model": "numpy"}
    function.__qualname__ += f"_{SIMD:08x}"
    compiled: Callable[..., Any]
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # no directory that can be written
        compiled = njit(**options)(function)
    return compiled


@kernel
def attend(
    ptr, target, shift, roots, root_ids, tau, values, score, first, links, query, keys,
    slope, drop, bound, scale, seed, head, z, reference, weight,
):  # fmt: skip
    """Compute z of each root, and what makes an instance's weight out of its score.

    - ``ptr``, ``target``, ``shift``: the layered graph.
    - ``roots``: the roots to compute; ``root_ids`` are their ids in the whole graph.
    - ``tau``, ``values``: τ and V by row; with ``links``, w by link there and c_0 in ``first``.
    - ``score``: r by root. ``slope``: LeakyReLU's slope below 0.
    - ``drop``: whether there is dropout, with ``bound``, ``scale``, ``seed`` and ``head`` for it.
    - ``z``: where Σ_p α(p) e(p) goes, zero at first.
    - ``reference``, ``weight``: where m and 1 / Σ_p exp(score(p) - m) go, by root and head.
    """
    hops = shift.size - 1
    channels = values.shape[1] // LANES
    lists = _lists(ptr.size, tau.shape[0])
    table = np.empty((tau.shape[0], 2 * LANES), tau.dtype)  # by row: what it adds to a score; C
    kappa = np.empty((1 if query is None else tau.shape[0], LANES), tau.dtype)
    cursor, stop, row_at = _cursors(hops)
    state = np.empty((4, hops, LANES), tau.dtype)
    run = np.empty_like(values[0])

    zero = spread(0.0, load(tau, 0))
    one = spread(1.0, zero)
    slopes = spread(slope, zero)
    margin = spread(MARGIN, zero)
    heads = load(head, 0)
    bounds = spread(bound, heads)
    for i in range(roots.size):
        root = roots[i]
        if ptr[root] == ptr[root + 1]:
            continue
        rows = _reach(ptr, target, shift, root, i + 1, *lists)
        for row in rows:
            term = load(tau, row)
            if query is not None:
                k = _sigmoid(_dot(query, root, keys, row, channels))
                store(kappa, row, k)
                term = k * term
            store(table, 2 * row, term)
            store(table, 2 * row + 1, zero)

        # Position 0 is the same in all instances; the products begin behind it.
        root_row = root - shift[0]
        c_root = one if links is None else load(first, root)
        s_root = load(score, root) + c_root * load(table, 2 * root_row)
        key = _mix64(np.uint64(root_ids[i]) * _GOLDEN + seed)
        m = _leaky(s_root, slopes, zero)
        total, kept, top = _walk(
            ptr, target, shift, root, links, slopes, drop, bounds, heads, key,
            table, s_root, m, cursor, stop, row_at, state,
        )  # fmt: skip
        if some(top > m + margin) or some(m > top + margin):
            for row in rows:
                store(table, 2 * row + 1, zero)
            m = top
            total, kept, top = _walk(
                ptr, target, shift, root, links, slopes, drop, bounds, heads, key,
                table, s_root, m, cursor, stop, row_at, state,
            )  # fmt: skip

        c = load(table, 2 * root_row + 1)
        store(table, 2 * root_row + 1, c + c_root * kept)
        normal = one / total
        store(reference, i, m)
        store(weight, i, normal)
        share = normal * spread(scale, zero)
        for start in range(0, rows.size, RUN):
            run[:] = 0
            for row in rows[start : start + RUN]:
                c = load(table, 2 * row + 1) * share
                if query is not None:
                    c = c * load(kappa, row)
                _add_scaled(run, 0, c, values, row, channels)
            _add_scaled(z, i, one, run, 0, channels)


@njit(error_model="numpy")
def _walk(
    ptr, target, shift, root, links, slopes, drop, bounds, heads, key,
    table, s_root, m, cursor, stop, row_at, state,
):  # fmt: skip
    """Sum exp(score - m) over a root's instances and over those kept; find the highest score.

    Add c times the sum over those kept that pass a row to C of the row, but of position 0.
    """
    s_at, c_at, sum_at, kept_at = state[0], state[1], state[2], state[3]
    zero, one = spread(0.0, m), spread(1.0, m)
    top, number = spread(-np.inf, m), np.uint64(0)
    hops = shift.size - 1
    if hops == 1:
        total, kept, top, number = _last_hop(
            ptr[root], ptr[root + 1], s_root, one, top, number,
            target, links, slopes, drop, bounds, heads, key, table, m,
        )  # fmt: skip
        return total, kept, top
    store(s_at, 0, s_root)
    store(c_at, 0, one)
    store(sum_at, 0, zero)
    store(kept_at, 0, zero)
    cursor[0], stop[0] = ptr[root], ptr[root + 1]
    level = 0
    while True:
        if level == hops - 2:
            # The last two hops without a state in memory: nearly all of the time is spent here.
            s_prefix, c_prefix = load(s_at, level), load(c_at, level)
            total, kept = zero, zero
            begin, cursor[level] = cursor[level], min(cursor[level] + RUN, stop[level])
            for link in range(begin, cursor[level]):
                row = target[link]
                c = one if links is None else c_prefix * load(links, link)
                s = s_prefix + c * load(table, 2 * row)
                node = row + shift[level + 1]
                total_beyond, kept_beyond, top, number = _last_hop(
                    ptr[node], ptr[node + 1], s, c, top, number,
                    target, links, slopes, drop, bounds, heads, key, table, m,
                )  # fmt: skip
                store(table, 2 * row + 1, load(table, 2 * row + 1) + c * kept_beyond)
                total = total + total_beyond
                kept = kept + kept_beyond
            store(sum_at, level, load(sum_at, level) + total)
            store(kept_at, level, load(kept_at, level) + kept)
            if cursor[level] < stop[level]:
                continue
        elif cursor[level] < stop[level]:
            link = cursor[level]
            cursor[level] += 1
            row = target[link]
            c = one if links is None else load(c_at, level) * load(links, link)
            s = load(s_at, level) + c * load(table, 2 * row)
            level += 1
            store(s_at, level, s)
            store(c_at, level, c)
            store(sum_at, level, zero)
            store(kept_at, level, zero)
            node = row + shift[level]
            row_at[level], cursor[level], stop[level] = row, ptr[node], ptr[node + 1]
            continue
        # The prefix closes.
        total, kept = load(sum_at, level), load(kept_at, level)
        if level == 0:
            return total, kept, top
        row = row_at[level]
        store(table, 2 * row + 1, load(table, 2 * row + 1) + load(c_at, level) * kept)
        level -= 1
        store(sum_at, level, load(sum_at, level) + total)
        store(kept_at, level, load(kept_at, level) + kept)


@inlined
def _last_hop(
    begin, end, s_prefix, c_prefix, top, number,
    target, links, slopes, drop, bounds, heads, key, table, m,
):  # fmt: skip
    zero, one = spread(0.0, m), spread(1.0, m)
    total, kept = zero, zero
    for start in range(begin, end, RUN):
        total_run, kept_run = zero, zero
        for link in range(start, min(start + RUN, end)):
            row = target[link]
            c = one if links is None else c_prefix * load(links, link)
            s = _leaky(s_prefix + c * load(table, 2 * row), slopes, zero)
            top = where(s > top, s, top)
            e = exp(s - m)
            total_run = total_run + e
            if drop:
                e = where(_kept(key, number, heads, bounds), e, zero)
                number += _ONE
            kept_run = kept_run + e
            store(table, 2 * row + 1, load(table, 2 * row + 1) + c * e)
        total, kept = total + total_run, kept + kept_run
    return total, kept, top, number


@kernel
def attend_backward(
    ptr, target, shift, roots, root_ids, tau, values, score, first, links, query, keys,
    slope, drop, bound, scale, seed, head, z, reference, weight, d_z,
    d_tau, d_values, d_score, d_first, d_links, d_query, d_keys,
):  # fmt: skip
    """Add to the gradients (``d_``), of root things by place in ``roots``.

    With G = ⟨dz, V⟩ by row, g(p) = Σ_l c_l(p) G[v_l], A = ⟨dz, z⟩ and dropout's factor f(p):

        dscore(p) = α(p) (f(p) g(p) - A) LeakyReLU'(p)
        dτ[v_l] += dscore(p) c_l(p)
        dc_l(p) = dscore(p) τ[v_l] + α(p) f(p) G[v_l]

    so that a prefix needs X = Σ dscore and Y = Σ α f over its instances, and for its last link's
    weight D = dc_l + Σ_{next link} w D_next: dw_l = c_{l-1} D, without a division by a weight.
    """
    hops = shift.size - 1
    channels = values.shape[1] // LANES
    lists = _lists(ptr.size, tau.shape[0])
    # By row: what it adds to a score; G; Σ c X and Σ c Y over what passes it.
    table = np.empty((tau.shape[0], 4 * LANES), tau.dtype)
    kappa = np.empty((1 if query is None else tau.shape[0], LANES), tau.dtype)
    cursor, stop, row_at = _cursors(hops)
    state = np.empty((6, hops, LANES), tau.dtype)
    run = np.empty_like(values[0])

    zero = spread(0.0, load(tau, 0))
    one = spread(1.0, zero)
    slopes = spread(slope, zero)
    scales = spread(scale, zero)
    heads = load(head, 0)
    bounds = spread(bound, heads)
    for i in range(roots.size):
        root = roots[i]
        if ptr[root] == ptr[root + 1]:
            continue
        rows = _reach(ptr, target, shift, root, i + 1, *lists)
        for row in rows:
            t, g = load(tau, row), _dot(d_z, i, values, row, channels)
            if query is not None:
                k = _sigmoid(_dot(query, root, keys, row, channels))
                store(kappa, row, k)
                t, g = k * t, k * g
            store(table, 4 * row, t)
            store(table, 4 * row + 1, g)
            store(table, 4 * row + 2, zero)
            store(table, 4 * row + 3, zero)

        root_row = root - shift[0]
        c_root = one if links is None else load(first, root)
        t, g = load(table, 4 * root_row), load(table, 4 * root_row + 1)
        mean = _dot(d_z, i, z, i, channels)
        key = _mix64(np.uint64(root_ids[i]) * _GOLDEN + seed)
        x, y = _walk_backward(
            ptr, target, shift, root, links, slopes, drop, bounds, scales, heads, key,
            table, load(score, root) + c_root * t, c_root * g, load(reference, i),
            load(weight, i), mean, d_links, cursor, stop, row_at, state,
        )  # fmt: skip
        _add_to_row(table, root_row, c_root * x, c_root * y)
        store(d_score, i, x)
        if links is not None:
            store(d_first, i, x * t + y * g)
        for start in range(0, rows.size, RUN):
            run[:] = 0
            for row in rows[start : start + RUN]:
                x, y = load(table, 4 * row + 2), load(table, 4 * row + 3)
                if query is not None:
                    # dκ = τ X + G Y, of which x t + y g is κ times; σ' = κ (1 - κ).
                    k = load(kappa, row)
                    d = (x * load(table, 4 * row) + y * load(table, 4 * row + 1)) * (one - k)
                    _add_scaled(run, 0, d, keys, row, channels)
                    _add_scaled(d_keys, row, d, query, root, channels)
                    x, y = k * x, k * y
                store(d_tau, row, load(d_tau, row) + x)
                _add_scaled(d_values, row, y, d_z, i, channels)
            if query is not None:
                _add_scaled(d_query, i, one, run, 0, channels)


@njit(error_model="numpy")
def _walk_backward(
    ptr, target, shift, root, links, slopes, drop, bounds, scales, heads, key,
    table, s_root, g_root, m, normal, mean, d_links, cursor, stop, row_at, state,
):  # fmt: skip
    """Sum X and Y of a root's instances; add to the rows but that of position 0."""
    s_at, g_at, c_at, x_at, y_at, d_at = (
        state[0], state[1], state[2], state[3], state[4], state[5],
    )  # fmt: skip
    zero, one = spread(0.0, m), spread(1.0, m)
    number = np.uint64(0)
    hops = shift.size - 1
    if hops == 1:
        x, y, _, number = _last_hop_backward(
            ptr[root], ptr[root + 1], s_root, g_root, one, number, target, links, slopes,
            drop, bounds, scales, heads, key, table, m, normal, mean, d_links,
        )  # fmt: skip
        return x, y
    store(s_at, 0, s_root)
    store(g_at, 0, g_root)
    store(c_at, 0, one)
    store(x_at, 0, zero)
    store(y_at, 0, zero)
    store(d_at, 0, zero)
    cursor[0], stop[0] = ptr[root], ptr[root + 1]
    level = 0
    while True:
        if level == hops - 2:
            s_prefix, g_prefix, c_prefix = load(s_at, level), load(g_at, level), load(c_at, level)
            x_sum, y_sum, d_sum = zero, zero, zero
            begin, cursor[level] = cursor[level], min(cursor[level] + RUN, stop[level])
            for link in range(begin, cursor[level]):
                row = target[link]
                t, g = load(table, 4 * row), load(table, 4 * row + 1)
                w = one if links is None else load(links, link)
                c = c_prefix * w
                node = row + shift[level + 1]
                x, y, d, number = _last_hop_backward(
                    ptr[node], ptr[node + 1], s_prefix + c * t, g_prefix + c * g, c, number,
                    target, links, slopes, drop, bounds, scales, heads, key, table,
                    m, normal, mean, d_links,
                )  # fmt: skip
                _add_to_row(table, row, c * x, c * y)
                x_sum = x_sum + x
                y_sum = y_sum + y
                if links is not None:
                    d = d + x * t + y * g
                    store(d_links, link, load(d_links, link) + c_prefix * d)
                    d_sum = d_sum + w * d
            store(x_at, level, load(x_at, level) + x_sum)
            store(y_at, level, load(y_at, level) + y_sum)
            store(d_at, level, load(d_at, level) + d_sum)
            if cursor[level] < stop[level]:
                continue
        elif cursor[level] < stop[level]:
            link = cursor[level]
            cursor[level] += 1
            row = target[link]
            c = one if links is None else load(c_at, level) * load(links, link)
            s = load(s_at, level) + c * load(table, 4 * row)
            g = load(g_at, level) + c * load(table, 4 * row + 1)
            level += 1
            store(s_at, level, s)
            store(g_at, level, g)
            store(c_at, level, c)
            store(x_at, level, zero)
            store(y_at, level, zero)
            store(d_at, level, zero)
            node = row + shift[level]
            row_at[level], cursor[level], stop[level] = row, ptr[node], ptr[node + 1]
            continue
        # The prefix closes.
        x, y = load(x_at, level), load(y_at, level)
        if level == 0:
            return x, y
        row, c = row_at[level], load(c_at, level)
        _add_to_row(table, row, c * x, c * y)
        d = load(d_at, level) + x * load(table, 4 * row) + y * load(table, 4 * row + 1)
        level -= 1
        store(x_at, level, load(x_at, level) + x)
        store(y_at, level, load(y_at, level) + y)
        if links is not None:
            link = cursor[level] - 1
            store(d_links, link, load(d_links, link) + load(c_at, level) * d)
            store(d_at, level, load(d_at, level) + load(links, link) * d)


@inlined
def _last_hop_backward(
    begin, end, s_prefix, g_prefix, c_prefix, number, target, links, slopes,
    drop, bounds, scales, heads, key, table, m, normal, mean, d_links,
):  # fmt: skip
    zero, one = spread(0.0, m), spread(1.0, m)
    x_sum, y_sum, d_sum = zero, zero, zero
    for start in range(begin, end, RUN):
        x_run, y_run, d_run = zero, zero, zero
        for link in range(start, min(start + RUN, end)):
            row = target[link]
            t, g = load(table, 4 * row), load(table, 4 * row + 1)
            w = one if links is None else load(links, link)
            c = c_prefix * w
            s = s_prefix + c * t
            alpha = exp(_leaky(s, slopes, zero) - m) * normal
            y = alpha
            if drop:
                y = where(_kept(key, number, heads, bounds), alpha * scales, zero)
                number += _ONE
            x = y * (g_prefix + c * g) - alpha * mean
            x = where(s > zero, x, x * slopes)
            x_run, y_run = x_run + x, y_run + y
            _add_to_row(table, row, c * x, c * y)
            if links is not None:
                d = x * t + y * g
                store(d_links, link, load(d_links, link) + c_prefix * d)
                d_run = d_run + w * d
        x_sum, y_sum, d_sum = x_sum + x_run, y_sum + y_run, d_sum + d_run
    return x_sum, y_sum, d_sum, number


@inlined
def _add_to_row(table, row, x, y):
    store(table, 4 * row + 2, load(table, 4 * row + 2) + x)
    store(table, 4 * row + 3, load(table, 4 * row + 3) + y)


@njit
def _cursors(hops):
    """Make, per level, the next link, the end of the links, and the row of the last node."""
    return np.empty(hops, np.int64), np.empty(hops, np.int64), np.empty(hops, np.int64)


@njit
def _lists(nodes, rows):
    """Make, for :func:`_reach`, when a node and a row were last seen, and lists of them."""
    return (
        np.zeros(nodes, np.int32),
        np.zeros(rows, np.int32),
        np.empty(nodes, np.int64),
        np.empty(rows, np.int64),
    )


@njit
def _reach(ptr, target, shift, root, time, node_seen, row_seen, queue, rows):
    """List the distinct rows that a root's instances pass: breadth first, each link once."""
    hops = shift.size - 1
    queue[0], begin, end = root, 0, 1
    rows[0], found = root - shift[0], 1
    row_seen[rows[0]] = time
    for position in range(1, hops + 1):
        level_end = end
        for place in range(begin, level_end):
            before = queue[place]
            for link in range(ptr[before], ptr[before + 1]):
                row = target[link]
                if row_seen[row] != time:
                    row_seen[row] = time
                    rows[found] = row
                    found += 1
                node = row + shift[position]
                if position < hops and node_seen[node] != time:
                    node_seen[node] = time
                    queue[end] = node
                    end += 1
        begin = level_end
    return rows[:found]


@inlined
def _dot(x, i, y, j, channels):
    """Return ⟨x[i], y[j]⟩ of each head."""
    total = load(x, channels * i) * load(y, channels * j)
    for d in range(1, channels):
        total = total + load(x, channels * i + d) * load(y, channels * j + d)
    return total


@inlined
def _add_scaled(out, i, c, x, j, channels):
    """Add c x[j] to out[i], with one c per head."""
    for d in range(channels):
        store(out, channels * i + d, load(out, channels * i + d) + c * load(x, channels * j + d))


@inlined
def _leaky(s, slopes, zero):
    return where(s > zero, s, s * slopes)


@inlined
def _sigmoid(x):
    # The exponential of a number below 0 only, so that nothing overflows.
    zero, one = spread(0.0, x), spread(1.0, x)
    e = exp(where(x > zero, zero - x, x))
    return where(x > zero, one, e) / (one + e)


@inlined
def _kept(key, number, heads, bounds):
    """Compute :func:`hanme.ops.dropout.keep` for the heads of one instance."""
    x = spread(_mix64(key + number * _GOLDEN), heads) ^ heads
    x = (x ^ (x >> spread(16, x))) * spread(0x7FEB352D, x)
    x = (x ^ (x >> spread(15, x))) * spread(0x846CA68B, x)
    return x ^ (x >> spread(16, x)) > bounds


@inlined
def _mix64(x):
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
