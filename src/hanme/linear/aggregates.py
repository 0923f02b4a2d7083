"""Aggregates: numbers about a target node from its own row and from the rows linked to it.

``total HR over batting``, ``latest amount over order``, ``share of make: APPLE over product``.
A number is in the units of its table; it is NaN where nothing is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy.sparse import csc_array, csr_array

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import feature_names, to_scipy
from hanme.graph.metapath import Metapath, Walk
from hanme.linear.matrices import GraphMatrices, TooLarge, multiply

Values = NDArray[np.float32]
Function = Literal[
    "feature", "number", "count", "sum", "mean", "min", "max", "std", "first", "latest", "change",
    "share", "distinct", "node", "at_max", "at_latest", "difference",
]  # fmt: skip

MAX_WALKS = 200
"""Maximum number of walks to aggregate along; short ones come first."""

MAX_VALUES = 300
"""Maximum number of values of a category, words of a text, or nodes of a type that are candidates;
the most frequent ones."""

MIN_SHARE = 0.002
"""Share of the nodes that must have a value at one of their linked rows."""

MAX_DENSE = 64
"""Maximum number of features of unknown origin that count as numbers, in a type other than the
target's."""

MAX_PICKS, MAX_PICKED = 3, 30
"""Maximum number of numbers whose largest row is looked up, and of values of its categories."""

TIME = re.compile(r"date|time|year|season", re.IGNORECASE)
"""Names of numbers that order rows in time, if a table has no date."""


class Column(BaseModel):
    """A number about a target node.

    Args:
        function: How it is computed.
        walk: Relations to the linked rows; empty for the node's own row.
        feature: Number of a feature of the rows, as encoded.
        by: Number of the feature that picks a row: the one with its largest value.
        node: Id of a linked node.
        phrase: The column in words.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: Function
    walk: Walk = ()
    feature: int = -1
    by: int = -1
    node: str = ""
    phrase: str


class Field(NamedTuple):
    """A column of a table among the features of its rows: ``width`` features from ``start``."""

    name: str
    kind: str
    start: int
    width: int
    fitted: Mapping[str, Any]

    @property
    def features(self) -> range:
        """The numbers of its features."""
        return range(self.start, self.start + self.width)


class Rows:
    """The rows of a node type: numbers in their own units, categories and words as indicators."""

    def __init__(self, graph: Graph, node_type: str) -> None:
        self.nodes, self.names = graph.nodes[node_type], feature_names(graph, node_type)
        self.type, self.fields, start = node_type, list[Field](), 0
        columns = (graph.provenance.fitted or {}).get("features", {}).get(node_type, {})
        for name, fitted in columns.items():
            width = _width(fitted)
            kind = "number" if fitted["kind"] in ("number", "date", "vector") else fitted["kind"]
            self.fields.append(Field(name, kind, start, width, fitted))
            start += width
        width = self.nodes.width or 0
        if start != width:  # features of unknown origin, or means of other types
            known = graph.provenance.fitted is not None
            dense = not known and width <= (2**10 if node_type == graph.target else MAX_DENSE)
            dense = dense and self.x.nnz >= 0.05 * width * self.x.shape[0]
            names = self.names or [f"feature {i}" for i in range(width)]
            self.fields = [Field(n, "plain", i, 1, {}) for i, n in enumerate(names)]
            self.fields = self.fields if dense else []

    @cached_property
    def x(self) -> csc_array:
        """The features as encoded, by column."""
        size, x = self.nodes.num_nodes, self.nodes.x
        return csc_array((size, 0), dtype=np.float32) if x is None else to_scipy(x).tocsc()

    @property
    def numbers(self) -> list[int]:
        """The features that are numbers, and beyond their end what categories and texts add."""
        numbers: list[int] = []
        for field in self.fields:
            if field.kind in ("number", "plain"):
                vector = field.fitted.get("kind") == "vector"
                numbers += field.features if vector else field.features[:1]
        return numbers + list(self.derived)

    @cached_property
    def derived(self) -> dict[int, tuple[str, Field, Derived]]:
        """Numbers that a category or text is turned into: name, column and function."""
        derived: dict[int, tuple[str, Field, Derived]] = {}
        for i, field in enumerate(self.fields):
            for k, (name, function) in enumerate(DERIVED.get(field.kind, {}).items()):
                number = (self.nodes.width or 0) + 3 * i + k
                derived[number] = name.format(field.name), field, function
        return derived

    @property
    def time(self) -> int:
        """The number that orders the rows in time, -1 if there is none."""
        dates = [f.start for f in self.fields if f.fitted.get("kind") == "date"]
        named = [f.start for f in self.fields if f.kind == "number" and TIME.search(f.name)]
        return next(iter(dates + named), -1)

    def name(self, feature: int) -> str:
        """Return the name of a feature: of a number, that of its column."""
        if feature in self.derived:
            return self.derived[feature][0]
        return self.names[feature] if feature < len(self.names) else f"feature {feature}"

    @cached_property
    def places(self) -> dict[str, int]:
        """The numbers of the nodes by id."""
        return {self.nodes.identity(i): i for i in range(self.nodes.num_nodes)}

    def feature(self, feature: int) -> Values:
        """Return a feature as encoded."""
        if feature >= self.x.shape[1]:
            raise HanmeError(f"trees: they read {feature + 1} features of {self.type}")
        return np.asarray(self.x[:, [feature]].toarray()[:, 0], np.float32)

    def number(self, feature: int) -> Values:
        """Return a number in its own units, NaN where it is missing."""
        if feature in self.derived:
            _, field, function = self.derived[feature]
            some = csr_array(self.x[:, field.start : field.start + field.width])
            return np.asarray(function(some, field.fitted), np.float32)
        values = self.feature(feature).astype(np.float64)
        field = next(f for f in self.fields if feature in f.features)
        mean, std = field.fitted.get("mean", 0.0), field.fitted.get("std", 1.0)
        if isinstance(mean, list):
            mean, std = mean[feature - field.start], std[feature - field.start]
        values = values * std + mean
        if field.fitted.get("gaps"):
            values[self.feature(field.features[-1]) > 0] = np.nan
        return np.asarray(values, np.float32)


def _width(fitted: Mapping[str, Any]) -> int:
    if isinstance(fitted.get("mean"), list):
        return len(fitted["mean"])
    if "mean" in fitted:
        return 1 + len(fitted.get("knots", ())) + bool(fitted.get("gaps"))
    return (
        int(fitted["size"]) if "size" in fitted else len(fitted.get("values", fitted.get("words")))
    )


Derived = Callable[[csr_array, Mapping[str, Any]], NDArray[Any]]


def _rank(x: csr_array, fitted: Mapping[str, Any]) -> NDArray[Any]:
    ranks = np.full(x.shape[0], x.shape[1], np.float32)
    ranks[np.repeat(np.arange(len(ranks)), np.diff(x.indptr))] = x.indices
    return ranks


def _count(x: csr_array, fitted: Mapping[str, Any]) -> NDArray[Any]:
    return np.diff(x.indptr)


def _mean_idf(x: csr_array, fitted: Mapping[str, Any]) -> NDArray[Any]:
    known = csr_array((np.ones_like(x.data), x.indices, x.indptr), shape=x.shape)
    return np.asarray(known @ np.asarray(fitted["idf"]) / np.maximum(np.diff(x.indptr), 1))


def _max_idf(x: csr_array, fitted: Mapping[str, Any]) -> NDArray[Any]:
    rarity = np.asarray(fitted["idf"])[x.indices]
    known = np.diff(x.indptr) > 0
    largest = np.zeros(x.shape[0])
    largest[known] = np.maximum.reduceat(rarity, x.indptr[:-1][known]) if known.any() else 0
    return largest


DERIVED: dict[str, dict[str, Derived]] = {
    "category": {"rank of {} by frequency": _rank},
    "list": {"number of {}": _count},
    "hash": {"number of words of {}": _count},
    "tfidf": {
        "number of words of {}": _count,
        "rarity of words of {}": _mean_idf,
        "rarest word of {}": _max_idf,
    },
}
"""Numbers that categories and texts are turned into."""


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
        self.some = slice(None) if nodes is None else nodes
        first, *rest = matrices.links(path)
        self.steps = [first if nodes is None else csr_array(first[nodes]), *rest]
        self.rows = rows
        returns = self.rows.type == matrices.graph.target
        self.returns = matrices.returns(path)[self.some] if returns else None
        self._picked: dict[tuple[int, bool], NDArray[np.int64]] = {}
        self._numbers: dict[int, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = {}
        self.count = self.total(np.ones(self.rows.nodes.num_nodes, np.float32))

    def total(self, values: Any) -> Any:
        """Return sums over the linked rows but the node itself; of dense or sparse values."""
        own = values
        for step in reversed(self.steps):
            values = step @ values
        if self.returns is not None:
            values = values - self.returns * own[self.some]
        return values

    def pick(self, feature: int, *, largest: bool = True) -> NDArray[np.int64]:
        """Return the linked row with the largest or smallest number, -1 if there is none."""
        if (feature, largest) not in self._picked:
            values = self.rows.number(feature)
            order = np.argsort(values if largest else -values, kind="stable")
            order = order[: len(order) - int(np.isnan(values).sum())]
            rank = np.full(len(values), -1, np.int64)
            rank[order] = np.arange(len(order))
            for step in reversed(self.steps):
                rank = _largest(step, rank)
            self._picked[feature, largest] = np.append(order, -1)[rank]
        return self._picked[feature, largest]

    def number(self, feature: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return how many linked rows have a number, their mean, and their standard deviation."""
        if feature not in self._numbers:
            values = self.rows.number(feature)
            known, shift = ~np.isnan(values), np.nanmean(values) if len(values) else 0.0
            filled = np.where(known, values - shift, 0).astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                count = self.total(known.astype(np.float64))
                mean = np.where(count > 0, self.total(filled) / count, np.nan)
                variance = np.where(count > 1, self.total(filled**2) / count - mean**2, np.nan)
            std = np.sqrt(np.maximum(variance, 0))
            self._numbers[feature] = count, mean + shift, std
        return self._numbers[feature]

    def values(self, column: Column) -> Values:
        """Return the column."""
        feature, function = column.feature, column.function
        if function == "count":
            return np.asarray(self.count)
        if function in ("sum", "mean", "std"):
            count, mean, std = self.number(feature)
            return np.asarray(
                {"sum": np.nan_to_num(count * mean), "mean": mean, "std": std}[function]
            )
        if function == "difference":
            return np.asarray(self.rows.number(feature)[self.some] - self.number(feature)[1])
        if function == "change":
            ends = [self._at(self.rows.number(feature), self.pick(column.by, largest=last))
                    for last in (True, False)]  # fmt: skip
            return np.asarray(ends[0] - ends[1])
        if function in ("min", "max", "first", "latest"):
            by = column.by if function in ("first", "latest") else feature
            picked = self.pick(by, largest=function in ("max", "latest"))
            return self._at(self.rows.number(feature), picked)
        if function in ("at_max", "at_latest"):
            return self._at(self.rows.feature(feature), self.pick(column.by))
        if function == "node":
            return self._share(self._is(column.node))
        if function == "distinct":
            return self.distinct(feature)
        return self._share(self.rows.feature(feature))

    def distinct(self, feature: int) -> Values:
        """Return the number of different values of a category, or of different linked nodes."""
        matrices = list(self.steps)
        if feature >= 0:
            field = next(f for f in self.rows.fields if f.start == feature)
            matrices.append(csr_array(self.rows.x[:, field.start : field.start + field.width]))
        (product,) = multiply(matrices, 1)
        return np.asarray(np.diff(product.indptr), np.float32)

    def _share(self, values: Values) -> Values:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.count > 0, self.total(values) / self.count, np.nan))

    def _at(self, values: Values, rows: NDArray[np.int64]) -> Values:
        return np.asarray(np.append(values, np.nan)[rows])

    def _is(self, node: str) -> Values:
        values = np.zeros(self.rows.nodes.num_nodes, np.float32)
        if (place := self.rows.places.get(node)) is not None:
            values[place] = 1
        return values


def own_candidates(rows: Rows) -> list[Column]:
    """Return the node's own numbers, categories and words."""
    columns = [Column(function="number", feature=i, phrase=rows.name(i)) for i in rows.numbers]
    for field in rows.fields:
        if field.kind not in ("number", "plain"):
            some = _frequent(np.diff(rows.x.indptr)[field.start : field.start + field.width], 1)
            columns += [
                Column(function="feature", feature=i, phrase=rows.name(i))
                for i in (field.start + some).tolist()
            ]
    return columns


def linked_candidates(linked: Linked, path: Metapath) -> Iterator[Column]:
    """Yield the columns to try along a metapath."""
    rows, single = linked.rows, bool(linked.count.max(initial=0) <= 1)
    via = path.node_types[1:-1]
    where = f"{path.node_types[-1]}{' via ' if via else ''}{'-'.join(via)}"

    def column(function: Function, phrase: str, **options: Any) -> Column:
        return Column(function=function, walk=path.steps, phrase=phrase, **options)

    yield column("count", f"number of {where}")
    categories = [f for f in rows.fields if f.kind not in ("number", "plain")]
    back = linked.returns is not None
    for i in rows.numbers:
        name = rows.name(i)
        yield column(
            "mean", f"{name} of {where}" if single else f"mean {name} over {where}", feature=i
        )
        if back:
            yield column("difference", f"{name} less its mean over {where}", feature=i)
        if single:
            continue
        yield column("std", f"spread of {name} over {where}", feature=i)
        yield column("sum", f"total {name} over {where}", feature=i)
        if back:
            continue
        yield column("max", f"largest {name} over {where}", feature=i)
        yield column("min", f"smallest {name} over {where}", feature=i)
        if rows.time >= 0 and i != rows.time:
            yield column("latest", f"latest {name} over {where}", feature=i, by=rows.time)
            yield column("first", f"first {name} over {where}", feature=i, by=rows.time)
            yield column("change", f"change of {name} over {where}", feature=i, by=rows.time)
    picks = [i for i in rows.numbers if i != rows.time and i not in rows.derived]
    picks = picks if len(picks) <= MAX_PICKS else []
    for field in categories:
        if via and field.kind not in ("category", "list"):
            continue
        count = np.diff(rows.x.indptr)[field.start : field.start + field.width]
        frequent = field.start + _frequent(count, MIN_SHARE * rows.nodes.num_nodes)
        for i in frequent.tolist():
            yield column("share", f"share of {rows.name(i)} over {where}", feature=i)
        if single or back or field.kind not in ("category", "list"):
            continue
        yield column(
            "distinct", f"number of different {field.name} over {where}", feature=field.start
        )
        for by in picks:
            for i in frequent[:MAX_PICKED].tolist():
                phrase = f"{rows.name(i)} at largest {rows.name(by)} over {where}"
                yield column("at_max", phrase, feature=i, by=by)
        if rows.time >= 0:
            for i in frequent[:MAX_PICKED].tolist():
                yield column(
                    "at_latest", f"latest {rows.name(i)} over {where}", feature=i, by=rows.time
                )
    if back:
        return
    if via and not single:
        yield column("distinct", f"number of different {where}")
    ends = np.ones(linked.steps[0].shape[0], np.float32)
    for step in linked.steps:
        ends = step.T @ ends
    for i in _frequent(ends, max(10, MIN_SHARE * len(linked.count))).tolist():
        yield column("node", f"share of {rows.type}: {rows.nodes.title(i)} over {where}",
                     node=rows.nodes.identity(i))  # fmt: skip


def _frequent(count: NDArray[Any], least: float) -> NDArray[np.int64]:
    """Return the most frequent of some values, those that are frequent enough."""
    order = np.argsort(-count, kind="stable")[:MAX_VALUES]
    return np.asarray(order[count[order] >= max(least, 1)])


def _largest(step: csr_array, rank: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the largest rank among the links of each node, -1 for a node without links."""
    best = np.full(step.shape[0], -1, np.int64)
    some = np.flatnonzero(np.diff(step.indptr))
    if len(some):
        best[some] = np.maximum.reduceat(rank[step.indices], step.indptr[some])
    return best


def paths(graph: Graph) -> list[Metapath]:
    """Return the metapaths of one and two hops from the target."""
    steps: list[Walk] = [(e,) for e in graph.edge_types if e[0] == graph.target]
    steps += [(*walk, e) for walk in steps for e in graph.edge_types if e[0] == walk[0][2]]
    return [Metapath.of(each, graph.metadata()) for each in steps[:MAX_WALKS]]


class Aggregates:
    """The columns of a graph, each computed on first use.

    Args:
        matrices: Matrices of the graph.
    """

    _last: ClassVar[Aggregates | None] = None

    def __init__(self, matrices: GraphMatrices) -> None:
        self.matrices, self.graph = matrices, matrices.graph
        self._rows: dict[str, Rows] = {}
        self._values: dict[Column, Values] = {}

    @classmethod
    def on(cls, graph: Graph) -> Aggregates:
        """Return the columns of a graph; those of the last graph are kept."""
        last = cls._last
        if last is None or not last.matrices.belong_to(graph):
            last = cls._last = cls(GraphMatrices(graph))
        return last

    def rows(self, node_type: str) -> Rows:
        """Return the rows of a node type."""
        if node_type not in self._rows:
            self._rows[node_type] = Rows(self.graph, node_type)
        return self._rows[node_type]

    def linked(self, path: Metapath, nodes: NDArray[np.int64] | None = None) -> Linked:
        """Return the rows linked to some target nodes (default: all)."""
        return Linked(self.matrices, path, self.rows(path.node_types[-1]), nodes)

    def candidates(self, nodes: NDArray[np.int64]) -> Iterator[tuple[list[Column], Values]]:
        """Yield columns to try and their values at some target nodes, metapath by metapath."""
        rows = self.rows(self.graph.target)
        own = own_candidates(rows)
        yield own, _stacked([_own(rows, column)[nodes] for column in own], len(nodes))
        for path in paths(self.graph):
            try:
                linked = self.linked(path, nodes)
            except TooLarge:
                continue
            if not linked.count.any():
                continue
            columns = list(linked_candidates(linked, path))
            yield columns, _stacked([linked.values(column) for column in columns], len(nodes))

    def values(self, columns: Sequence[Column]) -> Values:
        """Return the values of columns at all target nodes, ``[N, D]``."""
        own = self.rows(self.graph.target)
        for walk in dict.fromkeys(c.walk for c in columns if c not in self._values):
            linked = self.linked(Metapath(walk, "")) if walk else None
            for column in columns:
                if column.walk == walk and column not in self._values:
                    values = _own(own, column) if linked is None else linked.values(column)
                    self._values[column] = np.asarray(values, np.float32)
        return _stacked([self._values[c] for c in columns], self.graph.targets.num_nodes)


def _own(rows: Rows, column: Column) -> Values:
    return (rows.number if column.function == "number" else rows.feature)(column.feature)


def _stacked(values: Sequence[Values], size: int) -> Values:
    stacked = np.empty((size, len(values)), np.float32)
    for i, each in enumerate(values):
        stacked[:, i] = each
    return stacked
