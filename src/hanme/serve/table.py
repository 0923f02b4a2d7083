"""The predictions of a run as columns, to filter, sort and page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hanme.errors import HanmeError
from hanme.runs.prediction import USES, Prediction
from hanme.serve import schemas
from hanme.serve.rows import Facet
from hanme.serve.schemas import Filter

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_ORDERS = 8
"""Maximum number of sorted columns in memory."""

CONFIDENT = 0.8
"""A prediction is confident if it gives each label at least this probability, or its absence."""


class Table:
    """The predictions of all target nodes as NumPy columns."""

    def __init__(self, prediction: Prediction, degree: Ints, facets: Sequence[Facet] = ()) -> None:
        self.prediction, self.graph, self.degree = prediction, prediction.graph, degree
        self.facets = {facet.column: facet for facet in facets}
        self.p = prediction.probabilities.numpy()
        self.predicted, self.true = prediction.predicted.numpy(), prediction.labels.numpy()
        self.labelled: Flags = np.asarray(self.true.any(1))
        self.wrong: Flags = self.labelled & np.any(self.predicted != self.true, axis=1)
        self.uncertainty = prediction.uncertainty.numpy()
        self.surprise = prediction.surprise.numpy()
        sure = np.where(self.predicted, self.p, 1 - self.p)
        self.confident: Flags = sure.min(1, initial=1.0) >= CONFIDENT
        # A byte per node instead of an object.
        uses = [prediction.split == use for use in USES]
        self.split = np.select(uses, range(len(USES))).astype(np.int8)
        self._order = lru_cache(MOST_ORDERS)(self._sorted)

    def __len__(self) -> int:
        return len(self.p)

    def select(self, query: Filter, found: Ints | None = None) -> Ints:
        """Return the nodes that match a query, in its order; ``found`` are those that fit ``q``."""
        flags = np.logical_and.reduce(list(self._filters(query, found).values()))
        order = found
        if query.sort or order is None:
            largest_first = query.sort not in ("", "number", "name")
            descending = largest_first if query.descending is None else query.descending
            label = self.graph.labels.index(query.of) if query.of else -1
            order = self._order(query.sort, label, descending)
        chosen: Ints = order[flags[order]]
        return chosen

    def _filters(self, query: Filter, found: Ints | None) -> dict[str, Flags]:
        """Return the nodes that each part of a query leaves, by the facet it belongs to."""
        labels, filters = self.graph.labels, {"": self._shown(query)}
        if found is not None:
            filters["found"] = np.zeros(len(self), bool)
            filters["found"][found] = True
        if query.predicted:
            filters["predicted"] = self.predicted[:, labels.index(query.predicted)]
        if query.true:
            filters["true"] = self.true[:, labels.index(query.true)]
        if query.split:
            known = not self.prediction.differs_from_training
            filters["split"] = known & (self.split == USES.index(query.split))
        for text in query.where:
            column = next((name for name in self.facets if text.startswith(f"{name}=")), None)
            if column is None:
                known_columns = ", ".join(self.facets) or "none"
                raise HanmeError(f"where: expected COLUMN=VALUE, with one of {known_columns}")
            facet, value = self.facets[column], text[len(column) + 1 :]
            place = facet.values.index(value) if value in facet.values else len(facet.values)
            filters[f"column {column}"] = facet.codes == place
        return filters

    def _shown(self, query: Filter) -> Flags:
        """Return the nodes of the kind that a query shows."""
        flags: Flags = {
            "all": np.ones(len(self), bool),
            "wrong": self.wrong,
            "right": self.labelled & ~self.wrong,
            "labelled": self.labelled,
            "unlabelled": ~self.labelled,
            "confident": ~self.labelled & self.confident,
            "review": ~self.labelled & ~self.confident,
        }[query.filter]
        return flags.copy()

    def facet_counts(self, query: Filter, found: Ints | None) -> list[schemas.FacetInfo]:
        """Count the nodes by label, split and category, each facet under the other filters."""
        labels, filters = self.graph.labels, self._filters(query, found)

        def left(own: str) -> Flags:
            rest = [flags for key, flags in filters.items() if key != own]
            flags: Flags = np.logical_and.reduce(rest)
            return flags

        def facet(key: str, names: Sequence[str], counts: Ints, column: str = "") -> None:
            rows = [
                schemas.ValueCount(value=name, count=int(count))
                for name, count in zip(names, counts, strict=True)
                if count
            ]
            facets.append(schemas.FacetInfo(key=key, column=column, values=rows))

        facets: list[schemas.FacetInfo] = []
        facet("predicted", labels, self.predicted[left("predicted")].sum(0))
        facet("true", labels, self.true[left("true")].sum(0))
        if not self.prediction.differs_from_training:
            facet("split", USES, np.bincount(self.split[left("split")], minlength=len(USES)))
        for column, own in self.facets.items():
            codes = own.codes[left(f"column {column}")]
            counts = np.bincount(codes[codes >= 0], minlength=len(own.values))
            facet("where", own.values, counts, column)
        return facets

    def _sorted(self, sort: str, label: int, descending: bool) -> Ints:
        """Return all nodes in the order of a column; those without a value come last."""
        columns: dict[str, NDArray[Any]] = {
            "uncertain": self.uncertainty,
            "surprising": self.surprise,
            "probability": self.p.max(1, initial=0.0) if label < 0 else self.p[:, label],
            "degree": self.degree,
        }
        column = columns.get(sort, np.arange(len(self)))
        if sort == "name":
            names = [self.graph.targets.title(i).casefold() for i in range(len(self))]
            column = np.unique(np.array(names, object), return_inverse=True)[1]
        return np.argsort(-column if descending else column, kind="stable")

    def page(self, query: Filter, found: Ints | None = None) -> schemas.Predictions:
        """Return a page of the rows that match a query."""
        nodes = self.select(query, found)
        page = nodes[query.offset : query.offset + query.limit].tolist()
        return schemas.Predictions(
            total=len(nodes),
            rows=[self.row(node) for node in page],
            facets=self.facet_counts(query, found),
        )

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
