"""What a model is, and the model made of channels, a fusion and a head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from hanme.graph import Graph, Subgraph
from hanme.graph.metapath import Walk
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels
from hanme.nn.fusions import Fusion


class Model(Protocol):
    """The interface of a model: a module with two more members.

    ``steps_on`` says which nodes a training step on the whole graph computes: ``"graph"`` for all
    target nodes, of which the loss picks the training nodes (semantic attention is a mean over all
    nodes), or ``"roots"`` for the training nodes alone.
    """

    @property
    def steps_on(self) -> Literal["graph", "roots"]:
        """Which nodes a training step on the whole graph computes."""
        ...

    training: bool

    def __call__(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``."""
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
    """Base class of models: a subclass writes :meth:`forward`."""

    steps_on: Literal["graph", "roots"] = "graph"

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for part in self.children():
            reset(part)

    def forward(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``."""
        raise NotImplementedError

    def walks(self) -> list[Walk] | None:
        """Return the walks from a root that it reads; None if it reads the whole graph."""
        return None

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances it samples, and the maximum number per root."""
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

    def prepare(self, batch: Batch) -> None:
        """Read what the call with the same batch needs of the graph; runs in another thread."""
        for part in self.parts:
            part.prepare(batch)

    def walks(self) -> list[Walk] | None:
        """Return what all channels walk."""
        return _all_walks(part.walks() for part in self.parts)

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances channels sample."""
        return {walk: n for part in self.parts for walk, n in part.samples().items()}

    def forward(self, batch: Batch) -> Tensor:
        """Return head(fusion(vectors)) + Σ wide."""
        found = [(part, part(batch)) for part in self.parts]
        logits = [x for part, given in found if part.wide for x in given]
        if self.head is not None and self.fusion is not None:
            vectors = [x for part, given in found if not part.wide for x in given]
            logits.insert(0, self.head(self.fusion(vectors)))
        total: Tensor = reduce(torch.add, logits)
        return total


def walks_of(model: Model) -> list[Walk] | None:
    """Return the walks from a root that a model reads; None if it reads the whole graph."""
    return model.walks() if isinstance(model, GraphModel) else None


def samples_of(model: Model) -> dict[Walk, int]:
    """Return the walks whose instances a model samples, and the maximum number per root."""
    return model.samples() if isinstance(model, GraphModel) else {}


def needs_subgraph(model: Model, graph: Graph) -> bool:
    """Return whether some roots are computed on the subgraph that they reach.

    That is where the graph is on disk and the model knows its walks, or samples instances.
    """
    return walks_of(model) is not None and (graph.stored or bool(samples_of(model)))


def subgraph_of(model: Model, graph: Graph, roots: Tensor, seed: int = 0) -> Subgraph:
    """Return the subgraph that a model reads for some roots.

    The seed is that of sampled instances, if the model samples; predictions use 0.
    """
    return graph.subgraph(roots, walks_of(model) or [], samples_of(model) or None, seed)


def batch_of(model: Model, graph: Graph, roots: Tensor | None = None, seed: int = 0) -> Batch:
    """Return the batch that computes some target nodes (default: all), on the model's device.

    The seed is that of sampled instances, see :func:`subgraph_of`.
    """
    if roots is not None and needs_subgraph(model, graph):
        graph = subgraph_of(model, graph, roots, seed)
        roots = graph.roots
    return Batch.of(graph, roots).to(device_of(model))


def device_of(model: Model) -> torch.device:
    """Return the device of a model's weights."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _all_walks(given: Iterable[list[Walk] | None]) -> list[Walk] | None:
    every = list(given)
    return None if None in every else list(chain.from_iterable(filter(None, every)))


def _rename(model: ChannelModel, weights: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Give weights with former names their present ones."""
    present = model.state_dict(prefix=prefix)
    for key in [key for key in weights if key.startswith(prefix) and key not in present]:
        for before, now in model.renamed:
            if key.startswith(prefix + before):
                weights[prefix + now + key.removeprefix(prefix + before)] = weights.pop(key)
                break
