"""What a backend of :func:`metapath_attention` is given, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hanme.chain import Chain, Instances, Piece
from hanme.errors import HanmeError
from hanme.ops.autocast import widen
from hanme.ops.coefficients import Coefficients, Constant, LinkProduct, PairSigmoid


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
        wide = self._gathered(lambda x, _: widen(x), lambda x, _: widen(x))
        return replace(wide, attention=widen(self.attention))

    def within(self, piece: Piece) -> Problem:
        """Return the same problem on a piece of its chain, for the piece's roots."""
        found = self._gathered(
            lambda x, node_type: x.index_select(0, piece.nodes[node_type]),
            lambda x, hop: x.index_select(0, piece.links[0][hop]),
        )
        return replace(found, chain=piece.chains[0], roots=piece.roots)

    def along(self, instances: Instances) -> Problem:
        """Return the problem of roots that have some of their instances alone.

        Args:
            instances: Instances of the roots, grouped by root, ascending.
        """
        first, c = torch.unique(self.roots), self.coefficients
        at = [first, *instances.nodes.t()[1:]]
        values = [
            x if x is None else x.index_select(0, rows)
            for x, rows in zip(self.values, at, strict=True)
        ]
        if isinstance(c, LinkProduct):
            links = zip(c.links, instances.links.t(), strict=True)
            c = LinkProduct(c.root[first], tuple(w.index_select(0, rows) for w, rows in links))
        elif isinstance(c, PairSigmoid):
            keys = zip(c.keys, at, strict=True)
            c = PairSigmoid(c.query[first], tuple(key.index_select(0, rows) for key, rows in keys))
        return replace(
            self,
            chain=self.chain.unfold(instances, first),
            values=tuple(values),
            coefficients=c,
            root_score=self.root_score[first],
            roots=torch.searchsorted(first, self.roots),
        )

    def _gathered(
        self, of_nodes: Callable[[Tensor, str], Tensor], of_links: Callable[[Tensor, int], Tensor]
    ) -> Problem:
        """Apply functions to what there is by node of a type, and by link of a hop.

        A tensor that serves several positions of a type still does so afterwards.
        """
        types = self.chain.metapath.node_types
        known: list[tuple[Tensor, str, Tensor]] = []

        def once(x: Tensor, node_type: str) -> Tensor:
            for before, of_type, found in known:
                if before is x and of_type == node_type:
                    return found
            known.append((x, node_type, of_nodes(x, node_type)))
            return known[-1][2]

        values = [v if v is None else once(v, t) for v, t in zip(self.values, types, strict=True)]
        c = self.coefficients
        if isinstance(c, LinkProduct):
            links = [of_links(weight, hop) for hop, weight in enumerate(c.links)]
            c = LinkProduct(once(c.root, types[0]), tuple(links))
        elif isinstance(c, PairSigmoid):
            keys = [once(key, t) for key, t in zip(c.keys, types, strict=True)]
            c = PairSigmoid(once(c.query, types[0]), tuple(keys))
        score = once(self.root_score, types[0])
        return replace(self, values=tuple(values), coefficients=c, root_score=score)


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
