"""The operator in scalars: a few numbers per instance and head, for a block of roots at a time.

The D-wide work is done once per distinct (root, node) pair: z = Σ_l C_l V_l with
C_l[i, w] = Σ_{p: v0=i, vl=w} α(p) c_l(p). Blocks are computed again in the backward pass instead
of being remembered, so that memory is bounded by the block. Plain PyTorch, any device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hanme.common.arrays import repeat
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain, Instances
from hanme.ops import eager
from hanme.ops.eager import coefficient, group_softmax, group_sum
from hanme.ops.problem import PairSigmoid, PathFunction, Problem

BLOCK = 1 << 18
"""Target number of instances per block."""

PATH_VALUES = 1 << 22
"""Target number of values per block that a :class:`PathFunction` reads: 16 MB, and what it keeps of
them for the backward pass."""


@dataclass(frozen=True)
class Pairs:
    """The distinct (root, node) pairs of one position, and the pair of each instance."""

    row: Tensor
    node: Tensor
    of_instance: Tensor


@dataclass(frozen=True)
class Block:
    """Some roots with all their instances; ``row`` is each instance's place among the roots."""

    roots: Tensor
    row: Tensor
    instances: Instances
    pairs: tuple[Pairs, ...]

    @classmethod
    def of(cls, chain: Chain, roots: Tensor) -> Block:
        """List all instances of some roots."""
        instances = chain.instances(roots)
        rows = torch.arange(roots.numel(), device=roots.device)
        row = repeat(chain.count()[roots], instances.nodes.size(0))
        pairs = [Pairs(rows, roots, row)]
        for size, nodes in zip(chain.sizes[1:], instances.nodes.t()[1:], strict=True):
            distinct, of_instance = torch.unique(row * size + nodes, return_inverse=True)
            pairs.append(Pairs(distinct // size, distinct % size, of_instance))
        return cls(roots, row, instances, tuple(pairs))


def forward(problem: Problem) -> Tensor:
    """Return z of the problem's roots, ``[R, K, D]``."""
    chain, roots = problem.chain, problem.roots
    is_function = isinstance(problem.coefficients, PathFunction)
    if torch.compiler.is_exporting():  # how many blocks there are is not known yet
        return eager.forward(problem) if is_function else _attend(problem, Block.of(chain, roots))
    wide = problem.attention.numel() * len(problem.values)
    most = max(1, PATH_VALUES // wide) if is_function else BLOCK
    part = (chain.count()[roots].cumsum(0) - 1).clamp(min=0) // most  # a root is never split
    sizes = torch.unique_consecutive(part, return_counts=True)[1].tolist()
    if len(sizes) <= 1:
        if is_function:
            return eager.forward(problem)
        block = _blocks.get([*chain.indptr, *chain.indices], lambda: Block.of(chain, roots))
        same = torch.equal(block.roots, roots)
        return _attend(problem, block if same else Block.of(chain, roots))

    def attend(some: Tensor) -> Tensor:
        if is_function:
            return eager.forward(replace(problem, roots=some))
        return _attend(problem, Block.of(chain, some))

    return torch.cat(
        [
            checkpoint(attend, some, use_reentrant=False, preserve_rng_state=is_function)
            for some in torch.split(roots, sizes)
        ]
    )


_blocks: GraphCache[Block] = GraphCache()
"""The block of each small chain."""


def _attend(problem: Problem, block: Block) -> Tensor:
    nodes = block.instances.nodes
    c = {position: _coefficient(problem, block, position) for position in problem.positions}
    score = problem.root_score.index_select(0, nodes[:, 0])
    for position in c:  # a · e(p) = Σ_l c_l(p) τ_l[v_l], with τ_l = a · V_l
        tau = (problem.value(position) * problem.attention).sum(-1)
        score = score + c[position] * tau.index_select(0, nodes[:, position])
    score = F.leaky_relu(score, problem.negative_slope)
    weight = group_softmax(score, block.row, block.roots.numel())
    weight = problem.scaled(weight, block.instances)
    z = weight.new_zeros(block.roots.numel(), problem.heads, problem.channels)
    for position in c:
        pairs = block.pairs[position]
        share = group_sum(weight * c[position], pairs.of_instance, pairs.row.numel())
        value = problem.value(position).index_select(0, pairs.node)
        z = z.index_add(0, pairs.row, share[..., None] * value)
    return z


def _coefficient(problem: Problem, block: Block, position: int) -> Tensor:
    """Return c_l(p), ``[P, K]``; sigmoids are computed once per pair of root and node."""
    if not isinstance(problem.coefficients, PairSigmoid):
        return coefficient(problem, block.instances, position)
    pairs = block.pairs[position]
    of_pair = problem.coefficients.of(position, block.roots[pairs.row], pairs.node)
    return of_pair.index_select(0, pairs.of_instance)
