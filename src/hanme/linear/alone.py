"""What each column and each relation of a graph predicts by itself.

It is measured on training rows that its rates or weights were not fitted to; labels of validation
and test rows are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.graph import EdgeType, Graph
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.aggregates import Aggregates, Column
from hanme.linear.blocks import FeatureBlock, NeighbourFeatures, NeighbourIds
from hanme.linear.fit import inner_products
from hanme.linear.matrices import GraphMatrices
from hanme.linear.rows import Field, Rows
from hanme.linear.selection import balanced_samples, usable_blocks, walks
from hanme.linear.trees import association

Labels = NDArray[np.bool_]
Scores = NDArray[np.float64]

MIN_ROWS = 20
"""Minimum number of training rows: fewer can be separated by accident."""

MAX_ROWS, MAX_DENSE_ROWS = 4096, 1000
"""Maximum number of training rows that score a column, and a text: a linear system of this size
takes a tenth of a second."""

MAX_RATED = 2**17
"""Maximum number of training rows that score ids and categories: ids hardly repeat among few."""

MAX_CELLS = 2**24
"""Maximum number of ids times labels that are counted: 0.1 GB."""

MAX_COLUMNS, PER_SOURCE = 60, 2
"""Maximum number of columns that are scored, and of those of one source: of all candidates, those
that are associated most with the labels."""

MAX_BLOCKS = 60
"""Maximum number of texts, categories and relations that are scored: own and near ones first."""

MAX_WORDS = 10
"""Maximum number of unnamed sparse features that are scored, such as words."""

FOLDS, BINS = 5, 64
"""Number of folds, and of equally frequent segments of a number."""

RAREST = 1e-6
"""Minimum share of a label, for its odds."""

PENALTIES = (1.0, 0.1, 0.01)
"""Ridge penalties to try, for rows whose mean squared length is 1."""


@dataclass(frozen=True)
class Source:
    """What can be left out of a graph: a column, or a relation with its reverse.

    Args:
        node_type: The type of the rows that have the column.
        field: The column.
        relation: The relation; None for a column.
    """

    node_type: str = ""
    field: Field | None = None
    relation: EdgeType | None = None

    @property
    def key(self) -> object:
        """What tells sources apart."""
        return self.relation or (self.node_type, self.field.name if self.field else "")


class View(NamedTuple):
    """One of the ways to read a source: its name in words, and the relations to its rows."""

    source: Source
    name: str
    walk: Walk = ()


class Alone(NamedTuple):
    """What a source reaches alone.

    Args:
        source: The source.
        name: How it is read, in words: a column of linked rows has several aggregates.
        walk: The relations to the linked rows; empty for a column of the target.
        roc_auc: The score.
    """

    source: Source
    name: str
    walk: Walk
    roc_auc: float


def alone(graph: Graph, seed: int = 0) -> list[Alone]:
    """Return what columns and relations reach alone, by ROC-AUC, the best first.

    A column is scored by itself, by its mean and other aggregates if it belongs to linked rows; a
    relation by the ids that it leads to, by the number of links and, if it leads to other target
    nodes, by their labels.
    """
    nodes = _training_nodes(graph, seed)
    if len(nodes) < MIN_ROWS:
        return []
    mask = torch.zeros_like(graph.split.train)
    mask[torch.from_numpy(nodes)] = True
    few = balanced_samples(graph, [mask], [MAX_ROWS], seed)[0].numpy()
    return sorted(_scored(graph, few, nodes[:MAX_RATED], seed), key=lambda one: -one.roc_auc)


def best_alone(graph: Graph, seed: int = 0) -> Alone | None:
    """Return the best of :func:`alone`; None if there are too few rows or no sources."""
    return next(iter(alone(graph, seed)), None)


def column_alone(graph: Graph, values: NDArray[Any], seed: int = 0) -> float:
    """Return what a number of each target node reaches alone, by ROC-AUC out of fold."""
    nodes = _training_nodes(graph, seed)
    y = graph.labels_given(torch.from_numpy(nodes)).numpy()
    fold = np.arange(len(nodes)) % FOLDS  # the nodes are in random order
    return roc_auc(_rates(_segments(values[nodes]), y, fold), y)


def both_ways(graph: Graph, edge_type: EdgeType) -> list[EdgeType]:
    """Return an edge type and its reverse, in the order of the graph."""
    source, _, end = edge_type

    def pairs(e: EdgeType, *, flipped: bool) -> Tensor:
        first, last = graph.links[e].flip(0) if flipped else graph.links[e]
        ordered: Tensor = (first.long() * graph.sizes[end] + last).sort().values
        return ordered

    back = [e for e in graph.edge_types if (e[0], e[2]) == (end, source) and e != edge_type]
    back = [e for e in back if graph.num_links[e] == graph.num_links[edge_type]]
    own = pairs(edge_type, flipped=False)
    both = {edge_type, *(e for e in back if torch.equal(pairs(e, flipped=True), own))}
    return [e for e in graph.edge_types if e in both]


def _training_nodes(graph: Graph, seed: int) -> NDArray[np.int64]:
    """Return training nodes in random order, one of each group of near-duplicates."""
    nodes = graph.split.train.nonzero().flatten().numpy()
    nodes = np.random.default_rng(seed).permutation(nodes)
    groups = graph.groups
    if groups is None:
        return nodes
    _, first = np.unique(groups.numpy()[nodes], return_index=True)
    return nodes[np.sort(first)]


def _scored(
    graph: Graph, few: NDArray[np.int64], many: NDArray[np.int64], seed: int
) -> Iterator[Alone]:
    """Yield each view of each source with its score; one source may have several."""
    random = np.random.default_rng(seed)
    y = graph.labels_given(torch.from_numpy(few)).numpy()
    fold = random.permutation(len(few)) % FOLDS
    columns = [*_columns(graph, few, y), *_unnamed(graph, few, y)]
    columns = sorted(columns, key=lambda found: -found[0])
    counted = dict[object, int]()
    kept = list[tuple[View, Any]]()
    for _, view, values in columns:
        key = view.source.key
        counted[key] = counted.get(key, 0) + 1
        if counted[key] <= PER_SOURCE:
            kept.append((view, values))
    for view, values in kept[:MAX_COLUMNS]:
        yield Alone(*view, roc_auc(_rates(_segments(values), y, fold), y))
    labels = graph.labels_given(torch.from_numpy(many)).numpy()
    folds = random.permutation(len(many)) % FOLDS
    place = np.full(graph.targets.num_nodes, -1)
    place[many] = np.arange(len(many))
    sample = place[few[random.permutation(len(few))[:MAX_DENSE_ROWS]]]
    sample = sample[sample >= 0]
    for view, rows in _blocks(graph, many):
        scores = [roc_auc(_rates(rows, labels, folds), labels)]
        if np.diff(rows.indptr).max(initial=0) > 1:
            predicted = _regression(csr_array(rows[sample]), labels[sample], folds[sample])
            scores.append(roc_auc(predicted, labels[sample]))
        yield Alone(*view, max(scores))
    for view, predicted in _neighbour_labels(graph, few):
        yield Alone(*view, roc_auc(predicted, y))


def _columns(
    graph: Graph, nodes: NDArray[np.int64], y: Labels
) -> Iterator[tuple[float, View, Any]]:
    """Yield own columns and aggregates, each with its association with the labels."""
    aggregates, relations = Aggregates.on(graph), _canonical(graph)
    for columns, values in aggregates.candidates(nodes):
        for column, own in zip(columns, values.T, strict=True):
            source = _source_of(column, graph, aggregates, relations)
            if source is not None:
                yield association(own, y), View(source, _name(source, column), column.walk), own


def _name(source: Source, column: Column) -> str:
    """Return a source in words: an aggregate of numbers by its own, a column by its name."""
    if source.field is None or (column.walk and source.field.kind == "number"):
        return column.phrase
    return f"{source.field.name} of {source.node_type}" if column.walk else source.field.name


def _source_of(
    column: Column, graph: Graph, aggregates: Aggregates, relations: Mapping[EdgeType, EdgeType]
) -> Source | None:
    """Return the column of a table that an aggregate reads; for counts and ids, the relation."""
    kind = column.walk[-1][2] if column.walk else graph.target
    if column.function in ("count", "node"):
        return Source(relation=relations[column.walk[-1]])
    rows = aggregates.rows(kind)
    within = (f for f in rows.fields if f.start <= column.feature < f.start + f.width)
    field = next(within, rows.derived.get(column.feature))
    return None if field is None else Source(kind, field)


def _unnamed(
    graph: Graph, nodes: NDArray[np.int64], y: Labels
) -> Iterator[tuple[float, View, Any]]:
    """Yield the own features of unknown origin that most of one label have, such as words."""
    rows = Rows(graph, graph.target)
    if rows.fields or not graph.targets.width:
        return
    x = csr_array(csr_array(rows.x)[nodes])
    there = csr_array((np.ones(x.nnz), x.indices, x.indptr), shape=x.shape)
    count, hits = np.asarray(there.sum(0)).reshape(-1, 1), there.T @ y.astype(np.float64)
    share = y.mean(0)
    spread = np.maximum(count * (1 - count / len(nodes)), 1e-9) * np.maximum(share, 1e-9)
    agreement = ((hits - count * share) ** 2 / spread).sum(1)
    for i in np.argsort(-agreement, kind="stable")[:MAX_WORDS].tolist():
        name = rows.names[i]
        values = np.asarray(x[:, [i]].toarray()).reshape(-1)
        view = View(Source(graph.target, Field(name, "number", i, 1, {})), name)
        yield association(values, y), view, values


def _blocks(graph: Graph, nodes: NDArray[np.int64]) -> Iterator[tuple[View, csr_array]]:
    """Yield the rows of what has many columns: categories, texts, vectors, and ids."""
    matrices, relations = GraphMatrices(graph), _canonical(graph)
    metadata, rows = graph.metadata(), dict[str, Rows]()
    left = MAX_BLOCKS

    def wide(kind: str) -> list[Field]:
        rows.setdefault(kind, Rows(graph, kind))
        vectors = [f for f in rows[kind].fields if isinstance(f.fitted.get("mean"), list)]
        return [*rows[kind].categories, *vectors]

    for field in wide(graph.target):
        x = matrices.features(graph.target, "plain")
        own = csr_array(csr_array(x[nodes])[:, field.start : field.start + field.width])
        yield View(Source(graph.target, field), field.name), own
    for walk in _paths(graph):
        path = Metapath.of(walk, metadata)
        end, via = walk[-1][2], f" via {walk[0][2]}" if len(walk) == 2 else ""
        blocks: list[FeatureBlock] = [NeighbourIds(path, "plain")] if end != graph.target else []
        blocks += [NeighbourFeatures(path, "plain")] if wide(end) else []
        for block, design in usable_blocks(blocks, matrices):
            found = csr_array(design.rows(nodes))
            if isinstance(block, NeighbourIds):
                name = f"which {end} it is linked to{via} ({walk[-1][1]})"
                parts = [(View(Source(relation=relations[walk[-1]]), name, walk), found)]
            else:
                parts = [
                    (
                        View(Source(end, field), f"{field.name} of {end}{via}", walk),
                        csr_array(found[:, field.start : field.start + field.width]),
                    )
                    for field in wide(end)
                ]
            for part in parts:
                left -= 1
                if left < 0:
                    return
                yield part


def _neighbour_labels(graph: Graph, nodes: NDArray[np.int64]) -> Iterator[tuple[View, Scores]]:
    """Yield the mean labels of training nodes that relations of the target with itself lead to."""
    train = graph.split.train.numpy()
    known = np.column_stack([graph.label_matrix.numpy(), np.ones(len(train), bool)])
    known = (known & train[:, None]).astype(np.float64)
    for edge_type, name in _canonical(graph).items():
        if (edge_type[0], edge_type[2]) != (graph.target, graph.target):
            continue
        source, end = graph.links[edge_type].numpy()
        others = source != end
        ones, shape = np.ones(int(others.sum())), (len(train), len(train))
        sums = csr_array((ones, (source[others], end[others])), shape=shape)[nodes] @ known
        prior = known[:, :-1].sum(0) / max(1, known[:, -1].sum())
        means = (sums[:, :-1] + prior) / (sums[:, -1:] + 1)
        about = f"the label of linked {graph.target} ({edge_type[1]})"
        yield View(Source(relation=name), about, (edge_type,)), means


def _canonical(graph: Graph) -> dict[EdgeType, EdgeType]:
    """Return for each edge type itself or its reverse: the one that comes first."""
    first = dict[EdgeType, EdgeType]()
    for edge_type in graph.edge_types:
        if edge_type not in first:
            first.update(dict.fromkeys(both_ways(graph, edge_type), edge_type))
    return first


def _paths(graph: Graph) -> Iterable[Walk]:
    """Return the walks of one and two hops from the target; of two, those to other types."""
    return [
        *walks(graph, 1),
        *(walk for walk in walks(graph, 2) if walk[-1][2] != graph.target),
    ]


def _segments(values: NDArray[Any]) -> csr_array:
    """Return which of 64 equally frequent segments a number is in, or that it is missing."""
    known = values[~np.isnan(values)]
    edges = np.unique(known)
    if len(edges) > BINS:
        edges = np.unique(np.quantile(known, np.linspace(0, 1, BINS + 1)[1:-1]))
    bins = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, "left"))
    shape = len(values), len(edges) + 2
    return csr_array((np.ones(len(values)), (np.arange(len(values)), bins)), shape=shape)


def _rates(rows: csr_array, y: Labels, fold: NDArray[np.int64]) -> Scores:
    """Predict labels by the rates of each entry of a row among rows of other folds: naive Bayes.

    A row without entries counts as one with an entry that means so. Of many labels and ids, the
    first labels only.
    """
    empty = (np.diff(rows.indptr) == 0).astype(np.float64)
    ones = csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
    width = rows.shape[1] + 1
    labels = y[:, : max(1, MAX_CELLS // width)].astype(np.float64)
    scores = np.zeros(labels.shape)
    for i in range(FOLDS):
        out = fold == i
        inside = labels[~out]
        prior = np.clip(inside.mean(0), RAREST, 1 - RAREST)
        seen = csr_array(ones[np.flatnonzero(~out)])
        hits = np.vstack([seen.T @ inside, empty[~out] @ inside])
        count = np.append(np.asarray(seen.sum(0)).reshape(-1), empty[~out].sum())[:, None]
        odds = (hits + prior) / (count - hits + 1 - prior) * (1 - prior) / prior
        log_odds = np.where(count > 0, np.log(odds), 0)  # exactly, as the scores are ranked
        held = csr_array(ones[np.flatnonzero(out)])
        scores[out] = held @ log_odds[:-1] + empty[out][:, None] * log_odds[-1]
    return scores


def _regression(rows: csr_array, y: Labels, fold: NDArray[np.int64]) -> Scores:
    """Predict labels by ridge regression on the rows of other folds."""
    gram = inner_products(rows)
    gram = gram / max(float(gram.diagonal().mean()), 1e-12)
    best, least = np.zeros(y.shape), np.inf
    for penalty in PENALTIES:
        scores, error = np.zeros(y.shape), 0.0
        for i in range(FOLDS):
            out, used = np.flatnonzero(fold == i), np.flatnonzero(fold != i)
            mean, middle = y[used].mean(0), gram[np.ix_(used, used)].mean(1)
            inner = gram[np.ix_(used, used)] - middle - middle[:, None] + middle.mean()
            weights = np.linalg.solve(inner + penalty * np.eye(len(used)), y[used] - mean)
            scores[out] = (gram[np.ix_(out, used)] - middle) @ weights
            error += float(np.square(scores[out] + mean - y[out]).sum())
        if error < least:
            best, least = scores, error
    return best


def roc_auc(scores: Scores, y: Labels) -> float:
    """Return the mean ROC-AUC of the scored labels that some rows have and some have not."""
    y = y[:, : scores.shape[1]]
    ones = y.sum(0)
    both = (ones > 0) & (ones < len(y))
    if not both.any():
        return 0.5
    from scipy.stats import rankdata  # predictions do not need it

    ranks, hits = rankdata(scores[:, both], axis=0), ones[both]
    above = (ranks * y[:, both]).sum(0) - hits * (hits + 1) / 2
    return float((above / (hits * (len(y) - hits))).mean())
