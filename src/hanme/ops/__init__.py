"""The one operator: attention over the metapath instances of each root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hanme.errors import check_choice
from hanme.graph.chain import Chain, Instances, Restriction
from hanme.ops import chunked, eager, streaming
from hanme.ops.coefficients import Coefficients, Constant, LinkProduct, PairSigmoid
from hanme.ops.problem import Problem, check
from hanme.ops.streaming.scores import head_dots, tanh_scores

__all__ = [
    "BACKENDS",
    "Attention",
    "Coefficients",
    "Constant",
    "LinkProduct",
    "PairSigmoid",
    "Problem",
    "choose_backend",
    "head_dots",
    "instance_attention",
    "metapath_attention",
    "tanh_scores",
]

BACKENDS: dict[str, Callable[[Problem], Tensor]] = {
    "eager": eager.forward,
    "chunked": chunked.forward,
    "streaming": streaming.forward,
}


def metapath_attention(
    chain: Chain,
    values: Sequence[Tensor | None],
    coefficients: Coefficients,
    root_score: Tensor,
    attention: Tensor,
    *,
    roots: Tensor | None = None,
    instances: Instances | None = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    seed: int | None = None,
    backend: str = "auto",
) -> Tensor:
    r"""Attend to the metapath instances of each root.

    .. math::
        z_i = \sum_{p: v_0 = i} \mathrm{softmax}_p\big(\mathrm{LeakyReLU}(r_i + a \cdot e(p))\big)
        \, e(p), \qquad e(p) = \sum_l c_l(p) V_l[v_l]

    A root without instances gets zeros.

    Args:
        chain: The metapath's relations on the graph, L hops.
        values: V_l for the L + 1 positions, each ``[N_l, K, D]``; None where c_l is 0 throughout.
        coefficients: What gives c_l(p).
        root_score: r, ``[N_0, K]``.
        attention: a, ``[K, D]``.
        roots: The ids of the roots to compute (default: all of them, in order). The cost is then
            that of what they touch, but for the gradients, which are of the shape of ``values``.
        instances: Attend to these instances of the chain alone, grouped by root, ascending
            (default: all).
        negative_slope: LeakyReLU's slope below 0.
        dropout: The probability with which an instance's weight is set to 0.
        seed: Fixes the dropout's draw (default: drawn from torch's generator).
        backend: One of ``BACKENDS``, or ``"auto"``: ``streaming`` on the CPU, else ``chunked``.
            They differ in speed and memory, not in the result.

    Returns:
        z, ``[R, K, D]``.
    """
    drawn = torch.randint(2**62, ()) if seed is None and dropout > 0 else seed or 0
    given = (chain, tuple(values), coefficients, root_score, attention)
    backend = choose_backend(backend, attention.device)
    posed, _ = _posed(given, roots, instances, negative_slope, dropout, drawn)
    return BACKENDS[backend](posed)


def _posed(
    given: tuple[Chain, tuple[Tensor | None, ...], Coefficients, Tensor, Tensor],
    roots: Tensor | None,
    instances: Instances | None,
    *how: Any,
) -> tuple[Problem, Restriction | None]:
    """Return the problem of the roots, checked, on the part of the graph that they reach."""
    chain = given[0]
    every = torch.arange(chain.sizes[0], device=chain.device) if roots is None else roots
    problem = Problem(*given, every, *how)
    check(problem)
    if instances is not None:
        return problem.along(instances).widened(), None
    restricted = None if roots is None else chain.restrict(roots)
    return (problem if restricted is None else problem.within(restricted)).widened(), restricted


def choose_backend(backend: str, device: torch.device) -> str:
    """Return the backend that a name stands for on a device."""
    if backend == "auto":
        return "streaming" if device.type == "cpu" else "chunked"
    check_choice("backend", backend, ["auto", *BACKENDS])
    return backend


@dataclass(frozen=True)
class Attention:
    """Where a root looked along one metapath."""

    instances: Instances  # the instances
    weight: Tensor  # α of each, ``[P, K]``; sums to 1 over the instances of a root
    # c_l of each by position, ``[P, L + 1, K]``; 0 where a position has no value
    coefficients: Tensor


def instance_attention(
    chain: Chain,
    values: Sequence[Tensor | None],
    coefficients: Coefficients,
    root_score: Tensor,
    attention: Tensor,
    *,
    roots: Tensor | None = None,
    negative_slope: float = 0.2,
) -> Attention:
    """Return the weights of :func:`metapath_attention` for the roots given, without dropout.

    The instances of these roots are listed: ask for few roots where there are many instances.
    """
    given = (chain, tuple(values), coefficients, root_score, attention)
    problem, restricted = _posed(given, roots, None, negative_slope, 0.0, 0)
    block = chunked.make_block(problem.chain, problem.roots)
    weight, c = chunked.scalars(problem, block)
    blank = torch.zeros_like(weight)
    by_position = [x if i in problem.positions else blank for i, x in enumerate(c)]
    instances = block.instances if restricted is None else restricted.lift(block.instances)
    return Attention(instances, weight, torch.stack(by_position, 1))
