"""The one operator: attention over the metapath instances of each root."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import Chain, Instances, checked_roots
from hanme.ops import chunked, eager, streaming
from hanme.ops.problem import (
    Coefficients,
    Constant,
    LinkProduct,
    PairSigmoid,
    PathFunction,
    Problem,
    check,
)
from hanme.ops.streaming.scores import head_dots, tanh_scores

__all__ = [
    "BACKENDS",
    "Coefficients",
    "Constant",
    "LinkProduct",
    "PairSigmoid",
    "PathFunction",
    "Problem",
    "choose_backend",
    "head_dots",
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
    link_masks: Sequence[Tensor] = (),
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
        coefficients: What gives c_l(p), or a :class:`PathFunction` for any other e(p).
        root_score: r, ``[N_0, K]``.
        attention: a, ``[K, D]``.
        roots: The ids of the roots to compute (default: all of them, in order). The cost is then
            that of what they touch, but for the gradients, which are of the shape of ``values``.
        instances: Attend to these instances of the chain alone, grouped by root, ascending
            (default: all).
        link_masks: By hop, a factor for each link in the chain's order, ``[E_j, 1]``. An instance's
            weight, after softmax, is multiplied by those of its links (default: none).
        negative_slope: LeakyReLU's slope below 0.
        dropout: The probability with which an instance's weight is set to 0.
        seed: Fixes the dropout's draw (default: drawn from torch's generator).
        backend: One of ``BACKENDS``, or ``"auto"``: ``streaming`` on the CPU, else, and under
            ``torch.compile``, with link masks or a ``PathFunction``, ``chunked``. They differ in
            speed and memory, not in the result.

    Returns:
        z, ``[R, K, D]``, of the type of ``attention``. Narrower ones are computed in float32.
    """
    exporting = torch.compiler.is_exporting()
    if exporting and dropout > 0:
        raise HanmeError("torch.export: attention has no dropout there; call eval() first")
    drawn = int(torch.randint(2**62, ())) if seed is None and dropout > 0 else seed or 0
    is_function = isinstance(coefficients, PathFunction)
    if link_masks or is_function:  # both need a list of instances
        if backend == "streaming":
            what = "a PathFunction" if is_function else "link masks"
            raise HanmeError(f"Expected backend chunked or eager for {what}, but got streaming")
        backend = "chunked" if backend == "auto" else backend
    backend = choose_backend(backend, attention.device)
    if roots is None:
        every = torch.arange(chain.sizes[0], device=chain.device)
    else:
        every = checked_roots(roots, chain.sizes[0]).to(chain.indices[0])
    given = (chain, tuple(values), coefficients, root_score, attention, every)
    problem = Problem(*given, negative_slope, dropout, drawn, tuple(link_masks))
    check(problem)
    if instances is not None:
        problem = problem.along(instances)
    elif (
        roots is not None and chain.root_ids is None and not exporting
    ):  # that of a subgraph is small already
        problem = problem.within(chain.restrict(roots))
    return BACKENDS[backend](problem.widened()).to(attention.dtype)


def choose_backend(backend: str, device: torch.device) -> str:
    """Return the backend that a name stands for on a device."""
    if backend == "auto":
        ours = device.type == "cpu" and not torch.compiler.is_compiling()
        return "streaming" if ours else "chunked"
    check_choice("backend", backend, ["auto", *BACKENDS])
    if backend == "streaming" and torch.compiler.is_exporting():
        raise HanmeError("torch.export: expected backend chunked or eager, but got streaming")
    return backend
