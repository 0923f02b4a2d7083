"""The operator in scalars: a few numbers per instance and head, for a block of roots at a time.

The D-wide work is done once per distinct (root, node) pair: z = Σ_l C_l V_l with
C_l[i, w] = Σ_{p: v0=i, vl=w} α(p) c_l(p). Blocks are computed again in the backward pass instead
of being remembered, so that memory is bounded by the block. Plain PyTorch, any device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hanme.graph.chain import Chain, Instances
from hanme.ops.coefficients import Constant, LinkProduct
from hanme.ops.groups import group_softmax, group_sum
from hanme.ops.problem import Problem

BLOCK = 1 << 18
"""About how many instances are in the works at one time."""


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


def forward(problem: Problem) -> Tensor:
    """Return z of the problem's roots, ``[R, K, D]``."""
    parts = list(_split(problem.chain, problem.roots))
    if len(parts) == 1:
        return _attend(problem, _whole(problem.chain, problem.roots))
    return torch.cat(
        [
            checkpoint(_attend_to, problem, roots, use_reentrant=False, preserve_rng_state=False)
            for roots in parts
        ]
    )


def scalars(problem: Problem, block: Block) -> tuple[Tensor, list[Tensor]]:
    """Return the attention α of each instance, ``[P, K]``, and its coefficients c_l by position."""
    coefficients = _coefficients(problem, block)
    nodes = block.instances.nodes
    score = problem.root_score.index_select(0, nodes[:, 0])
    for position in problem.positions:  # a · e(p) = Σ_l c_l(p) τ_l[v_l], with τ_l = a · V_l
        tau = (problem.value(position) * problem.attention).sum(-1)
        score = score + coefficients[position] * tau.index_select(0, nodes[:, position])
    score = F.leaky_relu(score, problem.negative_slope)
    return group_softmax(score, block.row, block.roots.numel()), coefficients


def make_block(chain: Chain, roots: Tensor) -> Block:
    """List all instances of some roots."""
    instances = chain.instances(roots)
    rows = torch.arange(roots.numel(), device=roots.device)
    row = torch.repeat_interleave(rows, chain.count()[roots])
    pairs = [Pairs(rows, roots, row)]
    for position in range(1, len(chain) + 1):
        key = row * chain.sizes[position] + instances.nodes[:, position]
        distinct, of_instance = torch.unique(key, return_inverse=True)
        pair_row = distinct // chain.sizes[position]
        pairs.append(Pairs(pair_row, distinct % chain.sizes[position], of_instance))
    return Block(roots, row, instances, tuple(pairs))


def _attend_to(problem: Problem, roots: Tensor) -> Tensor:
    return _attend(problem, make_block(problem.chain, roots))


def _attend(problem: Problem, block: Block) -> Tensor:
    weight, coefficients = scalars(problem, block)
    weight = problem.dropped(weight, block.instances)
    z = weight.new_zeros(block.roots.numel(), problem.heads, problem.channels)
    for position in problem.positions:
        pairs = block.pairs[position]
        c = group_sum(weight * coefficients[position], pairs.of_instance, pairs.row.numel())
        value = problem.value(position).index_select(0, pairs.node)
        z = z.index_add(0, pairs.row, c[..., None] * value)
    return z


def _coefficients(problem: Problem, block: Block) -> list[Tensor]:
    """Return c_l(p) by position, each ``[P, K]``."""
    nodes, links = block.instances.nodes, block.instances.links
    match problem.coefficients:
        case Constant(c):
            shape = (nodes.size(0), problem.heads)
            return [problem.attention.new_tensor(value).expand(shape) for value in c]
        case LinkProduct(root, weights):
            product = [root.index_select(0, nodes[:, 0])]
            for hop, weight in enumerate(weights):
                walked = weight.index_select(0, links[:, hop])
                product.append(walked if hop == 0 else product[-1] * walked)
            return product
        case pair:
            return [
                pair.of(position, block.roots[pairs.row], pairs.node).index_select(
                    0, pairs.of_instance
                )
                for position, pairs in enumerate(block.pairs)
            ]


def _split(chain: Chain, roots: Tensor) -> Iterator[Tensor]:
    """Cut roots into runs with about BLOCK instances each; a root is never split."""
    part = (chain.count()[roots].cumsum(0) - 1).clamp(min=0) // BLOCK
    sizes: list[int] = torch.unique_consecutive(part, return_counts=True)[1].tolist()
    yield from torch.split(roots, sizes) if sizes else [roots]


_blocks: WeakKeyDictionary[Chain, Block] = WeakKeyDictionary()


def _whole(chain: Chain, roots: Tensor) -> Block:
    """Return the block of a small graph, made once and kept as long as its chain."""
    block = _blocks.get(chain)
    if block is None or not torch.equal(block.roots, roots):
        block = _blocks[chain] = make_block(chain, roots)
    return block
