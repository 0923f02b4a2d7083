"""The model MAGNN: HAN-ME with encoders that know no attention within an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hanme.errors import check_choice
from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.hanme import HANME

ENCODERS = ("mean", "linear", "rotate")


class MAGNN(HANME):
    """One layer of MAGNN, with its encoders.

    Of `"MAGNN: Metapath Aggregated Graph Neural Network for Heterogeneous Graph Embedding"
    <https://arxiv.org/abs/2002.01680>`_. Each head has a projection of its own, where MAGNN's heads
    share one. The arguments are those of :class:`HANME`; ``encoder`` is ``"rotate"`` (RotatE),
    ``"linear"`` or ``"mean"``.
    """

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        metapaths: Sequence[str | Metapath | Sequence[EdgeType]],
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        hidden_channels: int = 512,
        heads: int = 8,
        encoder: str = "rotate",
        dropout: float = 0.5,
        feature_dropout: float = 0.5,
        negative_slope: float = 0.01,
        backend: str = "auto",
        per_root: int | None = None,
    ) -> None:
        check_choice("encoder", encoder, ENCODERS)
        super().__init__(
            metadata,
            target,
            metapaths,
            out_channels,
            in_channels=in_channels,
            hidden_channels=hidden_channels,
            heads=heads,
            encoder=encoder,
            dropout=dropout,
            feature_dropout=feature_dropout,
            activation="elu",
            negative_slope=negative_slope,
            backend=backend,
            per_root=per_root,
        )
