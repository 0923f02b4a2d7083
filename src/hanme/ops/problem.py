"""What a backend of :func:`metapath_attention` is given, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.chain import Chain, Instances, Restriction
from hanme.ops.dropout import keep

T = TypeVar("T")


@dataclass(frozen=True)
class Constant:
    """c_l(p) is the same for all instances: ``c`` holds one number per position."""

    c: tuple[float, ...]


@dataclass(frozen=True)
class LinkProduct:
    r"""c_0 depends on the root alone, and :math:`c_l = \prod_{j \le l} w_j` on the links walked.

    Args:
        root: c_0, ``[N_0, K]``.
        links: w_j for each hop j in the chain's link order, each ``[E_j, K]``.
    """

    root: Tensor
    links: tuple[Tensor, ...]


@dataclass(frozen=True)
class PairSigmoid:
    r"""c_l(p) = σ(⟨query[v_0], key_l[v_l]⟩).

    Args:
        query: ``[N_0, K, D]``.
        keys: For each position l, ``[N_l, K, D]``.
    """

    query: Tensor
    keys: tuple[Tensor, ...]

    def of(self, position: int, roots: Tensor, nodes: Tensor) -> Tensor:
        """Return the coefficients of some (root, node) pairs, ``[Q, K]``."""
        query, keys = self.query.index_select(0, roots), self.keys[position].index_select(0, nodes)
        return torch.sigmoid((query * keys).sum(-1))


@dataclass(frozen=True)
class PathFunction:
    r"""e(p) is any function of what lies along an instance, such as the last state of a GRU.

    It replaces e(p) = Σ_l c_l(p) V_l[v_l]. The backends ``chunked`` and ``eager`` list instances
    and compute it a block at a time.

    Args:
        function: Takes the values of some instances, ``[P, L + 1, K, D]``, and the features of
            their links by hop, ``[P, F_j]``; returns e(p), ``[P, K, D]``.
        links: By hop, the features of the links in the chain's order, ``[E_j, F_j]``.
    """

    function: Callable[[Tensor, Sequence[Tensor]], Tensor]
    links: tuple[Tensor, ...] = ()

    def encode(self, values: Sequence[Tensor], links: Tensor) -> Tensor:
        """Return e(p) from V_l[v_l] by position and the links walked, ``[P, L]``."""
        walked = [
            x.index_select(0, column) for x, column in zip(self.links, links.t(), strict=False)
        ]
        return self.function(torch.stack(list(values), 1), walked)


Coefficients: TypeAlias = Constant | LinkProduct | PairSigmoid | PathFunction
"""What makes e(p): the scalars c_l(p) of Σ_l c_l(p) V_l[v_l], one per head and position, or a
function."""


@dataclass(frozen=True)
class Problem:
    """The arguments of :func:`metapath_attention`, which documents them."""

    chain: Chain
    values: tuple[Tensor | None, ...]
    coefficients: Coefficients
    root_score: Tensor
    attention: Tensor
    roots: Tensor
    negative_slope: float
    dropout: float
    seed: int
    link_masks: tuple[Tensor, ...] = ()

    @property
    def heads(self) -> int:
        """K."""
        return self.attention.size(0)

    @property
    def channels(self) -> int:
        """D, the size of a head."""
        return self.attention.size(1)

    @property
    def positions(self) -> list[int]:
        """The positions that have values; the others contribute nothing."""
        return [i for i, value in enumerate(self.values) if value is not None]

    def value(self, position: int) -> Tensor:
        """Return the values of a position that has some."""
        value = self.values[position]
        assert value is not None
        return value

    def widened(self) -> Problem:
        """Return the same problem in float32 where autocast or weights are narrower."""
        if not (_narrow(self.attention) or torch.is_autocast_enabled(self.attention.device.type)):
            return self
        alike = [None] * len(self.values)
        wide = self._mapped(_once(lambda x, _: widen(x)), alike, alike[1:])
        return replace(wide, attention=widen(self.attention))

    def within(self, restricted: Restriction) -> Problem:
        """Return the same problem on a restriction of its chain, for its roots."""
        rows = [restricted.nodes[t] for t in self.chain.metapath.node_types]
        found = self._mapped(_once(take), rows, restricted.links)
        return replace(found, chain=restricted.chain, roots=restricted.roots)

    def along(self, instances: Instances) -> Problem:
        """Return the problem of roots with these instances alone, grouped by root, ascending."""
        first = torch.unique(self.roots)
        chain, through = self.chain.unfold(instances, first)
        nodes = [column[at] for column, at in zip(instances.nodes.t()[1:], through, strict=True)]
        links = [column[at] for column, at in zip(instances.links.t(), through, strict=True)]
        found = self._mapped(take, [first, *nodes], links)
        return replace(found, chain=chain, roots=torch.searchsorted(first, self.roots))

    def scaled(self, weight: Tensor, instances: Instances) -> Tensor:
        """Apply link masks and dropout to the weights of some instances, ``[P, K]``."""
        for mask, links in zip(self.link_masks, instances.links.t(), strict=False):
            weight = weight * mask.index_select(0, links)
        if self.dropout == 0:
            return weight
        roots = self.chain.original(instances.nodes[:, 0])
        kept = keep(self.seed, roots, instances.number, self.heads, self.dropout)
        return weight * kept / (1 - self.dropout)

    def _mapped(
        self, function: Callable[[Tensor, T], Tensor], nodes: Sequence[T], links: Sequence[T]
    ) -> Problem:
        """Apply a function to what there is by node of a position, and by link of a hop.

        Its second argument is the one of ``nodes`` or ``links`` for that position or hop.
        """
        pairs = zip(self.values, nodes, strict=True)
        values = tuple(value if value is None else function(value, at) for value, at in pairs)
        c = self.coefficients
        if isinstance(c, LinkProduct):
            c = LinkProduct(function(c.root, nodes[0]), tuple(map(function, c.links, links)))
        elif isinstance(c, PairSigmoid):
            c = PairSigmoid(function(c.query, nodes[0]), tuple(map(function, c.keys, nodes)))
        elif isinstance(c, PathFunction):
            c = replace(c, links=tuple(map(function, c.links, links)))
        score = function(self.root_score, nodes[0])
        masks = tuple(map(function, self.link_masks, links))
        return replace(self, values=values, coefficients=c, root_score=score, link_masks=masks)


def _once(function: Callable[[Tensor, T], Tensor]) -> Callable[[Tensor, T], Tensor]:
    """Give the same for the same: a tensor that serves several positions still does so."""
    known: dict[tuple[int, int], Tensor] = {}

    def call(x: Tensor, at: T) -> Tensor:
        if (id(x), id(at)) not in known:
            known[id(x), id(at)] = function(x, at)
        return known[id(x), id(at)]

    return call


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows, ``[R, K]`` or ``[R, K, D]``, laid out in memory as they were."""
    turned = x.dim() == 3 and x.transpose(1, 2).is_contiguous()
    x = x.transpose(1, 2) if turned else x
    flat = x.flatten(1) if x.is_contiguous() else x  # a matrix has its gradients added up faster
    found = flat.index_select(0, rows).view(rows.numel(), *x.shape[1:])
    return found.transpose(1, 2) if turned else found


def widen(x: Tensor) -> Tensor:
    """Return float32 instead of a narrower type: sums of exponentials need that."""
    return x.float() if _narrow(x) else x


def _narrow(x: Tensor) -> bool:
    return x.dtype in (torch.bfloat16, torch.float16)


def check(problem: Problem) -> None:
    """Refuse arguments whose shapes do not fit the chain, naming the one at fault."""
    chain, values, attention = problem.chain, problem.values, problem.attention
    if attention.dim() != 2:
        raise HanmeError(f"Expected `attention` to be [K, D], but got {list(attention.shape)}")
    heads, channels = attention.shape
    hops = len(chain)
    if not 0 <= problem.dropout < 1:
        raise HanmeError(f"Expected `dropout` to be in [0, 1), but got {problem.dropout}")
    if len(values) != hops + 1:
        raise HanmeError(f"Expected `values` to have {hops + 1} positions, but got {len(values)}")
    shapes: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        (f"values[{i}]", value, (chain.sizes[i], heads, channels)) for i, value in enumerate(values)
    ]
    shapes.append(("root_score", problem.root_score, (chain.sizes[0], heads)))
    match problem.coefficients:
        case Constant(c):
            if len(c) != hops + 1:
                raise HanmeError(f"Expected {hops + 1} constants, but got {len(c)}")
        case LinkProduct(root, links):
            shapes.append(("coefficients.root", root, (chain.sizes[0], heads)))
            for i, link in enumerate(links):
                shapes.append((f"coefficients.links[{i}]", link, (chain.indices[i].size(0), heads)))
        case PairSigmoid(query, keys):
            shapes.append(("coefficients.query", query, (chain.sizes[0], heads, channels)))
            for i, key in enumerate(keys):
                shapes.append((f"coefficients.keys[{i}]", key, (chain.sizes[i], heads, channels)))
        case PathFunction(_, links):
            if any(value is None for value in values):
                raise HanmeError("Expected `values` at every position for a PathFunction")
            for i, link in enumerate(links):
                size = (chain.indices[i].size(0), *link.shape[1:])
                shapes.append((f"coefficients.links[{i}]", link, size))
    for i, mask in enumerate(problem.link_masks):
        shapes.append((f"link_masks[{i}]", mask, (chain.indices[i].size(0), 1)))
    for name, tensor, shape in shapes:
        if tensor is not None and tensor.shape != torch.Size(shape):
            raise HanmeError(f"Expected `{name}` to be {list(shape)}, but got {list(tensor.shape)}")
