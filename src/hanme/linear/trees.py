"""Gradient-boosted trees on a node's own columns and on aggregates of linked rows, by XGBoost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Walk
from hanme.linear.aggregates import Aggregates, Column, Values
from hanme.linear.learner import ColumnContributions, Contributions

if TYPE_CHECKING:  # importing it takes about half a second
    import xgboost

BLOCK = "trees"

MAX_COLUMNS = 400
"""Maximum number of columns; the best are screened from all candidates on training nodes."""

MAX_CANDIDATES = 1500
"""Maximum number of candidates that are compared with each other; the best by themselves."""

MAX_SCREENED = 2**14
"""Maximum number of training nodes that screen columns."""

MAX_NODES = 2**17
"""Maximum number of labelled nodes; more are sampled, since trees stop improving."""

MAX_WORK = 8e9
"""Maximum of rounds times labels times nodes times columns, over all fits: about 30 seconds."""

MAX_ROUNDS = 500
PATIENCE = 40
"""Boosting ends after this number of rounds without a lower held-out loss."""

MIN_HELD_OUT = 50
"""Minimum number of held-out nodes: fewer cannot choose the number of rounds."""

MIN_ROUNDS = 20
"""Number of affordable rounds below which no trees are fitted."""

BATCH = 4096
"""Number of nodes of a stored graph to read at a time."""

PARAMETERS = {
    "eta": 0.08,
    "grow_policy": "lossguide",
    "max_depth": 0,
    "max_leaves": 16,
    "min_child_weight": 2,
    "subsample": 0.8,
    "max_bin": 256,
    "tree_method": "hist",
}
"""Small trees on samples of rows and columns, added up slowly."""

SCREENING = {"eta": 0.3, "max_depth": 4, "colsample_bynode": 0.5, "max_bin": 32}
SCREENING_ROUNDS = 40


class Trees:
    """Gradient-boosted trees.

    Args:
        booster: The trees, as XGBoost holds them.
        columns: The columns that they read.
        labels: The number of labels.
    """

    def __init__(self, booster: xgboost.Booster, columns: Sequence[Column], labels: int) -> None:
        self.booster, self.columns, self.labels = booster, list(columns), labels

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        matrix = _matrix(column_values(graph, self.columns, nodes))
        margin = self.booster.predict(matrix, output_margin=True)
        return _by_label(torch.from_numpy(margin.reshape(matrix.num_row(), -1)), self.labels)

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits ``[n, C]``, as those of one block, and a bias of 0."""
        logits = self.predict(graph, nodes)
        return {BLOCK: logits, "bias": torch.zeros_like(logits)}

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node, by TreeSHAP."""
        matrix = _matrix(column_values(graph, self.columns, torch.tensor([node])))
        shap = self.booster.predict(matrix, pred_contribs=True)
        by_margin = torch.from_numpy(shap.reshape(-1, len(self.columns) + 1).T.copy())
        values = _by_label(by_margin, self.labels).double().numpy()
        # The expectation of the trees is the same for all nodes: a column of its own, so that
        # columns of this block add up to its logits.
        used = np.flatnonzero(values.any(1))
        block = ColumnContributions(BLOCK, used, values[used], self._phrase)
        return Contributions(np.zeros(self.labels), [block])

    def _phrase(self, column: int) -> str:
        return self.columns[column].phrase if column < len(self.columns) else "any node"

    def walks(self) -> list[Walk]:
        """Return the walks to the rows that columns aggregate."""
        return walks_of(self.columns)

    def aligned_to(self, graph: Graph) -> Trees:
        """Return the trees themselves: they have no weights of ids."""
        return self

    frozen = aligned_to

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the columns, and XGBoost's native format as bytes."""
        raw = torch.frombuffer(self.booster.save_raw("ubj"), dtype=torch.uint8)
        columns = [column.model_dump(exclude_defaults=True) for column in self.columns]
        return {"kind": "trees", "columns": columns, "labels": self.labels}, {"booster": raw}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trees:
        """Restore trees from :meth:`state`."""
        xgboost = load_xgboost()
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(tensors["booster"].numpy().tobytes()))
        except xgboost.core.XGBoostError:
            raise HanmeError("trees: not a model of XGBoost") from None
        columns = [
            Column(function="feature", feature=c, phrase=f"feature {c}")  # of version 0.3.0
            if isinstance(c, int)
            else Column(**c)
            for c in values["columns"]
        ]
        return cls(booster, columns, int(values["labels"]))


def column_values(graph: Graph, columns: Sequence[Column], nodes: Tensor | None = None) -> Values:
    """Return columns of some target nodes (default: all); of a stored graph, some at a time."""
    if not graph.stored:
        values = Aggregates.on(graph).values(columns)
        return values if nodes is None else values[nodes.numpy()]
    walks = walks_of(columns)
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    parts = [graph.subgraph(some, walks) for some in torch.split(nodes, BATCH)]
    return np.concatenate([Aggregates.on(part).values(columns)[part.roots] for part in parts])


def walks_of(columns: Sequence[Column]) -> list[Walk]:
    """Return the walks to the rows that columns aggregate."""
    return list(dict.fromkeys(column.walk for column in columns if column.walk))


class TreesFit:
    """Fit trees to several sets of nodes with a common number of rounds.

    Args:
        graph: The graph.
        columns: The columns to read.
        masks: Sets of labelled nodes, each ``[N]``; every set gets its own trees.
        held_out: For each set, nodes that measure the loss.
        seed: Seed of the sample of nodes and of columns.
    """

    def __init__(
        self,
        graph: Graph,
        columns: Sequence[Column],
        masks: Sequence[Tensor],
        held_out: Sequence[Tensor],
        seed: int,
    ) -> None:
        self.graph, self.columns, self.seed = graph, columns, seed
        self.masks, self.held_out, self.labels = masks, held_out, len(graph.labels)
        count = sum(min(MAX_NODES, int(mask.sum())) for mask in masks)
        work = max(1, count * len(self.columns) * self.labels)
        self.max_rounds = min(MAX_ROUNDS, int(MAX_WORK / work))
        self.losses: list[list[float]] = []  # by round, the loss of each set's held-out nodes
        self.boosters: list[xgboost.Booster] = []
        enough = sum(int(mask.sum()) for mask in held_out) >= MIN_HELD_OUT
        if len(self.columns) and self.max_rounds >= MIN_ROUNDS and enough:
            self._boost()

    def _boost(self) -> None:
        xgboost = load_xgboost()
        train = [self._labelled(mask) for mask in self.masks]
        held = [self._labelled(mask) for mask in self.held_out]
        y = [self.graph.y[_sample(mask, self.seed)] for mask in self.held_out]
        pairs = zip(train, held, strict=True)
        self.boosters = [xgboost.Booster(self._parameters(), list(pair)) for pair in pairs]
        for number in range(self.max_rounds):
            for booster, matrix in zip(self.boosters, train, strict=True):
                booster.update(matrix, number)
            triples = zip(self.boosters, held, y, strict=True)
            self.losses.append([self._loss(*each) for each in triples])
            if number + 1 - self.rounds() >= PATIENCE:
                break

    def rounds(self, without: int | None = None) -> int:
        """Return the number of rounds with the least loss, by all sets but one; 0 for no trees."""
        if not self.losses:
            return 0
        losses = np.array(self.losses)
        if without is not None and losses.shape[1] > 1:
            losses = np.delete(losses, without, axis=1)
        return int(losses.sum(1).argmin()) + 1

    def logits(self, number: int, nodes: Tensor) -> Tensor:
        """Return the logits of a set's trees, with the rounds that the other sets choose."""
        booster = self.boosters[number][: self.rounds(without=number)]
        return Trees(booster, self.columns, self.labels).predict(self.graph, nodes)

    def trees(self, number: int) -> Trees:
        """Return the trees of a set."""
        return Trees(self.boosters[number][: self.rounds()], self.columns, self.labels)

    def refit(self, mask: Tensor) -> Trees:
        """Return trees with the same number of rounds, fitted to other nodes."""
        booster = load_xgboost().train(self._parameters(), self._labelled(mask), self.rounds())
        return Trees(booster, self.columns, self.labels)

    def _parameters(self) -> dict[str, Any]:
        width = len(self.columns)
        sampled = {"colsample_bynode": 0.7 if width < 30 else max(1 / 3, 10 / width)}
        return PARAMETERS | sampled | _objective(self.graph, self.seed)

    def _labelled(self, mask: Tensor) -> xgboost.DMatrix:
        nodes = _sample(mask, self.seed)
        return _matrix(column_values(self.graph, self.columns, nodes), self.graph.y[nodes].numpy())

    def _loss(self, booster: xgboost.Booster, matrix: xgboost.DMatrix, y: Tensor) -> float:
        margin = torch.from_numpy(booster.predict(matrix, output_margin=True))
        logits = _by_label(margin.reshape(len(y), -1), self.labels)
        return float(node_losses(logits, y).sum())


def screen_columns(graph: Graph, seed: int, limit: int = MAX_COLUMNS) -> list[Column]:
    """Return the columns that tell most about the labels of training nodes, all if they are few.

    Candidates are compared by their gain in a few rounds of boosting; of more than
    ``MAX_CANDIDATES``, those that tell most by themselves.
    """
    nodes = graph.split.train.nonzero().flatten()
    nodes = nodes[_balanced(graph.label_matrix[nodes].numpy(), MAX_SCREENED, seed)]
    labels = graph.label_matrix[nodes].numpy()
    columns, parts, scores = list[Column](), list[Values](), list[float]()
    for some, values in Aggregates.on(graph).candidates(nodes.numpy()):
        for column, each in zip(some, values.T, strict=True):
            score = association(each, labels)
            if score > 0:
                columns.append(column)
                parts.append(each.copy())
                scores.append(score)
        if len(columns) > 2 * MAX_CANDIDATES:
            kept = np.sort(np.argsort(scores)[-MAX_CANDIDATES:])
            columns, parts, scores = ([part[i] for i in kept] for part in (columns, parts, scores))
    if len(columns) <= limit:
        return columns
    kept = np.sort(np.argsort(scores)[-MAX_CANDIDATES:])
    matrix = _matrix(np.stack([parts[i] for i in kept], 1), graph.y[nodes].numpy())
    parameters = SCREENING | _objective(graph, seed)
    booster = load_xgboost().train(parameters, matrix, SCREENING_ROUNDS)
    gains = booster.get_score(importance_type="total_gain")
    best = sorted(gains, key=lambda name: -gains[name])[:limit]
    return [columns[kept[i]] for i in sorted(int(name[1:]) for name in best)]


def association(values: Values, labels: NDArray[np.bool_]) -> float:
    """Return how much a column tells about labels by itself: chi squared of 16 bins, per node."""
    known = values[~np.isnan(values)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, 17)[1:-1])) if len(known) else known
    bins = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, "left"))
    counts = np.stack([np.bincount(bins, y, len(edges) + 2) for y in labels.T.astype(float)], 1)
    size = np.bincount(bins, minlength=len(edges) + 2)[:, None]
    counts, size = counts[size[:, 0] > 0], size[size[:, 0] > 0]
    if len(size) < 2:
        return 0.0
    expected = size * labels.mean(0)
    return float(((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum() / len(values))


@cache
def load_xgboost() -> Any:
    """Import XGBoost.

    In the command-line program it does so without scikit-learn and pandas, for which it has
    interfaces that are not used here, but which take as long to import as everything else.
    """
    hidden = [name for name in ("sklearn", "pandas") if name not in sys.modules]
    hidden = hidden if "hanme.cli" in sys.modules else []
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import xgboost
    finally:
        for name in hidden:
            del sys.modules[name]
    return xgboost


def _objective(graph: Graph, seed: int) -> dict[str, Any]:
    multiclass = not graph.multilabel and len(graph.labels) > 2
    objective = {"objective": "multi:softprob", "num_class": len(graph.labels)}
    common = {"seed": seed % 2**31, "nthread": torch.get_num_threads()}
    return common | (objective if multiclass else {"objective": "binary:logistic"})


def _sample(mask: Tensor, seed: int) -> Tensor:
    """Return the numbers of the nodes under a mask, at most ``MAX_NODES`` of them."""
    nodes = mask.nonzero().flatten()
    if len(nodes) <= MAX_NODES:
        return nodes
    drawn = np.random.default_rng(seed).choice(len(nodes), MAX_NODES, replace=False)
    return nodes[np.sort(drawn)]


def _balanced(labels: NDArray[np.bool_], limit: int, seed: int) -> NDArray[np.int64]:
    """Draw nodes so that rare labels are not lost, ``[n]`` of at most a limit."""
    if len(labels) <= limit:
        return np.arange(len(labels))
    rarity = np.maximum((labels / np.maximum(labels.sum(0), 1)).max(1), 1 / len(labels))
    keys = np.random.default_rng(seed).exponential(size=len(labels)) / rarity
    return np.sort(np.argsort(keys)[:limit])


def _matrix(rows: Values, y: NDArray[Any] | None = None) -> xgboost.DMatrix:
    make = load_xgboost().DMatrix
    matrix: xgboost.DMatrix = make(rows, y, nthread=torch.get_num_threads())
    return matrix


def _by_label(margin: Tensor, labels: int) -> Tensor:
    """Return a logit per label; one margin between two classes is divided between them."""
    if margin.size(1) == labels:
        return margin
    return torch.cat([-margin / 2, margin / 2], 1)
