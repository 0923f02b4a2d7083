"""Mini-batches of roots: their order, what is read ahead of them, and logits a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn

from hanme.common import ranks
from hanme.common.memory import PAGES_MB, give_back, matrix
from hanme.graph import Graph
from hanme.nn.batch import Batch
from hanme.nn.fusions import SemanticAttention
from hanme.nn.model import Model, batch_of

SHARED = 1024
"""Batch size where batches are required and the configuration sets none."""

MOMENTUM = 0.1
"""Weight of the last batch in the running mean of semantic attention, as in batch norm."""


def key(*numbers: int) -> int:
    """Return a seed that depends on all of some numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)


def shuffled(nodes: Tensor, seed: int, epoch: int) -> Tensor:
    """Return the nodes in the order in which an epoch takes them, whatever the number of ranks."""
    order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(key(seed, epoch)))
    return nodes[order]


def prefetched(
    model: Model, graph: Graph, parts: Sequence[Tensor], *, seed: int = 0
) -> Iterator[Batch]:
    """Yield the batch of each tensor of roots; the next one is made in another thread.

    The seed is that of sampled instances, see :func:`~hanme.nn.model.batch_of`.
    """

    def make(roots: Tensor) -> Batch:
        batch = batch_of(model, graph, roots, seed)
        model.prepare(batch)
        return batch

    with ThreadPoolExecutor(1) as pool:
        running = [pool.submit(make, roots) for roots in parts[:1]]
        for i in range(len(parts)):
            batch = running.pop().result()
            give_back(PAGES_MB)
            running += [pool.submit(make, roots) for roots in parts[i + 1 : i + 2]]
            yield batch


@torch.no_grad()
def logits_of(
    model: Model, graph: Graph, nodes: Tensor | None = None, *, batch_size: int | None = None
) -> Tensor:
    """Return the logits of some target nodes (default: all), without dropout.

    Batches of ``batch_size`` nodes are shared among all ranks (default: the whole graph at once).
    """
    found = logit_batches(model, graph, nodes, batch_size)
    if batch_size is None and not model.samples():
        return next(found)[1]
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    share, done = len(ranks.share(nodes)), 0
    mine = matrix(share, len(graph.labels))
    for some, logits in found:
        if mine.size(1) != logits.size(1):  # a model without its head
            mine = matrix(share, logits.size(1))
        mine[done : done + len(some)] = logits
        done += len(some)
    give_back()
    return ranks.gathered(mine, len(nodes))


@torch.no_grad()
def logit_batches(
    model: Model, graph: Graph, nodes: Tensor | None, batch_size: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield numbers and logits of this rank's share of the nodes, see :func:`logits_of`."""
    model.train(False)
    every = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    if batch_size is None and not model.samples():
        whole = model(batch_of(model, graph)).to(graph.y.device)
        yield every, whole if nodes is None else whole[nodes]
        return
    parts = torch.split(ranks.share(every), batch_size or SHARED)
    for some, batch in zip(parts, prefetched(model, graph, parts), strict=True):
        yield some, model(batch).cpu()


def update_running_means(model: Model, momentum: float = MOMENTUM) -> None:
    """Update the running means of semantic attention after a training step."""
    for part in _semantic(model):
        part.update_running_mean(momentum)


def stands_alone(model: Model) -> bool:
    """Return whether a prediction does not depend on the other nodes of its batch."""
    unknown = [part for part in _semantic(model) if part.mean is None]
    return not unknown and not normalises(model)


def normalises(model: Model) -> bool:
    """Return whether a model normalises over all nodes at once."""
    norms = (part for part in model.modules() if isinstance(part, nn.BatchNorm1d))
    return any(norm.running_mean is None for norm in norms)


def _semantic(model: Model) -> list[SemanticAttention]:
    return [part for part in model.modules() if isinstance(part, SemanticAttention)]
