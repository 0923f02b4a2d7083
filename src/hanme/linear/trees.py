"""Gradient-boosted trees on a node's own columns, by XGBoost."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import feature_names, to_scipy, words_among
from hanme.graph.metapath import EdgeType
from hanme.linear.blocks import feature_name
from hanme.linear.learner import ColumnContributions, Contributions

if TYPE_CHECKING:  # importing it takes about half a second
    import xgboost

BLOCK = "trees"

MAX_COLUMNS = 2**10
"""Maximum number of columns; words of texts are left out above it."""

SPARSE = 0.05
"""Share of nonzero entries below which columns of unknown origin are taken for words."""

MAX_NODES = 2**16
"""Maximum number of labelled nodes; more are sampled, since trees stop improving."""

MAX_WORK = 6e9
"""Maximum of rounds times labels times nodes times columns, over all fits: about 30 seconds."""

MAX_ROUNDS = 400
PATIENCE = 30
"""Boosting ends after this number of rounds without a lower held-out loss."""

MIN_HELD_OUT = 50
"""Minimum number of held-out nodes: fewer cannot choose the number of rounds."""

MIN_ROUNDS = 20
"""Number of affordable rounds below which no trees are fitted."""

PARAMETERS = {
    "eta": 0.08,
    "grow_policy": "lossguide",
    "max_depth": 0,
    "max_leaves": 16,
    "min_child_weight": 2,
    "subsample": 0.8,
    "max_bin": 64,
    "tree_method": "hist",
}
"""Small trees on samples of rows and columns, added up slowly."""


class Trees:
    """Gradient-boosted trees.

    Args:
        booster: The trees, as XGBoost holds them.
        columns: Numbers of the target's features that they read.
        labels: The number of labels.
    """

    def __init__(self, booster: xgboost.Booster, columns: NDArray[np.int64], labels: int) -> None:
        self.booster, self.columns, self.labels = booster, columns, labels

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        matrix = _matrix(_rows(graph, self.columns, nodes))
        margin = self.booster.predict(matrix, output_margin=True)
        return _by_label(torch.from_numpy(margin.reshape(matrix.num_row(), -1)), self.labels)

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits ``[n, C]``, as those of one block, and a bias of 0."""
        logits = self.predict(graph, nodes)
        return {BLOCK: logits, "bias": torch.zeros_like(logits)}

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node, by TreeSHAP."""
        matrix = _matrix(_rows(graph, self.columns, torch.tensor([node])))
        shap = self.booster.predict(matrix, pred_contribs=True)
        by_margin = torch.from_numpy(shap.reshape(-1, len(self.columns) + 1).T.copy())
        values = _by_label(by_margin, self.labels).double().numpy()
        # The expectation of the trees is the same for all nodes: a column of its own, so that
        # columns of this block add up to its logits.
        names = feature_names(graph, graph.target)
        columns = np.append(self.columns, -1)
        used = values.any(1)
        phrase = partial(_phrase, {graph.target: names}, graph.target)
        block = ColumnContributions(BLOCK, columns[used], values[used], phrase)
        return Contributions(np.zeros(self.labels), [block])

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return no walks: trees read the node itself."""
        return []

    def aligned_to(self, graph: Graph) -> Trees:
        """Return the trees themselves: they have no weights of ids."""
        return self

    frozen = aligned_to

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the columns, and XGBoost's native format as bytes."""
        raw = torch.frombuffer(self.booster.save_raw("ubj"), dtype=torch.uint8)
        values = {"kind": "trees", "columns": self.columns.tolist(), "labels": self.labels}
        return values, {"booster": raw}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trees:
        """Restore trees from :meth:`state`."""
        xgboost = load_xgboost()

        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(tensors["booster"].numpy().tobytes()))
        except xgboost.core.XGBoostError:
            raise HanmeError("trees: not a model of XGBoost") from None
        return cls(booster, np.array(values["columns"], np.int64), int(values["labels"]))


def _phrase(names: Mapping[str, Sequence[str]], target: str, column: int) -> str:
    return "any node" if column < 0 else feature_name(names, target, column)


def tree_columns(graph: Graph) -> NDArray[np.int64]:
    """Return the features that trees read: all, or all but words if these are many.

    Where their origin is unknown and few entries are nonzero, all features count as words.
    """
    width, x = graph.targets.width or 0, graph.targets.x
    words = np.array(words_among(graph, graph.target), bool)
    if x is not None and len(words) != width:
        columns = np.arange(width if to_scipy(x).nnz >= SPARSE * x.numel() else 0)
    else:
        columns = np.flatnonzero(~words) if width > MAX_COLUMNS else np.arange(width)
    return columns if len(columns) <= MAX_COLUMNS else columns[:0]


class TreesFit:
    """Fit trees to several sets of nodes with a common number of rounds.

    Args:
        graph: The graph.
        masks: Sets of labelled nodes, each ``[N]``; every set gets its own trees.
        held_out: For each set, nodes that measure the loss.
        seed: Seed of the sample of nodes and of columns.
    """

    def __init__(
        self, graph: Graph, masks: Sequence[Tensor], held_out: Sequence[Tensor], seed: int
    ) -> None:
        self.graph, self.masks, self.held_out, self.seed = graph, masks, held_out, seed
        self.columns, self.labels = tree_columns(graph), len(graph.labels)
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
        parameters = self._parameters()
        pairs = zip(train, held, strict=True)
        self.boosters = [xgboost.Booster(parameters, list(pair)) for pair in pairs]
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
        xgboost = load_xgboost()

        matrix = self._labelled(mask)
        booster = xgboost.train(self._parameters(), matrix, self.rounds())
        return Trees(booster, self.columns, self.labels)

    def _parameters(self) -> dict[str, Any]:
        multiclass = not self.graph.multilabel and self.labels > 2
        objective = {"objective": "multi:softprob", "num_class": self.labels}
        width = len(self.columns)
        return PARAMETERS | {
            "colsample_bynode": 0.7 if width < 30 else max(1 / 3, 10 / width),
            **(objective if multiclass else {"objective": "binary:logistic"}),
            "seed": self.seed % 2**31,
            "nthread": torch.get_num_threads(),
        }

    def _labelled(self, mask: Tensor) -> xgboost.DMatrix:
        nodes = _sample(mask, self.seed)
        y = self.graph.y[nodes].numpy()
        return _matrix(_rows(self.graph, self.columns, nodes), y)

    def _loss(self, booster: xgboost.Booster, matrix: xgboost.DMatrix, y: Tensor) -> float:
        margin = torch.from_numpy(booster.predict(matrix, output_margin=True))
        logits = _by_label(margin.reshape(len(y), -1), self.labels)
        return float(node_losses(logits, y).sum())


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


def _sample(mask: Tensor, seed: int) -> Tensor:
    """Return the numbers of the nodes under a mask, at most ``MAX_NODES`` of them."""
    nodes = mask.nonzero().flatten()
    if len(nodes) <= MAX_NODES:
        return nodes
    drawn = np.random.default_rng(seed).choice(len(nodes), MAX_NODES, replace=False)
    return nodes[np.sort(drawn)]


def _rows(graph: Graph, columns: NDArray[np.int64], nodes: Tensor | None) -> NDArray[np.float32]:
    """Return the columns of some nodes as a dense matrix."""
    x = graph.targets.x if nodes is None else graph.targets.rows(nodes)
    if x is None or columns.max(initial=-1) >= x.size(1):
        raise HanmeError(f"trees: they read {int(columns.max()) + 1} features of {graph.target}")
    rows: NDArray[np.float32] = to_scipy(x)[:, columns].toarray().astype(np.float32)
    return rows


def _matrix(rows: NDArray[np.float32], y: NDArray[Any] | None = None) -> xgboost.DMatrix:
    make = load_xgboost().DMatrix
    matrix: xgboost.DMatrix = make(rows, y, nthread=torch.get_num_threads())
    return matrix


def _by_label(margin: Tensor, labels: int) -> Tensor:
    """Return a logit per label; one margin between two classes is divided between them."""
    if margin.size(1) == labels:
        return margin
    return torch.cat([-margin / 2, margin / 2], 1)
