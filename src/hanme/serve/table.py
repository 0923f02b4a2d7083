"""The predictions of a run as columns, to filter, sort and page."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hanme.runs.prediction import USES, Prediction
from hanme.serve import schemas
from hanme.serve.schemas import Split

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Which = Literal["all", "wrong", "right", "labelled", "unlabelled"]
Sort = Literal["found", "number", "name", "uncertain", "surprising", "probability", "degree"]

MOST_ORDERS = 8
"""Maximum number of sorted columns in memory: each column, and a few labels."""

LARGEST_FIRST = ("uncertain", "surprising", "probability", "degree")


@dataclass(frozen=True)
class Query:
    """Which nodes to show, in which order."""

    which: Which = "all"  # those predicted wrong or right, or those with labels or without
    label: int | None = None  # those predicted to have this label, by its number
    given: int | None = None  # those that have this label
    split: Split | None = None  # those of this part
    nodes: Sequence[int] | None = None  # of these alone
    sort: Sort = "number"  # what to sort by; found: in the order of ``nodes``
    of: int = 0  # the label whose probability to sort by
    descending: bool | None = None  # largest first (default: for all but number and name)


class Table:
    """The predictions of all target nodes as NumPy columns."""

    def __init__(self, prediction: Prediction, degree: Ints) -> None:
        self.prediction, self.graph, self.degree = prediction, prediction.graph, degree
        self.p = prediction.probabilities.numpy()
        self.predicted, self.true = prediction.predicted.numpy(), prediction.labels.numpy()
        self.labelled: Flags = np.asarray(self.true.any(1))
        self.wrong: Flags = self.labelled & np.any(self.predicted != self.true, axis=1)
        self.uncertainty = prediction.uncertainty.numpy()
        self.surprise = prediction.surprise.numpy()
        # A byte per node instead of an object.
        uses = [prediction.split == use for use in USES]
        self.split = np.select(uses, range(len(USES))).astype(np.int8)
        self._orders: dict[tuple[Sort, int], Ints] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.p)

    def select(self, query: Query) -> Ints:
        """Return the nodes that match a query, in its order."""
        there = np.ones(len(self), bool)
        if query.which != "all":
            there = {
                "wrong": self.wrong,
                "right": self.labelled & ~self.wrong,
                "labelled": self.labelled,
                "unlabelled": ~self.labelled,
            }[query.which].copy()
        if query.label is not None:
            there &= self.predicted[:, query.label]
        if query.given is not None:
            there &= self.true[:, query.given]
        if query.split is not None:
            known = not self.prediction.differs_from_training
            there &= known & (self.split == USES.index(query.split))
        if query.nodes is not None:
            only = np.zeros(len(self), bool)
            only[list(query.nodes)] = True
            there &= only
        order = self._order(query.sort, query.of if query.sort == "probability" else 0)
        if query.sort == "found" and query.nodes is not None:
            order = np.array(query.nodes, np.int64)
        descending = query.descending
        if descending is None:
            descending = query.sort in LARGEST_FIRST
        chosen = order[there[order]]
        if query.sort == "surprising":  # without a label nothing is surprising: these come last
            known = ~np.isnan(self.surprise[chosen])
            first, last = chosen[known], chosen[~known]
            return np.concatenate([first[::-1] if descending else first, last])
        return chosen[::-1] if descending else chosen

    def page(self, query: Query, offset: int, limit: int) -> schemas.Predictions:
        """Return a page of the rows that match a query."""
        nodes = self.select(query)
        rows = [self.row(node) for node in nodes[offset : offset + limit].tolist()]
        return schemas.Predictions(total=len(nodes), offset=offset, rows=rows)

    def _order(self, sort: Sort, of: int) -> Ints:
        """Return all nodes in ascending order of a column, sorted once."""
        with self._lock:
            if (sort, of) not in self._orders:
                while len(self._orders) >= MOST_ORDERS:
                    self._orders.pop(next(iter(self._orders)))
                self._orders[sort, of] = np.argsort(self._column(sort, of), kind="stable")
            return self._orders[sort, of]

    def _column(self, sort: Sort, of: int) -> NDArray[Any]:
        if sort == "name":
            names = map(self.graph.targets.title, range(len(self)))
            return np.array([name.casefold() for name in names], object)
        columns = {
            "uncertain": self.uncertainty,
            "surprising": self.surprise,
            "probability": self.p[:, of],
            "degree": self.degree,
        }
        return columns.get(sort, np.arange(len(self)))

    def row(self, node: int) -> schemas.Prediction:
        """Return the prediction of a node."""
        targets, surprise = self.graph.targets, float(self.surprise[node])
        return schemas.Prediction(
            node=node,
            id=targets.identity(node),
            name=targets.title(node),
            split=self.split_of(node),
            labels=self.names(self.true[node]),
            predicted=self.names(self.predicted[node]),
            probabilities=self.p[node].tolist(),
            wrong=bool(self.wrong[node]) if self.labelled[node] else None,
            uncertainty=float(self.uncertainty[node]),
            surprise=surprise if self.labelled[node] else None,
            degree=int(self.degree[node]),
        )

    def split_of(self, node: int) -> Split | None:
        """Return what a node was used for; None if the graph differs from training."""
        unknown = self.prediction.differs_from_training
        return None if unknown else cast("Split", USES[self.split[node]])

    def names(self, flags: NDArray[np.bool_]) -> list[str]:
        """Return the labels that are set."""
        return [self.graph.labels[i] for i in np.flatnonzero(flags)]
