"""The operator without a list of instances: Numba walks each root's tree of them, on the CPU.

Memory is that of the graph, whatever the number of instances: the backward pass walks again
instead of remembering. Roots are dealt out in parts that depend on the problem alone, each with
gradients of its own, added up in a fixed order: any number of threads gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from hanme.chain import Chain
from hanme.errors import HanmeError
from hanme.ops import kernels
from hanme.ops.blocks import in_order, to_blocks
from hanme.ops.coefficients import Constant, LinkProduct, PairSigmoid
from hanme.ops.dropout import GOLDEN
from hanme.ops.lanes import LANES
from hanme.ops.problem import Problem
from hanme.ops.scores import block_dots

PARTS = 16
"""How many parts there are at most: what bounds the threads that can help."""
PART_INSTANCES = 1 << 16
"""About how many instances make another part worth its gradients."""
PART_BYTES = 1 << 29
"""About how much the gradients of all parts may take, if there are more than two."""


def forward(problem: Problem) -> Tensor:
    """z for the problem's roots, ``[R, K, D]``."""
    _check(problem)
    owner = _owners(problem)
    own = [position for position in range(len(owner)) if owner[position] == position]
    values = _cat([_value(problem, position) for position in own])
    first: Tensor | None = None
    links: Tensor | None = None
    query: Tensor | None = None
    keys: Tensor | None = None
    match problem.coefficients:
        case LinkProduct(root, weights):
            first, links = to_blocks(root), _cat(weights)
        case PairSigmoid(asking, asked):
            query, keys = to_blocks(asking), _cat([asked[position] for position in own])
    work = _Work(
        _layers(problem.chain, owner),
        problem.roots.long().contiguous().numpy(),
        _parts(problem, values.size(1), keys is not None),
        problem.negative_slope,
        problem.dropout,
        problem.seed,
    )
    tau = block_dots(values, to_blocks(problem.attention[None]))  # τ = a · V
    score = to_blocks(problem.root_score)
    z: Tensor = _Attend.apply(work, tau, values, score, first, links, query, keys)
    z = z.unflatten(2, (problem.channels, LANES)).permute(1, 0, 3, 2).flatten(1, 2)
    return z[:, : problem.heads]


def _cat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([to_blocks(x) for x in tensors], dim=1)


def _check(problem: Problem) -> None:
    """Compiled code reads what it is told to: refuses here what PyTorch would refuse later."""
    tensors = [*(value for value in problem.values if value is not None), problem.root_score]
    match problem.coefficients:
        case LinkProduct(root, links):
            tensors += [root, *links]
        case PairSigmoid(query, keys):
            tensors += [query, *keys]
    kinds = {(x.dtype, x.device.type) for x in (*tensors, problem.attention)}
    if kinds not in ({(torch.float32, "cpu")}, {(torch.float64, "cpu")}):
        got = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise HanmeError(
            f"Expected float32 or float64 tensors on cpu for backend streaming, but got {got}"
        )


def _owners(problem: Problem) -> tuple[int, ...]:
    """For each position, the first one that means the same: the same values, the same c."""
    means: list[tuple[object, object]] = []
    for position, value in enumerate(problem.values):
        match problem.coefficients:
            case Constant(c):
                means.append((id(value), c[position]))
            case LinkProduct():
                means.append((id(value), None))
            case PairSigmoid(_, keys):
                means.append((id(value), id(keys[position])))
        if value is None:  # no values, but as many rows as there are nodes
            means[-1] = (position, "nothing")
    return tuple(means.index(mean) for mean in means)


def _value(problem: Problem, position: int) -> Tensor:
    """V of a position, with the factor that is the same for all instances."""
    value = problem.values[position]
    if value is None:
        return problem.attention.new_zeros(problem.chain.sizes[position], *problem.attention.shape)
    if isinstance(problem.coefficients, Constant):
        return problem.coefficients.c[position] * value
    return value


@dataclass(frozen=True)
class _Layers:
    """A chain as one layered graph, in the form that :mod:`hanme.ops.kernels` describes."""

    ptr: NDArray[np.int64]
    target: NDArray[np.uint32]
    shift: NDArray[np.int64]


_known: WeakKeyDictionary[Chain, dict[tuple[int, ...], _Layers]] = WeakKeyDictionary()


def _layers(chain: Chain, owner: tuple[int, ...]) -> _Layers:
    """Made once and kept as long as the chain."""
    known = _known.setdefault(chain, {})
    if owner not in known:
        known[owner] = _make_layers(chain, owner)
    return known[owner]


def _make_layers(chain: Chain, owner: tuple[int, ...]) -> _Layers:
    rows = [size if owner[position] == position else 0 for position, size in enumerate(chain.sizes)]
    first_row = _starts(rows)[list(owner)]
    first_node = _starts(chain.sizes)
    first_link = _starts([indices.numel() for indices in chain.indices])
    ptr = [indptr[:-1].numpy() + first_link[hop] for hop, indptr in enumerate(chain.indptr)]
    target = [indices.numpy() + first_row[hop + 1] for hop, indices in enumerate(chain.indices)]
    return _Layers(
        np.concatenate([*ptr, first_link[-1:]]),
        np.concatenate(target).astype(np.uint32),
        first_node[:-1] - first_row,
    )


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)])


def _parts(problem: Problem, rows: int, paired: bool) -> list[slice]:
    """Consecutive roots with about as many instances each; a root is never split."""
    counts = problem.chain.count()[problem.roots].double().numpy()
    links = sum(indices.numel() for indices in problem.chain.indices)
    numbers = rows * LANES * (problem.channels * (1 + paired) + 1) + links * LANES
    size = max(1, numbers * problem.attention.element_size())
    parts = max(2, min(PARTS, counts.sum() // PART_INSTANCES, PART_BYTES // size))
    cost = np.cumsum(counts + 1)
    ends = np.searchsorted(cost, cost[-1:] * np.arange(1, parts) / parts) if cost.size else []
    bounds = [0, *ends, cost.size]
    return [slice(a, b) for a, b in pairwise(bounds) if a < b]


@dataclass(frozen=True)
class _Work:
    """What the walks need besides tensors that may want gradients."""

    layers: _Layers
    roots: NDArray[np.int64]
    parts: list[slice]
    slope: float
    dropout: float
    seed: int

    def graph(self, part: slice) -> tuple[NDArray[Any], ...]:
        return self.layers.ptr, self.layers.target, self.layers.shift, self.roots[part]

    def draw(self, block: int) -> tuple[Any, ...]:
        """What :func:`hanme.ops.dropout.keep` makes of the dropout: a bound that draws exceed."""
        threshold = round(self.dropout * 2**32)
        scale = 1 / (1 - self.dropout) if threshold else 1.0
        head = np.arange(block * LANES, (block + 1) * LANES, dtype=np.uint64) * np.uint64(GOLDEN)
        seed = np.uint64(self.seed % 2**64)
        bound = np.uint32(max(threshold - 1, 0))
        return self.slope, threshold > 0, bound, scale, seed, head.astype(np.uint32)


class _Attend(Function):
    """z, ``[K / 8, R, D 8]``, and its gradients, for tensors in blocks of eight heads."""

    @staticmethod
    def forward(ctx: Any, work: _Work, *tensors: Tensor | None) -> Tensor:
        values = tensors[1]
        assert values is not None
        blocks, _, width = values.shape
        z = values.new_zeros(blocks, work.roots.size, width)
        reference = values.new_zeros(blocks, work.roots.size, LANES)
        weight = torch.zeros_like(reference)
        given, out = _arrays(tensors), _arrays((z, reference, weight))

        def attend(block: int, part: slice) -> None:
            kernels.attend(
                *work.graph(part),
                *_pick(given, block),
                *work.draw(block),
                *_pick(out, block, part),
            )

        for _ in in_order(attend, blocks, work.parts):
            pass
        ctx.work = work
        ctx.save_for_backward(*tensors, z, reference, weight)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z: Tensor) -> tuple[Tensor | None, ...]:
        work: _Work = ctx.work
        *tensors, z, reference, weight = ctx.saved_tensors
        given, out = _arrays(tensors), _arrays((z, reference, weight, d_z.contiguous()))
        roots = torch.from_numpy(work.roots)
        gradients = [
            None if x is None else _zeros(x, roots.numel() if of_root else x.size(1))
            for x, of_root in zip(tensors, _OF_ROOT, strict=True)
        ]
        totals = _arrays(gradients)

        def attend(block: int, part: slice) -> list[NDArray[Any] | None]:
            make = np.asarray if part is work.parts[0] else np.zeros_like  # the first adds in place
            own = [
                None if x is None else x[block, part] if of_root else make(x[block])
                for x, of_root in zip(totals, _OF_ROOT, strict=True)
            ]
            kernels.attend_backward(
                *work.graph(part),
                *_pick(given, block),
                *work.draw(block),
                *_pick(out, block, part),
                *own,
            )
            return own

        for i, (block, own) in enumerate(in_order(attend, len(z), work.parts)):
            for total, x, of_root in zip(totals, own, _OF_ROOT, strict=True):
                if total is not None and not of_root and i % len(work.parts):
                    total[block] += x
        for i, of_root in enumerate(_OF_ROOT):
            x, by_place = tensors[i], gradients[i]
            if of_root and by_place is not None:  # a root may be asked for more than once
                gradients[i] = torch.zeros_like(x).index_add_(1, roots, by_place)
        return None, *gradients


_OF_ROOT = (False, False, True, True, False, True, False)
"""Which arguments belong to roots: the walks make their gradients by place in ``roots``."""


def _zeros(x: Tensor, rows: int) -> Tensor:
    return x.new_zeros(x.size(0), rows, x.size(2))


def _arrays(tensors: Sequence[Tensor | None]) -> list[NDArray[Any] | None]:
    return [None if x is None else x.detach().numpy() for x in tensors]


def _pick(
    arrays: list[NDArray[Any] | None], block: int, part: slice | None = None
) -> list[NDArray[Any] | None]:
    """One block of eight heads of each array, and of it the roots of one part."""
    return [None if x is None else x[block] if part is None else x[block, part] for x in arrays]
