"""Feature blocks: groups of columns of the linear model's design matrix."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict
from scipy.sparse import csr_array, vstack

from hanme.common.memory import blocks
from hanme.common.options import check_options
from hanme.common.registry import Registry
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Metadata, Metapath, Walk
from hanme.linear.aggregates import Column, column_values, walks_of
from hanme.linear.learner import Part, Values
from hanme.linear.matrices import (
    MAX_ENTRIES,
    DesignMatrix,
    GraphMatrices,
    Scaling,
    Vector,
    multiply,
    reciprocal,
    subtract,
)

AGGREGATES = "aggregates:plain"

INDICATORS = ("own", "encoded", "share", "node", "at_max")
"""Functions of columns that other blocks have, as features or ids."""

MIN_COLUMNS, MAX_AGGREGATED = 30, 10_000_000
"""Of many labelled nodes, as many aggregates as have this number of entries: about 0.5 GB in a fit,
but no fewer than the minimum."""

MAX_DEVIATION = 4.0
"""Standard deviations beyond which aggregates are clipped."""


@dataclass(frozen=True)
class FeatureBlock(ABC):
    """A group of columns, written ``PATH:KIND:SCALING`` or, for a node's own, ``KIND:SCALING``.

    The options of a block of another package follow its kind: ``degrees{"log": true}:plain``.

    Args:
        path: The metapath from the target to what the block reads; None for the node itself.
        scaling: ``"plain"``, or ``"unit"``: features are weighted by inverse document frequency
            and rows are scaled to length 1.
    """

    path: Metapath | None
    scaling: Scaling

    kind: ClassVar[str]

    def __str__(self) -> str:
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        options = {name: own[name] for name in sorted(own.keys() - {"path", "scaling"})}
        kind = self.kind + (json.dumps(options) if options else "")
        return ":".join([*([self.path.text] if self.path else []), kind, self.scaling])

    @property
    def key(self) -> Hashable:
        """What tells it from other blocks on a graph."""
        return str(self)

    @property
    def id_type(self) -> str | None:
        """The node type whose nodes are the columns; None if columns are features."""
        return None

    @property
    def walks(self) -> list[Walk]:
        """The sequences of relations that it reads."""
        return [self.path.steps] if self.path else []

    def end(self, graph: Graph) -> str:
        """Return the node type that it reads."""
        return self.path.node_types[-1] if self.path else graph.target

    def on(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the rows on a graph, which keeps them."""
        if self.key not in matrices.blocks:
            matrices.blocks[self.key] = self.matrix(matrices)
        return matrices.blocks[self.key]

    @classmethod
    def candidates(cls, graph: Graph, **options: Any) -> Iterable[FeatureBlock]:
        """Yield the blocks of this class to try on a graph, see ``--block``."""
        yield cls(None, "plain", **options)

    @abstractmethod
    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the rows on a graph."""

    @abstractmethod
    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what the row of a node adds to its logits; ``weight`` is ``[D, C]``.

        Aggregates in ``missing`` are taken as unknown.
        """


class OwnFeatures(FeatureBlock):
    """The features of the node itself: ``features:plain``."""

    kind = "features"

    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the features of the target nodes."""
        return DesignMatrix(matrices.features(matrices.graph.target, self.scaling))

    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what each feature adds."""
        x = matrices.features(matrices.graph.target, self.scaling)
        row = csr_array(x[[node]])
        return Part(str(self), row.indices, row.data[:, None] * weight[row.indices])


class NeighbourIds(FeatureBlock):
    """The number of instances that lead to each node: ``movie-actor:ids:unit``."""

    kind = "ids"
    path: Metapath

    @property
    def id_type(self) -> str:
        """The node type at the end of the metapath."""
        return self.path.node_types[-1]

    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the product of the links along the metapath."""
        first, *others = matrices.links(self.path)
        rest = multiply(others, 1)[0] if others else None
        return DesignMatrix(first, rest, unit=self.scaling == "unit")

    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what the walks through each neighbour add."""
        first, *others = matrices.links(self.path)
        row = csr_array(first[[node]])
        behind = reduce(lambda z, links: links @ z, reversed(others), weight)
        values = row.data[:, None] * behind[row.indices]
        if self.scaling == "unit":
            values = values / _length(reduce(lambda z, links: z @ links, others, row))
        return Part(str(self), row.indices, values, self.path.node_types[1])


class NeighbourFeatures(FeatureBlock):
    """The mean features at the ends of a metapath, without the node's own.

    For example, ``movie-actor-movie:features:unit``.
    """

    kind = "features"
    path: Metapath

    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the links along the metapath times the features at its end, less the node's."""
        end, unit = self.end(matrices.graph), self.scaling == "unit"
        x, count = matrices.features(end, self.scaling), matrices.instances(self.path)
        first, *others = matrices.links(self.path)
        (rest,) = multiply([*others, x], 1)
        if end != matrices.graph.target:
            return DesignMatrix(first, rest, scale=reciprocal(count), unit=unit)
        returns = matrices.returns(self.path)
        return DesignMatrix(first, rest, x, returns, reciprocal(count - returns), unit)

    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what the walks through each neighbour add."""
        end = self.path.node_types[-1]
        x = matrices.features(end, self.scaling)
        numbers, sums = matrices.through_neighbours(self.path, node, x @ weight)
        values, count = sums[:, :-1], sums[:, -1].sum()
        if self.scaling == "unit":
            first, *others = matrices.links(self.path)
            total = reduce(lambda z, links: z @ links, others, csr_array(first[[node]]))
            row = csr_array(total @ x)
            if end == matrices.graph.target:
                row = subtract(row, csr_array(x[[node]] * total[0, node]))
            values = values / _length(row)
        else:
            values = values / max(count, 1)
        return Part(str(self), numbers, values, self.path.node_types[1])


@dataclass(frozen=True)
class NamedColumns(FeatureBlock):
    """Base class of blocks of other packages: numbers of the target nodes, each with a name.

    A subclass sets ``kind``, the name of its entry point, and writes :meth:`columns`. Its options
    are fields of a frozen dataclass with defaults.
    """

    def columns(self, graph: Graph) -> tuple[ArrayLike, Sequence[str]]:
        """Return numbers of all target nodes, ``[N, D]``, and the name of each column.

        A node's numbers depend on what ``walks`` reach from it alone: predictions of single nodes
        are computed on that part of the graph. They should be of similar size, about 1.
        """
        raise NotImplementedError

    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the numbers of the target nodes."""
        return DesignMatrix(self._columns(matrices.graph)[0])

    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what each column adds that is not 0."""
        values, names = self._columns(matrices.graph)
        row = csr_array(values[[node]])
        phrases = [f"{names[i]}: {x:g}" for i, x in zip(row.indices, row.data, strict=True)]
        added = row.data[:, None] * weight[row.indices]
        return Part(str(self), row.indices, added, phrases=phrases)

    def _columns(self, graph: Graph) -> tuple[csr_array, Sequence[str]]:
        given, names = self.columns(graph)
        values = csr_array(given).astype(np.float32)
        shape = graph.targets.num_nodes, len(names)
        if values.shape != shape or not np.isfinite(values.data).all():
            raise HanmeError(
                f"feature block {self.kind!r}: expected finite numbers {list(shape)}, but got "
                f"{list(values.shape)}"
            )
        return values, names


class Standardised(BaseModel):
    """A column with mean 0 and variance 1 over all target nodes, logarithmic if it is skewed.

    Or whether the column is missing, also with mean 0 and variance 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: Column
    log: bool
    mean: float
    std: float
    missing: bool = False

    @classmethod
    def fit(cls, graph: Graph, columns: Sequence[Column]) -> tuple[Standardised, ...]:
        """Standardise the numbers of linked rows, best first; other blocks have the categories."""
        most = max(1, MAX_ENTRIES // max(1, graph.targets.num_nodes))
        limit = max(MIN_COLUMNS, MAX_AGGREGATED // max(1, int(graph.split.labelled.sum())))
        limit = min(limit, most)
        numbers = [column for column in columns if column.function not in INDICATORS]
        columns, fitted, gaps = numbers[:limit], [], dict[bytes, Standardised]()
        for column, values in zip(columns, column_values(graph, columns).T, strict=True):
            missing = np.isnan(values)
            known = values[~missing].astype(np.float64)
            low, middle, high = np.quantile(known, [0, 0.5, 0.99]) if len(known) else (0, 0, 0)
            log = bool(low >= 0 and high > 5 * max(middle, 1))
            known = np.log1p(known) if log else known
            if len(known) and np.ptp(known) > 0:
                fitted.append(cls(column=column, log=log, mean=known.mean(), std=known.std()))
            if 0 < missing.sum() < len(missing):
                mean, std = missing.mean(), missing.std()
                gap = cls(column=column, log=False, mean=mean, std=std, missing=True)
                gaps.setdefault(missing.tobytes(), gap)
        return (*fitted, *gaps.values())[:most]

    def scaled(self, values: Vector) -> Vector:
        """Return standardised values, 0 where nothing is known."""
        if self.missing:
            values = np.isnan(values).astype(np.float32)
        values = np.log1p(np.maximum(values, 0)) if self.log else values
        values = np.clip((values - self.mean) / self.std, -MAX_DEVIATION, MAX_DEVIATION)
        return np.nan_to_num(values)


@dataclass(frozen=True)
class AggregatedRows(FeatureBlock):
    """Standardised aggregates of linked rows: ``aggregates:plain``."""

    path: None = field(init=False, default=None)
    scaling: Scaling = field(init=False, default="plain")
    columns: tuple[Standardised, ...]

    kind = "aggregates"

    def __str__(self) -> str:
        return AGGREGATES

    @property
    def key(self) -> Hashable:
        """The columns, which the text leaves out."""
        return self.columns

    @property
    def walks(self) -> list[Walk]:
        """The relations to the rows."""
        return walks_of([each.column for each in self.columns])

    def matrix(self, matrices: GraphMatrices) -> DesignMatrix:
        """Return the columns of the target nodes."""
        graph, columns, parts = matrices.graph, [each.column for each in self.columns], []
        for rows in list(blocks(graph.targets.num_nodes, len(columns))) or [slice(0, 0)]:
            values = column_values(graph, columns, torch.arange(rows.start, rows.stop))
            for i, each in enumerate(self.columns):
                values[:, i] = each.scaled(values[:, i])
            parts.append(csr_array(values))
        return DesignMatrix(csr_array(vstack(parts, format="csr")))

    def contributions(
        self, matrices: GraphMatrices, node: int, weight: Values, missing: Collection[Column] = ()
    ) -> Part:
        """Return what each aggregate adds."""
        columns = [each.column for each in self.columns]
        values = column_values(matrices.graph, columns, torch.tensor([node]))[0]
        values[[column in missing for column in columns]] = np.nan
        scaled = [each.scaled(value) for each, value in zip(self.columns, values, strict=True)]
        numbers = np.arange(len(columns))
        return Part(str(self), numbers, np.array(scaled)[:, None] * weight, columns=columns)


def _length(row: csr_array) -> float:
    """Return the length of a row; 1 for a row of zeros."""
    return float(np.sqrt(np.square(row.data.astype(np.float64)).sum())) or 1.0


TEXT = re.compile(r"(?:(.+?):)?([^:{}]+)(\{.*\})?:(\w+)", re.DOTALL)
"""A block as text: path, kind, options as JSON, scaling."""

BLOCKS: Registry[type[FeatureBlock]] = Registry(
    "feature block",
    FeatureBlock,
    {"features": NeighbourFeatures, "ids": NeighbourIds, "aggregates": AggregatedRows},
)


def added_blocks(graph: Graph, given: Sequence[str | dict[str, Any]]) -> Iterator[FeatureBlock]:
    """Yield the candidates of blocks by name, or by a table of name and options."""
    for one in given:
        name = one if isinstance(one, str) else str(one.get("name", ""))
        kind, own = BLOCKS.find(name), ("path", "scaling")
        options = {} if isinstance(one, str) else {k: v for k, v in one.items() if k != "name"}
        if kind.kind != name or name in BLOCKS.builtin:
            raise HanmeError(
                f"feature block {name!r}: hanme tries it by itself"
                if name in BLOCKS.builtin
                else f"feature block {name!r}: its class says kind = {kind.kind!r}"
            )
        yield from kind.candidates(
            graph, **check_options(f"feature block {name}", kind, options, own)
        )


def parse_block(
    text: str,
    metadata: Metadata,
    aggregates: Sequence[Standardised] = (),
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> FeatureBlock:
    """Return the block that a text describes, such as ``movie-actor:ids:unit``.

    It is the inverse of ``str``, except for aggregates, whose columns are given apart.

    Args:
        text: The text.
        metadata: Node types and edge types of the graph.
        aggregates: The columns of a block of aggregates.
        options: Options of blocks of other packages, by name: runs of 0.3.0 have them apart.
    """
    if text == AGGREGATES:
        return AggregatedRows(tuple(aggregates))
    found = TEXT.fullmatch(text)
    path, kind, given, scaling = found.groups() if found else ("", "", None, "")
    kinds: dict[tuple[str, bool], Callable[..., FeatureBlock]] = {
        ("features", False): OwnFeatures,
        ("features", True): NeighbourFeatures,
        ("ids", True): NeighbourIds,
    }
    block = kinds.get((kind, bool(path)))
    if kind in options or kind in BLOCKS.keys() - BLOCKS.builtin.keys():
        own = options.get(kind, {}) if given is None else json.loads(given)
        block = partial(BLOCKS.find(kind), **own)
    if block is None or scaling not in get_args(Scaling):
        raise HanmeError(
            f"feature block {text!r}: expected PATH:ids:SCALING, PATH:features:SCALING or "
            "features:SCALING, such as movie-actor:ids:unit"
        )
    metapath = Metapath.parse(path, metadata) if path else None
    return block(metapath, "unit" if scaling == "unit" else "plain")
