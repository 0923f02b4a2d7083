"""Gradient-boosted trees on a node's own columns and on aggregates of linked rows, by XGBoost."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.memory import blocks
from hanme.common.progress import update_stage
from hanme.decision.losses import base_rate_logits, node_losses
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Walk
from hanme.linear.aggregates import (
    Aggregates,
    Column,
    affordable_columns,
    column_values,
    walks_of,
)
from hanme.linear.learner import Contributions, Part
from hanme.linear.rows import Values
from hanme.linear.selection import balanced_samples

if TYPE_CHECKING:  # importing it takes about half a second
    import xgboost

MAX_COLUMNS = 400
"""Maximum number of columns; the best are screened from all candidates on training nodes."""

MIN_COLUMNS, MAX_ENTRIES = 100, 12_000_000
"""Of many training nodes, as many columns as have this number of entries, but no fewer than the
minimum."""

MAX_CANDIDATES = 1500
"""Maximum number of candidates that are compared with each other; the best by themselves."""

MAX_SCREENED = 2**14
"""Maximum number of training nodes that screen columns."""

MAX_NODES = 2**17
"""Maximum number of labelled nodes; more are sampled, since trees stop improving."""

MIN_SHARED_ENTRIES = 1_000_000
"""Minimum number of entries, nodes times columns, to fit trees with several threads: these meet
dozens of times per tree. ``benchmarks/threads.py trees`` measures what they gain by size."""

MAX_WORK = 8e9
"""Maximum of rounds times labels times nodes times columns, over all fits: about 30 seconds."""

MAX_ROUNDS, MIN_ROUNDS, PATIENCE = 500, 20, 60
"""Maximum number of rounds, the number below which no trees are fitted, and the number of rounds
without a lower held-out loss after which boosting ends."""

MIN_HELD_OUT = 50
"""Minimum number of held-out nodes: fewer cannot choose the number of rounds."""

ETA, FAST_ETA = 0.04, 0.08
"""Learning rate where all rounds can be afforded, and where fewer can."""

PARAMETERS = {
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
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        parts = []
        for rows in blocks(len(nodes), len(self.columns)):  # XGBoost copies the columns
            values = column_values(graph, self.columns, nodes[rows])
            parts.append(_logits(self.booster, _matrix(values), self.labels))
        return torch.cat(parts) if parts else torch.empty(0, self.labels)

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits ``[n, C]``, as those of one block, and a bias of 0."""
        logits = self.predict(graph, nodes)
        return {"trees": logits, "bias": torch.zeros_like(logits)}

    def contributions(
        self, graph: Graph, node: int, missing: Collection[Column] = ()
    ) -> Contributions:
        """Return what aggregates and own features add to the logits of a node, by TreeSHAP.

        The bias is the expectation of the trees, the same for all nodes.
        """
        values = column_values(graph, self.columns, torch.tensor([node]))
        values[:, [column in missing for column in self.columns]] = np.nan
        shap = self.booster.predict(_matrix(values), pred_contribs=True)
        by_margin = torch.from_numpy(shap.reshape(-1, len(self.columns) + 1).T.copy())
        *found, bias = _by_label(by_margin, self.labels).double().numpy()
        used = np.flatnonzero(np.any(found, axis=1)) if found else np.arange(0)
        parts = np.array(found).reshape(-1, self.labels)
        own = np.array([i for i in used if not self.columns[i].walk], np.int64)
        linked = np.array([i for i in used if self.columns[i].walk], np.int64)
        features = np.array([self.columns[i].feature for i in own], np.int64)
        return Contributions(
            bias,
            [
                Part("trees", features, parts[own]),
                Part("trees", linked, parts[linked], columns=self.columns),
            ],
        )

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
        columns = [column.model_dump(mode="json", exclude_defaults=True) for column in self.columns]
        return {"kind": "trees", "columns": columns, "labels": self.labels}, {"booster": raw}

    @classmethod
    def from_state(cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trees:
        """Restore trees from :meth:`state`."""
        booster = load_xgboost().Booster()
        try:
            booster.load_model(bytearray(tensors["booster"].numpy().tobytes()))
        except load_xgboost().core.XGBoostError:
            raise HanmeError("trees: not a model of XGBoost") from None
        columns = [
            Column(function="encoded", feature=c, phrase=f"feature {c}")  # of an early 0.3.0
            if isinstance(c, int)
            else Column(**c)
            for c in values["columns"]
        ]
        return cls(booster, columns, int(values["labels"]))


class TreesFit:
    """Fit trees to several sets of nodes with a common number of rounds.

    Args:
        graph: The graph.
        columns: The columns to read, of each set.
        masks: Sets of labelled nodes, each ``[N]``; every set gets its own trees.
        held_out: For each set, nodes that measure the loss.
        seed: Seed of the sample of nodes and of columns.
    """

    def __init__(
        self,
        graph: Graph,
        columns: Sequence[Sequence[Column]],
        masks: Sequence[Tensor],
        held_out: Sequence[Tensor],
        seed: int,
    ) -> None:
        self.graph, self.columns, self.seed = graph, columns, seed
        self.masks, self.held_out, self.labels = masks, held_out, len(graph.labels)
        width, least = max(map(len, columns)), min(map(len, columns))
        count = sum(min(MAX_NODES, int(mask.sum())) for mask in masks)
        self.max_rounds = min(MAX_ROUNDS, int(MAX_WORK / max(1, count * width * self.labels)))
        self.entries = max((min(MAX_NODES, int(mask.sum())) for mask in masks), default=0) * width
        self.losses: list[list[float]] = []  # by round, the loss of each set's held-out nodes
        self.boosters: list[xgboost.Booster] = []
        enough = sum(int(mask.sum()) for mask in held_out) >= MIN_HELD_OUT
        if least and self.max_rounds >= MIN_ROUNDS and enough:
            self._boost()

    def _parameters(self, columns: Sequence[Column]) -> dict[str, Any]:
        share = 0.7 if len(columns) < 30 else max(1 / 3, 10 / len(columns))
        eta = ETA if self.max_rounds == MAX_ROUNDS else FAST_ETA
        options = {"eta": eta, "colsample_bynode": share}
        return PARAMETERS | options | _objective(self.graph, self.seed, self.entries)

    def _boost(self) -> None:
        train = [self._labelled(*one) for one in zip(self.masks, self.columns, strict=True)]
        held = [self._labelled(*one) for one in zip(self.held_out, self.columns, strict=True)]
        y = [self.graph.y[_sample(mask, self.seed)] for mask in self.held_out]
        self.boosters = [
            load_xgboost().Booster(self._parameters(columns), [some, others])
            for columns, some, others in zip(self.columns, train, held, strict=True)
        ]
        rates = [base_rate_logits(self.graph.y[mask], self.labels) for mask in self.masks]
        pairs = zip(rates, y, strict=True)
        self.losses = [[_total(rate.expand(len(some), -1), some) for rate, some in pairs]]
        for number in range(self.max_rounds):
            update_stage(number / self.max_rounds)
            losses = []
            for booster, matrix, some, labels in zip(self.boosters, train, held, y, strict=True):
                booster.update(matrix, number)
                losses.append(_total(_logits(booster, some, self.labels), labels))
            self.losses.append(losses)
            if number + 1 - self.rounds() >= PATIENCE:
                break

    def rounds(self, without: int | None = None) -> int:
        """Return the number of rounds with the least loss, by all sets but one; 0 for no trees."""
        if not self.losses:
            return 0
        losses = np.array(self.losses)
        if without is not None and losses.shape[1] > 1:
            losses = np.delete(losses, without, axis=1)
        return int(losses.sum(1).argmin())

    def trees(self, number: int) -> Trees:
        """Return the trees of a set, with the rounds that the other sets choose, at least one."""
        booster = self.boosters[number][: max(1, self.rounds(without=number))]
        return Trees(booster, self.columns[number], self.labels)

    def refit(self, mask: Tensor, columns: Sequence[Column]) -> Trees:
        """Return trees with the rounds that all sets choose, fitted to other nodes."""
        matrix = self._labelled(mask, columns)
        booster = load_xgboost().train(self._parameters(columns), matrix, self.rounds())
        return Trees(booster, columns, self.labels)

    def _labelled(self, mask: Tensor, columns: Sequence[Column]) -> xgboost.DMatrix:
        nodes = _sample(mask, self.seed)
        return _matrix(column_values(self.graph, columns, nodes), self.graph.y[nodes].numpy())


class Screened(NamedTuple):
    """The columns that tell most about the labels of some training nodes, the best first.

    Args:
        columns: The columns.
        candidates: The number of candidates that they were chosen from.
        rows: The number of target nodes, if memory for these limits the number of columns.
    """

    columns: list[Column]
    candidates: int
    rows: int | None = None

    @property
    def note(self) -> str | None:
        """What to tell the user if not all candidates are used."""
        if len(self.columns) == self.candidates:
            return None
        memory = f", as many as fit into memory for {self.rows:,} rows" if self.rows else ""
        return (
            f"Trees and aggregates: {len(self.columns):,} of {self.candidates:,} candidate columns,"
            f" chosen on training rows{memory}."
        )


class _Scored(NamedTuple):
    """A candidate column with its values, and how much it tells by itself."""

    score: float
    column: Column
    values: Values


def screen_columns(
    graph: Graph, masks: Sequence[Tensor], seed: int, limit: int = MAX_COLUMNS
) -> list[Screened]:
    """Choose the columns that tell most about the labels, for each set of training nodes ``[N]``.

    Candidates are compared by their gain in a few rounds of boosting; of more than
    ``MAX_CANDIDATES``, those that tell most by themselves. Their values are computed once.
    """
    nodes, sets = balanced_samples(graph, masks, [MAX_SCREENED] * len(masks), seed)
    y, labels = graph.y[nodes].numpy(), graph.labels_given(nodes).numpy()
    found: list[list[_Scored]] = [[] for _ in masks]
    candidates = [0] * len(masks)
    for columns, values in Aggregates.on(graph).candidates(nodes.numpy()):
        bins = [binned(each) for each in values.T]
        copies = [each.copy() for each in values.T]
        for i, some in enumerate(sets):
            scores = [association(each[some], labels[some]) for each in bins]
            parts = zip(scores, columns, copies, strict=True)
            varying = [_Scored(*part) for part in parts if part[0] > 0]
            candidates[i] += len(varying)
            found[i] += varying
            least = sorted((one.score for one in found[i]), reverse=True)[:MAX_CANDIDATES]
            found[i] = [one for one in found[i] if one.score >= least[-1]]
    screened, size = list[Screened](), graph.targets.num_nodes
    fitting = affordable_columns(graph, len(masks))
    for one, some, mask, count in zip(found, sets, masks, candidates, strict=True):
        most = min(limit, max(MIN_COLUMNS, MAX_ENTRIES // max(1, int(mask.sum()))))
        rows, most = (size, fitting) if fitting < most else (None, most)
        chosen = sorted(one, key=lambda each: -each.score)
        if len(chosen) > most:
            matrix = _matrix(np.stack([each.values[some] for each in chosen], 1), y[some])
            parameters = SCREENING | _objective(graph, seed, matrix.num_row() * matrix.num_col())
            booster = load_xgboost().train(parameters, matrix, SCREENING_ROUNDS)
            gains = booster.get_score(importance_type="total_gain")
            best = sorted(gains, key=lambda name: -gains[name])[:most]
            chosen = [chosen[int(name[1:])] for name in best]
        screened.append(Screened([each.column for each in chosen], count, rows))
    return screened


def binned(values: Values) -> NDArray[np.int64]:
    """Return the number of the bin of each value, of 16 with equally many and one for NaN."""
    known = values[~np.isnan(values)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, 17)[1:-1])) if len(known) else known
    return np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values, "left"))


def association(bins: NDArray[np.int64], labels: NDArray[np.bool_]) -> float:
    """Return how much a column in bins tells about labels by itself: chi squared, per node."""
    _, bins = np.unique(bins, return_inverse=True)
    expected = np.bincount(bins)[:, None] * np.maximum(labels.mean(0), 1e-9)
    if len(expected) < 2:
        return 0.0
    counts = np.stack([np.bincount(bins, y) for y in labels.T.astype(float)], 1)
    return float(((counts - expected) ** 2 / expected).sum() / len(bins))


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


def _objective(graph: Graph, seed: int, entries: int) -> dict[str, Any]:
    threads = torch.get_num_threads() if entries >= MIN_SHARED_ENTRIES else 1
    common = {"seed": seed % 2**31, "nthread": threads}
    if graph.multilabel or len(graph.labels) <= 2:
        return common | {"objective": "binary:logistic"}
    return common | {"objective": "multi:softprob", "num_class": len(graph.labels)}


def _sample(mask: Tensor, seed: int) -> Tensor:
    """Return the numbers of the nodes under a mask, at most ``MAX_NODES`` of them."""
    nodes = mask.nonzero().flatten()
    drawn = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(seed))[:MAX_NODES]
    return nodes[drawn.sort().values]


def _matrix(rows: Values, y: NDArray[Any] | None = None) -> xgboost.DMatrix:
    matrix: xgboost.DMatrix = load_xgboost().DMatrix(rows, y, nthread=torch.get_num_threads())
    return matrix


def _total(logits: Tensor, y: Tensor) -> float:
    return float(node_losses(logits, y).sum())


def _logits(booster: xgboost.Booster, matrix: xgboost.DMatrix, labels: int) -> Tensor:
    margin = torch.from_numpy(booster.predict(matrix, output_margin=True))
    return _by_label(margin.reshape(matrix.num_row(), -1), labels)


def _by_label(margin: Tensor, labels: int) -> Tensor:
    """Return a logit per label; one margin between two classes is divided between them."""
    return margin if margin.size(1) == labels else torch.cat([-margin / 2, margin / 2], 1)
