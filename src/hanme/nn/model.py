"""The base class of models, and the model made of channels, a fusion and a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from hanme.graph import Graph
from hanme.graph.metapath import Walk
from hanme.nn.batch import Batch
from hanme.nn.channels import Channels
from hanme.nn.fusions import Fusion


class Model(nn.Module):
    """Base class of models: a subclass writes :meth:`forward`."""

    steps_on: Literal["graph", "roots"] = "graph"
    """Which nodes a training step on the whole graph computes: ``"graph"`` for all target nodes, of
    which the loss picks the training nodes (semantic attention is a mean over all nodes), or
    ``"roots"`` for the training nodes alone."""

    def forward(self, batch: Batch) -> Tensor:
        """Return a logit per root and label, ``[R, C]``."""
        raise NotImplementedError

    def prepare(self, batch: Batch) -> None:
        """Compute what the call with the same batch needs of the graph; runs in another thread."""

    def walks(self) -> list[Walk] | None:
        """Return the walks from a root that it reads; None if it reads the whole graph."""
        return None

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances it samples, and the maximum number per root."""
        return {}

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return next((p.device for p in self.parameters()), torch.device("cpu"))


class ChannelModel(Model):
    """Channels give each root vectors, a fusion makes one of them, a head makes logits of it.

    Args:
        target: The node type to classify.
        channels: The channels.
        fusion: Makes one vector of all of theirs.
        head: From that vector to the logits.
    """

    def __init__(
        self, target: str, channels: Sequence[Channels], fusion: Fusion, head: nn.Module
    ) -> None:
        super().__init__()
        self.target = target
        self.channels = nn.ModuleList(channels)
        self.fusion = fusion
        self.head = head

    @property
    def parts(self) -> list[Channels]:
        """The channels."""
        return [part for part in self.channels if isinstance(part, Channels)]

    def prepare(self, batch: Batch) -> None:
        """Prepare all channels."""
        for part in self.parts:
            part.prepare(batch)

    def walks(self) -> list[Walk] | None:
        """Return the walks of all channels."""
        walks = [part.walks() for part in self.parts]
        return None if None in walks else [walk for some in walks for walk in some or ()]

    def samples(self) -> dict[Walk, int]:
        """Return the walks whose instances channels sample."""
        return {walk: n for part in self.parts for walk, n in part.samples().items()}

    def forward(self, batch: Batch) -> Tensor:
        """Return head(fusion(vectors)), ``[R, C]``."""
        vectors = [x for part in self.parts for x in part(batch)]
        logits: Tensor = self.head(self.fusion(vectors))
        return logits


def needs_subgraph(model: Model, graph: Graph) -> bool:
    """Return whether nodes are computed on the subgraphs that they reach, never on the whole graph.

    That is where the graph is on disk and the model knows its walks, or samples instances.
    """
    return model.walks() is not None and (graph.stored or bool(model.samples()))


def batch_of(model: Model, graph: Graph, roots: Tensor | None = None, seed: int = 0) -> Batch:
    """Return the batch that computes some target nodes (default: all), on the model's device.

    It holds the subgraph that these nodes reach, if the model knows its walks. The seed is that of
    sampled instances, if the model samples; predictions use 0.
    """
    if roots is not None and (walks := model.walks()) is not None:
        graph = graph.subgraph(roots, walks, model.samples() or None, seed)
        roots = graph.roots
    return Batch.of(graph, roots).to(model.device)
