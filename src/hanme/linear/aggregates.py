"""Aggregates: numbers about a target node from its own row and from the rows linked to it.

``total HR over batting``, ``latest amount over order``, ``share of make: APPLE over product``.
A number is in the units of its table; it is NaN where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy.sparse import csr_array
from torch import Tensor

from hanme.graph import Graph, Subgraph
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.matrices import GraphMatrices
from hanme.linear.rows import Field, Rows, Values

MAX_WALKS = 200
"""Maximum number of walks to aggregate along; short ones come first."""

MAX_VALUES, MIN_SHARE = 300, 0.002
"""Values of a category, words of a text or linked nodes are candidates if they are among this
number of most frequent ones, and at this share of the rows."""

MAX_PICKS, MAX_PICKED = 3, 30
"""Maximum number of numbers whose largest row is looked up, and of values of its categories."""

FEW = 8
"""Number of nodes of a subgraph below which columns are computed for these nodes alone."""

BATCH = 4096
"""Number of nodes of a stored graph to read at a time."""

MAX_BYTES, COPIES = 4 << 30, 4
"""Maximum memory for the columns of all target nodes, and how often each is in memory as float32:
kept, and up to three times while it is computed."""

PHRASES = {
    "count": "number of {1}",
    "mean": "mean {0} over {1}",
    "sum": "total {0} over {1}",
    "std": "spread of {0} over {1}",
    "max": "largest {0} over {1}",
    "min": "smallest {0} over {1}",
    "latest": "latest {0} over {1}",
    "first": "first {0} over {1}",
    "change": "change of {0} over {1}",
    "difference": "{0} less its mean over {1}",
    "ratio": "{0} divided by its mean over {1}",
    "share": "share of {0} over {1}",
    "node": "share of {0} over {1}",
    "distinct": "number of different {0} over {1}",
    "at_max": "{0} at largest {2} over {1}",
}
"""The functions, and how columns are phrased: feature, rows, and the number that picks a row."""


class Column(BaseModel):
    """A number about a target node.

    Args:
        function: How it is computed: one of ``PHRASES``; ``own``, or ``encoded`` as a feature is.
        walk: Relations to the linked rows; empty for the node's own row.
        feature: Number of a feature of the rows, see :class:`Rows`.
        by: Number of the feature whose largest or smallest value picks a row.
        node: Id of a linked node.
        phrase: The column in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str
    walk: Walk = ()
    feature: int = -1
    by: int = -1
    node: str = ""
    phrase: str


def _values(rows: Rows, field: Field, least: float) -> list[int]:
    """Return the features of the most frequent values of a category."""
    count = np.diff(rows.x.indptr)[field.start : field.start + field.width]
    return [field.start + i for i in _frequent(count, least)]


def _frequent(count: NDArray[Any], least: float) -> list[int]:
    order = np.argsort(-count, kind="stable")[:MAX_VALUES]
    return [int(i) for i in order if count[i] >= max(least, 1)]


class Linked:
    """The rows at the ends of a metapath, aggregated hop by hop: instances are never listed.

    Args:
        matrices: Matrices of the graph.
        path: The metapath, one or two hops.
        rows: The rows at its end.
        nodes: Numbers of the target nodes (default: all).
    """

    def __init__(
        self, matrices: GraphMatrices, path: Metapath, rows: Rows, nodes: Any = None
    ) -> None:
        self.path, self.rows, self.some = path, rows, slice(None) if nodes is None else nodes
        first, *rest = matrices.links(path)
        self.steps = [first if nodes is None else csr_array(first[nodes]), *rest]
        back = rows.type == matrices.graph.target
        self.returns = matrices.returns(path)[self.some] if back else None
        self._cached: dict[tuple[int, bool | None], Any] = {}
        self.count = self.total(np.ones(rows.nodes.num_nodes, np.float32))

    def total(self, values: Any) -> Any:
        """Return sums over the linked rows but the node itself."""
        own = values
        for step in reversed(self.steps):
            values = step @ values
        return values if self.returns is None else values - self.returns * own[self.some]

    def pick(self, values: Values, by: int, *, largest: bool = True) -> Values:
        """Return the value of the linked row with the largest or smallest number."""
        if (by, largest) not in self._cached:
            numbers = self.rows.values(by)
            order = np.argsort(numbers if largest else -numbers, kind="stable")
            order = order[: int((~np.isnan(numbers)).sum())]
            rank = np.full(len(numbers), -1, np.int64)
            rank[order] = np.arange(len(order))
            for step in reversed(self.steps):
                best, some = np.full(step.shape[0], -1), np.flatnonzero(np.diff(step.indptr))
                if len(some):
                    best[some] = np.maximum.reduceat(rank[step.indices], step.indptr[some])
                rank = best
            self._cached[by, largest] = np.append(order, -1)[rank]
        return np.asarray(np.append(values, np.nan)[self._cached[by, largest]])

    def moments(self, feature: int) -> dict[str, NDArray[Any]]:
        """Return sum, mean and standard deviation of a number over the rows that have it."""
        if (feature, None) not in self._cached:
            values = self.rows.values(feature).astype(np.float64)
            known = ~np.isnan(values)
            shift = values[known].mean() if known.any() else 0.0
            filled = np.where(known, values - shift, 0)
            count = self.total(known.astype(np.float64))
            at_least_1 = np.maximum(count, 1)
            mean = np.where(count > 0, self.total(filled) / at_least_1, np.nan)
            variance = np.maximum(self.total(filled**2) / at_least_1 - mean**2, 0)
            std = np.where(count > 1, np.sqrt(variance), np.nan)
            total = np.where(count > 0, count * (mean + shift), 0)
            self._cached[feature, None] = {"sum": total, "mean": mean + shift, "std": std}
        return self._cached[feature, None]  # type: ignore[no-any-return]

    def values(self, column: Column) -> NDArray[Any]:
        """Return the column at the target nodes, ``[n]``."""
        function, feature, by, rows = column.function, column.feature, column.by, self.rows
        if function == "count":
            return np.asarray(self.count)
        if function in ("sum", "mean", "std"):
            return self.moments(feature)[function]
        if function in ("difference", "ratio"):
            own, mean = rows.values(feature)[self.some], self.moments(feature)["mean"]
            return (
                own - mean if function == "difference" else own / np.where(mean > 0, mean, np.nan)
            )
        if function in ("max", "min"):
            return self.pick(rows.values(feature), feature, largest=function == "max")
        if function in ("latest", "at_max", "first"):
            return self.pick(rows.values(feature), by, largest=function != "first")
        if function == "change":
            values = rows.values(feature)
            return self.pick(values, by) - self.pick(values, by, largest=False)
        if function == "distinct":
            field = next(f for f in rows.fields if f.start == feature)
            x = csr_array(rows.x[:, field.start : field.start + field.width])
            return np.diff((self.steps[0] @ x).indptr)
        if function == "node":
            indicator = np.zeros(rows.nodes.num_nodes, np.float32)
            indicator[rows.places.get(column.node, slice(0))] = 1
        else:
            indicator = rows.values(feature)
        share = self.total(indicator) / np.maximum(self.count, 1)
        return np.where(self.count > 0, share, np.nan)

    def candidates(self) -> Iterator[Column]:
        """Yield the columns to try."""
        rows, via, back = self.rows, self.path.node_types[1:-1], self.returns is not None
        where = rows.type + (f" via {'-'.join(via)}" if via else "")
        single = bool(self.count.max(initial=0) <= 1)

        def column(function: str, feature: int = -1, by: int = -1, **others: Any) -> Column:
            name = others.pop("name", rows.names.get(feature, ""))
            phrase = PHRASES[function].format(name, where, rows.names.get(by))
            walk = self.path.steps
            return Column(
                function=function, walk=walk, feature=feature, by=by, phrase=phrase, **others
            )

        # Where each linked row leads to one other, their number is that of the linked rows.
        if len(self.steps) == 1 or np.diff(self.steps[1].indptr).max(initial=0) > 1:
            yield column("count")
        functions = ["mean"] if single else ["mean", "sum", "std"]
        functions += ["difference"] * back + ["max", "min"] * (not back and not single)
        for i in rows.numbers:
            values = rows.values(i)
            low, high = np.nanmin(values, initial=np.inf), np.nanmax(values, initial=0)
            level = low > high / 2  # such as years: their total says no more than their number
            yield from (column(f, i) for f in functions if not (level and f == "sum"))
            if back and i not in rows.derived and low >= 0:
                yield column("ratio", i)
            if not back and not single and rows.time not in (-1, i):
                yield from (column(f, i, rows.time) for f in ("latest", "first", "change"))
        picks = [i for i in rows.numbers if i != rows.time and i not in rows.derived]
        for field in rows.categories:
            is_text = field.kind not in ("category", "list")
            if via and is_text:
                continue
            frequent = _values(rows, field, MIN_SHARE * rows.nodes.num_nodes)
            yield from (column("share", i) for i in frequent)
            if single or back or is_text:
                continue
            if not via:  # the product of links with values may be large
                yield column("distinct", field.start, name=field.name)
            for by in picks * (len(picks) <= MAX_PICKS):
                yield from (column("at_max", i, by) for i in frequent[:MAX_PICKED])
            if rows.time >= 0:
                yield from (column("latest", i, rows.time) for i in frequent[:MAX_PICKED])
        if not back:
            ends = np.ones(len(self.count), np.float32)
            for step in self.steps:
                ends = step.T @ ends
            for i in _frequent(ends, max(10, MIN_SHARE * len(self.count))):
                name = f"{rows.type}: {rows.nodes.title(i)}"
                yield column("node", node=rows.nodes.identity(i), name=name)


class Aggregates:
    """The columns of a graph, each computed on first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.matrices = graph, GraphMatrices(graph)
        self._rows: dict[str, Rows] = {}
        self._values: dict[Column, Values] = {}

    @classmethod
    def on(cls, graph: Graph) -> Aggregates:
        """Return the columns of a graph, which are kept with it."""
        found: Aggregates | None = graph.derived.get("aggregates")
        if found is None or not found.matrices.belong_to(graph):
            found = cls(replace(graph, derived={}))  # a reference back would outlive the graph
            graph.derived["aggregates"] = found
        return found

    def rows(self, node_type: str) -> Rows:
        """Return the rows of a node type."""
        if node_type not in self._rows:
            self._rows[node_type] = Rows(self.graph, node_type)
        return self._rows[node_type]

    def linked(self, walk: Walk, nodes: NDArray[np.int64] | None = None) -> Linked:
        """Return the rows linked to some target nodes (default: all)."""
        return Linked(self.matrices, Metapath(walk, ""), self.rows(walk[-1][2]), nodes)

    def candidates(self, nodes: NDArray[np.int64]) -> Iterator[tuple[list[Column], Values]]:
        """Yield columns to try and their values at some target nodes, walk by walk."""
        rows, steps = self.rows(self.graph.target), self.graph.edge_types
        own = [*rows.numbers, *(i for field in rows.categories for i in _values(rows, field, 1))]
        columns = [Column(function="own", feature=i, phrase=rows.names[i]) for i in own]
        yield columns, _stacked([rows.values(i)[nodes] for i in own], len(nodes))
        walks: list[Walk] = [(step,) for step in steps if step[0] == self.graph.target]
        walks += [(*walk, step) for walk in walks for step in steps if step[0] == walk[0][2]]
        for walk in walks[:MAX_WALKS]:
            linked = self.linked(walk, nodes)
            if linked.count.any():
                columns = list(linked.candidates())
                yield columns, _stacked([linked.values(column) for column in columns], len(nodes))

    def values(self, columns: Sequence[Column], nodes: NDArray[np.int64] | None = None) -> Values:
        """Return the values of columns at some target nodes (default: all), ``[n, D]``."""
        for walk in dict.fromkeys(c.walk for c in columns if c not in self._values):
            linked = self.linked(walk) if walk else None
            for column in columns:
                if column.walk == walk and column not in self._values:
                    rows = self.rows(self.graph.target)
                    own = rows.encoded if column.function == "encoded" else rows.values
                    values = linked.values(column) if linked else own(column.feature)
                    (self._values[column],) = _stacked([values], len(values)).T
        kept = [self._values[column] for column in columns]
        if nodes is None:
            return _stacked(kept, self.graph.targets.num_nodes)
        return _stacked([values[nodes] for values in kept], len(nodes))

    def values_at(self, columns: Sequence[Column], nodes: NDArray[np.int64]) -> Values:
        """Return the values of columns at some target nodes, ``[n, D]``; nothing is kept."""
        rows, found = self.rows(self.graph.target), dict[Column, NDArray[Any]]()
        for walk in dict.fromkeys(column.walk for column in columns):
            linked = self.linked(walk, nodes) if walk else None
            for column in (column for column in columns if column.walk == walk):
                own = rows.encoded if column.function == "encoded" else rows.values
                found[column] = linked.values(column) if linked else own(column.feature)[nodes]
        return _stacked([found[column] for column in columns], len(nodes))


def _stacked(columns: Sequence[NDArray[Any]], size: int) -> Values:
    """Return columns side by side, ``[size, D]``: finite, as trees require it, or missing."""
    values, limits = np.empty((size, len(columns)), np.float32), np.finfo(np.float32)
    for i, column in enumerate(columns):
        values[:, i] = np.clip(column, limits.min, limits.max)  # a sum or ratio may overflow
    return values


def column_values(graph: Graph, columns: Sequence[Column], nodes: Tensor | None = None) -> Values:
    """Return columns of some target nodes (default: all); of a stored graph, some at a time."""
    if isinstance(graph, Subgraph) and nodes is not None and len(nodes) <= FEW:
        return Aggregates(graph).values_at(columns, nodes.numpy())
    if not graph.stored:
        return Aggregates.on(graph).values(columns, None if nodes is None else nodes.numpy())
    nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
    parts = (graph.subgraph(some, walks_of(columns)) for some in torch.split(nodes, BATCH))
    return np.concatenate([column_values(part, columns, part.roots) for part in parts])


def affordable_columns(graph: Graph, sets: int = 1) -> int:
    """Return the number of columns whose values at all target nodes take ``MAX_BYTES``.

    Each of the ``sets`` of nodes that columns are chosen for may have columns of its own.
    """
    copies = COPIES - 1 + sets
    return max(1, MAX_BYTES // (4 * copies * max(1, graph.targets.num_nodes)))


def walks_of(columns: Sequence[Column]) -> list[Walk]:
    """Return the walks to the rows that columns aggregate."""
    return list(dict.fromkeys(column.walk for column in columns if column.walk))
