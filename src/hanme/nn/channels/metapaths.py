"""Metapath channels: attention over the encoded instances of each metapath."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from hanme.common.csr import take_rows
from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import Chain, Instances, restrict
from hanme.graph.metapath import EdgeType, Metapath, Walk
from hanme.nn.batch import Batch
from hanme.nn.cache import Ahead, GraphCache
from hanme.nn.channels.base import Channels, Task, Traced
from hanme.nn.checks import check_dropouts, check_heads, features_of
from hanme.nn.encoders import Encoder, make_encoder
from hanme.nn.projection import Projections
from hanme.ops import (
    Attention,
    Coefficients,
    Problem,
    head_dots,
    instance_attention,
    metapath_attention,
)
from hanme.ops.dropout import node_dropout
from hanme.ops.problem import take

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu}

_Arguments = tuple[Chain, tuple[Tensor | None, ...], Coefficients, Tensor, Tensor]


@dataclass(frozen=True)
class _Read:
    """What a call reads: chains and features, on the model's device where not all nodes are read.

    ``nodes`` are the ids of the nodes by type, and ``roots`` the places of the roots among them;
    None for all of them. ``instances`` are those to attend to, None for all.
    """

    chains: Sequence[Chain]
    x_dict: Mapping[str, Tensor]
    nodes: Mapping[str, Tensor] | None = None
    roots: Tensor | None = None
    instances: Sequence[Instances] | None = None


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
        negative_slope: LeakyReLU's slope below 0.
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
        if per_root is not None and per_root < 1:
            raise HanmeError(
                f"Expected `per_root` to be at least 1 instance per root, but got {per_root}"
            )
        if not metapaths:
            raise HanmeError("Expected at least one metapath, but got none")
        self.metapaths = [Metapath.of(spec, task.metadata) for spec in metapaths]
        for metapath in self.metapaths:
            if self.metapaths.count(metapath) > 1:
                raise HanmeError(f"metapath {metapath}: it is given more than once")
        self.names = [metapath.text for metapath in self.metapaths]
        self.heads = heads
        self.negative_slope = negative_slope
        self.dropout = dropout
        self.feature_dropout = feature_dropout
        self.activation = ACTIVATIONS[activation]
        self.backend = backend
        self.per_root = per_root
        channels = out_channels // heads
        self.encoder = make_encoder(encoder, heads, channels, self.metapaths, options)
        types = dict.fromkeys(t for m in self.metapaths for t in self.encoder.node_types(m))
        self.proj = Projections(types, task.in_channels, out_channels)
        # a_Φ of score(p) = LeakyReLU(a_Φ · [h_v0 ‖ e(p)]), its two halves.
        self.att_root = nn.ParameterList(torch.empty(1, heads, channels) for _ in self.metapaths)
        self.att_instance = nn.ParameterList(
            torch.empty(1, heads, channels) for _ in self.metapaths
        )
        self._graph: GraphCache[list[Chain]] = GraphCache()
        self._viewed: GraphCache[list[Chain]] = GraphCache()
        self._ahead: Ahead[_Read] = Ahead()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.proj.reset_parameters()
        self.encoder.reset_parameters()
        glorot(self.att_root)
        glorot(self.att_instance)

    def forward(self, batch: Batch) -> list[Tensor]:
        """Return the vectors along each metapath, ``[R, out_channels]``.

        Asked for some roots, all of one node type, only what their instances touch is computed.
        """
        ahead = None if batch.roots is None else self._ahead.take(batch.roots)
        read = ahead or self._read(batch)
        every = read.instances or repeat(None, len(read.chains))
        return [
            self.activation(
                metapath_attention(
                    *arguments,
                    roots=read.roots,
                    instances=instances,
                    negative_slope=self.negative_slope,
                    dropout=self.dropout if self.training else 0.0,
                    backend=self.backend,
                ).flatten(1)
            )
            for arguments, instances in zip(self._arguments(read), every, strict=True)
        ]

    def prepare(self, batch: Batch) -> None:
        """Cut out what some roots touch, for the call with the same ``roots`` that follows."""
        if batch.roots is not None:
            self._ahead.put(batch.roots, self._read(batch))

    def walks(self) -> list[Walk]:
        """Return the metapaths, unless instances are sampled."""
        return [] if self.per_root else [metapath.steps for metapath in self.metapaths]

    def samples(self) -> dict[Walk, int]:
        """Return the metapaths, if instances are sampled."""
        return {m.steps: self.per_root for m in self.metapaths} if self.per_root else {}

    def _read(self, batch: Batch) -> _Read:
        if batch.sampled_instances is not None:
            return self._sampled(batch)
        if batch.roots is None:
            return _Read(self.chains(batch), batch.x_dict)
        piece = restrict(self._whole(batch), batch.roots)
        device = self.att_root[0].device
        rows = {t: take_rows(features_of(batch.x_dict, t), piece.nodes[t]) for t in self.proj}
        return _Read(
            [self.encoder.view(chain.to(device)) for chain in piece.chains],
            {t: x.to(device) for t, x in rows.items()},
            {t: _numbers(batch, t, piece.nodes[t]).to(device) for t in self.proj},
            piece.roots.to(device),
        )

    def _sampled(self, batch: Batch) -> _Read:
        """Return the sampled instances, and the nodes of the subgraph that they are on."""
        assert batch.sampled_instances is not None
        assert batch.original_ids is not None
        ids, sampled, device = batch.original_ids, batch.sampled_instances, self.att_root[0].device
        sizes = {t: numbers.numel() for t, numbers in ids.items()}
        picked = [self.encoder.pick(m, sampled[m.steps].to(device)) for m in self.metapaths]
        found = [Chain.along(*some, sizes, ids[some[0].root].to(device)) for some in picked]
        chains, instances = zip(*found, strict=True)
        every = torch.arange(sizes[self.metapaths[0].root])
        return _Read(
            chains,
            {t: features_of(batch.x_dict, t).to(device) for t in self.proj},
            {t: ids[t].to(device) for t in self.proj},
            (every if batch.roots is None else batch.roots).to(device),
            instances,
        )

    def trace(self, batch: Batch) -> list[Traced]:
        """Return what the operator is asked of each metapath, and the activation."""
        found = []
        read = self._read(replace(batch, roots=None))
        for i, arguments in enumerate(self._arguments(read)):
            every = torch.arange(arguments[0].sizes[0], device=arguments[0].device)
            problem = Problem(*arguments, every, self.negative_slope, 0.0, 0)
            if read.instances is not None:
                problem = problem.along(read.instances[i])
            found.append(Traced(problem, self.activation))
        return found

    def instance_attention(self, batch: Batch) -> dict[str, Attention]:
        """Return the attention of the roots to their instances, by metapath."""
        found = self._arguments(_Read(self.chains(batch), batch.x_dict))
        return {
            name: instance_attention(
                *arguments, roots=batch.roots, negative_slope=self.negative_slope
            )
            for name, arguments in zip(self.names, found, strict=True)
        }

    def chains(self, batch: Batch) -> list[Chain]:
        """Return the chain of each metapath on this graph, as the encoder sees it."""
        whole = self._whole(batch)
        return self._viewed.get(whole[0].indices, lambda: [self.encoder.view(c) for c in whole])

    def _whole(self, batch: Batch) -> list[Chain]:
        """Return the chain of each metapath on this graph, made when a graph is first seen."""
        x_dict, links, ids = batch.x_dict, batch.edge_index_dict, batch.original_ids or {}
        used = [links[step] for metapath in self.metapaths for step in metapath.steps]

        def build() -> list[Chain]:
            sizes = _sizes(x_dict, links)
            return [
                replace(Chain.build(m, links, sizes), root_ids=ids.get(m.root))
                for m in self.metapaths
            ]

        return self._graph.get(used, build, tuple(x.size(0) for x in x_dict.values()))

    def _arguments(self, read: _Read) -> list[_Arguments]:
        """Return the operator's arguments for each metapath.

        All are made before the operator is first called: gradients add up in that order.
        """
        nodes, chains = read.nodes, read.chains
        h = {t: lin(features_of(read.x_dict, t), self.heads) for t, lin in self.proj.items()}
        dropout = self.feature_dropout if self.training else 0.0
        h = {t: node_dropout(x, dropout, None if nodes is None else nodes[t]) for t, x in h.items()}
        found: list[_Arguments] = []
        for i, (chain, terms) in enumerate(zip(chains, self.encoder(h, chains), strict=True)):
            root_score = self._root_score(h[self.metapaths[i].root], i, read.roots)
            attention = self.att_instance[i][0]
            found.append((chain, terms.values, terms.coefficients, root_score, attention))
        return found

    def _root_score(self, h: Tensor, metapath: int, roots: Tensor | None) -> Tensor:
        """Return a_Φ · h_v0, ``[N, K]``; zeros for nodes that no root is."""
        a = self.att_root[metapath][0]
        if roots is None:
            return head_dots(h, a)
        first = torch.unique(roots)
        score = h.new_zeros(h.shape[:2])
        return score.index_copy(0, first, head_dots(take(h, first), a))

    def extra_repr(self) -> str:
        """Name size, heads and metapaths."""
        return f"{self.out_channels}, heads={self.heads}, metapaths=[{', '.join(self.names)}]"


def _numbers(batch: Batch, node_type: str, nodes: Tensor) -> Tensor:
    """Return the numbers that some nodes have in the whole graph."""
    return nodes if batch.original_ids is None else batch.original_ids[node_type][nodes]


def _sizes(
    x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
) -> dict[str, int]:
    """Count the nodes of each type: rows of features where there are some, else the highest id."""
    sizes: dict[str, int] = {}
    for (source, _, target), edge_index in edge_index_dict.items():
        for node_type, ids in zip((source, target), edge_index, strict=True):
            highest = int(ids.max()) + 1 if ids.numel() else 0
            sizes[node_type] = max(sizes.get(node_type, 0), highest)
    return sizes | {t: x.size(0) for t, x in x_dict.items()}
