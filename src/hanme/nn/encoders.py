"""Encoders turn a metapath instance into one vector per head: e(p) = Σ_l c_l(p) V_l[v_l]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath
from hanme.nn.parts import glorot, make
from hanme.ops import Coefficients, Constant, LinkProduct, PairSigmoid, tanh_scores


@dataclass(frozen=True)
class Terms:
    """The values V_l, None where a position adds nothing, and what gives the scalars c_l."""

    values: tuple[Tensor | None, ...]
    coefficients: Coefficients


class Encoder(nn.Module):
    """Base class. A subclass writes :meth:`forward` and, with weights, `reset_parameters`.

    Args:
        heads: Number of heads, K.
        channels: Size of a head, D.
        metapaths: The metapaths to encode, for parameters that depend on them.
    """

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__()
        self.heads, self.channels = heads, channels

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        glorot(*self.parameters())

    def node_types(self, metapath: Metapath) -> Sequence[str]:
        """Return the types whose features an encoding of this metapath reads."""
        return metapath.node_types

    def view(self, chain: Chain) -> Chain:
        """Return the chain whose instances are encoded: the metapath's own, unless overridden."""
        return chain

    def pick(self, metapath: Metapath, nodes: Tensor) -> tuple[Metapath, Tensor]:
        """Return what is encoded of some instances, ``[P, L + 1]``, as :meth:`view` sees them."""
        return metapath, nodes

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        raise NotImplementedError


class Multihop(Encoder):
    r"""MAGNA's diffusion :math:`\sum_m \gamma (1-\gamma)^m A^m` on the chain v0 <- v1 <- ... <- vL.

    .. math::
        e(p) = \gamma\, a(v_0, v_0) h_{v_0}
        + \sum_{i=1}^{L} \gamma (1-\gamma)^i \Big(\prod_{j=1}^{i} a(v_{j-1}, v_j)\Big) h_{v_i},
        \qquad a(u, w) = \sigma(\mathrm{LeakyReLU}(v_a \cdot \tanh[W_h h_u \,\Vert\, W_t h_w]))

    Args:
        gamma: The share γ that stays at each hop, in (0, 1).
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        metapaths: Sequence[Metapath] = (),
        *,
        gamma: float = 0.4,
    ) -> None:
        super().__init__(heads, channels, metapaths)
        if not 0 < gamma < 1:
            raise HanmeError(f"Expected `gamma` to be between 0 and 1, but got {gamma}")
        self.gamma = gamma
        self.W_h = nn.Parameter(torch.empty(heads, channels, channels))
        self.W_t = nn.Parameter(torch.empty(heads, channels, channels))
        self.v_a = nn.Parameter(torch.empty(heads, 2 * channels))
        self.reset_parameters()

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        # tanh acts on each half of the concatenation by itself, so that
        # v_a · tanh([W_h h_u ‖ W_t h_w]) = s[u] + t[w]: two numbers per node and head.
        types = dict.fromkeys(t for chain in chains for t in chain.metapath.node_types)
        weight, v = torch.stack([self.W_h, self.W_t]), torch.unflatten(self.v_a, 1, (2, -1))
        scores = {t: tanh_scores(h[t], weight, v.transpose(0, 1)) for t in types}
        starts = dict.fromkeys(chain.metapath.root for chain in chains)
        roots = {t: self.gamma * self._weight(scores[t][0] + scores[t][1]) for t in starts}
        return [self._terms(h, scores, roots[chain.metapath.root], chain) for chain in chains]

    def _terms(
        self, h: Mapping[str, Tensor], scores: Mapping[str, Tensor], root: Tensor, chain: Chain
    ) -> Terms:
        types = chain.metapath.node_types
        s, t = zip(*(scores[node_type] for node_type in types), strict=True)  # by position
        links = [
            (1 - self.gamma)
            * self._weight(
                s[hop].index_select(0, chain.sources(hop)) + t[hop + 1].index_select(0, indices)
            )
            for hop, indices in enumerate(chain.indices)
        ]
        links[0] = self.gamma * links[0]  # so that each prefix product holds γ once
        return Terms(tuple(h[node_type] for node_type in types), LinkProduct(root, tuple(links)))

    def _weight(self, score: Tensor) -> Tensor:
        return torch.sigmoid(F.leaky_relu(score, 0.2))


class Direct(Encoder):
    r"""The sum of all positions, each as far as the root attends to it.

    :math:`e(p) = \sum_i \sigma(\langle q, k_i \rangle / \sqrt{D})\, h_{v_i}` with
    :math:`q = h_{v_0} W_t` and :math:`k_i = h_{v_i} W_h`.

    Args:
        values: What is summed: ``"projected"`` features h, which the paper's figures are made
            with, or ``"transformed"`` ones, the paper's formula (k_i, and q at the root).
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        metapaths: Sequence[Metapath] = (),
        *,
        values: Literal["projected", "transformed"] = "projected",
    ) -> None:
        super().__init__(heads, channels, metapaths)
        check_choice("values", values, ("projected", "transformed"))
        self.values = values
        self.W_h = nn.Parameter(torch.empty(heads, channels, channels))
        self.W_t = nn.Parameter(torch.empty(heads, channels, channels))
        self.reset_parameters()

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        types = dict.fromkeys(t for chain in chains for t in chain.metapath.node_types)
        k = {t: torch.einsum("nkd,kde->nke", h[t], self.W_h) for t in types}
        roots = dict.fromkeys(chain.metapath.root for chain in chains)
        q = {t: torch.einsum("nkd,kde->nke", h[t], self.W_t) for t in roots}
        terms = []
        for chain in chains:
            root, *others = chain.metapath.node_types
            query = q[root] / math.sqrt(self.channels)
            if self.values == "projected":
                keys = (k[root], *(k[t] for t in others))
                values = tuple(h[t] for t in chain.metapath.node_types)
            else:
                keys = values = (q[root], *(k[t] for t in others))
            terms.append(Terms(values, PairSigmoid(query, keys)))
        return terms


class End(Encoder):
    r"""HAN's: :math:`e(p) = h_{v_L}`, each distinct end of a root's instances once."""

    def node_types(self, metapath: Metapath) -> Sequence[str]:
        """Return the types of root and end."""
        return metapath.node_types[0], metapath.node_types[-1]

    def view(self, chain: Chain) -> Chain:
        """Return the chain from each root to its distinct ends."""
        return chain.ends

    def pick(self, metapath: Metapath, nodes: Tensor) -> tuple[Metapath, Tensor]:
        """Return the distinct ends of each root's instances."""
        return metapath.in_one_step(), torch.unique(nodes[:, [0, -1]], dim=0)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        ends = (chain.metapath.node_types[-1] for chain in chains)
        return [Terms((None, h[end]), Constant((0.0, 1.0))) for end in ends]


class Mean(Encoder):
    r"""MAGNN's first: :math:`e(p) = \frac{1}{L+1} \sum_l h_{v_l}`."""

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        return [_mean([h[t] for t in chain.metapath.node_types]) for chain in chains]


class Linear(Encoder):
    r"""MAGNN's second: :math:`e(p) = W_\Phi \frac{1}{L+1} \sum_l h_{v_l}`, W per metapath."""

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__(heads, channels, metapaths)
        self.W = nn.Parameter(torch.empty(len(metapaths), heads, channels, channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw one matrix for all metapaths: their encodings must be comparable to be added."""
        glorot(self.W[:1])
        self.W[1:] = self.W[:1]

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        terms = []
        for W, chain in zip(self.W, chains, strict=True):
            types = chain.metapath.node_types
            product = {t: torch.einsum("nkd,kde->nke", h[t], W) for t in set(types)}
            terms.append(_mean([product[t] for t in types]))  # once per node, not per instance
        return terms


class RotatE(Encoder):
    r"""MAGNN's third: the mean of the positions, each rotated by the relations towards the root.

    The halves of h are the real and the imaginary parts of D / 2 complex numbers. Each relation
    has as many unit complex numbers :math:`e^{i \theta}`, its inverse their conjugates; position l
    is rotated by the product of the relations of its l steps towards the root, each the inverse of
    one of the metapath's. D is even.
    """

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__(heads, channels, metapaths)
        if channels % 2:
            raise HanmeError(
                f"Expected the size of a head to be even for RotatE, but got {channels}"
            )
        self._place: dict[EdgeType, tuple[int, int]] = {}  # which angles, and their sign
        pairs = 0
        for step in (step for metapath in metapaths for step in metapath.steps):
            if step not in self._place:
                self._place[step] = (pairs, 1)
                source, relation, end = step
                for name in (relation, f"rev_{relation}", relation.removeprefix("rev_")):
                    self._place.setdefault((end, name, source), (pairs, -1))
                pairs += 1
        self.angle = nn.Parameter(torch.empty(pairs, heads, channels // 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the angles anew."""
        nn.init.uniform_(self.angle, -math.pi, math.pi)

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        return [_mean(self._rotated(h, chain.metapath)) for chain in chains]

    def _rotated(self, h: Mapping[str, Tensor], metapath: Metapath) -> list[Tensor]:
        values = [h[metapath.root]]
        angle = torch.zeros_like(self.angle[0])
        for step in metapath.steps:
            place, sign = self._place[step]
            angle = angle - sign * self.angle[place]  # the step back
            real, imaginary = h[step[2]].chunk(2, dim=-1)
            cos, sin = angle.cos(), angle.sin()
            rotated = (real * cos - imaginary * sin, real * sin + imaginary * cos)
            values.append(torch.cat(rotated, dim=-1))
        return values


def _mean(values: Sequence[Tensor]) -> Terms:
    return Terms(tuple(values), Constant((1 / len(values),) * len(values)))


ENCODERS: dict[str, type[Encoder]] = {
    "multihop": Multihop,
    "direct": Direct,
    "mean": Mean,
    "linear": Linear,
    "rotate": RotatE,
    "end": End,
}


def make_encoder(
    encoder: str | type[Encoder] | Encoder,
    heads: int,
    channels: int,
    metapaths: Sequence[Metapath],
    options: Mapping[str, object],
) -> Encoder:
    """Make an encoder from its name or class and its options, or take the one given."""
    own = {"heads": heads, "channels": channels, "metapaths": metapaths}
    made = make("encoder", encoder, ENCODERS, own, options)
    if (made.heads, made.channels) != (heads, channels):
        raise HanmeError(
            f"Expected an encoder for {heads} heads of {channels}, "
            f"but got one for {made.heads} heads of {made.channels}"
        )
    return made
