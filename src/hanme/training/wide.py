"""Choose the wide part of a model: which blocks, how much each counts, and how strong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import EdgeType, Metapath
from hanme.nn.channels.blocks import MOST_NUMBERS, Block, Rows, TooLarge
from hanme.training.bayes import FEWEST, choose_bayes, out_of_fold
from hanme.training.convex import one_thread
from hanme.training.relevance import choose, gram

SAMPLE = 1200
"""Blocks are chosen on at most so many labelled nodes."""

MOST_SPANNED = 3000
"""With at most so many nodes, weights are fitted in the space that their rows span."""

MOST_WORK = 3e8
"""With more nodes, a step of the fit takes about so many multiplications at the most."""

RARE = 0.02
"""A block that a smaller share of nodes has counts as by hand, or not at all."""

MOST_PAIRED, MOST_PAIRS = 2**10, 2**23
"""Features, and pairs of them times labels, at the most, that are multiplied; more are words."""

MOST_BLOCKS = 40
"""Of more candidates the first are looked at: short walks, those back the same way first."""

LONGEST = 4


class Mixture(BaseModel):
    """A linear model of some blocks.

    Args:
        scales: What the rows of each block are multiplied by; 0 for one that is left out.
        strength: How strongly weights are held at 0.
        loss: The out-of-fold loss of a node when it was chosen.
        bayes: Whether weights are those of naive Bayes (:mod:`hanme.training.bayes`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scales: list[float]
    strength: float = Field(gt=0, le=1e6)
    loss: float
    bayes: bool = False


class Wide(BaseModel):
    """What a wide part is made of.

    Args:
        blocks: The blocks, as texts.
        mixtures: The linear models of these blocks whose sum it is.
        trees: Whether trees over the node's own features are grown, and added.
        beliefs: The blocks of beliefs to try, as texts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: list[str]
    mixtures: list[Mixture] = Field(min_length=1)
    trees: bool = False
    beliefs: list[str] = []

    @property
    def channels(self) -> list[str]:
        """All blocks of a wide part, in their order."""
        return self.blocks + ["trees:plain"] * self.trees + self.beliefs

    @model_validator(mode="before")
    @classmethod
    def _one_mixture(cls, values: Any) -> Any:
        """Read what versions before 0.4 wrote, which had one mixture."""
        if not isinstance(values, dict) or "mixtures" in values:
            return values
        one = {key: values[key] for key in Mixture.model_fields if key in values}
        kept = {key: values[key] for key in ("blocks", "beliefs") if key in values}
        return kept | {"mixtures": [one]}

    @model_validator(mode="after")
    def _as_many_scales(self) -> Wide:
        if any(len(mixture.scales) != len(self.blocks) for mixture in self.mixtures):
            raise ValueError("a mixture has as many scales as there are blocks")
        if all(mixture.bayes for mixture in self.mixtures):
            raise ValueError("one mixture at least is fitted, and not naive Bayes")
        return self

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
    """Choose mixtures of blocks and their strengths by out-of-fold loss on training nodes.

    With many labelled nodes, one mixture will do. With few, naive Bayes may be one more.

    Args:
        graph: The graph.
        seed: Draws the training nodes to choose by, where there are many.
        labels: Whether blocks may read the labels of other nodes.
    """
    nodes = graph.split.train.nonzero().flatten().numpy()
    if len(nodes) < 2:
        raise HanmeError(f"node type {graph.target}: one training node is too few to learn from")
    nodes = np.random.default_rng(seed).permutation(nodes)[:SAMPLE]
    blocks: list[Block] = []
    grams: list[Tensor] = []
    spreads: list[float] = []
    plain: dict[int, float] = {}
    rare: list[int] = []
    naive: dict[int, Tensor] = {}
    numbers: list[int] = []
    shared: dict[Any, Any] = {}
    few = int(graph.split.labelled.sum()) <= MOST_SPANNED
    y = graph.y[nodes]
    given = y if graph.multilabel else torch.nn.functional.one_hot(y)
    for block in islice(candidates(graph, labels=labels), MOST_BLOCKS):
        try:
            rows = rows_of(block, graph, shared)
        except TooLarge:
            continue
        if rows.numbers() > MOST_NUMBERS:
            continue
        products = rows.products(nodes)
        found, spread = gram(products)
        if not spread:
            continue
        if block.scaling == "plain" and block.read != "pairs" and len(block.path or ()) < 2:
            plain[len(blocks)] = spread
        if int((products.diagonal() > 0).sum()) < RARE * len(nodes):
            rare.append(len(blocks))
        if few and len(nodes) >= FEWEST and block.scaling == "unit" and block.read != "labels":
            logits = out_of_fold(rows(nodes), given, several=graph.multilabel)
            naive |= {} if logits is None else {len(blocks): logits}
        blocks.append(block)
        numbers.append(rows.numbers())
        grams.append(found)
        spreads.append(spread)
    if not blocks:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    with one_thread():
        mixtures = choose(grams, y, plain, rare)
    if not few:
        best = min(mixtures, key=lambda mixture: mixture.loss)
        mixtures, kept = [best], _affordable(graph, numbers, best.weights.tolist())
    inverse = 1 / np.array(spreads)
    chosen = [
        Mixture(scales=np.sqrt(weights * inverse).tolist(), strength=strength, loss=loss)
        for weights, strength, loss, _ in mixtures
    ]
    if naive:
        chosen += _naive([mixture.logits for mixture in mixtures], naive, y, len(blocks))
    if few:
        kept = np.flatnonzero(np.sum([mixture.scales for mixture in chosen], 0)).tolist()
    return Wide(
        blocks=[str(blocks[i]) for i in kept],
        mixtures=[
            mixture.model_copy(update={"scales": [mixture.scales[i] for i in kept]})
            for mixture in chosen
        ],
    )


def _naive(
    mixed: Sequence[Tensor], naive: Mapping[int, Tensor], y: Tensor, blocks: int
) -> list[Mixture]:
    """Return naive Bayes of some blocks as one more mixture, if that clearly helps."""
    scales, logits = choose_bayes(mixed, naive, y)
    loss = float(node_losses(logits, y).mean())
    one = Mixture(
        scales=[scales.get(i, 0) for i in range(blocks)], strength=1, loss=loss, bayes=True
    )
    return [one] if scales else []


def _affordable(graph: Graph, numbers: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return the most relevant blocks that time allows, by how many numbers each holds.

    If it allows none, the smallest is returned.
    """
    relevant = [i for i, weight in enumerate(weights) if weight > 0]
    each = int(graph.split.labelled.sum()) / graph.targets.num_nodes * len(graph.labels)
    kept, work = list[int](), 0.0
    for i in sorted(relevant, key=lambda i: -weights[i]):
        if work + each * numbers[i] <= MOST_WORK:
            work += each * numbers[i]
            kept.append(i)
    return sorted(kept) or [min(relevant, key=lambda i: numbers[i])]


def candidates(graph: Graph, *, labels: bool = False) -> Iterator[Block]:
    """Name the blocks that may be worth having, short metapaths first.

    The products of the target's own features, if these are few. Ids of nodes one or two hops away;
    mean features one, two and four hops away, over four hops there and back alone; with `labels`
    their means wherever a path comes back to the target.
    """
    yield Block(None, "features", "plain")
    yield Block(None, "features", "unit")
    width = graph.targets.width or 0
    pairs = width * (width - 1) // 2
    if width <= MOST_PAIRED and pairs * len(graph.labels) <= MOST_PAIRS:
        yield Block(None, "pairs", "plain")
    for steps in walks(graph, 1):
        if steps[-1][2] != graph.target:
            path = Metapath.of(list(steps), graph.metadata())
            yield Block(path, "ids", "unit")
            yield Block(path, "ids", "plain")
    for length in range(1, LONGEST + 1):
        for steps in walks(graph, length):
            path, end = Metapath.of(list(steps), graph.metadata()), steps[-1][2]
            if end != graph.target and length == 2:
                yield Block(path, "ids", "unit")
            if length == 1 or end == graph.target:
                yield Block(path, "features", "unit")
                if length <= 2:
                    yield Block(path, "features", "plain")
            if labels and end == graph.target:
                yield Block(path, "labels", "plain")
                yield Block(path, "labels", "unit")


def walks(graph: Graph, length: int) -> list[tuple[EdgeType, ...]]:
    """Return the sequences of relations from the target, longer than two hops only back to it.

    Those that come back by the relations that they went by, or by some with as many links, are
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
        if len(found) > 1000:
            return []
    if length == 3:
        return []
    links = {step: graph.links[step].size(1) for step in graph.edge_types}

    def another_way(walk: tuple[EdgeType, ...]) -> bool:
        sizes = [links[step] for step in walk]
        return sizes != sizes[::-1]

    some = [w for w in found if length <= 2 or w[-1][2] == graph.target]
    return sorted(some, key=another_way)


def rows_of(block: Block, graph: Graph, shared: dict[Any, Any]) -> Rows:
    """Return the rows of a block on a graph; they can be too large to be made."""
    return Rows(
        block,
        graph.target,
        graph.x_dict,
        graph.edge_index_dict,
        graph.sizes,
        labels=graph.training_labels,
        shared=shared,
    )
