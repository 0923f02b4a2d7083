"""The operator as the paper describes it: every instance's features are gathered.

Memory grows with instances × positions × hidden. This is the oracle of the tests, and what the
other backends are measured against.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.common.arrays import repeat
from hanme.errors import HanmeError
from hanme.graph.chain import Instances
from hanme.ops.coefficients import Constant, LinkProduct
from hanme.ops.cost import available, memory, readable
from hanme.ops.groups import group_softmax, group_sum
from hanme.ops.problem import Problem


def forward(problem: Problem) -> Tensor:
    """Return z of the problem's roots, ``[R, K, D]``."""
    _refuse_too_large(problem)
    instances = problem.chain.instances(problem.roots)
    group = repeat(problem.chain.count()[problem.roots], len(instances))
    encoded, score = encode(problem, instances)
    weight = group_softmax(score, group, problem.roots.numel())
    weight = problem.dropped(weight, instances)
    z = group_sum(weight[..., None] * encoded, group, problem.roots.numel())
    return z


def encode(problem: Problem, instances: Instances) -> tuple[Tensor, Tensor]:
    """Return e(p) of some instances, ``[P, K, D]``, and what softmax is of, ``[P, K]``."""
    nodes = instances.nodes
    encoded = torch.zeros(
        len(instances), *problem.attention.shape, dtype=problem.attention.dtype, device=nodes.device
    )
    for position in problem.positions:  # e(p) = Σ_l c_l(p) V_l[v_l]
        value = problem.value(position)[nodes[:, position]]
        encoded = encoded + coefficient(problem, instances, position)[..., None] * value
    score = problem.root_score[nodes[:, 0]] + (encoded * problem.attention).sum(-1)
    return encoded, F.leaky_relu(score, problem.negative_slope)


def _refuse_too_large(problem: Problem) -> None:
    """Say what it would take instead of being killed for taking it."""
    needed = memory("eager", problem.chain, problem.heads, problem.channels)
    if problem.attention.device.type == "cpu" and needed > (free := available()):
        raise HanmeError(
            f"metapath {problem.chain.metapath}: backend eager would need about "
            f"{readable(needed)} for {int(problem.chain.count().sum()):,} instances, and "
            f"{readable(free)} are free; use streaming or chunked"
        )


def coefficient(problem: Problem, instances: Instances, position: int) -> Tensor:
    """Return c_l(p) of some instances, ``[P, K]``."""
    nodes, links = instances.nodes, instances.links
    match problem.coefficients:
        case Constant(c):
            return problem.attention.new_full((len(instances), problem.heads), c[position])
        case LinkProduct(root, weights):
            if position == 0:
                return root[nodes[:, 0]]
            walked = [weights[hop][links[:, hop]] for hop in range(position)]
            return torch.stack(walked).prod(0)
        case pair:
            return pair.of(position, nodes[:, 0], nodes[:, position])
