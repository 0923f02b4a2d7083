"""The model HAN: HAN-ME that looks at the ends of metapaths only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.hanme import HANME


class HAN(HANME):
    """HAN, of `"Heterogeneous Graph Attention Network" <https://arxiv.org/abs/1903.07293>`_.

    Equal to PyG's :class:`HANConv` with a linear layer. The arguments are those of
    :class:`HANME`, without an encoder.
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
        dropout: float = 0.6,
        backend: str = "auto",
        per_root: int | None = None,
    ) -> None:
        super().__init__(
            metadata,
            target,
            metapaths,
            out_channels,
            in_channels=in_channels,
            hidden_channels=hidden_channels,
            heads=heads,
            encoder="end",
            dropout=dropout,
            backend=backend,
            per_root=per_root,
        )
