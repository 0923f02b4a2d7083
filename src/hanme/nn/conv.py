"""The layer: from node features to one vector per root, through its metapath instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.batch import Batch
from hanme.nn.channels import MetapathChannels, Task
from hanme.nn.encoders import Encoder
from hanme.nn.fusions import SemanticAttention


class HANMEConv(nn.Module):
    r"""The HAN-ME layer: metapath channels and semantic attention.

    Of `"Attention-Driven Metapath Encoding in Heterogeneous Graphs"
    <https://arxiv.org/abs/2412.20678>`_, a sibling of PyG's :class:`HANConv` that keeps the nodes
    in between.

    Args:
        in_channels: The size of the features, one for all node types or by type; ``-1`` derives it
            from the first input.
        out_channels: The size of the output, a multiple of ``heads``.
        metadata: Node types and edge types, as :meth:`Graph.metadata` gives.
        metapaths: Texts such as ``"movie-actor-movie"`` or lists of edge types. They may start at
            several node types; each of these gets an output.

    The other arguments are those of :class:`~hanme.nn.channels.MetapathChannels`.
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
        **options: object,
    ) -> None:
        super().__init__()
        self.channels = MetapathChannels(
            Task(metadata, "", 0, in_channels),
            out_channels,
            metapaths,
            encoder=encoder,
            heads=heads,
            negative_slope=negative_slope,
            dropout=dropout,
            feature_dropout=feature_dropout,
            activation=activation,
            backend=backend,
            per_root=None,
            **options,
        )
        self.semantic = SemanticAttention(len(metapaths), out_channels)

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        self.channels.reset_parameters()
        self.semantic.reset_parameters()

    def forward(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        roots: Tensor | None = None,
        *,
        return_semantic_attention_weights: bool = False,
    ) -> Any:
        """Compute the output of every node type at which a metapath starts.

        Args:
            x_dict: Features by node type, dense or sparse CSR.
            edge_index_dict: Links by edge type.
            roots: Ids of the nodes to compute, where all metapaths start at one node type
                (default: all). β is then the mean over these.
            return_semantic_attention_weights: Also return β by node type, in the order of the
                metapaths that start there.

        Returns:
            ``[R, out_channels]`` by node type; where weights are returned, a tuple of that and β by
            node type.
        """
        zs: dict[str, list[Tensor]] = {}
        vectors = self.channels(Batch(x_dict, edge_index_dict, roots))
        for metapath, z in zip(self.channels.metapaths, vectors, strict=True):
            zs.setdefault(metapath.root, []).append(z)
        out = {node_type: self.semantic(z) for node_type, z in zs.items()}
        if not return_semantic_attention_weights:
            return out
        return out, {node_type: self.semantic.weights(z) for node_type, z in zs.items()}
