"""Select feature blocks, their weights and the strength of the penalty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.aggregates import Column
from hanme.linear.blocks import (
    AGGREGATES,
    AggregatedRows,
    DesignMatrix,
    FeatureBlock,
    NeighbourFeatures,
    NeighbourIds,
    OwnFeatures,
    Standardised,
)
from hanme.linear.fit import MAX_GRAM_NODES, FitData, centred, fit_weights
from hanme.linear.matrices import MAX_ENTRIES, GraphMatrices, TooLarge
from hanme.linear.solver import logistic_regression

MAX_SAMPLE = 1200
"""Maximum number of training nodes that weigh blocks: each step inverts a matrix of this size."""

MAX_LARGE_SAMPLE = 2**14
"""Maximum number of training nodes that choose the strength where more than ``MAX_GRAM_NODES`` are
labelled: ids and words hardly repeat among fewer."""

MAX_WORK = 1e8
"""Maximum number of multiplications per iteration of a fit to more nodes: half a second, 1 GB."""

MAX_CANDIDATES = 120
"""Maximum number of candidate blocks, short metapaths first."""

MAX_BLOCKS = 30
"""Maximum number of blocks that are weighed: those that agree best with the labels."""

MAX_WALKS = 1000
"""Number of walks of a length above which none of that length are candidates."""

RARE = 0.02
"""Share of nodes that must have a nonzero row, so that a sample can tell the weight of a block."""

MIN_REPEATED = 0.05
"""Share of links that must lead to ids which several training nodes have."""

MIN_WEIGHT = 0.003
"""Share of the total weight below which a block is left out, since it costs more than it adds."""

WEIGHT_STEPS = 30
"""Number of gradient steps on the block weights; the leave-one-out error is flat by then."""

FOLDS = 4
"""Number of folds for the choice of the strength."""

STRENGTHS = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""Strengths to try, for rows whose mean squared length is 1; strong ones first."""

FLOORS = (0.0, 0.1)
"""Minimum weights of blocks to try on many nodes, where those of few nodes are too small."""

CONSTANT = 1e-13
"""Ratio of variance to squared mean below which rows differ by rounding errors only."""


class LinearSpec(BaseModel):
    """What a linear model consists of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: list[str] = Field(min_length=1)  # the feature blocks
    scales: list[float]  # factor of the rows of each block
    strength: float = Field(gt=0, le=1e6)  # of the L2 penalty
    loss: float  # held-out loss per node in the selection
    aggregates: tuple[Standardised, ...] = ()  # the columns of the block of aggregates

    @model_validator(mode="after")
    def _one_scale_per_block(self) -> LinearSpec:
        if len(self.scales) != len(self.blocks):
            raise ValueError(f"{len(self.scales)} scales for {len(self.blocks)} blocks")
        return self


class Candidate(NamedTuple):
    """A block, the number of entries of its rows, and their inner products, normalised."""

    block: FeatureBlock
    entries: int
    gram: Tensor
    spread: float


def select_blocks(
    graph: Graph, seed: int, matrices: GraphMatrices, columns: Sequence[Column] = ()
) -> LinearSpec:
    """Select blocks, scales and strength by the errors of training nodes that are left out.

    The weights of the blocks minimise the leave-one-out error of ridge regression (automatic
    relevance determination over blocks); the strength minimises the held-out loss of logistic
    regression. ``columns`` are those for a block of aggregates.
    """
    train = graph.split.train.nonzero().flatten().numpy()
    if len(train) < 2:
        raise HanmeError(f"node type {graph.target}: at least 2 training nodes are needed")
    nodes = balanced_sample(graph, MAX_SAMPLE, seed).numpy()
    y = graph.y[nodes]
    aggregates = Standardised.fit(graph, columns)
    found = _agreeing(_candidates(graph, matrices, train, nodes, aggregates), y)
    if not found:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    weights = block_weights(torch.stack([each.gram for each in found]), y)
    weights[weights < MIN_WEIGHT * weights.sum()] = 0
    weights = weights / weights.sum()
    if int(graph.split.labelled.sum()) > MAX_GRAM_NODES:
        weights, strength, loss = _on_many(matrices, train, found, weights)
    else:
        gram = sum(w * each.gram for w, each in zip(weights.tolist(), found, strict=True))
        strength, loss = best_strength(gram, y)
    kept = weights.nonzero().flatten().tolist()
    blocks = [str(found[i].block) for i in kept]
    return LinearSpec(
        blocks=blocks,
        scales=[float(weights[i] / found[i].spread) ** 0.5 for i in kept],
        strength=strength,
        loss=loss,
        aggregates=aggregates if AGGREGATES in blocks else (),
    )


def balanced_sample(graph: Graph, limit: int, seed: int) -> Tensor:
    """Draw training nodes of each label in turn, in random order, at most a limit."""
    train = graph.split.train.nonzero().flatten()
    train = train[torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))]
    labels = graph.labels_given(train)
    turn = torch.where(labels, labels.cumsum(0), len(train)).min(1).values
    drawn = torch.argsort(turn, stable=True)[:limit]
    return train[drawn.sort().values]


def _candidates(
    graph: Graph,
    matrices: GraphMatrices,
    train: NDArray[np.int64],
    nodes: NDArray[np.int64],
    aggregates: tuple[Standardised, ...],
) -> Iterator[Candidate]:
    """Yield the blocks that a sample of nodes can tell something about."""
    blocks: list[FeatureBlock] = [AggregatedRows(aggregates)] if aggregates else []
    for block, matrix in usable_blocks([*blocks, *candidate_blocks(graph)], matrices):
        if block.id_type and not _repeats(matrix, train):
            continue
        products = matrix.gram(nodes)
        gram, spread = normalised(products)
        if spread and int((products.diagonal() > 0).sum()) >= RARE * len(nodes):
            yield Candidate(block, matrix.entries, gram, spread)


def _repeats(matrix: DesignMatrix, train: NDArray[np.int64]) -> bool:
    """Return whether ids repeat among training nodes, as those of a node's own facts do not."""
    ids = np.concatenate([matrix.rows(some).indices for some in matrix.chunks(train)])
    return bool((np.bincount(ids)[ids] > 1).mean() >= MIN_REPEATED) if len(ids) else False


def _agreeing(candidates: Iterable[Candidate], y: Tensor) -> list[Candidate]:
    """Return the blocks whose inner products agree best with those of the labels."""
    targets, found = _standardised(y), list[tuple[float, Candidate]]()
    for each in candidates:
        agreement = float((targets * (each.gram @ targets)).sum() / each.gram.norm())
        found.append((agreement, each))
        if len(found) > MAX_BLOCKS:
            found.remove(min(found, key=lambda pair: pair[0]))
    return [each for _, each in found]


def _standardised(y: Tensor) -> Tensor:
    targets = y.float() if y.dim() == 2 else F.one_hot(y).float()
    targets = targets - targets.mean(0)
    return targets / targets.std().clamp(min=1e-6)


def _on_many(
    source: GraphMatrices, train: NDArray[np.int64], found: Sequence[Candidate], weights: Tensor
) -> tuple[Tensor, float, float]:
    """Choose minimum weight and strength by the loss of nodes held out of many."""
    graph = source.graph
    nodes = np.random.default_rng(0).permutation(train)[:MAX_LARGE_SAMPLE]
    y, fold = graph.y[nodes], torch.arange(len(nodes)) % FOLDS == 0
    share = int(graph.split.labelled.sum()) / graph.targets.num_nodes * len(graph.labels)
    work = [share * each.entries for each in found]
    best: tuple[Tensor, float, float] | None = None
    for floor in FLOORS:
        tried = _affordable(work, weights.clamp(min=floor))
        kept = tried.nonzero().flatten().tolist()
        scales = [float(tried[i] / found[i].spread) ** 0.5 for i in kept]
        matrices, start, least = [source.block(found[i].block) for i in kept], None, np.inf
        for strength in STRENGTHS:
            data = FitData(matrices, scales, strength, nodes, y, len(graph.labels), [~fold])
            (start,) = fit_weights(data, start)
            held, parts = nodes[fold.numpy()], torch.split(start[:-1], [m.width for m in matrices])
            logits = start[-1] + sum(m.times(held, w) for m, w in zip(matrices, parts, strict=True))
            loss = float(node_losses(logits, y[fold]).mean())
            least = min(least, loss)
            if best is None or loss < best[2]:
                best = tried, strength, loss
            if loss > 1.02 * least:
                break  # the loss is past its minimum
    assert best is not None
    return best


def _affordable(work: Sequence[float], weights: Tensor) -> Tensor:
    """Return weights with 0 for the least relevant blocks beyond ``MAX_WORK``."""
    kept, total = torch.zeros_like(weights), 0.0
    for i in torch.argsort(weights, descending=True, stable=True).tolist():
        if total + work[i] <= MAX_WORK:
            kept[i], total = weights[i], total + work[i]
    if not kept.any():
        smallest = min(weights.nonzero().flatten().tolist(), key=lambda i: work[i])
        kept[smallest] = 1
    return kept / kept.sum()


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
    """Return at most ``MAX_CANDIDATES`` blocks, short metapaths first.

    These are the target's own features, ids one and two hops away, and mean features one, two and
    four hops away; over four hops only back at the target type.
    """
    return list(islice(_blocks(graph), MAX_CANDIDATES))


def _blocks(graph: Graph) -> Iterator[FeatureBlock]:
    yield OwnFeatures(None, "plain")
    yield OwnFeatures(None, "unit")
    metadata = graph.metadata()
    for length in (1, 2, 4):
        for steps in walks(graph, length):
            path, back = Metapath.of(steps, metadata), steps[-1][2] == graph.target
            if not back and length <= 2:
                yield NeighbourIds(path, "unit")
            if not back and length == 1:
                yield NeighbourIds(path, "plain")
            if length == 1 or back:
                yield NeighbourFeatures(path, "unit")
                if length <= 2:
                    yield NeighbourFeatures(path, "plain")


def walks(graph: Graph, length: int) -> list[Walk]:
    """Return the sequences of relations from the target; longer than 2 only back to its type.

    Sequences that return by the relations that they took, or by others with as many links, come
    first.
    """
    found: list[Walk] = [()]
    for _ in range(length):
        found = [
            (*walk, step)
            for walk in found
            for step in graph.edge_types
            if step[0] == (walk[-1][2] if walk else graph.target)
        ]
        if len(found) > MAX_WALKS:
            return []

    def is_asymmetric(walk: Walk) -> bool:
        sizes = [graph.num_links[step] for step in walk]
        return sizes != sizes[::-1]

    kept = [walk for walk in found if length <= 2 or walk[-1][2] == graph.target]
    return sorted(kept, key=is_asymmetric)


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
    targets = _standardised(y)
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
    fold = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)) % FOLDS
    losses: dict[float, float] = {}
    starts: list[Tensor | None] = [None] * FOLDS
    for strength in STRENGTHS:
        logits = torch.zeros(len(y), labels or y.size(1))
        for i in range(FOLDS):
            train = fold != i
            starts[i] = weights = logistic_regression(
                rows[train], y[train], strength, labels=labels, start=starts[i], max_iter=20
            )
            logits[~train] = rows[~train] @ weights[:-1] + weights[-1]
        losses[strength] = float(node_losses(logits, y).mean())
        if losses[strength] > 1.02 * min(losses.values()):
            break  # the loss is past its minimum
    return min(losses.items(), key=lambda pair: pair[1])
