"""The model HAN-ME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from hanme.errors import HanmeError
from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.channels import Channels, MetapathChannels, Task, make_channels
from hanme.nn.encoders import Encoder
from hanme.nn.fusions import Fusion, make_fusion
from hanme.nn.model import ChannelModel


class HANME(ChannelModel):
    r"""Heterogeneous Attention Network with Metapath Encoding.

    Metapath channels, semantic attention, and a linear layer that gives a logit per label. β is
    computed over the roots of a batch.

    Args:
        metadata: Node types and edge types, as :meth:`Graph.metadata` gives.
        target: The node type to classify.
        metapaths: Metapaths that start at the target, such as ``movie-actor-movie``. ``hanme
            train`` and ``Classifier`` default to those of the graph.
        out_channels: The number of labels.
        in_channels: The size of the features, ``-1`` (default) to derive it.
        hidden_channels: The size of a node's vector, all heads together.
        heads: The number of attention heads.
        encoder: How an instance becomes a vector: ``"multihop"``, ``"direct"``, ``"mean"``,
            ``"linear"``, ``"rotate"``, a class or an instance.
        fusion: ``"semantic"``, ``"concat"``, ``"transformer"``, a class or an instance.
        channels: Channels beside the metapaths': names in ``CHANNELS``, classes or instances.

    The other arguments are those of :class:`~hanme.nn.channels.MetapathChannels`.
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
        fusion: str | type[Fusion] | Fusion = "semantic",
        channels: list[str | type[Channels] | Channels] | None = None,
        dropout: float = 0.6,
        feature_dropout: float = 0.0,
        activation: str = "relu",
        negative_slope: float = 0.2,
        backend: str = "auto",
        per_root: int | None = None,
        **options: object,
    ) -> None:
        task = Task(metadata, target, out_channels, in_channels)
        along = MetapathChannels(
            task,
            hidden_channels,
            metapaths,
            encoder=encoder,
            heads=heads,
            dropout=dropout,
            feature_dropout=feature_dropout,
            activation=activation,
            negative_slope=negative_slope,
            backend=backend,
            per_root=per_root,
            **options,
        )
        for metapath in along.metapaths:
            if metapath.root != target:
                raise HanmeError(
                    f"metapath {metapath}: it starts at {metapath.root}, not at {target}, "
                    "the node type to classify"
                )
        every = [along, *(make_channels(kind, task, hidden_channels) for kind in channels or ())]
        vectors = sum(len(part.names) for part in every)
        fused = make_fusion(fusion, vectors, hidden_channels)
        super().__init__(target, every, fused, nn.Linear(fused.out_channels, out_channels))
