"""The operator without a list of instances: Numba walks each root's tree of them, on the CPU.

Memory is that of the graph, whatever the number of instances: the backward pass walks again
instead of remembering. Roots are dealt out in parts that depend on the problem alone, each with
gradients of its own, added up in a fixed order: any number of threads gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.ops.problem import Constant, LinkProduct, PairSigmoid, Problem
from hanme.ops.streaming.blocks import to_blocks
from hanme.ops.streaming.operator import Attend, Walks
from hanme.ops.streaming.scores import block_dots
from hanme.ops.streaming.simd import LANES


def forward(problem: Problem) -> Tensor:
    """Return z of the problem's roots, ``[R, K, D]``."""
    _check(problem)
    owner = _owners(problem)
    own = [position for position in range(len(owner)) if owner[position] == position]
    values = _cat([_value(problem, position) for position in own])
    first = links = query = keys = None
    match problem.coefficients:
        case LinkProduct(root, weights):
            first, links = to_blocks(root), _cat(weights)
        case PairSigmoid(asking, asked):
            query, keys = to_blocks(asking), _cat([asked[position] for position in own])
    tau = block_dots(values, to_blocks(problem.attention[None]))  # τ = a · V
    score, walks = to_blocks(problem.root_score), Walks.of(problem, owner, values)
    blocks: Tensor = Attend.apply(walks, tau, values, score, first, links, query, keys)  # type: ignore[no-untyped-call]
    z = torch.unflatten(blocks, 2, (problem.channels, LANES)).permute(1, 0, 3, 2).flatten(1, 2)
    return z[:, : problem.heads]


def _cat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([to_blocks(x) for x in tensors], dim=1)


def _check(problem: Problem) -> None:
    """Refuse what PyTorch would refuse later: compiled code reads what it is told to."""
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


def _owners(problem: Problem) -> list[int]:
    """Return for each position the first one that means the same: the same values, the same c."""
    positions = range(len(problem.values))
    return [next(i for i in positions if i == j or _same(problem, i, j)) for j in positions]


def _same(problem: Problem, i: int, j: int) -> bool:
    value = problem.values[i]
    if value is None or value is not problem.values[j]:
        return False  # no values, but as many rows as there are nodes
    match problem.coefficients:
        case Constant(c):
            return c[i] == c[j]
        case PairSigmoid(_, keys):
            return keys[i] is keys[j]
    return True


def _value(problem: Problem, position: int) -> Tensor:
    """Return V of a position, with the factor that is the same for all instances."""
    value = problem.values[position]
    if value is None:
        return problem.attention.new_zeros(problem.chain.sizes[position], *problem.attention.shape)
    if isinstance(problem.coefficients, Constant):
        return problem.coefficients.c[position] * value
    return value
