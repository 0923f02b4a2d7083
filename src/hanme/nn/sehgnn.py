"""The model SeHGNN: features averaged along every metapath, fused by a transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn

from hanme.errors import HanmeError
from hanme.graph.metapath import Metadata
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels, FeatureChannels, LabelChannels, Task
from hanme.nn.fusions import Transformer, xavier
from hanme.nn.model import ChannelModel
from hanme.nn.parts import MOST_CHANNELS, check_counts, check_dropouts, check_heads


class SeHGNN(ChannelModel):
    r"""SeHGNN: averaged features and labels as tokens that attend to each other.

    As in the camera-ready version of `"Simple and Efficient Heterogeneous Graph Neural Network"
    <https://arxiv.org/abs/2207.02547>`_. Feature channels and label channels give each node tokens
    :math:`\mathrm{MLP}_\Phi(A_1 \cdots A_L X E_\Phi)`, which attend to each other; a network on
    their concatenation gives the logits. Its norms are over the roots of a batch, in a training
    step the training nodes: a node's logits depend on the other roots.

    Arguments that are not listed are those of :class:`HANME`.

    Args:
        embed_channels: The size of what is embedded (default: ``hidden_channels``).
        hidden_channels: The size of a token, all heads together, and of the network's layers.
        heads: The number of attention heads.
        hops: The length of the longest metapath for features.
        label_hops: The length of the longest metapath for labels; 0 for none.
        without: Node types that no metapath passes through.
        layers: The number of layers of the network after the tokens.
        residual: Add the target's own features to all tokens' sum.
        input_dropout: Dropout on what is embedded.
        dropout: Dropout on tokens and hidden layers.
        attention_dropout: Dropout on the attention between tokens.
    """

    steps_on: Literal["graph", "roots"] = "roots"

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        out_channels: int,
        *,
        in_channels: int | Mapping[str, int] = -1,
        embed_channels: int | None = None,
        hidden_channels: int = 512,
        heads: int = 1,
        hops: int = 4,
        label_hops: int = 4,
        without: list[str] | None = None,
        layers: int = 4,
        residual: bool = False,
        input_dropout: float = 0.1,
        dropout: float = 0.5,
        attention_dropout: float = 0.0,
    ) -> None:
        check_heads(hidden_channels, heads)
        embed_channels = hidden_channels if embed_channels is None else embed_channels
        check_counts(1, MOST_CHANNELS, embed_channels=embed_channels)
        check_counts(0, 20, hops=hops, label_hops=label_hops)
        check_counts(1, 100, layers=layers)
        check_dropouts(
            input_dropout=input_dropout, dropout=dropout, attention_dropout=attention_dropout
        )
        task = Task(metadata, target, out_channels, in_channels)
        channels: list[Channels] = [
            kind(task, embed_channels, hops=longest, without=without or (), dropout=input_dropout)
            for kind, longest in ((FeatureChannels, hops), (LabelChannels, label_hops))
        ]
        features, labels = (len(part.names) for part in channels)
        fusion = Transformer(
            features + labels,
            embed_channels,
            hidden_channels,
            heads=heads,
            residual=residual,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )
        super().__init__(
            target, channels, fusion, _head(hidden_channels, out_channels, layers, dropout)
        )
        for part in (fusion.concat, fusion.own, *self.head.children()):
            if isinstance(part, nn.Linear):
                xavier(part.weight)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)

    def forward(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``."""
        roots = batch.roots
        count = batch.x_dict[self.target].size(0) if roots is None else roots.numel()
        if count < 2:
            raise HanmeError(f"SeHGNN normalises over nodes: expected 2 or more, but got {count}")
        return super().forward(batch)

    def walks(self) -> None:
        """Return None: its norms are over all nodes."""


def _head(hidden: int, labels: int, layers: int, dropout: float) -> nn.Sequential:
    """Make PReLU and dropout, then linear layers, each followed by a norm over the nodes."""
    parts: list[nn.Module] = [nn.PReLU(), nn.Dropout(dropout)]
    for _ in range(layers - 1):
        parts += [nn.Linear(hidden, hidden), _batch_norm(hidden), nn.PReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*parts, nn.Linear(hidden, labels, bias=False), _batch_norm(labels))


def _batch_norm(size: int) -> nn.BatchNorm1d:
    """Normalise as its authors do: by the nodes at hand, with nothing learned."""
    return nn.BatchNorm1d(size, affine=False, track_running_stats=False)
