"""Fit the wide part of a model: which blocks, how strong, and their weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import to_torch
from hanme.metapath import EdgeType, Metapath
from hanme.nn.channels.base import Inputs
from hanme.nn.channels.blocks import MOST_NUMBERS, Block, Rows, TooLarge
from hanme.nn.channels.wide import WideChannels
from hanme.training.convex import logistic, one_thread
from hanme.training.relevance import choose, gram

SAMPLE = 1200
"""Blocks are chosen on at most so many labelled nodes."""

MOST_SPANNED = 3000
"""With at most so many nodes, weights are fitted in the space that their rows span."""

MOST_WORK = 6e8
"""With more nodes, a step of the fit takes about so many multiplications at the most."""

STEPS = 100
"""With more nodes, a fit takes at most so many steps."""

MOST_BLOCKS = 40
LONGEST = 4


class Wide(BaseModel):
    """What a wide part is made of.

    Args:
        blocks: The blocks, as texts.
        scales: What the rows of each are multiplied by.
        strength: How strongly weights are held at 0.
        loss: The out-of-fold loss of a node when they were chosen.
        losses: That loss for each mixture of blocks that was tried.
        beliefs: The blocks of beliefs to try, as texts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: list[str]
    scales: list[float]
    strength: float = Field(gt=0, le=1e6)
    loss: float
    losses: dict[str, float]
    beliefs: list[str] = []

    @classmethod
    def make(cls, values: Any, where: str) -> Wide:
        """Check values; a mistake raises one line."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "all of it"
            raise HanmeError(f"{where}: {field}: {first['msg']}") from None


def choose_wide(graph: Graph, seed: int, *, labels: bool = False) -> Wide:
    """Choose blocks, their scales and the strength by out-of-fold loss on training nodes.

    Args:
        graph: The graph.
        seed: Draws the training nodes to choose by, where there are many.
        labels: Whether blocks may read the labels of other nodes.
    """
    nodes = graph.split.train.nonzero().flatten().numpy()
    nodes = np.random.default_rng(seed).permutation(nodes)[:SAMPLE]
    blocks: list[Block] = []
    grams: list[Tensor] = []
    plain: list[int] = []
    for block in islice(candidates(graph, labels=labels), MOST_BLOCKS):
        try:
            rows = _rows(block, graph)
        except TooLarge:
            continue
        if rows.numbers() > MOST_NUMBERS:
            continue
        products = gram(to_torch(rows(nodes)))
        if not products.any():
            continue
        if block.scaling == "plain" and len(block.path or ()) < 2:
            plain.append(len(blocks))
        blocks.append(block)
        grams.append(products)
    if not blocks:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    with one_thread():
        found = choose(grams, graph.y[nodes], plain)
    kept = _affordable(graph, blocks, found.weights.tolist())
    scales = []
    for i in kept:
        dense = _rows(blocks[i], graph)(nodes)
        spread = float(dense.multiply(dense).sum() / len(nodes)) - float((dense.mean(0) ** 2).sum())
        scales.append(float(np.sqrt(found.weights[i] / max(spread, 1e-12))))
    return Wide(
        blocks=[str(blocks[i]) for i in kept],
        scales=scales,
        strength=found.strength,
        loss=found.loss,
        losses=found.losses,
    )


def _affordable(graph: Graph, blocks: Sequence[Block], weights: Sequence[float]) -> list[int]:
    """Return the blocks to keep: all, or on many nodes the most relevant as far as time allows."""
    order = sorted((i for i, w in enumerate(weights) if w > 0), key=lambda i: -weights[i])
    labelled = int(graph.split.labelled.sum())
    if labelled <= MOST_SPANNED:
        return sorted(order)
    kept, work = order[:1], 0.0
    for i in order:
        rows = _rows(blocks[i], graph).numbers() / graph.targets.num_nodes
        work += rows * labelled * len(graph.labels)
        if work <= MOST_WORK and i not in kept:
            kept.append(i)
    return sorted(kept)


def candidates(graph: Graph, *, labels: bool = False) -> Iterator[Block]:
    """Name the blocks that may be worth having, short metapaths first.

    Ids of nodes one or two hops away; mean features one, two and four hops away, over four hops
    there and back alone; with `labels` their means wherever a path comes back to the target.
    """
    yield Block(None, "features", "plain")
    yield Block(None, "features", "unit")
    for length in range(1, LONGEST + 1):
        for steps in walks(graph, length):
            path = Metapath.of(list(steps), graph.metadata())
            end = steps[-1][2]
            if end != graph.target and length <= 2:
                yield Block(path, "ids", "unit")
                if length == 1:
                    yield Block(path, "ids", "plain")
            if (length == 1 and end != graph.target) or end == graph.target:
                yield Block(path, "features", "unit")
                if length <= 2:
                    yield Block(path, "features", "plain")
            if labels and end == graph.target:
                yield Block(path, "labels", "plain")
                yield Block(path, "labels", "unit")


def walks(graph: Graph, length: int) -> list[tuple[EdgeType, ...]]:
    """Return the sequences of relations from the target, longer than two hops only back to it."""
    found: list[tuple[EdgeType, ...]] = [()]
    for _ in range(length):
        found = [
            (*walk, step)
            for walk in found
            for step in graph.edge_types
            if step[0] == (walk[-1][2] if walk else graph.target)
        ]
        if len(found) > 1000:
            return []
    if length == 3:
        return []
    return [w for w in found if length <= 2 or w[-1][2] == graph.target]


def can_be_made(block: Block, graph: Graph) -> bool:
    """Return whether the rows of a block can be afforded."""
    try:
        _rows(block, graph)
    except TooLarge:
        return False
    return True


def fit_wide(
    part: WideChannels, graph: Graph, wide: Wide, nodes: Tensor, start: Tensor | None = None
) -> Tensor:
    """Fit the matrices of wide channels to the labels of some nodes.

    Args:
        part: The channels, whose weights are replaced.
        graph: The graph.
        wide: What was chosen.
        nodes: A mask of the labelled nodes to fit to.
        start: Where to start, as returned by the fit to some of these nodes.

    Returns:
        The weights of the scaled rows of all blocks, and in the last row the bias.
    """
    (weights,) = fit_parts(part, graph, wide, [nodes], start)
    fill_wide(part, graph, wide, weights)
    return weights


def fit_parts(
    part: WideChannels,
    graph: Graph,
    wide: Wide,
    parts: Sequence[Tensor],
    start: Tensor | None = None,
) -> list[Tensor]:
    """Return the weights that fit each of several masks of nodes, see :func:`fit_wide`."""
    chosen = torch.stack(list(parts)).any(0).nonzero().flatten()
    rows = [
        csr_array(_stack([each(some) for some in each.chunks(chosen.numpy())]) * scale)
        for each, scale in zip(part.rows(inputs_of(graph)), wide.scales, strict=True)
    ]
    joined = csr_array(hstack(rows, format="csr"))
    masks = [mask[chosen] for mask in parts]
    return _fit(joined, graph.y[chosen], masks, wide.strength, len(graph.labels), start)


def wide_logits(
    part: WideChannels, graph: Graph, wide: Wide, weights: Sequence[Tensor]
) -> list[Tensor]:
    """Return the logits of all target nodes for each of several weights, in one pass over them.

    Beliefs are left out.
    """
    made = part.rows(inputs_of(graph))
    *blocks, bias = torch.split(torch.cat(list(weights), 1), [*(rows.width for rows in made), 1])
    nodes = np.arange(graph.targets.num_nodes)
    for rows, block, scale in zip(made, blocks, wide.scales, strict=True):
        bias = bias + rows.times(nodes, block * scale)
    return list(bias.split(len(graph.labels), 1))


def fill_wide(part: WideChannels, graph: Graph, wide: Wide, weights: Tensor) -> None:
    """Give wide channels weights that were fitted, see :func:`fit_wide`."""
    made = part.rows(inputs_of(graph))
    *parts, bias = torch.split(weights, [*(rows.width for rows in made), 1])
    scaled = [each * scale for each, scale in zip(parts, wide.scales, strict=True)]
    part.fill(scaled, bias[0], made)


def inputs_of(graph: Graph) -> Inputs:
    """Return what wide channels are asked about all target nodes with."""
    return Inputs(graph.x_dict, graph.edge_index_dict, labels=graph.training_labels)


def _fit(
    rows: csr_array,
    y: Tensor,
    parts: Sequence[Tensor],
    strength: float,
    labels: int,
    start: Tensor | None = None,
) -> list[Tensor]:
    """Fit weights to parts; with fewer nodes than columns in the space that rows span, for speed.

    For rows = Q B with orthonormal rows of B, the least W is B' times the least weights on Q.
    """
    if len(y) > MOST_SPANNED or len(y) >= rows.shape[1]:
        some = [(to_torch(csr_array(rows[part.numpy()])), y[part]) for part in parts]
        return [logistic(*each, strength, labels=labels, start=start, steps=STEPS) for each in some]
    dense = torch.from_numpy(rows.toarray())
    weights = torch.zeros(len(y), len(parts), labels)
    biases = torch.zeros(1, len(parts), labels)
    with one_thread():
        products = (dense @ dense.t()).double()
        for i, part in enumerate(parts):
            values, vectors = torch.linalg.eigh(products[part][:, part])
            kept = values > values.max() * 1e-9
            root = values[kept].sqrt()
            span = (vectors[:, kept] * root).float().contiguous()
            found = logistic(span, y[part], strength, labels=labels)
            weights[part, i], biases[:, i] = (
                (vectors[:, kept] / root).float() @ found[:-1],
                found[-1],
            )
        back = dense.t() @ weights.flatten(1)
    return list(torch.cat([back.view(-1, len(parts), labels), biases]).unbind(1))


def _stack(parts: Sequence[csr_array]) -> csr_array:
    return csr_array(vstack(parts, format="csr")) if len(parts) > 1 else parts[0]


def _rows(block: Block, graph: Graph) -> Rows:
    return Rows(
        block,
        graph.target,
        graph.x_dict,
        graph.edge_index_dict,
        graph.sizes,
        labels=graph.training_labels,
    )
