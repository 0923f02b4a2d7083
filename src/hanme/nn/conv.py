"""The layer: from node features to one vector per root, through its metapath instances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from hanme.chain import Chain
from hanme.errors import HanmeError
from hanme.metapath import EdgeType, Metadata, Metapath
from hanme.nn.cache import GraphCache
from hanme.nn.checks import check_dropouts, check_heads
from hanme.nn.encoders import Encoder, make_encoder
from hanme.nn.projection import Projections
from hanme.nn.semantic import SemanticAttention
from hanme.ops import Attention, Problem, head_dots, instance_attention, metapath_attention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "elu": F.elu}


class HANMEConv(nn.Module):
    r"""The HAN-ME layer of `"Attention-Driven Metapath Encoding in Heterogeneous Graphs"
    <https://arxiv.org/abs/2412.20678>`_, a sibling of PyG's :class:`HANConv` that keeps the nodes
    in between.

    Args:
        in_channels: The size of the features, one for all node types or by type; ``-1`` (default)
            derives it from the first input.
        out_channels: The size of the output, a multiple of ``heads``.
        metadata: Node types and edge types, as :meth:`HeteroData.metadata` gives.
        metapaths: Texts such as ``"movie-actor-movie"`` or lists of edge types. They may start at
            several node types; each of these gets an output.
        encoder: ``"multihop"``, ``"direct"``, ``"mean"``, ``"linear"``, ``"rotate"`` or ``"end"``
            (HAN), a class or an instance of :class:`Encoder`.
        heads: The number of attention heads, K.
        negative_slope: LeakyReLU's slope below 0.
        dropout: Dropout on the attention weights of the instances.
        feature_dropout: Dropout on the projected features.
        activation: What z of a metapath goes through, ``"relu"`` or ``"elu"``.
        backend: The backend of :func:`metapath_attention`.
        **options: Options of the encoder, such as ``gamma`` of ``"multihop"``.
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: Metadata,
        metapaths: Sequence[str | Metapath | Sequence[EdgeType]],
        *,
        encoder: str | type[Encoder] | Encoder = "multihop",
        heads: int = 1,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
        activation: str = "relu",
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        check_heads(out_channels, heads)
        check_dropouts(dropout=dropout, feature_dropout=feature_dropout)
        if activation not in ACTIVATIONS:
            raise HanmeError(
                f"Expected `activation` to be one of {', '.join(ACTIVATIONS)}, "
                f"but got {activation!r}"
            )
        if not metapaths:
            raise HanmeError("Expected at least one metapath, but got none")
        self.metapaths = [Metapath.of(spec, metadata) for spec in metapaths]
        for metapath in self.metapaths:
            if self.metapaths.count(metapath) > 1:
                raise HanmeError(f"metapath {metapath}: it is given more than once")
        self.out_channels = out_channels
        self.heads = heads
        self.negative_slope = negative_slope
        self.dropout = dropout
        self.feature_dropout = feature_dropout
        self.activation = activation
        self.backend = backend
        channels = out_channels // heads
        self.encoder = make_encoder(encoder, heads, channels, self.metapaths, options)
        types = dict.fromkeys(t for m in self.metapaths for t in self.encoder.node_types(m))
        self.proj = Projections(types, in_channels, out_channels)
        # a_Φ of score(p) = LeakyReLU(a_Φ · [h_v0 ‖ e(p)]), its two halves.
        self.att_root = nn.ParameterList(torch.empty(1, heads, channels) for _ in self.metapaths)
        self.att_instance = nn.ParameterList(
            torch.empty(1, heads, channels) for _ in self.metapaths
        )
        self.semantic = SemanticAttention(out_channels)
        self._graph: GraphCache[list[Chain]] = GraphCache()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in self.proj.values():
            projection.reset_parameters()
        self.encoder.reset_parameters()
        glorot(self.att_root)
        glorot(self.att_instance)
        self.semantic.reset_parameters()

    def forward(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        *,
        return_semantic_attention_weights: bool = False,
    ) -> Any:
        """Computes the output of every node type at which a metapath starts.

        Args:
            x_dict: Features by node type, dense or sparse CSR.
            edge_index_dict: Links by edge type.
            return_semantic_attention_weights: Also return β by node type, in the order of the
                metapaths that start there.

        Returns:
            ``[N, out_channels]`` by node type, and β by node type where asked for.
        """
        zs: dict[str, list[Tensor]] = {}
        activation = ACTIVATIONS[self.activation]
        for metapath, arguments in self._arguments(x_dict, edge_index_dict):
            z = metapath_attention(
                *arguments,
                negative_slope=self.negative_slope,
                dropout=self.dropout if self.training else 0.0,
                backend=self.backend,
            )
            zs.setdefault(metapath.root, []).append(activation(z.flatten(1)))
        out, beta = {}, {}
        for node_type, z_list in zs.items():
            out[node_type], beta[node_type] = self.semantic(z_list)
        return (out, beta) if return_semantic_attention_weights else out

    def instance_attention(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        roots: Tensor | None = None,
    ) -> dict[str, Attention]:
        """The attention of some roots (default: all) to their instances, by metapath."""
        return {
            metapath.text: instance_attention(
                *arguments, roots=roots, negative_slope=self.negative_slope
            )
            for metapath, arguments in self._arguments(x_dict, edge_index_dict)
        }

    def problems(
        self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
    ) -> dict[str, Problem]:
        """What the operator is asked, without its dropout, by metapath: to look at instances."""
        found = {}
        for metapath, arguments in self._arguments(x_dict, edge_index_dict):
            chain, values, coefficients, root_score, attention = arguments
            roots = torch.arange(chain.sizes[0], device=chain.device)
            slope = self.negative_slope
            found[metapath.text] = Problem(
                chain, values, coefficients, root_score, attention, roots, slope, 0.0, 0
            )
        return found

    def chains(
        self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
    ) -> list[Chain]:
        """The chain of each metapath on this graph, made when a graph is first seen."""
        used = [edge_index_dict[step] for metapath in self.metapaths for step in metapath.steps]

        def build() -> list[Chain]:
            sizes = _sizes(x_dict, edge_index_dict)
            return [
                self.encoder.view(Chain.build(metapath, edge_index_dict, sizes))
                for metapath in self.metapaths
            ]

        return self._graph.get(used, build, [x.size(0) for x in x_dict.values()])

    def _arguments(
        self, x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
    ) -> list[tuple[Metapath, tuple[Any, ...]]]:
        """The operator's arguments for each metapath."""
        for node_type in self.proj:
            if node_type not in x_dict:
                raise HanmeError(
                    f"node type {node_type!r} has no features; a metapath passes through it"
                )
        h = {t: projection(x_dict[t], self.heads) for t, projection in self.proj.items()}
        h = {t: F.dropout(x, self.feature_dropout, self.training) for t, x in h.items()}
        chains = self.chains(x_dict, edge_index_dict)
        result = []
        for i, (chain, terms) in enumerate(zip(chains, self.encoder(h, chains), strict=True)):
            root_score = head_dots(h[self.metapaths[i].root], self.att_root[i][0])
            arguments = (
                chain,
                terms.values,
                terms.coefficients,
                root_score,
                self.att_instance[i][0],
            )
            result.append((self.metapaths[i], arguments))
        return result

    def __repr__(self) -> str:
        metapaths = ", ".join(str(metapath) for metapath in self.metapaths)
        return (
            f"{type(self).__name__}({self.out_channels}, heads={self.heads}, "
            f"encoder={self.encoder}, metapaths=[{metapaths}])"
        )


def _sizes(
    x_dict: Mapping[str, Tensor], edge_index_dict: Mapping[EdgeType, Tensor]
) -> dict[str, int]:
    """The number of nodes by type: of features where there are some, else the highest id."""
    sizes: dict[str, int] = {}
    for (source, _, target), edge_index in edge_index_dict.items():
        for node_type, ids in zip((source, target), edge_index, strict=True):
            highest = int(ids.max()) + 1 if ids.numel() else 0
            sizes[node_type] = max(sizes.get(node_type, 0), highest)
    return sizes | {t: x.size(0) for t, x in x_dict.items()}
