"""Select feature blocks, their weights and the strength of the penalty."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.aggregates import Column
from hanme.linear.blocks import (
    AggregatedRows,
    FeatureBlock,
    NeighbourFeatures,
    NeighbourIds,
    OwnFeatures,
    Standardised,
    added_blocks,
)
from hanme.linear.fit import MAX_GRAM_NODES, TrainingRows, centred, inner_products
from hanme.linear.matrices import MAX_ENTRIES, DesignMatrix, GraphMatrices, TooLarge

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

MAX_ITER = 20
"""Maximum number of iterations per strength; each fit starts from that of a stronger penalty."""

CONSTANT = 1e-13
"""Ratio of variance to squared mean below which rows differ by rounding errors only."""


class LinearSpec(NamedTuple):
    """What a linear model is fitted to."""

    blocks: Sequence[FeatureBlock]
    scales: Sequence[float]  # factor of the rows of each block
    strength: float  # of the L2 penalty


class Candidate(NamedTuple):
    """A block that a sample of nodes can tell something about."""

    block: FeatureBlock
    entries: int  # number of entries of its rows
    gram: Tensor  # inner products of the rows of the sample, normalised
    spread: float  # mean squared length of its centred rows
    agreement: float  # of these inner products with those of the labels


def select_blocks(
    graph: Graph,
    seed: int,
    matrices: GraphMatrices,
    columns: Sequence[Column] = (),
    added: Sequence[str | dict[str, Any]] = (),
) -> LinearSpec:
    """Select blocks, scales and strength by the errors of training nodes that are left out.

    The weights of the blocks minimise the leave-one-out error of ridge regression (automatic
    relevance determination over blocks); the strength minimises the held-out loss of logistic
    regression. ``columns`` are those for a block of aggregates, ``added`` names blocks of other
    packages.
    """
    train = graph.split.train.nonzero().flatten().numpy()
    if len(train) < 2:
        raise HanmeError(f"node type {graph.target}: at least 2 training nodes are needed")
    nodes, folds = balanced_sample(graph, MAX_SAMPLE, seed).numpy(), FOLDS
    targets = graph.labels_given(torch.from_numpy(nodes)).float()
    targets = (targets - targets.mean(0)) / targets.std().clamp(min=1e-6)
    found = list[Candidate]()
    blocks = [*added_blocks(graph, added), *islice(candidate_blocks(graph), MAX_CANDIDATES)]
    if aggregates := Standardised.fit(graph, columns):
        blocks.append(AggregatedRows(aggregates))
    for block, design in usable_blocks(blocks, matrices):
        candidate = _candidate(block, design, nodes, targets)
        if candidate and not (block.id_type and _is_unique(design, train)):
            found = sorted([*found, candidate], key=lambda each: -each.agreement)[:MAX_BLOCKS]
    if not found:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    weights = block_weights(torch.stack([each.gram for each in found]), targets)
    weights[weights < MIN_WEIGHT * weights.sum()] = 0
    if int(graph.split.labelled.sum()) > MAX_GRAM_NODES:
        share = int(graph.split.labelled.sum()) / graph.targets.num_nodes * len(graph.labels)
        weights = _affordable([share * each.entries for each in found], weights)
        nodes, folds = np.random.default_rng(0).permutation(train)[:MAX_LARGE_SAMPLE], 1
    kept = weights.nonzero().flatten().tolist()
    shares = (weights / weights.sum()).tolist()
    blocks = [found[i].block for i in kept]
    scales = [(shares[i] / found[i].spread) ** 0.5 for i in kept]
    designs = [block.on(matrices) for block in blocks]
    rows = TrainingRows(designs, scales, nodes, graph.y[nodes], len(graph.labels))
    return LinearSpec(blocks, scales, best_strength(rows, folds))


def balanced_sample(graph: Graph, limit: int, seed: int) -> Tensor:
    """Draw training nodes of each label in turn, in random order, at most a limit."""
    train = graph.split.train.nonzero().flatten()
    train = train[torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))]
    labels = graph.labels_given(train)
    turn = torch.where(labels, labels.cumsum(0), len(train)).min(1).values
    drawn = torch.argsort(turn, stable=True)[:limit]
    return train[drawn.sort().values]


def _candidate(
    block: FeatureBlock, design: DesignMatrix, nodes: NDArray[np.int64], targets: Tensor
) -> Candidate | None:
    """Return a block if a sample of nodes can tell its weight."""
    products = inner_products(design.rows(nodes))
    gram, spread = normalised(products)
    if not spread or (products.diagonal() > 0).mean() < RARE:
        return None
    agreement = float((targets * (gram @ targets)).sum() / gram.norm())
    return Candidate(block, design.entries, gram, spread, agreement)


def _is_unique(design: DesignMatrix, train: NDArray[np.int64]) -> bool:
    """Return whether ids hardly repeat among training nodes, as those of a node's own facts."""
    ids = np.concatenate([rows.indices for rows in design.chunks(train)])
    return not len(ids) or bool((np.bincount(ids)[ids] > 1).mean() < MIN_REPEATED)


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
            design = block.matrix(matrices)
        except TooLarge:
            matrices.too_large[str(block)] = None
            continue
        if design.entries <= MAX_ENTRIES:
            yield block, design
        else:
            matrices.too_large[str(block)] = None


def candidate_blocks(graph: Graph) -> Iterator[FeatureBlock]:
    """Yield blocks to try, short metapaths first.

    These are the target's own features, ids one and two hops away, and mean features one, two and
    four hops away; over four hops only back at the target type.
    """
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


def normalised(gram: NDArray[np.float64]) -> tuple[Tensor, float]:
    """Return the inner products of centred rows divided by their mean square, and that square.

    For rows that differ by rounding errors only, both are 0.
    """
    inner = centred(gram)
    spread = float(inner.diagonal().mean())
    if spread <= CONSTANT * float(gram.diagonal().mean()):
        return torch.zeros(gram.shape), 0.0
    return torch.from_numpy(inner / spread).float(), spread


@torch.enable_grad()
def block_weights(grams: Tensor, targets: Tensor) -> Tensor:
    """Return the weights of blocks that minimise the leave-one-out error of ridge regression.

    With K = Σ w_b K_b and G = (K + I)^-1, the error of node i is (G y)_i / G_ii.

    Args:
        grams: Normalised inner products of the rows of each block, ``[B, n, n]``.
        targets: Standardised labels ``[n, C]``.
    """
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


def best_strength(rows: TrainingRows, folds: int) -> float:
    """Return the strength with the least loss of nodes that are left out, over some folds."""
    order = torch.randperm(len(rows.nodes), generator=torch.Generator().manual_seed(0))
    starts: list[Tensor | None] = [None] * folds
    losses: dict[float, float] = {}
    for strength in STRENGTHS:
        held_out = []
        for i in range(folds):
            fold = order % FOLDS == i
            starts[i] = weights = rows.fit(~fold, strength, starts[i], MAX_ITER)
            held_out.append(node_losses(rows.logits(fold, weights), rows.y[fold]))
        losses[strength] = float(torch.cat(held_out).mean())
        if losses[strength] > 1.02 * min(losses.values()):
            break  # the loss is past its minimum
    return min(losses, key=lambda strength: losses[strength])
