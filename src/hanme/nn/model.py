"""What a model is, and the model made of channels, a fusion and a head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Literal, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hanme.graph import Graph
from hanme.graph.draw import Walk
from hanme.graph.metapath import EdgeType
from hanme.nn.channels import Channels, Inputs
from hanme.nn.fusions import Fusion


class Model(Protocol):
    """A model, as training, predictions and explanations know it: a module with two more members.

    ``steps_on`` says what a training step on the whole graph asks for: ``"graph"`` for all target
    nodes, of which the loss picks the training nodes (semantic attention is a mean over all nodes),
    or ``"roots"`` for the training nodes alone.
    """

    @property
    def steps_on(self) -> Literal["graph", "roots"]:
        """What a training step on the whole graph asks for."""
        ...

    training: bool

    def __call__(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        roots: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Return a logit per root and label, ``[R, C]``.

        Args:
            x_dict: Features by node type, dense or sparse CSR.
            edge_index_dict: Links by edge type.
            roots: Ids of target nodes, ``[R]``, in any order (default: all of them, in order).
            labels: The labels that the model may see, as 0 and 1, ``[N, C]``; zeros for the nodes
                whose labels it may not see. Models that use none ignore them.
        """
        ...

    def reset_parameters(self) -> None:
        """Draw all weights anew from torch's generator."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...  # noqa: D102
    def modules(self) -> Iterator[nn.Module]: ...  # noqa: D102
    def train(self, mode: bool = True) -> Self: ...  # noqa: D102
    def eval(self) -> Self: ...  # noqa: D102
    def to(self, device: torch.device) -> Self: ...  # noqa: D102
    def zero_grad(self, set_to_none: bool = True) -> None: ...  # noqa: D102
    def state_dict(self) -> dict[str, Tensor]: ...  # noqa: D102
    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> object: ...  # noqa: D102


class GraphModel(nn.Module):
    """Base class of the models here: a subclass writes :meth:`logits`."""

    steps_on: Literal["graph", "roots"] = "graph"

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for part in self.children():
            reset(part)

    def forward(
        self,
        x_dict: Mapping[str, Tensor],
        edge_index_dict: Mapping[EdgeType, Tensor],
        roots: Tensor | None = None,
        labels: Tensor | None = None,
        ids: Mapping[str, Tensor] | None = None,
        drawn: Mapping[Walk, Tensor] | None = None,
    ) -> Tensor:
        """Return a logit per root and label, ``[R, C]``, see :class:`Model`.

        On a piece cut out of a graph, ``ids`` are the numbers of its nodes there, by type: weights
        of ids and draws of dropout are theirs. ``drawn`` are the instances to attend to, see
        :class:`~hanme.graph.Graph` (default: all).
        """
        return self.logits(Inputs(x_dict, edge_index_dict, roots, labels, ids, drawn))

    def logits(self, inputs: Inputs) -> Tensor:
        """Return a logit per root and label, ``[R, C]``."""
        raise NotImplementedError

    def walks(self) -> list[Walk] | None:
        """Return the relations it walks from a root, walk by walk; None if it reads all nodes."""
        return None

    def draws(self) -> dict[Walk, int]:
        """Return the walks of which it attends to so many instances per root, drawn evenly."""
        return {}


class ChannelModel(GraphModel):
    """Channels give each root vectors, a fusion makes one of them, a head makes logits of it.

    The logits of wide channels are added: logits = head(fusion(vectors)) + Σ wide.

    Args:
        target: The node type to classify.
        channels: The channels.
        fusion: What makes one vector of all of theirs; None for wide channels alone.
        head: From that vector to the logits.
    """

    renamed: Sequence[tuple[str, str]] = ()
    """How parts of the model were called, as beginnings of names, and how they are called now:
    weights that were saved under the former names can be loaded."""

    def __init__(
        self,
        target: str,
        channels: Sequence[Channels],
        fusion: Fusion | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.channels = nn.ModuleList(channels)
        self.fusion = fusion
        self.head = head
        self.register_load_state_dict_pre_hook(_rename)  # type: ignore[no-untyped-call]

    @property
    def parts(self) -> list[Channels]:
        """The channels."""
        return [part for part in self.channels if isinstance(part, Channels)]

    def prepare(self, *given: Any) -> None:
        """Read what the call with the same arguments needs of the graph, while others compute."""
        for part in self.parts:
            part.prepare(Inputs(*given))

    def walks(self) -> list[Walk] | None:
        """Return what all channels walk."""
        return _all_walks(part.walks() for part in self.parts)

    def draws(self) -> dict[Walk, int]:
        """Return the walks that channels draw instances of."""
        return {walk: n for part in self.parts for walk, n in part.draws().items()}

    def logits(self, inputs: Inputs) -> Tensor:
        """Return head(fusion(vectors)) + Σ wide."""
        found = [(part, part(inputs)) for part in self.parts]
        logits = [x for part, given in found if part.wide for x in given]
        if self.head is not None and self.fusion is not None:
            vectors = [x for part, given in found if not part.wide for x in given]
            logits.insert(0, self.head(self.fusion(vectors)))
        total: Tensor = reduce(torch.add, logits)
        return total


class MeanModel(GraphModel):
    """The mean of the logits of several models, such as those of cross-fitting."""

    def __init__(self, models: Sequence[Model]) -> None:
        super().__init__()
        self.models = nn.ModuleList(cast("Sequence[nn.Module]", models))

    @property
    def parts(self) -> list[Model]:
        """The models."""
        return list(cast("Iterator[Model]", iter(self.models)))

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """Return a logit per root and label, ``[R, C]``, see :class:`GraphModel`."""
        return torch.stack([model(*given, **named) for model in self.parts]).mean(0)

    def walks(self) -> list[Walk] | None:
        """Return what all of them walk."""
        return _all_walks(map(walks_of, self.parts))

    def draws(self) -> dict[Walk, int]:
        """Return the walks that they draw instances of."""
        return {walk: n for part in self.parts for walk, n in draws_of(part).items()}


def walks_of(model: Model) -> list[Walk] | None:
    """Return the relations that a model walks, walk by walk; None if it reads all nodes."""
    return model.walks() if isinstance(model, GraphModel) else None


def draws_of(model: Model) -> dict[Walk, int]:
    """Return the walks of which a model attends to so many instances per root, drawn evenly."""
    return model.draws() if isinstance(model, GraphModel) else {}


def is_cut(model: Model, graph: Graph) -> bool:
    """Return whether a model is called with what its roots touch, cut out of the graph.

    That is where the graph is on disk and the model can say what it walks, or where it draws
    instances.
    """
    return walks_of(model) is not None and (graph.stored or bool(draws_of(model)))


def piece_of(model: Model, graph: Graph, roots: Tensor, seed: int = 0) -> tuple[Graph, Tensor]:
    """Cut out of a graph what a model reads for some roots; return it, and where they are in it.

    The seed fixes the draw of instances, where the model draws some: 0 is that of predictions.
    """
    return graph.cut(roots, walks_of(model) or [], draws_of(model) or None, seed)


def _all_walks(given: Iterable[list[Walk] | None]) -> list[Walk] | None:
    every = list(given)
    return None if None in every else list(chain.from_iterable(filter(None, every)))


def asked(model: Model, piece: Graph, roots: Tensor | None) -> tuple[Any, ...]:
    """Return what to call a model with for the roots of a piece, see :func:`piece_of`."""
    labels = labels_for(model, piece)
    return piece.x_dict, piece.edge_index_dict, roots, labels, piece.taken, piece.drawn


def labels_for(model: Model, graph: Graph) -> Tensor | None:
    """Return the labels that a model may see; None where it would not look at them."""
    if isinstance(model, ChannelModel) and not any(part.reads_labels for part in model.parts):
        return None
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return graph.training_labels.to(device)


def _rename(model: ChannelModel, weights: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Give weights with former names their present ones."""
    present = model.state_dict(prefix=prefix)
    for key in [key for key in weights if key.startswith(prefix) and key not in present]:
        for before, now in model.renamed:
            if key.startswith(prefix + before):
                weights[prefix + now + key.removeprefix(prefix + before)] = weights.pop(key)
                break
