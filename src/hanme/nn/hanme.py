"""The model HAN-ME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.metapath import EdgeType, Metadata, Metapath
from hanme.nn.conv import HANMEConv
from hanme.nn.encoders import Encoder


class HANME(nn.Module):
    r"""Heterogeneous Attention Network with Metapath Encoding: one :class:`HANMEConv`, then a
    linear layer that gives a logit per label.

    Args:
        metadata: Node types and edge types, as :meth:`HeteroData.metadata` gives.
        target: The node type to classify.
        metapaths: Metapaths that start at ``target``.
        out_channels: The number of labels.
        in_channels: The size of the features, ``-1`` (default) to derive it.
        hidden_channels: The size of a node's vector, all heads together.
        heads: The number of attention heads.
        encoder: ``"multihop"``, ``"direct"``, ``"mean"``, ``"linear"``, ``"rotate"``, a class or an
            instance.
        dropout: Dropout on the attention weights of the instances.
        feature_dropout: Dropout on the projected features.
        activation: What z of a metapath goes through, ``"relu"`` or ``"elu"``.
        negative_slope: LeakyReLU's slope below 0, of the attention over instances.
        backend: The backend of :func:`metapath_attention`.
        **options: Options of the encoder.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        metapaths: Sequence[str | Metapath | Sequence[EdgeType]],
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        hidden_channels: int = 128,
        heads: int = 8,
        encoder: str | type[Encoder] | Encoder = "multihop",
        dropout: float = 0.6,
        feature_dropout: float = 0.0,
        activation: str = "relu",
        negative_slope: float = 0.2,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        self.target = target
        self.conv = HANMEConv(
            in_channels,
            hidden_channels,
            metadata,
            metapaths,
            encoder=encoder,
            heads=heads,
            dropout=dropout,
            feature_dropout=feature_dropout,
            activation=activation,
            negative_slope=negative_slope,
            backend=backend,
            **options,
        )
        for metapath in self.conv.metapaths:
            if metapath.root != target:
                raise HanmeError(
                    f"metapath {metapath}: it starts at {metapath.root}, not at {target}, "
                    "the node type to classify"
                )
        self.lin = nn.Linear(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        self.conv.reset_parameters()
        self.lin.reset_parameters()

    def forward(self, data: HeteroData) -> Tensor:
        """A logit per node of the target type and label, ``[N, out_channels]``."""
        return self.lin(self.conv(data.x_dict, data.edge_index_dict)[self.target])
