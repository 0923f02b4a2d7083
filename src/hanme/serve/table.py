"""The predictions of a run as columns, to filter, sort and page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hanme.runs.prediction import USES, Prediction
from hanme.serve import schemas
from hanme.serve.schemas import Filter

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_ORDERS = 8
"""Maximum number of sorted columns in memory."""


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
        self._order = lru_cache(MOST_ORDERS)(self._sorted)

    def __len__(self) -> int:
        return len(self.p)

    def select(self, query: Filter, found: Sequence[int] | None = None) -> Ints:
        """Return the nodes that match a query, in its order; ``found`` are those that fit ``q``."""
        labels = self.graph.labels
        flags: Flags = {
            "all": np.ones(len(self), bool),
            "wrong": self.wrong,
            "right": self.labelled & ~self.wrong,
            "labelled": self.labelled,
            "unlabelled": ~self.labelled,
        }[query.filter]
        if query.label:
            flags = flags & self.predicted[:, labels.index(query.label)]
        if query.given:
            flags = flags & self.true[:, labels.index(query.given)]
        if query.split:
            known = not self.prediction.differs_from_training
            flags = flags & known & (self.split == USES.index(query.split))
        order: Ints = np.array(found or (), np.int64)
        if query.sort or found is None:
            largest_first = query.sort not in ("", "number", "name")
            descending = largest_first if query.descending is None else query.descending
            label = labels.index(query.of) if query.of else 0
            ranked = self._order(query.sort, label, descending)
            order = ranked if found is None else ranked[np.isin(ranked, order)]
        chosen: Ints = order[flags[order]]
        return chosen

    def _sorted(self, sort: str, label: int, descending: bool) -> Ints:
        """Return all nodes in the order of a column; those without a value come last."""
        columns: dict[str, NDArray[Any]] = {
            "uncertain": self.uncertainty,
            "surprising": self.surprise,
            "probability": self.p[:, label],
            "degree": self.degree,
        }
        column = columns.get(sort, np.arange(len(self)))
        if sort == "name":
            names = [self.graph.targets.title(i).casefold() for i in range(len(self))]
            column = np.unique(np.array(names, object), return_inverse=True)[1]
        return np.argsort(-column if descending else column, kind="stable")

    def page(self, query: Filter, found: Sequence[int] | None = None) -> schemas.Predictions:
        """Return a page of the rows that match a query."""
        nodes = self.select(query, found)
        page = nodes[query.offset : query.offset + query.limit].tolist()
        return schemas.Predictions(total=len(nodes), rows=[self.row(node) for node in page])

    def row(self, node: int) -> schemas.Prediction:
        """Return the prediction of a node."""
        targets, labelled = self.graph.targets, self.labelled[node]
        split = None if self.prediction.differs_from_training else USES[self.split[node]]
        return schemas.Prediction(
            node=node,
            id=targets.identity(node),
            name=targets.title(node),
            split=cast("schemas.Split | None", split),
            labels=self.names(self.true[node]),
            predicted=self.names(self.predicted[node]),
            probabilities=self.p[node].tolist(),
            wrong=bool(self.wrong[node]) if labelled else None,
            uncertainty=float(self.uncertainty[node]),
            surprise=float(self.surprise[node]) if labelled else None,
            degree=int(self.degree[node]),
        )

    def names(self, flags: Flags) -> list[str]:
        """Return the labels that are set."""
        return [self.graph.labels[i] for i in np.flatnonzero(flags)]
