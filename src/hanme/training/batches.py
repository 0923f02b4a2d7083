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
from hanme.common.memory import PAGES_MB, give_back, matrix
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import EdgeType
from hanme.nn.cache import GraphCache
from hanme.nn.fusions import SemanticAttention
from hanme.nn.model import Model, asked, draws_of, is_cut, labels_for, piece_of

SHARED = 1024
"""So many nodes are computed at a time where there must be batches and no size is set."""

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
    model: Model, graph: Graph, batches: Sequence[Tensor], labels: Tensor | None, *, seed: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Yield what to call a model with for each batch of roots, see :func:`call_for`.

    What the next batch touches is read in another thread meanwhile.
    """
    prepare: Callable[..., None] | None = getattr(model, "prepare", None)

    def make(roots: Tensor) -> tuple[Any, ...]:
        call = call_for(model, graph, roots, labels, batched=True, seed=seed)
        if prepare is not None:
            prepare(*call)
        return call

    with ThreadPoolExecutor(1) as pool:
        running = [pool.submit(make, roots) for roots in batches[:1]]
        for i in range(len(batches)):
            call = running.pop().result()
            give_back(PAGES_MB)
            running += [pool.submit(make, roots) for roots in batches[i + 1 : i + 2]]
            yield call


def seen_labels(model: Model, graph: Graph) -> Tensor | None:
    """Return the labels that a model may see; None where they are read with each batch."""
    return None if is_cut(model, graph) else labels_for(model, graph)


def call_for(
    model: Model,
    graph: Graph,
    roots: Tensor | None,
    labels: Tensor | None,
    *,
    batched: bool,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Return what to call a model with: what some roots touch, where that is cut out of the graph.

    Args:
        model: The model.
        graph: The graph.
        roots: Numbers of target nodes (None: all of them).
        labels: What :func:`seen_labels` gives.
        batched: Whether roots are some of many.
        seed: Fixes the draw of instances, see :func:`~hanme.nn.model.piece_of`.
    """
    if roots is not None and is_cut(model, graph):
        return asked(model, *piece_of(model, graph, roots, seed))
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
    found = logit_batches(model, graph, nodes, batch_size)
    if batch_size is None and not draws_of(model):
        return next(found)[1]
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    mine, done = matrix(len(ranks.share(nodes)), len(graph.labels)), 0
    for some, logits in found:
        mine[done : done + len(some)] = logits
        done += len(some)
    give_back()
    return ranks.gathered(mine, len(nodes))


@torch.no_grad()
def logit_batches(
    model: Model, graph: Graph, nodes: Tensor | None, batch_size: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield numbers and logits of some target nodes after others, see :func:`logits_of`.

    In batches, those are the nodes that are this rank's share.
    """
    model.train(False)
    every = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    if batch_size is None and not draws_of(model):
        call = call_for(model, graph, None, labels_for(model, graph), batched=False)
        whole = model(*call).to(graph.y.device)
        yield every, whole if nodes is None else whole[nodes]
        return
    batches = torch.split(ranks.share(every), batch_size or SHARED)
    made = calls(model, graph, batches, seen_labels(model, graph))
    for some, call in zip(batches, made, strict=True):
        yield some, model(*call).cpu()


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
