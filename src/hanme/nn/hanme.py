"""HAN-ME as a model and as a layer, and the models HAN and MAGNN, which differ in the encoder."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from hanme.errors import HanmeError, check_choice
from hanme.graph.metapath import EdgeType, Metadata, Metapath
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels, MetapathChannels, Task, make_channels
from hanme.nn.encoders import Encoder
from hanme.nn.fusions import Fusion, SemanticAttention, make_fusion
from hanme.nn.model import ChannelModel

MetapathSpec = str | Metapath | Sequence[EdgeType]


class HANME(ChannelModel):
    r"""Heterogeneous Attention Network with Metapath Encoding.

    Of `"Attention-Driven Metapath Encoding in Heterogeneous Graphs"
    <https://arxiv.org/abs/2412.20678>`_: metapath channels, semantic attention, and a linear layer
    that gives a logit per label. β is computed over the roots of a batch.

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

    encoders: ClassVar[tuple[str, ...]] = ()
    """Names of the encoders to choose from (default: any)."""

    def __init__(
        self,
        metadata: Metadata,
        target: str,
        metapaths: Sequence[MetapathSpec],
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
        if self.encoders:
            check_choice("encoder", str(encoder), self.encoders)
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
        fused = make_fusion(fusion, sum(len(part.names) for part in every), hidden_channels)
        super().__init__(target, every, fused, nn.Linear(fused.out_channels, out_channels))


def preset(**defaults: Any) -> Callable[[type[HANME]], type[HANME]]:
    """Change the defaults of a model's constructor, also in its signature, which lists options."""

    def decorate(kind: type[HANME]) -> type[HANME]:
        base = kind.__init__
        signature = inspect.signature(base)
        changed = [
            p.replace(default=defaults.get(p.name, p.default))
            for p in signature.parameters.values()
            if p.kind is not p.VAR_KEYWORD  # the encoders of presets have no options
        ]

        @functools.wraps(base)
        def init(self: HANME, *args: Any, **options: Any) -> None:
            base(self, *args, **(defaults | options))

        vars(init)["__signature__"] = signature.replace(parameters=changed)
        setattr(kind, "__init__", init)  # noqa: B010  mypy refuses to assign to a method
        return kind

    return decorate


@preset(encoder="end")
class HAN(HANME):
    """HAN, of `"Heterogeneous Graph Attention Network" <https://arxiv.org/abs/1903.07293>`_.

    It is HANME with the encoder ``"end"``, and equal to PyG's :class:`HANConv` with a linear layer.
    """

    encoders = ("end",)


@preset(
    encoder="rotate",
    hidden_channels=512,
    dropout=0.5,
    feature_dropout=0.5,
    activation="elu",
    negative_slope=0.01,
)
class MAGNN(HANME):
    """One layer of MAGNN: HANME with the encoder ``"rotate"``, ``"linear"`` or ``"mean"``.

    Of `"MAGNN: Metapath Aggregated Graph Neural Network for Heterogeneous Graph Embedding"
    <https://arxiv.org/abs/2002.01680>`_. Each head has a projection of its own, where MAGNN's heads
    share one.
    """

    encoders = ("mean", "linear", "rotate")


class HANMEConv(nn.Module):
    """HAN-ME as a layer like PyG's :class:`HANConv`: metapath channels and semantic attention.

    Args:
        in_channels: The size of the features, one for all node types or by type; ``-1`` derives it
            from the first input.
        out_channels: The size of the output, a multiple of ``heads``.
        metadata: Node types and edge types, as :meth:`Graph.metadata` gives.
        metapaths: Texts such as ``"movie-actor-movie"`` or lists of edge types. They may start at
            several node types; each of these gets an output.
        **options: The other arguments of :class:`~hanme.nn.channels.MetapathChannels`, such as
            ``encoder``, ``heads`` and ``dropout``.
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: Metadata,
        metapaths: Sequence[MetapathSpec],
        **options: Any,
    ) -> None:
        super().__init__()
        task = Task(metadata, "", 0, in_channels)
        self.channels = MetapathChannels(task, out_channels, metapaths, **options)
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
        """Return ``[R, out_channels]`` for every node type at which a metapath starts.

        Some ``roots`` can be computed where all metapaths start at one type; β is then the mean
        over these. With ``return_semantic_attention_weights``, also return β by node type.
        """
        zs: dict[str, list[Tensor]] = {}
        vectors = self.channels(Batch(x_dict, edge_index_dict, roots))
        for metapath, z in zip(self.channels.metapaths, vectors, strict=True):
            zs.setdefault(metapath.root, []).append(z)
        out = {node_type: self.semantic(z) for node_type, z in zs.items()}
        if not return_semantic_attention_weights:
            return out
        return out, {node_type: self.semantic.weights(z) for node_type, z in zs.items()}
