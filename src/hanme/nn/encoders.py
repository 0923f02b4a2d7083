"""Encoders turn a metapath instance into one vector per head: e(p) = Σ_l c_l(p) V_l[v_l]."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.common.registry import Registry
from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath
from hanme.nn.parts import glorot, make
from hanme.ops import Coefficients, Constant, LinkProduct, PairSigmoid, PathFunction, tanh_scores
from hanme.ops.eager import group_softmax

GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "tanh": torch.tanh,
}
"""The gates of :class:`Multihop` that act on each link by itself."""


@dataclass(frozen=True)
class Terms:
    """The values V_l, None where a position adds nothing, and what gives the scalars c_l."""

    values: tuple[Tensor | None, ...]
    coefficients: Coefficients


class Encoder(nn.Module):
    """Base class. A subclass writes :meth:`forward`; its constructor draws its weights.

    Args:
        heads: Number of heads, K.
        channels: Size of a head, D.
        metapaths: The metapaths to encode, for parameters that depend on them.
    """

    def __init__(self, heads: int, channels: int, metapaths: Sequence[Metapath] = ()) -> None:
        super().__init__()
        self.heads, self.channels = heads, channels

    @classmethod
    def node_types(cls, metapath: Metapath) -> Sequence[str]:
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


class PathEncoder(Encoder):
    """Base class of encoders that are any function of an instance, such as a GRU.

    Instances are listed, a block at a time: memory and time grow with their number. A subclass
    writes :meth:`encode`; its constructor draws its weights.
    """

    def encode(self, values: Tensor, links: Sequence[Tensor], metapath: Metapath) -> Tensor:
        """Return one vector per head, ``[P, K, D]``, for some instances of a metapath.

        Args:
            values: The projected features of their nodes by position, ``[P, L + 1, K, D]``.
            links: The features of their links by hop, ``[P, F]``; empty where a hop has none.
            metapath: The metapath.
        """
        raise NotImplementedError

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        terms = []
        for chain in chains:
            values = tuple(h[t] for t in chain.metapath.node_types)
            links = tuple(
                indices.new_empty(indices.numel(), 0) if x is None else x
                for indices, x in zip(chain.indices, chain.features, strict=False)
            )
            encode = functools.partial(self._encode, chain.metapath)
            terms.append(Terms(values, PathFunction(encode, links)))
        return terms

    def _encode(self, metapath: Metapath, values: Tensor, links: Sequence[Tensor]) -> Tensor:
        """Encode in the type of the weights, which may be narrower than that of the operator."""
        kind = next((p.dtype for p in self.parameters()), values.dtype)
        encoded = self.encode(values.to(kind), [x.to(kind) for x in links], metapath)
        if encoded.shape != values[:, 0].shape:
            raise HanmeError(
                f"encoder {type(self).__name__}: expected `encode` to return "
                f"{list(values[:, 0].shape)}, but got {list(encoded.shape)}"
            )
        return encoded.to(values.dtype)


class Multihop(Encoder):
    r"""MAGNA's diffusion :math:`\sum_m \gamma (1-\gamma)^m A^m` on the chain v0 <- v1 <- ... <- vL.

    .. math::
        e(p) = \gamma\, a(v_0, v_0) h_{v_0}
        + \sum_{i=1}^{L} \gamma (1-\gamma)^i \Big(\prod_{j=1}^{i} a(v_{j-1}, v_j)\Big) h_{v_i},
        \qquad a(u, w) = \sigma(\mathrm{LeakyReLU}(v_a \cdot \tanh[W_h h_u \,\Vert\, W_t h_w]))

    Args:
        gamma: The share γ that stays at each hop, in (0, 1).
        learn_gamma: Learn a γ per metapath, starting from ``gamma``.
        gate: What stands for σ in a(u, w): ``"sigmoid"``, ``"relu"``, ``"tanh"``, or ``"softmax"``
            over the links of u that continue along the metapath. The root's link to itself is its
            only one: softmax gives it 1.
        negative_slope: LeakyReLU's slope below 0 (default: that of the metapath channels).
        edge_dim: The size of link features by relation. A linear function of them is added to the
            score of a link, before LeakyReLU (default: none are read).
    """

    def __init__(
        self,
        heads: int,
        channels: int,
        metapaths: Sequence[Metapath] = (),
        *,
        gamma: float = 0.4,
        learn_gamma: bool = False,
        gate: Literal["sigmoid", "relu", "tanh", "softmax"] = "sigmoid",
        negative_slope: float = 0.2,
        edge_dim: Mapping[EdgeType, int] | None = None,
    ) -> None:
        super().__init__(heads, channels, metapaths)
        if not 0 < gamma < 1:
            raise HanmeError(f"Expected `gamma` to be between 0 and 1, but got {gamma}")
        check_choice("gate", gate, (*GATES, "softmax"))
        self.gamma, self.gate, self.negative_slope = gamma, gate, negative_slope
        self.W_h = nn.Parameter(glorot(torch.empty(heads, channels, channels)))
        self.W_t = nn.Parameter(glorot(torch.empty(heads, channels, channels)))
        self.v_a = nn.Parameter(glorot(torch.empty(heads, 2 * channels)))
        logit = math.log(gamma / (1 - gamma))  # γ = σ(logit), one per metapath
        self.gamma_logit = (
            nn.Parameter(torch.full((len(metapaths),), logit)) if learn_gamma else None
        )
        steps = dict.fromkeys(step for metapath in metapaths for step in metapath.steps)
        self.steps = [step for step in steps if step in (edge_dim or {})]
        self.att_link = nn.ParameterList(
            glorot(torch.empty((edge_dim or {})[step], heads)) for step in self.steps
        )

    def forward(self, h: Mapping[str, Tensor], chains: Sequence[Chain]) -> list[Terms]:
        """Return the terms for each chain from projected features ``[N, K, D]`` by node type."""
        # tanh acts on each half of the concatenation by itself, so that
        # v_a · tanh([W_h h_u ‖ W_t h_w]) = s[u] + t[w]: two numbers per node and head.
        types = dict.fromkeys(t for chain in chains for t in chain.metapath.node_types)
        weight, v = torch.stack([self.W_h, self.W_t]), torch.unflatten(self.v_a, 1, (2, -1))
        scores = {t: tanh_scores(h[t], weight, v.transpose(0, 1)) for t in types}
        if self.gamma_logit is not None:
            gammas = self.gamma_logit.sigmoid().unbind()
            pairs = zip(chains, gammas, strict=True)
            return [self._terms(h, scores, g, g * self._own(scores, c), c) for c, g in pairs]
        # Metapaths from one node type share c_0.
        starts = {chain.metapath.root: chain for chain in chains}
        roots = {t: self.gamma * self._own(scores, chain) for t, chain in starts.items()}
        return [self._terms(h, scores, self.gamma, roots[c.metapath.root], c) for c in chains]

    def _own(self, scores: Mapping[str, Tensor], chain: Chain) -> Tensor:
        """Return a(v0, v0), ``[N_0, K]``."""
        s, t = scores[chain.metapath.root]
        return self._weight(s + t, torch.arange(chain.sizes[0], device=s.device), chain.sizes[0])

    def _terms(
        self,
        h: Mapping[str, Tensor],
        scores: Mapping[str, Tensor],
        gamma: float | Tensor,
        root: Tensor,
        chain: Chain,
    ) -> Terms:
        types = chain.metapath.node_types
        s, t = zip(*(scores[node_type] for node_type in types), strict=True)  # by position
        links = []
        for hop, indices in enumerate(chain.indices):
            sources = chain.sources(hop)
            score = s[hop].index_select(0, sources) + t[hop + 1].index_select(0, indices)
            if chain.metapath.steps[hop] in self.steps:
                score = score + self._of_features(chain, hop)
            links.append((1 - gamma) * self._weight(score, sources, chain.sizes[hop]))
        links[0] = gamma * links[0]  # so that each prefix product holds γ once
        return Terms(tuple(h[node_type] for node_type in types), LinkProduct(root, tuple(links)))

    def _of_features(self, chain: Chain, hop: int) -> Tensor:
        """Return what the features of a hop's links add to their scores, ``[E, K]``."""
        step = chain.metapath.steps[hop]
        weight = self.att_link[self.steps.index(step)]
        x = chain.features[hop] if chain.features else None
        if x is None or x.size(1) != weight.size(0):
            raise HanmeError(
                f"relation {step}: expected edge_attr [E, {weight.size(0)}], but got "
                f"{'none' if x is None else list(x.shape)}; instances that are sampled have none"
            )
        added: Tensor = x.to(weight.dtype) @ weight
        return added

    def _weight(self, score: Tensor, sources: Tensor, nodes: int) -> Tensor:
        """Return a(u, w) of links, ``[E, K]``, from their scores; ``sources`` are their u."""
        score = F.leaky_relu(score, self.negative_slope)
        if self.gate == "softmax":
            return group_softmax(score, sources, nodes)
        return GATES[self.gate](score)


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
        self.W_h = nn.Parameter(glorot(torch.empty(heads, channels, channels)))
        self.W_t = nn.Parameter(glorot(torch.empty(heads, channels, channels)))

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

    @classmethod
    def node_types(cls, metapath: Metapath) -> Sequence[str]:
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
        # All metapaths start from one matrix: their encodings must be comparable to be added.
        W = glorot(torch.empty(heads, channels, channels))
        self.W = nn.Parameter(W.repeat(len(metapaths), 1, 1, 1))

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
        angle = torch.empty(pairs, heads, channels // 2)
        self.angle = nn.Parameter(angle.uniform_(-math.pi, math.pi))

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


ENCODERS: Registry[type[Encoder]] = Registry(
    "encoder",
    Encoder,
    {
        "multihop": Multihop,
        "direct": Direct,
        "mean": Mean,
        "linear": Linear,
        "rotate": RotatE,
        "end": End,
    },
)


def encoder_kind(encoder: str | type[Encoder] | Encoder) -> type[Encoder] | Encoder:
    """Return the class of an encoder that is made, or the encoder given."""
    return ENCODERS.find(encoder) if isinstance(encoder, str) else encoder


def make_encoder(
    encoder: str | type[Encoder] | Encoder,
    heads: int,
    channels: int,
    metapaths: Sequence[Metapath],
    options: Mapping[str, object],
    defaults: Mapping[str, object] | None = None,
) -> Encoder:
    """Make an encoder from its name or class and its options, or take the one given.

    ``defaults`` are options for the encoders that have them.
    """
    kind = encoder_kind(encoder)
    if defaults and isinstance(kind, type):
        known = inspect.signature(kind).parameters
        options = {k: v for k, v in defaults.items() if k in known} | dict(options)
    own = {"heads": heads, "channels": channels, "metapaths": metapaths}
    made = make(encoder, ENCODERS, own, options)
    if (made.heads, made.channels) != (heads, channels):
        raise HanmeError(
            f"Expected an encoder for {heads} heads of {channels}, "
            f"but got one for {made.heads} heads of {made.channels}"
        )
    return made
