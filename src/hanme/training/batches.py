"""Mini-batches of roots: their order, what is read ahead of them, and logits a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from hanme.common import ranks
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.metapath import EdgeType
from hanme.nn.cache import GraphCache
from hanme.nn.fusions import SemanticAttention
from hanme.nn.model import ChannelModel, Model

SHARE = 0.1
"""How far a step moves the running mean that predictions weigh channels with."""


def key(*numbers: int) -> int:
    """Return a seed that depends on all of some numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def shuffled(nodes: Tensor, seed: int, epoch: int) -> Tensor:
    """Return the nodes in the order in which an epoch takes them, whatever the number of ranks."""
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(key(seed, epoch)))
    return nodes[order]


def prepared(model: Model, graph: Graph, batches: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield batches of roots; what the next one touches is read in another thread meanwhile."""
    prepare: Callable[..., None] | None = getattr(model, "prepare", None)
    if prepare is None:
        yield from batches
        return
    x_dict, links = graph.x_dict, graph.edge_index_dict  # a batch is moved to a device by itself
    with ThreadPoolExecutor(1) as pool:
        running = [pool.submit(prepare, x_dict, links, roots) for roots in batches[:1]]
        for i, roots in enumerate(batches):
            running.pop().result()
            running += [pool.submit(prepare, x_dict, links, r) for r in batches[i + 1 : i + 2]]
            yield roots


def labels_for(model: Model, graph: Graph) -> Tensor | None:
    """Return the labels that a model may see; None where it would not look at them."""
    if isinstance(model, ChannelModel) and not any(part.reads_labels for part in model.parts):
        return None
    return graph.training_labels.to(_device(model))


_Inputs = tuple[Mapping[str, Tensor], Mapping[EdgeType, Tensor]]
_placed: GraphCache[_Inputs] = GraphCache()


def placed(model: Model, graph: Graph, batch_size: int | None) -> _Inputs:
    """Return the features and links that a model is called with, on its device.

    A graph stays in the computer's memory where batches are cut out of it.
    """
    x_dict, links, device = graph.x_dict, graph.edge_index_dict, _device(model)
    if device.type == "cpu" or (batch_size is not None and hasattr(model, "prepare")):
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
    inputs, labels = placed(model, graph, batch_size), labels_for(model, graph)
    if batch_size is None:
        whole = model(*inputs, labels=labels).to(graph.y.device)
        return whole if nodes is None else whole[nodes]
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    batches = torch.split(ranks.share(nodes), batch_size)
    parts = [
        model(*inputs, roots=roots, labels=labels).to(graph.y.device)
        for roots in prepared(model, graph, batches)
    ]
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
