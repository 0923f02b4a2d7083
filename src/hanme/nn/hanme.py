"""HAN-ME as a model and as a layer, and the models HAN and MAGNN, which differ in the encoder."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

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
        edge_dim: The size of link features by relation, for encoders that read them, such as
            ``"multihop"`` (default: none).
        hidden_channels: The size of a node's vector, all heads together.
        heads: The number of attention heads.
        encoder: How an instance becomes a vector: ``"multihop"``, ``"direct"``, ``"mean"``,
            ``"linear"``, ``"rotate"``, a class or an instance.
        fusion: ``"semantic"``, ``"concat"``, ``"transformer"``, a table of name and options, a
            class or an instance.
        channels: Channels beside the metapaths': names in ``CHANNELS``, tables of name and
            options, classes or instances.

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
        edge_dim: Mapping[EdgeType, int] | None = None,
        hidden_channels: int = 128,
        heads: int = 8,
        encoder: str | type[Encoder] | Encoder = "multihop",
        fusion: str | dict[str, Any] | type[Fusion] | Fusion = "semantic",
        channels: list[str | dict[str, Any] | type[Channels] | Channels] | None = None,
        dropout: float = 0.6,
        feature_dropout: float = 0.0,
        activation: str = "relu",
        attention: Literal["learned", "uniform"] = "learned",
        negative_slope: float = 0.2,
        backend: str = "auto",
        per_root: int | None = None,
        **options: object,
    ) -> None:
        if self.encoders:
            check_choice("encoder", str(encoder), self.encoders)
        task = Task(metadata, target, out_channels, in_channels, edge_dim)
        along = MetapathChannels(
            task,
            hidden_channels,
            metapaths,
            encoder=encoder,
            heads=heads,
            dropout=dropout,
            feature_dropout=feature_dropout,
            activation=activation,
            attention=attention,
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
        names = [name for part in every for name in part.names]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise HanmeError(f"channel {twice[0]!r}: there is another one of this name")
        fused = make_fusion(fusion, len(names), hidden_channels)
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
        edge_dim: The size of link features by relation, for encoders that read them, such as
            ``"multihop"`` (default: none).
        **options: The other arguments of :class:`~hanme.nn.channels.MetapathChannels`, such as
            ``encoder``, ``heads`` and ``dropout``.
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: Metadata,
        metapaths: Sequence[MetapathSpec],
        edge_dim: Mapping[EdgeType, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._arguments = (out_channels, metadata, metapaths, edge_dim), options
        task = Task(metadata, "", 0, in_channels, edge_dim)
        self.channels = MetapathChannels(task, out_channels, metapaths, **options)
        self.semantic = SemanticAttention(len(metapaths), out_channels)
        from torch_geometric.nn import MessagePassing  # takes seconds; models do without it

        steps = dict.fromkeys(s for m in self.channels.metapaths for s in m.steps)
        # Explainers leave a mask for the links of each relation here (a name may have no dots).
        self.explained = nn.ModuleDict(
            {name: MessagePassing() for s in steps if "." not in (name := "__".join(s))}
        )

    def reset_parameters(self) -> None:
        """Draw the weights anew, as a new layer would."""
        arguments, options = self._arguments
        if isinstance(options.get("encoder"), Encoder):
            raise HanmeError("weights of an encoder that was passed as an instance cannot be drawn")
        weights = {t: lin.get_parameter("weight") for t, lin in self.channels.proj.items()}
        sizes = {t: -1 if is_lazy(weight) else weight.size(1) for t, weight in weights.items()}
        drawn = dict(HANMEConv(sizes, *arguments, **options).named_parameters())
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if not is_lazy(weight):
                    weight.copy_(drawn[name])
        self.semantic.mean = None

    def forward(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        roots: Tensor | None = None,
        edge_attr_dict: Mapping[EdgeType, Tensor] | None = None,
        *,
        return_semantic_attention_weights: bool = False,
    ) -> Any:
        """Return ``[R, out_channels]`` for every node type at which a metapath starts.

        ``edge_attr_dict`` holds the link features of the relations in ``edge_dim``, ``[E, F]``.

        Some ``roots`` can be computed where all metapaths start at one type; β is then the mean
        over these. With ``return_semantic_attention_weights``, also return β by node type.
        """
        zs: dict[str, list[Tensor]] = {}
        types = dict.fromkeys(metapath.root for metapath in self.channels.metapaths)
        if roots is not None and len(types) > 1:
            raise HanmeError(
                f"Expected no `roots`, as metapaths start at several types: {', '.join(types)}"
            )
        batch = Batch(x_dict, edge_index_dict, roots, edge_attr=edge_attr_dict)
        vectors = self.channels(batch, self._link_masks())
        for metapath, z in zip(self.channels.metapaths, vectors, strict=True):
            zs.setdefault(metapath.root, []).append(z)
        out = {node_type: self.semantic(z) for node_type, z in zs.items()}
        if not return_semantic_attention_weights:
            return out
        return out, {node_type: self.semantic.weights(z) for node_type, z in zs.items()}

    def _link_masks(self) -> dict[EdgeType, Tensor]:
        """Return the masks that an explainer of PyG has set, by relation."""
        masks = {}
        for step in (step for metapath in self.channels.metapaths for step in metapath.steps):
            links: Any = dict(self.explained.items()).get("__".join(step))
            if links is not None and links.explain:
                mask = links._edge_mask
                masks[step] = mask.sigmoid() if links._apply_sigmoid else mask
        return masks
