"""Select feature blocks, their weights and the strength of the penalty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import EdgeType, Metapath
from hanme.linear.blocks import (
    DesignMatrix,
    FeatureBlock,
    NeighbourFeatures,
    NeighbourIds,
    OwnFeatures,
)
from hanme.linear.matrices import MAX_ENTRIES, GraphMatrices, TooLarge
from hanme.linear.solver import logistic_regression

MAX_SAMPLE = 1200
"""Maximum number of training nodes for the selection: each of its steps inverts a matrix this
size."""

MAX_GRAM_NODES = 3000
"""Maximum number of labelled nodes for a fit in the space that their rows span; an eigenvalue
decomposition of this size takes a few seconds."""

MAX_WORK = 3e8
"""Maximum number of multiplications per iteration of a fit to more nodes: about a second."""

MAX_BLOCKS = 40
"""Maximum number of candidate blocks; short metapaths come first."""

MAX_WALKS = 1000
"""Number of walks of a length above which none of that length are candidates."""

RARE = 0.02
"""Share of nodes that must have a nonzero row, so that a sample can tell the weight of a block."""

MIN_WEIGHT = 0.003
"""Share of the total weight below which a block is left out, since it costs more than it adds."""

WEIGHT_STEPS = 30
"""Number of gradient steps on the block weights; the leave-one-out error is flat by then."""

FOLDS = 4
"""Number of folds for the choice of the strength."""

STRENGTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""Strengths to try, for rows whose mean squared length is 1; strong ones first."""

CONSTANT = 1e-13
"""Ratio of variance to squared mean below which rows differ by rounding errors only."""


class LinearSpec(BaseModel):
    """What a linear model consists of.

    Args:
        blocks: The feature blocks, as texts.
        scales: Factor of the rows of each block.
        strength: Strength of the L2 penalty.
        loss: Out-of-fold loss per node in the selection.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: list[str] = Field(min_length=1)
    scales: list[float]
    strength: float = Field(gt=0, le=1e6)
    loss: float

    def extended(self, blocks: list[str]) -> LinearSpec:
        """Return a spec of more blocks; those without a scale of their own have 0."""
        scales = dict(zip(self.blocks, self.scales, strict=True))
        own = {"blocks": blocks, "scales": [scales.get(block, 0.0) for block in blocks]}
        return self.model_copy(update=own)

    @model_validator(mode="after")
    def _one_scale_per_block(self) -> LinearSpec:
        if len(self.scales) != len(self.blocks):
            raise ValueError(f"{len(self.scales)} scales for {len(self.blocks)} blocks")
        return self


def select_blocks(graph: Graph, seed: int, matrices: GraphMatrices | None = None) -> LinearSpec:
    """Select blocks, scales and strength by the errors of training nodes that are left out.

    The weights of the blocks minimise the leave-one-out error of ridge regression (automatic
    relevance determination over blocks); the strength minimises the out-of-fold loss of logistic
    regression.

    Args:
        graph: The graph.
        seed: Seed of the sample of training nodes.
        matrices: Matrices of the graph to reuse.
    """
    nodes = graph.split.train.nonzero().flatten().numpy()
    if len(nodes) < 2:
        raise HanmeError(f"node type {graph.target}: at least 2 training nodes are needed")
    nodes = np.random.default_rng(seed).permutation(nodes)[:MAX_SAMPLE]
    y = graph.y[nodes]
    blocks: list[FeatureBlock] = []
    entries: list[int] = []
    grams: list[Tensor] = []
    spreads: list[float] = []
    frequent: list[bool] = []
    candidates = candidate_blocks(graph)
    for block, matrix in usable_blocks(candidates, matrices or GraphMatrices(graph)):
        products = matrix.gram(nodes)
        gram, spread = normalised(products)
        if spread:
            blocks.append(block)
            entries.append(matrix.entries)
            grams.append(gram)
            spreads.append(spread)
            frequent.append(int((products.diagonal() > 0).sum()) >= RARE * len(nodes))
    if not blocks:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    stacked, chosen = torch.stack(grams), torch.tensor(frequent if any(frequent) else [True])
    chosen = chosen.expand(len(blocks)).nonzero().flatten()
    weights = torch.zeros(len(blocks), dtype=torch.double)
    weights[chosen] = block_weights(stacked[chosen], y)
    weights[weights < MIN_WEIGHT * weights.sum()] = 0
    weights = weights / weights.sum()
    gram = torch.einsum("b,bij->ij", weights.float(), stacked)
    strength, loss = best_strength(gram, y)
    kept = weights.nonzero().flatten().tolist()
    if int(graph.split.labelled.sum()) > MAX_GRAM_NODES:
        kept = _affordable(graph, entries, weights.tolist())
    return LinearSpec(
        blocks=[str(blocks[i]) for i in kept],
        scales=[float(weights[i] / spreads[i]) ** 0.5 for i in kept],
        strength=strength,
        loss=loss,
    )


def usable_blocks(
    blocks: Iterable[FeatureBlock], matrices: GraphMatrices
) -> Iterator[tuple[FeatureBlock, DesignMatrix]]:
    """Yield blocks with their rows, without those that are too large."""
    for block in blocks:
        try:
            matrix = block.matrix(matrices)
        except TooLarge:
            continue
        if matrix.entries <= MAX_ENTRIES:
            yield block, matrix


def candidate_blocks(graph: Graph) -> list[FeatureBlock]:
    """Return at most ``MAX_BLOCKS`` blocks worth trying, short metapaths first.

    These are the target's own features, ids one and two hops away, and mean features one, two and
    four hops away; over four hops only back at the target type.
    """
    return list(islice(_candidates(graph), MAX_BLOCKS))


def _candidates(graph: Graph) -> Iterator[FeatureBlock]:
    yield OwnFeatures(None, "plain")
    yield OwnFeatures(None, "unit")
    metadata = graph.metadata()
    for steps in walks(graph, 1):
        if steps[-1][2] != graph.target:
            path = Metapath.of(steps, metadata)
            yield NeighbourIds(path, "unit")
            yield NeighbourIds(path, "plain")
    for length in (1, 2, 4):
        for steps in walks(graph, length):
            path, end = Metapath.of(steps, metadata), steps[-1][2]
            if end != graph.target and length == 2:
                yield NeighbourIds(path, "unit")
            if length == 1 or end == graph.target:
                yield NeighbourFeatures(path, "unit")
                if length <= 2:
                    yield NeighbourFeatures(path, "plain")


def walks(graph: Graph, length: int) -> list[tuple[EdgeType, ...]]:
    """Return the sequences of relations from the target; longer than 2 only back to its type.

    Sequences that return by the relations that they took, or by others with as many links, come
    first.
    """
    found: list[tuple[EdgeType, ...]] = [()]
    for _ in range(length):
        found = [
            (*walk, step)
            for walk in found
            for step in graph.edge_types
            if step[0] == (walk[-1][2] if walk else graph.target)
        ]
        if len(found) > MAX_WALKS:
            return []

    def is_asymmetric(walk: tuple[EdgeType, ...]) -> bool:
        sizes = [graph.num_links[step] for step in walk]
        return sizes != sizes[::-1]

    kept = [walk for walk in found if length <= 2 or walk[-1][2] == graph.target]
    return sorted(kept, key=is_asymmetric)


def centred(gram: Tensor) -> Tensor:
    """Return the inner products of rows after subtraction of their mean."""
    mean = gram.mean(0)
    return gram - mean - mean[:, None] + mean.mean()


def normalised(gram: Tensor) -> tuple[Tensor, float]:
    """Return the inner products of centred rows divided by their mean square, and that square.

    For rows that differ by rounding errors only, both are 0.
    """
    inner = centred(gram)
    spread = float(inner.diagonal().mean())
    if spread <= CONSTANT * float(gram.diagonal().mean()):
        return torch.zeros_like(gram, dtype=torch.float), 0.0
    return (inner / spread).float(), spread


@torch.enable_grad()
def block_weights(grams: Tensor, y: Tensor) -> Tensor:
    """Return the weights of blocks that minimise the leave-one-out error of ridge regression.

    With K = Σ w_b K_b and G = (K + I)^-1, the error of node i is (G y)_i / G_ii.

    Args:
        grams: Normalised inner products of the rows of each block, ``[B, n, n]``.
        y: Multi-hot labels ``[n, C]`` or class numbers ``[n]``.
    """
    targets = y.float() if y.dim() == 2 else F.one_hot(y).float()
    targets = targets - targets.mean(0)
    targets = targets / targets.std().clamp(min=1e-6)
    log_weights = torch.full((len(grams),), -float(np.log(len(grams))), requires_grad=True)
    optimizer = torch.optim.Adam([log_weights], lr=0.3)
    identity = torch.eye(len(targets))
    best, kept = np.inf, log_weights.detach().clone()
    for _ in range(WEIGHT_STEPS):
        inverse = torch.linalg.inv(torch.einsum("b,bij->ij", log_weights.exp(), grams) + identity)
        error = ((inverse @ targets) / inverse.diagonal()[:, None]).square().mean()
        if float(error.detach()) < best:
            best, kept = float(error.detach()), log_weights.detach().clone()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    return kept.double().exp()


def best_strength(gram: Tensor, y: Tensor) -> tuple[float, float]:
    """Return the strength with the least out-of-fold loss, and that loss per node."""
    values, vectors = torch.linalg.eigh(gram)
    kept = values > values.max() * 1e-6
    rows = (vectors[:, kept] * values[kept].sqrt()).contiguous()
    labels = None if y.dim() == 2 else int(y.max()) + 1
    fold = torch.arange(len(y)) % FOLDS  # the nodes are in random order
    losses: list[tuple[float, float]] = []
    starts: list[Tensor | None] = [None] * FOLDS
    for strength in STRENGTHS:
        logits = torch.zeros(len(y), labels or y.size(1))
        for i in range(FOLDS):
            train = fold != i
            starts[i] = weights = logistic_regression(
                rows[train], y[train], strength, labels=labels, start=starts[i], max_iter=20
            )
            logits[~train] = rows[~train] @ weights[:-1] + weights[-1]
        losses.append((strength, float(node_losses(logits, y).mean())))
        if losses[-1][1] > 1.02 * min(loss for _, loss in losses):
            break  # the loss is past its minimum
    return min(losses, key=itemgetter(1))


def _affordable(graph: Graph, entries: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return the blocks of largest weight within ``MAX_WORK``, or the smallest block."""
    candidates = [i for i, weight in enumerate(weights) if weight > 0]
    share = int(graph.split.labelled.sum()) / graph.targets.num_nodes
    kept, work = list[int](), 0.0
    for i in sorted(candidates, key=lambda i: -weights[i]):
        more = share * len(graph.labels) * entries[i]
        if work + more <= MAX_WORK:
            work += more
            kept.append(i)
    return sorted(kept) or [min(candidates, key=lambda i: entries[i])]
