"""The rows of a node type as numbers in the units of their table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import feature_names, to_scipy

Values = NDArray[np.float32]

MAX_DENSE, DENSE = 1024, 0.05
"""Features of unknown origin count as numbers if there are at most this number of them, a tenth in
types other than the target, and this share of their entries is not 0."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
TIMES = (
    re.compile(r"\w*(date|timestamp|datetime|year)|season|time"),
    re.compile(r"(day|week|month|quarter)s?"),
)
"""Words in the names of numbers that order rows in time, if a table has no date; those of the first
pattern are preferred. A longer word that ends in "time" is usually a duration."""


DERIVED = {
    "category": "rank of {} by frequency",
    "list": "number of values of {}",
    "text": "number of words in {}",
}
"""The number that is derived from a column of each kind, in words."""


class Field(NamedTuple):
    """A column of a table: its features begin at ``start``, and are those of ``kind``."""

    name: str
    kind: str
    start: int
    width: int
    fitted: Mapping[str, Any]


class Rows:
    """The rows of a node type as numbers in their own units, and as indicators of categories.

    Beyond the features as encoded, there is a number for each column of a category, its rank by
    frequency, and one for each list or text: how many values it has.
    """

    def __init__(self, graph: Graph, node_type: str) -> None:
        self.type, self.nodes, self.names = node_type, graph.nodes[node_type], {}
        self.fields, start, width = list[Field](), 0, self.nodes.width or 0
        names = feature_names(graph, node_type) or [f"feature {i}" for i in range(width)]
        columns = (graph.provenance.fitted or {}).get("features", {}).get(node_type, {})
        for name, fitted in columns.items():
            size = _width(fitted)
            kind = "number" if "mean" in fitted else fitted["kind"]
            self.fields.append(Field(name, kind, start, size, fitted))
            start += size
        if start != width:  # of unknown origin, or means of the features of other types
            most = MAX_DENSE if node_type == graph.target else MAX_DENSE // 10
            dense = not graph.provenance.fitted and width <= most
            dense = dense and self.x.nnz >= DENSE * width * self.x.shape[0]
            self.fields = [Field(names[i], "number", i, 1, {}) for i in range(width * dense)]
        self.names = dict(enumerate(names))
        self.derived: dict[int, Field] = {}
        for i, field in enumerate(self.categories):
            number = width + 2 * i + (field.kind != "category")
            self.derived[number] = field
            self.names[number] = DERIVED.get(field.kind, DERIVED["text"]).format(field.name)

    @cached_property
    def x(self) -> csc_array:
        """The features as encoded, by column."""
        size, x = self.nodes.num_nodes, self.nodes.x
        return csc_array((size, 0), dtype=np.float32) if x is None else to_scipy(x).tocsc()

    @property
    def categories(self) -> list[Field]:
        """The columns that are categories, lists or texts."""
        return [field for field in self.fields if field.kind != "number"]

    @cached_property
    def numbers(self) -> dict[int, Field]:
        """The columns of the features that are numbers."""
        numbers = [field for field in self.fields if field.kind == "number"]
        vectors = {f.start + i: f for f in numbers for i in range(len(_each(f.fitted.get("mean"))))}
        return vectors | self.derived

    @cached_property
    def time(self) -> int:
        """The number that orders the rows in time, -1 if there is none."""
        dates = [f.start for f in self.fields if f.fitted.get("kind") == "date"]
        words = {f.start: _words(f.name) for f in self.fields if f.kind == "number"}
        named = [
            start for time in TIMES for start in words if any(map(time.fullmatch, words[start]))
        ]
        return next(iter(dates + named), -1)

    @cached_property
    def places(self) -> dict[str, int]:
        """The numbers of the nodes by id."""
        return {self.nodes.identity(i): i for i in range(self.nodes.num_nodes)}

    def encoded(self, feature: int) -> Values:
        """Return a feature as encoded."""
        if feature >= self.x.shape[1]:
            raise HanmeError(f"trees: they read {feature + 1} features of {self.type}")
        x = self.x
        some = slice(x.indptr[feature], x.indptr[feature + 1])
        values = np.zeros(x.shape[0], np.float32)
        values[x.indices[some]] = x.data[some]
        return values

    def values(self, feature: int) -> Values:
        """Return a number in its own units, NaN where it is missing; other features as encoded."""
        field = self.numbers.get(feature)
        if feature in self.derived and field is not None:
            x = csr_array(self.x[:, field.start : field.start + field.width])
            count = np.diff(x.indptr)
            if (feature - (self.nodes.width or 0)) % 2:
                return np.asarray(count, np.float32)
            ranks = csr_array((x.indices.astype(np.float32), x.indices, x.indptr), shape=x.shape)
            rank = ranks.sum(axis=1) / np.maximum(count, 1)
            return np.asarray(np.where(count, rank, field.width), np.float32)
        values = self.encoded(feature)
        if field is None or not field.fitted:
            return values
        mean, std = (_each(field.fitted[key])[feature - field.start] for key in ("mean", "std"))
        values = np.asarray(values.astype(np.float64) * std + mean, np.float32)
        if field.fitted.get("gaps"):
            values[self.encoded(field.start + field.width - 1) > 0] = np.nan
        return values


def _words(name: str) -> list[str]:
    return [word.lower() for word in WORD.findall(name)]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _width(fitted: Mapping[str, Any]) -> int:
    if "mean" in fitted:
        return len(_each(fitted["mean"])) + len(fitted.get("knots", ())) + bool(fitted.get("gaps"))
    return int(fitted.get("size") or len(fitted.get("values", fitted.get("words"))))
