"""Metapath channels: attention over the encoded instances of each metapath."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hanme.errors import HanmeError, check_choice
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain, Instances
from hanme.graph.metapath import EdgeType, Metapath, Walk
from hanme.nn.batch import Batch
from hanme.nn.channels.base import Channels, Task, Traced
from hanme.nn.encoders import Encoder, encoder_kind, make_encoder
from hanme.nn.parts import Projections, check_dropouts, check_heads, features_of, glorot
from hanme.ops import Coefficients, Problem, head_dots, metapath_attention
from hanme.ops.dropout import node_dropout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu}

_Arguments = tuple[Chain, tuple[Tensor | None, ...], Coefficients, Tensor, Tensor]
_Walked = tuple[list[Chain], Sequence[Instances | None]]
"""The chain of each metapath, and the instances to attend to; None for all of them."""


class MetapathChannels(Channels):
    r"""A channel per metapath, the activation of attention over encoded instances.

    Features are projected by node type, instances encoded, and a root attends to them with
    :math:`\mathrm{LeakyReLU}(a_\Phi \cdot [h_{v_0} \,\Vert\, e(p)])`. Metapaths share projections
    and encoder; each has an :math:`a_\Phi` of its own.

    Args:
        task: What they are made for; metapaths may start at any node type.
        out_channels: The size of a vector, a multiple of ``heads``.
        metapaths: Texts such as ``"movie-actor-movie"`` or lists of edge types.
        encoder: A name in ``ENCODERS``, a class or an instance of :class:`Encoder`.
        heads: The number of attention heads, K.
        attention: How instances are weighed: ``"learned"``, or ``"uniform"``, their mean, as a
            control.
        negative_slope: LeakyReLU's slope below 0, also in the encoder ``"multihop"``.
        dropout: Dropout on the attention weights of the instances.
        feature_dropout: Dropout on the projected features.
        activation: What z of a metapath goes through, ``"relu"`` or ``"elu"``.
        backend: How attention is computed: ``"auto"``, ``"streaming"``, ``"chunked"`` or
            ``"eager"``.
        per_root: Maximum number of instances per metapath and node to attend to in batches, drawn
            evenly and anew each epoch (default: all).
        **options: Options of the encoder, such as ``gamma`` of ``"multihop"``.
    """

    def __init__(
        self,
        task: Task,
        out_channels: int,
        metapaths: Sequence[str | Metapath | Sequence[EdgeType]],
        *,
        encoder: str | type[Encoder] | Encoder = "multihop",
        heads: int = 1,
        attention: Literal["learned", "uniform"] = "learned",
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
        activation: str = "relu",
        backend: str = "auto",
        per_root: int | None = None,
        **options: object,
    ) -> None:
        super().__init__(task, out_channels)
        check_heads(out_channels, heads)
        check_dropouts(dropout=dropout, feature_dropout=feature_dropout)
        check_choice("activation", activation, ACTIVATIONS)
        check_choice("attention", attention, ("learned", "uniform"))
        if per_root is not None and per_root < 1:
            raise HanmeError(f"Expected `per_root` to be at least 1, but got {per_root}")
        if not metapaths:
            raise HanmeError("Expected at least one metapath, but got none")
        self.metapaths = [Metapath.of(spec, task.metadata) for spec in metapaths]
        for metapath in self.metapaths:
            if self.metapaths.count(metapath) > 1:
                raise HanmeError(f"metapath {metapath}: it is given more than once")
        self.names = [metapath.text for metapath in self.metapaths]
        self.heads, self.backend, self.per_root = heads, backend, per_root
        self.dropout, self.feature_dropout = dropout, feature_dropout
        self.activation, self.negative_slope = ACTIVATIONS[activation], negative_slope
        channels = out_channels // heads
        defaults = {"negative_slope": negative_slope, "edge_dim": task.edge_dim}
        read = encoder_kind(encoder).node_types
        types = dict.fromkeys(t for m in self.metapaths for t in read(m))
        self.proj = Projections(types, task.in_channels, out_channels)
        self.encoder = make_encoder(encoder, heads, channels, self.metapaths, options, defaults)
        # a_Φ of score(p) = LeakyReLU(a_Φ · [h_v0 ‖ e(p)]), its two halves; uniform: every score 0.
        scored = self.metapaths if attention == "learned" else []
        self.att_root = nn.ParameterList(glorot(torch.empty(1, heads, channels)) for _ in scored)
        self.att_instance = nn.ParameterList(
            glorot(torch.empty(1, heads, channels)) for _ in scored
        )
        self._sampled: GraphCache[_Walked] = GraphCache()

    def forward(
        self, batch: Batch, link_masks: Mapping[EdgeType, Tensor] | None = None
    ) -> list[Tensor]:
        """Return the vectors along each metapath, ``[R, out_channels]``.

        ``link_masks`` hold a factor for each link of some relations, ``[E]``. The weight of an
        instance is multiplied by those of its links.
        """
        chains, instances = self._walked(batch)
        masks = [self._masks(batch, chain, link_masks or {}) for chain in chains]
        return [
            self.activation(
                metapath_attention(
                    *arguments,
                    roots=batch.roots,
                    instances=some,
                    link_masks=of_links,
                    negative_slope=self.negative_slope,
                    dropout=self.dropout if self.training else 0.0,
                    backend=self.backend,
                ).flatten(1)
            )
            for arguments, some, of_links in zip(
                self._arguments(batch, chains), instances, masks, strict=True
            )
        ]

    def _masks(self, batch: Batch, chain: Chain, given: Mapping[EdgeType, Tensor]) -> list[Tensor]:
        """Return the masks of each hop's links in the chain's order, ``[E_j, 1]``."""
        if not given:
            return []
        masks = []
        for hop, step in enumerate(chain.metapath.steps):
            if step not in batch.edge_index_dict:
                raise HanmeError(
                    f"encoder {type(self.encoder).__name__} counts each end of {chain.metapath} "
                    "once, whatever the links to it: link masks need another encoder"
                )
            links = batch.edge_index_dict[step]
            mask = given.get(step, links.new_ones(links.size(1), dtype=torch.float))
            if mask.shape != links.shape[1:]:
                raise HanmeError(
                    f"relation {step}: expected a mask of {links.size(1)} links, but got "
                    f"{list(mask.shape)}"
                )
            masks.append(mask[chain.link_ids(hop, links), None])
        return masks

    def prepare(self, batch: Batch) -> None:
        """Build the chains of a batch."""
        self._walked(batch)

    def walks(self) -> list[Walk]:
        """Return the metapaths, unless instances are sampled."""
        return [] if self.per_root else [metapath.steps for metapath in self.metapaths]

    def samples(self) -> dict[Walk, int]:
        """Return the metapaths, if instances are sampled."""
        return {m.steps: self.per_root for m in self.metapaths} if self.per_root else {}

    def trace(self, batch: Batch) -> list[Traced]:
        """Return the operator's problem for each metapath and all of its roots."""
        batch = replace(batch, roots=None)
        chains, instances = self._walked(batch)
        traced = []
        for arguments, some in zip(self._arguments(batch, chains), instances, strict=True):
            every = torch.arange(arguments[0].sizes[0], device=arguments[0].device)
            problem = Problem(*arguments, every, self.negative_slope, 0.0, 0)
            problem = problem if some is None else problem.along(some)
            traced.append(Traced(problem, self.activation))
        return traced

    def chains(self, batch: Batch) -> list[Chain]:
        """Return the chain of each metapath, as the encoder sees it."""
        return [self.encoder.view(batch.chain(metapath)) for metapath in self.metapaths]

    def _walked(self, batch: Batch) -> _Walked:
        if batch.sampled_instances is None:
            return self.chains(batch), [None] * len(self.metapaths)
        if batch.roots is None:
            return self._along(batch)
        return self._sampled.get([batch.roots], lambda: self._along(batch))

    def _along(self, batch: Batch) -> _Walked:
        """Return chains of the links that sampled instances walk, and the instances."""
        assert batch.sampled_instances is not None
        assert batch.original_ids is not None
        ids, sampled = batch.original_ids, batch.sampled_instances
        sizes = {t: numbers.numel() for t, numbers in ids.items()}
        picked = [self.encoder.pick(m, sampled[m.steps]) for m in self.metapaths]
        walked = [Chain.along(m, nodes, sizes, ids[m.root]) for m, nodes in picked]
        return [chain for chain, _ in walked], [instances for _, instances in walked]

    def _arguments(self, batch: Batch, chains: Sequence[Chain]) -> list[_Arguments]:
        """Return the operator's arguments for each metapath.

        All are made before the operator is first called: gradients add up in that order.
        """
        h = {t: lin(features_of(batch.x_dict, t), self.heads) for t, lin in self.proj.items()}
        dropout, ids = self.feature_dropout if self.training else 0.0, batch.original_ids
        h = {t: node_dropout(x, dropout, None if ids is None else ids[t]) for t, x in h.items()}
        arguments: list[_Arguments] = []
        for i, (chain, terms) in enumerate(zip(chains, self.encoder(h, chains), strict=True)):
            root = h[self.metapaths[i].root]
            if self.att_root:
                root_score = head_dots(root, self.att_root[i][0])  # a_Φ · h_v0
                attention = self.att_instance[i][0]
            else:
                root_score, attention = (
                    root.new_zeros(root.shape[:2]),
                    root.new_zeros(root.shape[1:]),
                )
            arguments.append((chain, terms.values, terms.coefficients, root_score, attention))
        return arguments
