"""Mini-batches of roots: their order, what is read ahead of them, and logits a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hanme.common import ranks
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.metapath import EdgeType
from hanme.nn.cache import GraphCache
from hanme.nn.fusions import SemanticAttention
from hanme.nn.model import Model, asked, labels_for, walks_of

SHARE = 0.1
"""How far a step moves the running mean that predictions weigh channels with."""


def key(*numbers: int) -> int:
    """Return a seed that depends on all of some numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def shuffled(nodes: Tensor, seed: int, epoch: int) -> Tensor:
    """Return the nodes in the order in which an epoch takes them, whatever the number of ranks."""
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(key(seed, epoch)))
    return nodes[order]


def calls(
    model: Model, graph: Graph, batches: Sequence[Tensor], labels: Tensor | None
) -> Iterator[tuple[Any, ...]]:
    """Yield what to call a model with for each batch of roots, see :func:`asked`.

    What the next batch touches is read in another thread meanwhile.
    """
    prepare: Callable[..., None] | None = getattr(model, "prepare", None)

    def make(roots: Tensor) -> tuple[Any, ...]:
        call = call_for(model, graph, roots, labels, batched=True)
        if prepare is not None:
            prepare(*call)
        return call

    with ThreadPoolExecutor(1) as pool:
        running = [pool.submit(make, roots) for roots in batches[:1]]
        for i in range(len(batches)):
            call = running.pop().result()
            running += [pool.submit(make, roots) for roots in batches[i + 1 : i + 2]]
            yield call


def seen_labels(model: Model, graph: Graph) -> Tensor | None:
    """Return the labels that a model may see; None where they are read with each batch."""
    by_batch = graph.stored and walks_of(model) is not None
    return None if by_batch else labels_for(model, graph)


def call_for(
    model: Model, graph: Graph, roots: Tensor | None, labels: Tensor | None, *, batched: bool
) -> tuple[Any, ...]:
    """Return what to call a model with: of a stored graph, what some roots touch."""
    if graph.stored and roots is not None and walks_of(model) is not None:
        return asked(model, graph, roots, labels)
    return *placed(model, graph, batched=batched), roots, labels


_Inputs = tuple[Mapping[str, Tensor], Mapping[EdgeType, Tensor]]
_placed: GraphCache[_Inputs] = GraphCache()


def placed(model: Model, graph: Graph, *, batched: bool) -> _Inputs:
    """Return the features and links that a model is called with, on its device.

    A graph stays in the computer's memory where batches are cut out of it.
    """
    x_dict, links, device = graph.x_dict, graph.edge_index_dict, _device(model)
    if device.type == "cpu" or (batched and hasattr(model, "prepare")):
        return x_dict, links
    return _placed.get(
        [*x_dict.values(), *links.values()],
        lambda: (
            {kind: x.to(device) for kind, x in x_dict.items()},
            {step: ends.to(device) for step, ends in links.items()},
        ),
    )


def _device(model: Model) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@torch.no_grad()
def logits_of(
    model: Model, graph: Graph, nodes: Tensor | None = None, *, batch_size: int | None = None
) -> Tensor:
    """Return the logits of some target nodes (default: all), without dropout.

    Args:
        model: The model.
        graph: The graph.
        nodes: Their numbers.
        batch_size: Compute so many at a time, shared among all ranks (default: the whole graph).
    """
    model.train(False)
    if batch_size is None:
        labels = labels_for(model, graph)
        call = call_for(model, graph, None, labels, batched=False)
        whole = model(*call).to(graph.y.device)
        return whole if nodes is None else whole[nodes]
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    batches = torch.split(ranks.share(nodes), batch_size)
    labels = seen_labels(model, graph)
    parts = [model(*call).to(graph.y.device) for call in calls(model, graph, batches, labels)]
    return ranks.gathered(torch.cat(parts), len(nodes))


def follow_means(model: Model, share: float = SHARE) -> None:
    """Move what predictions weigh channels with towards what the last call has seen."""
    for part in _semantic(model):
        part.follow(share)


def stands_alone(model: Model) -> bool:
    """Return whether a prediction does not depend on the roots it is asked for with."""
    return not _norms(model) and all(part.mean is not None for part in _semantic(model))


@contextmanager
def alike_until_known(model: Model) -> Iterator[None]:
    """Weigh all channels alike where training has seen no root yet."""
    unknown = [part for part in _semantic(model) if part.mean is None]
    for part in unknown:
        part.mean = part.q.new_zeros(part.vectors)
    try:
        yield
    finally:
        for part in unknown:
            part.mean = None


def refuse_norms(model: Model) -> None:
    """Refuse a model whose logits of a node depend on the other nodes of a batch."""
    if _norms(model):
        raise HanmeError(
            f"model {type(model).__name__} normalises over all nodes at once and needs the whole "
            "graph: train it without batch_size (--batch-size)"
        )


def _norms(model: Model) -> list[nn.BatchNorm1d]:
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm1d)]
    return [norm for norm in norms if norm.running_mean is None]


def _semantic(model: Model) -> list[SemanticAttention]:
    return [part for part in model.modules() if isinstance(part, SemanticAttention)]
