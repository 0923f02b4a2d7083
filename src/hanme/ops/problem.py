"""What a backend of :func:`metapath_attention` is given, checked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph.chain import Chain, Instances, Restriction
from hanme.ops.autocast import widen
from hanme.ops.coefficients import Coefficients, Constant, LinkProduct, PairSigmoid
from hanme.ops.dropout import keep

T = TypeVar("T")


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
    seed: int | Tensor

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
        """Return the same problem without the narrow types that autocast makes."""
        if not torch.is_autocast_enabled(self.attention.device.type):
            return self
        alike = [None] * len(self.values)
        wide = self._mapped(_once(lambda x, _: widen(x)), alike, alike[1:])
        return replace(wide, attention=widen(self.attention))

    def within(self, restricted: Restriction) -> Problem:
        """Return the same problem on a restriction of its chain, for its roots."""
        rows = [restricted.nodes[t] for t in self.chain.metapath.node_types]
        found = self._mapped(_once(take), rows, restricted.links[0])
        return replace(found, chain=restricted.chains[0], roots=restricted.roots)

    def along(self, instances: Instances) -> Problem:
        """Return the problem of roots with these instances alone, grouped by root, ascending."""
        first = torch.unique(self.roots)
        chain, through = self.chain.unfold(instances, first)
        nodes = [column[at] for column, at in zip(instances.nodes.t()[1:], through, strict=True)]
        links = [column[at] for column, at in zip(instances.links.t(), through, strict=True)]
        found = self._mapped(take, [first, *nodes], links)
        return replace(found, chain=chain, roots=torch.searchsorted(first, self.roots))

    def dropped(self, weight: Tensor, instances: Instances) -> Tensor:
        """Apply dropout to the weights of some instances, ``[P, K]``."""
        if self.dropout == 0:
            return weight
        roots = self.chain.original(instances.nodes[:, 0])
        kept = keep(self.seed, roots, instances.number, self.heads, self.dropout)
        return weight * kept / (1 - self.dropout)

    def _mapped(
        self, function: Callable[[Tensor, T], Tensor], nodes: Sequence[T], links: Sequence[T]
    ) -> Problem:
        """Apply a function to what there is by node of a position, and by link of a hop.

        It is told which of ``nodes`` or ``links`` this is.
        """
        pairs = zip(self.values, nodes, strict=True)
        values = tuple(value if value is None else function(value, at) for value, at in pairs)
        c = self.coefficients
        if isinstance(c, LinkProduct):
            c = LinkProduct(function(c.root, nodes[0]), tuple(map(function, c.links, links)))
        elif isinstance(c, PairSigmoid):
            c = PairSigmoid(function(c.query, nodes[0]), tuple(map(function, c.keys, nodes)))
        score = function(self.root_score, nodes[0])
        return replace(self, values=values, coefficients=c, root_score=score)


def _once(function: Callable[[Tensor, T], Tensor]) -> Callable[[Tensor, T], Tensor]:
    """Give the same for the same: a tensor that serves several positions still does so."""
    known: list[tuple[Tensor, T, Tensor]] = []

    def call(x: Tensor, at: T) -> Tensor:
        for before, there, found in known:
            if before is x and there is at:
                return found
        known.append((x, at, function(x, at)))
        return known[-1][2]

    return call


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows, ``[R, K]`` or ``[R, K, D]``, laid out in memory as they were."""
    turned = x.dim() == 3 and x.transpose(1, 2).is_contiguous()
    x = x.transpose(1, 2) if turned else x
    flat = x.flatten(1) if x.is_contiguous() else x  # a matrix has its gradients added up faster
    found = flat.index_select(0, rows).view(rows.numel(), *x.shape[1:])
    return found.transpose(1, 2) if turned else found


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
    for position, value in enumerate(values):
        if value is not None:
            _shape(f"values[{position}]", value, (chain.sizes[position], heads, channels))
    _shape("root_score", problem.root_score, (chain.sizes[0], heads))
    match problem.coefficients:
        case Constant(c):
            if len(c) != hops + 1:
                raise HanmeError(f"Expected {hops + 1} constants, but got {len(c)}")
        case LinkProduct(root, links):
            _shape("coefficients.root", root, (chain.sizes[0], heads))
            for hop, link in enumerate(links):
                _shape(f"coefficients.links[{hop}]", link, (chain.indices[hop].numel(), heads))
        case PairSigmoid(query, keys):
            _shape("coefficients.query", query, (chain.sizes[0], heads, channels))
            for position, key in enumerate(keys):
                size = chain.sizes[position]
                _shape(f"coefficients.keys[{position}]", key, (size, heads, channels))


def _shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != torch.Size(shape):
        raise HanmeError(f"Expected `{name}` to be {list(shape)}, but got {list(tensor.shape)}")
