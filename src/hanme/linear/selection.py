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

MAX_SAMPLE, MAX_FOLD_SAMPLE = 1200, 600
"""Maximum number of training nodes that weigh blocks, in all and in each fold: each step inverts a
matrix of this size."""

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

WEIGHT_STEPS, WEIGHT_RATE = 30, 0.3
"""Number of gradient steps on the block weights, by when the leave-one-out error is flat, and their
learning rate."""

FOLDS = 4
"""Number of folds for the choice of the strength."""

STRENGTHS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
"""Strengths to try, for rows whose mean squared length is 1; strong ones first. The strongest leave
little more than the base rate, which is right where nothing can be learnt."""

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


class Sample(NamedTuple):
    """The nodes of a sample that are in a set of training nodes."""

    train: NDArray[np.int64]  # the numbers of all nodes of the set
    rows: NDArray[np.int64]  # the places of its nodes in the sample
    targets: Tensor  # their standardised labels, [n, C]
    aggregates: AggregatedRows | None  # the block of aggregates, chosen on this set


def select_blocks(
    graph: Graph,
    masks: Sequence[Tensor],
    seed: int,
    matrices: GraphMatrices,
    columns: Sequence[Sequence[Column]] = (),
    added: Sequence[str | dict[str, Any]] = (),
) -> list[LinearSpec]:
    """Select blocks, scales and strength for each set of training nodes ``[N]``.

    The weights of the blocks minimise the leave-one-out error of ridge regression (automatic
    relevance determination over blocks); the strength minimises the held-out loss of logistic
    regression. The rows of a sample are computed once for all sets.

    Args:
        graph: The graph.
        masks: The sets; nothing is read of the labels of other nodes.
        seed: Seed of the sample.
        matrices: Matrices of the graph.
        columns: The columns of the block of aggregates, for each set.
        added: Blocks of other packages.
    """
    if min(int(mask.sum()) for mask in masks) < 2:
        raise HanmeError(f"node type {graph.target}: at least 2 training nodes are needed")
    limits = [MAX_FOLD_SAMPLE] * (len(masks) - 1) + [MAX_SAMPLE]
    nodes, places = balanced_samples(graph, masks, limits, seed)
    samples = []
    for i, (mask, rows) in enumerate(zip(masks, places, strict=True)):
        targets = graph.labels_given(nodes[rows]).float()
        targets = (targets - targets.mean(0)) / targets.std().clamp(min=1e-6)
        fitted = Standardised.fit(graph, columns[i]) if columns else ()
        aggregates = AggregatedRows(fitted) if fitted else None
        samples.append(Sample(mask.nonzero().flatten().numpy(), rows, targets, aggregates))
    shared = [*added_blocks(graph, added), *islice(candidate_blocks(graph), MAX_CANDIDATES)]
    found: list[list[Candidate]] = [[] for _ in masks]
    everyone = torch.stack(list(masks)).any(0).nonzero().flatten().numpy()
    for block, design in usable_blocks(shared, matrices):
        products = inner_products(design.rows(nodes.numpy()))
        rare = (products.diagonal() > 0).mean() < RARE
        if rare or (block.id_type and _is_unique(design, everyone)):
            continue
        for sample, mine in zip(samples, found, strict=True):
            _consider(block, design, products[np.ix_(sample.rows, sample.rows)], sample, mine)
    for sample, mine in zip(samples, found, strict=True):
        own = list[FeatureBlock]([sample.aggregates] if sample.aggregates else ())
        for block, design in usable_blocks(own, matrices):
            products = inner_products(design.rows(nodes.numpy()[sample.rows]))
            _consider(block, design, products, sample, mine)
        if not mine:
            raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    pairs = list(zip(samples, found, strict=True))
    return [_specify(graph, nodes, *pair, matrices) for pair in pairs]


def _consider(
    block: FeatureBlock,
    design: DesignMatrix,
    products: NDArray[np.float64],
    sample: Sample,
    found: list[Candidate],
) -> None:
    """Add a block to the best ones found if a sample of nodes can tell its weight."""
    gram, spread = normalised(products)
    if not spread:
        return
    agreement = float((sample.targets * (gram @ sample.targets)).sum() / gram.norm())
    found.append(Candidate(block, design.entries, gram, spread, agreement))
    found.sort(key=lambda each: -each.agreement)
    del found[MAX_BLOCKS:]


def _specify(
    graph: Graph,
    nodes: Tensor,
    sample: Sample,
    found: Sequence[Candidate],
    matrices: GraphMatrices,
) -> LinearSpec:
    """Weigh the blocks found, and choose the strength."""
    weights = block_weights(torch.stack([each.gram for each in found]), sample.targets)
    weights[weights < MIN_WEIGHT * weights.sum()] = 0
    folds, some = FOLDS, nodes.numpy()[sample.rows]
    if int(graph.split.labelled.sum()) > MAX_GRAM_NODES:
        share = int(graph.split.labelled.sum()) / graph.targets.num_nodes * len(graph.labels)
        weights = _affordable([share * each.entries for each in found], weights)
        some, folds = np.random.default_rng(0).permutation(sample.train)[:MAX_LARGE_SAMPLE], 1
    kept = weights.nonzero().flatten().tolist()
    shares = (weights / weights.sum()).tolist()
    blocks = [found[i].block for i in kept]
    scales = [(shares[i] / found[i].spread) ** 0.5 for i in kept]
    designs = [block.on(matrices) for block in blocks]
    rows = TrainingRows(designs, scales, some, graph.y[some], len(graph.labels))
    return LinearSpec(blocks, scales, best_strength(rows, folds))


def balanced_samples(
    graph: Graph, masks: Sequence[Tensor], limits: Sequence[int], seed: int
) -> tuple[Tensor, list[NDArray[np.int64]]]:
    """Draw nodes of each label in turn from sets of training nodes, at most a limit of each set.

    All sets are drawn in the same random order, so they overlap as far as they can.

    Returns:
        The numbers of all nodes drawn, and for each set the places of its nodes among them.
    """
    train = graph.split.train.nonzero().flatten()
    train = train[torch.from_numpy(np.random.default_rng(seed).permutation(len(train)))]
    drawn = []
    for mask, limit in zip(masks, limits, strict=True):
        some = train[mask[train]]
        labels = graph.labels_given(some)
        turn = torch.where(labels, labels.cumsum(0), len(some)).min(1).values
        drawn.append(some[torch.argsort(turn, stable=True)[:limit].sort().values])
    nodes = torch.cat(drawn)
    nodes = train[torch.isin(train, nodes)]
    place = torch.empty(len(mask), dtype=torch.long)
    place[nodes] = torch.arange(len(nodes))
    return nodes, [place[some].numpy() for some in drawn]


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


def block_weights(grams: Tensor, targets: Tensor) -> Tensor:
    """Return the weights of blocks that minimise the leave-one-out error of ridge regression.

    With K = Σ w_b K_b and G = (K + I)^-1, the error of node i is (G y)_i / G_ii.

    Args:
        grams: Normalised inner products of the rows of each block, ``[B, n, n]``.
        targets: Standardised labels ``[n, C]``.
    """
    log_weights = torch.full((len(grams),), -float(np.log(len(grams))))
    mean, square = torch.zeros(len(grams)), torch.zeros(len(grams))
    best, kept = np.inf, log_weights
    for step in range(1, WEIGHT_STEPS + 1):
        error, gradient = leave_one_out(log_weights.exp(), grams, targets)
        if error < best:
            best, kept = error, log_weights
        # Adam; importing that of PyTorch takes seconds.
        gradient = gradient * log_weights.exp()
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        root = (square / (1 - 0.999**step)).sqrt() + 1e-8
        log_weights = log_weights - WEIGHT_RATE * mean / (1 - 0.9**step) / root
    return kept.double().exp()


def leave_one_out(weights: Tensor, grams: Tensor, targets: Tensor) -> tuple[float, Tensor]:
    """Return the mean square of the leave-one-out errors, and its gradient by the weights."""
    inner = torch.einsum("b,bij->ij", weights, grams)
    inner.diagonal().add_(1)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(inner))
    fitted, diagonal = inverse @ targets, inverse.diagonal()[:, None]
    errors = fitted / diagonal
    outer = 2 / errors.numel() * errors / diagonal  # by G y, and by G_ii:
    scale = -(outer * errors).sum(1)
    by_inner = (inverse @ outer) @ fitted.t() + (inverse * scale) @ inverse
    return float(errors.square().mean()), -torch.einsum("bij,ij->b", grams, by_inner)


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
