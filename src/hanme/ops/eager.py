"""The operator as the paper describes it: every instance's features are gathered.

Memory grows with instances × positions × hidden. This is the oracle of the tests, and what the
other backends are measured against.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.common.arrays import repeat
from hanme.graph.chain import Instances
from hanme.ops.problem import Constant, LinkProduct, PairSigmoid, PathFunction, Problem


def forward(problem: Problem) -> Tensor:
    """Return z of the problem's roots, ``[R, K, D]``."""
    instances = problem.chain.instances(problem.roots)
    group = repeat(problem.chain.count()[problem.roots], instances.nodes.size(0))
    encoded, score = encode(problem, instances)
    weight = group_softmax(score, group, problem.roots.numel())
    weight = problem.scaled(weight, instances)
    return group_sum(weight[..., None] * encoded, group, problem.roots.numel())


def encode(problem: Problem, instances: Instances) -> tuple[Tensor, Tensor]:
    """Return e(p) of some instances, ``[P, K, D]``, and what softmax is of, ``[P, K]``."""
    nodes = instances.nodes
    values = {i: problem.value(i)[nodes[:, i]] for i in problem.positions}
    if isinstance(problem.coefficients, PathFunction):
        encoded = problem.coefficients.encode(list(values.values()), instances.links)
    else:
        encoded = problem.attention.new_zeros(nodes.size(0), *problem.attention.shape)
        for position, value in values.items():  # e(p) = Σ_l c_l(p) V_l[v_l]
            encoded = encoded + coefficient(problem, instances, position)[..., None] * value
    score = problem.root_score[nodes[:, 0]] + (encoded * problem.attention).sum(-1)
    return encoded, F.leaky_relu(score, problem.negative_slope)


def coefficient(problem: Problem, instances: Instances, position: int) -> Tensor:
    """Return c_l(p) of some instances, ``[P, K]``."""
    nodes, links = instances.nodes, instances.links
    match problem.coefficients:
        case Constant(c):
            return problem.attention.new_full((nodes.size(0), problem.heads), c[position])
        case LinkProduct(root, weights):
            if position == 0:
                return root[nodes[:, 0]]
            walked = [weights[hop][links[:, hop]] for hop in range(position)]
            return torch.stack(walked).prod(0)
        case PairSigmoid() as pair:
            return pair.of(position, nodes[:, 0], nodes[:, position])
    raise TypeError("a PathFunction has no coefficients")


def group_sum(x: Tensor, group: Tensor, groups: int) -> Tensor:
    """Add up the rows of each group, ``[P, ...]`` to ``[G, ...]``."""
    return x.new_zeros(groups, *x.shape[1:]).index_add(0, group, x)


def group_softmax(score: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the softmax over the rows of each group, ``[P, K]``."""
    index = group[:, None].expand_as(score)
    top = score.new_full((groups, score.size(1)), -torch.inf)
    top = top.scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - top.index_select(0, group)).exp()
    return weight / group_sum(weight, group, groups).index_select(0, group)
