"""Fit the wide part of a model: which blocks, how strong, and their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import to_torch
from hanme.metapath import EdgeType, Metapath
from hanme.nn.channels.base import Inputs
from hanme.nn.channels.blocks import MOST_NUMBERS, Block, Rows, TooLarge
from hanme.nn.channels.wide import WideChannels
from hanme.training.bayes import FEWEST, choose_bayes, log_shares, out_of_fold
from hanme.training.convex import logistic, one_thread
from hanme.training.relevance import centred, choose, gram

SAMPLE = 1200
"""Blocks are chosen on at most so many labelled nodes."""

MOST_SPANNED = 3000
"""With at most so many nodes, weights are fitted in the space that their rows span."""

MOST_WORK = 6e8
"""With more nodes, a step of the fit takes about so many multiplications at the most."""

RARE = 0.02
"""A block that a smaller share of nodes has counts as by hand, or not at all."""

STEPS = 100
"""With more nodes, a fit takes at most so many steps."""

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
    few = int(graph.split.labelled.sum()) <= MOST_SPANNED
    y = graph.y[nodes]
    given = y if graph.multilabel else torch.nn.functional.one_hot(y)
    for block in islice(candidates(graph, labels=labels), MOST_BLOCKS):
        try:
            rows = _rows(block, graph)
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
        grams.append(found)
        spreads.append(spread)
    if not blocks:
        raise HanmeError(f"node type {graph.target}: no features and no links to learn from")
    with one_thread():
        mixtures = choose(grams, y, plain, rare)
    if not few:
        best = min(mixtures, key=lambda mixture: mixture.loss)
        mixtures, kept = [best], _affordable(graph, blocks, best.weights.tolist())
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


def _affordable(graph: Graph, blocks: Sequence[Block], weights: Sequence[float]) -> list[int]:
    """Return the most relevant blocks as far as time allows."""
    order = sorted((i for i, w in enumerate(weights) if w > 0), key=lambda i: -weights[i])
    labelled = int(graph.split.labelled.sum())
    kept, work = order[:1], 0.0
    for i in order:
        rows = _rows(blocks[i], graph).numbers() / graph.targets.num_nodes
        work += rows * labelled * len(graph.labels)
        if work <= MOST_WORK and i not in kept:
            kept.append(i)
    return sorted(kept)


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


def can_be_made(block: Block, graph: Graph) -> bool:
    """Return whether the rows of a block can be afforded."""
    try:
        _rows(block, graph)
    except TooLarge:
        return False
    return True


def fit_wide(
    part: WideChannels,
    graph: Graph,
    wide: Wide,
    parts: Sequence[Tensor],
    start: Tensor | None = None,
) -> Tensor:
    """Fit each mixture to the labels of some nodes, and of others.

    Args:
        part: The channels, which stay as they are: :func:`fill_wide` gives them weights.
        graph: The graph.
        wide: What was chosen.
        parts: Masks of labelled nodes to fit to, one after the other.
        start: Where each mixture starts, as returned by the fit to some of these nodes,
            ``[M, D + 1, C]``.

    Returns:
        By part and mixture the weights of the rows of all blocks but trees, and in the last row the
        bias, ``[P, M, D + 1, C]``.
    """
    chosen = torch.stack(list(parts)).any(0).nonzero().flatten()
    made = [rows for rows in part.rows(inputs_of(graph)) if rows.block.read != "trees"]
    labels, convex = len(graph.labels), [mixture for mixture in wide.mixtures if not mixture.bayes]
    y, masks = graph.y[chosen], [mask[chosen] for mask in parts]
    if len(y) <= MOST_SPANNED and len(y) < sum(rows.width for rows in made):
        fitted = _spanned(made, chosen.numpy(), convex, y, masks, labels)
    else:
        fitted = _stepped(made, chosen.numpy(), convex, y, masks, labels, start)
    naive = [
        _counted(
            made, chosen.numpy(), mixture.scales, graph.label_matrix[chosen], masks, y.dim() == 2
        )
        for mixture in wide.mixtures
        if mixture.bayes
    ]
    return torch.cat([fitted, *naive], 1)


def _counted(
    made: Sequence[Rows],
    nodes: NDArray[np.int64],
    scales: Sequence[float],
    given: Tensor,
    parts: Sequence[Tensor],
    several: bool,
) -> Tensor:
    """Return the weights of naive Bayes for each part, ``[P, 1, D + 1, C]``, the bias 0."""
    labels = given.size(1)
    told = torch.cat([given, torch.ones_like(given[:, :1])], 1).double()
    matrix = torch.cat([told * part[:, None] for part in parts], 1)
    found = torch.zeros(len(parts), 1, sum(rows.width for rows in made) + 1, labels)
    at = 0
    for rows, scale in zip(made, scales, strict=True):
        if scale:
            sums = torch.split(rows.transposed_times(nodes, matrix), labels + 1, 1)
            for weights, each in zip(found, sums, strict=True):
                weights[0, at : at + rows.width] = scale * log_shares(each, several=several)
        at += rows.width
    return found


def _stepped(
    made: Sequence[Rows],
    nodes: NDArray[np.int64],
    mixtures: Sequence[Mixture],
    y: Tensor,
    parts: Sequence[Tensor],
    labels: int,
    start: Tensor | None,
) -> Tensor:
    """Fit weights to parts column by column: there are more nodes than columns, or many of both."""
    rows = [
        csr_array(vstack([each(some) for some in each.chunks(nodes)], format="csr"))
        for each in made
    ]
    found = []
    for number, mixture in enumerate(mixtures):
        scaled = [
            r * s if s else csr_array(r.shape) for r, s in zip(rows, mixture.scales, strict=True)
        ]
        scales = np.repeat([*mixture.scales, 1], [*(r.shape[1] for r in rows), 1])
        scale = torch.from_numpy(scales).float()[:, None]
        begin = None if start is None else torch.where(scale > 0, start[number] / scale, 0)
        joined = csr_array(hstack(scaled, format="csr"), dtype=np.float32)
        some = [(to_torch(csr_array(joined[part.numpy()])), y[part]) for part in parts]
        fitted = [
            logistic(*each, mixture.strength, labels=labels, start=begin, steps=STEPS)
            for each in some
        ]
        found.append(scale * torch.stack(fitted))
    return torch.stack(found, 1)


def _mixed(made: Sequence[Rows], nodes: NDArray[np.int64], mixtures: Sequence[Mixture]) -> Tensor:
    """Return the products of the rows of each mixture with each other, ``[M, n, n]``."""
    squares = torch.tensor([mixture.scales for mixture in mixtures], dtype=torch.double) ** 2
    found = torch.zeros(len(mixtures), len(nodes), len(nodes), dtype=torch.double)
    for each, square in zip(made, squares.t(), strict=True):
        if square.any():
            found += square[:, None, None] * each.products(nodes)
    return found


def wide_logits(
    part: WideChannels, graph: Graph, weights: Tensor, nodes: NDArray[np.int64] | None = None
) -> Tensor:
    """Return the logits of target nodes for several weights, in one pass over the nodes.

    Beliefs are left out.

    Args:
        part: The channels.
        graph: The graph.
        weights: Those of the rows of all blocks, and the bias, ``[K, D + 1, C]``.
        nodes: The nodes (default: all target nodes).

    Returns:
        The logits, ``[K, N, C]``.
    """
    made = part.rows(inputs_of(graph))
    side_by_side = weights.transpose(0, 1).flatten(1)
    *blocks, bias = torch.split(side_by_side, [*(rows.width for rows in made), 1])
    nodes = np.arange(graph.targets.num_nodes) if nodes is None else nodes
    found = bias.repeat(len(nodes), 1)
    for rows, block in zip(made, blocks, strict=True):
        if block.any():
            found += rows.times(nodes, block)
    return found.reshape(len(nodes), len(weights), -1).transpose(0, 1)


def fill_wide(part: WideChannels, graph: Graph, weights: Tensor) -> None:
    """Give wide channels weights of the rows of all blocks, and the bias, ``[D + 1, C]``."""
    made = part.rows(inputs_of(graph))
    *blocks, bias = torch.split(weights, [*(rows.width for rows in made), 1])
    for i, rows in enumerate(made):
        if rows.forest is not None:  # of the trees of folds, those that count are kept
            part.trees, blocks[i] = rows.forest.pruned(blocks[i])
    part.fill(blocks, bias[0], made)


def inputs_of(graph: Graph) -> Inputs:
    """Return what wide channels are asked about all target nodes with."""
    return Inputs(graph.x_dict, graph.edge_index_dict, labels=graph.training_labels)


def _spanned(
    made: Sequence[Rows],
    nodes: NDArray[np.int64],
    mixtures: Sequence[Mixture],
    y: Tensor,
    parts: Sequence[Tensor],
    labels: int,
) -> Tensor:
    """Fit weights to parts in the space that their rows span: there are fewer nodes than columns.

    For centred rows = Q B with orthonormal rows of B, the least W is B' times the least weights on
    Q, and the bias makes up for the mean, which large columns would drown the others in.
    """
    found = []
    for mixture, whole in zip(mixtures, _mixed(made, nodes, mixtures), strict=True):
        inner = torch.zeros(len(y), len(parts), labels, dtype=torch.double)
        bias = torch.zeros(len(parts), 1, labels)
        with one_thread():
            for i, part in enumerate(parts):
                own = whole[part][:, part]
                values, vectors = torch.linalg.eigh(centred(own))
                kept = values > values.max() * 1e-9
                root = values[kept].sqrt()
                span = (vectors[:, kept] * root).float().contiguous()
                weights = logistic(span, y[part], mixture.strength, labels=labels).double()
                inner[part, i] = (vectors[:, kept] / root) @ weights[:-1]
                bias[i] = weights[-1:] - own.mean(0) @ inner[part, i]
        back = torch.cat(
            [
                rows.transposed_times(nodes, scale**2 * inner.flatten(1))
                if scale
                else torch.zeros(rows.width, len(parts) * labels)
                for rows, scale in zip(made, mixture.scales, strict=True)
            ]
        )
        found.append(torch.cat([back.reshape(-1, len(parts), labels).transpose(0, 1), bias], 1))
    return torch.stack(found, 1)


def _rows(block: Block, graph: Graph) -> Rows:
    return Rows(
        block,
        graph.target,
        graph.x_dict,
        graph.edge_index_dict,
        graph.sizes,
        labels=graph.training_labels,
    )
