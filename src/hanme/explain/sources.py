"""Merge contributions into rows: one per neighbour, one per column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hanme.graph import Graph, display
from hanme.graph.metapath import EdgeType, Walk
from hanme.linear import Column, Contributions
from hanme.linear.learner import Values
from hanme.linear.rows import Field, Rows

OWN = "own features"
"""The title of features without columns."""


@dataclass(eq=False)
class Source:
    """A neighbour or a column of a node, and what it adds to the logits.

    A cell that is a feature and a link as well is one source, with the neighbour's kind and number.

    Args:
        values: What it adds, ``[C]``.
        kind: The type of the neighbour; empty for a column.
        numbers: Its number. Neighbours without names that are linked to no other node are one
            source, such as the orders of a customer.
        own: A column of the node, or the part of it that says the same as the link.
        parts: What each feature of ``own``, or each aggregate, adds, ``[C]`` each.
        channel: What it is in words, if it is a channel of the network or a column of a block of
            another package.
    """

    values: Values
    kind: str = ""
    numbers: tuple[int, ...] = ()
    own: Field | None = None
    parts: dict[Any, Values] = field(default_factory=dict)
    channel: str = ""

    @property
    def aggregates(self) -> tuple[Column, ...]:
        """The aggregates of linked rows that it stands for."""
        return () if self.kind or self.own or self.channel else tuple(self.parts)


class Columns:
    """The columns of a graph's tables."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._rows: dict[str, Rows] = {}

    def rows(self, node_type: str) -> Rows:
        """Return the rows of a node type."""
        if node_type not in self._rows:
            self._rows[node_type] = Rows(self.graph, node_type)
        return self._rows[node_type]

    @cached_property
    def own(self) -> list[Field]:
        """The columns of the target nodes; features of unknown origin count as one."""
        width, rows = self.graph.targets.width or 0, self.rows(self.graph.target)
        named = (self.graph.provenance.fitted or {}).get("features", {}).get(self.graph.target)
        if named and sum(each.width for each in rows.fields) == width:
            return rows.fields
        return [Field(OWN, "unknown", 0, width, {})] if width else []

    def of_feature(self, node_type: str, number: int) -> Field | None:
        """Return the column that a feature belongs to; None for the number of linked rows."""
        rows = self.rows(node_type)
        fields = self.own if node_type == self.graph.target else rows.fields
        within = (f for f in fields if f.start <= number < f.start + f.width)
        return next(within, rows.derived.get(number))


def merge(found: Contributions, graph: Graph, columns: Columns, node: int) -> list[Source]:
    """Merge contributions by neighbour and by column.

    Args:
        found: The contributions to the logits of a node.
        graph: The graph, or the subgraph, that they were computed on.
        columns: The columns of the whole graph.
        node: The number of the node in the whole graph.
    """
    links = _Links(columns.graph, node)
    own: dict[str, Source] = {}
    for part in found.parts:
        if part.node_type is not None:
            ids = graph.nodes[part.node_type].original_ids
            numbers = part.numbers if ids is None else ids.numpy()[part.numbers]
            links.add(part.node_type, numbers, part.values)
        elif part.phrases:
            for phrase, values in zip(part.phrases, part.values, strict=True):
                own[f"{part.block}:{phrase}"] = Source(values, channel=phrase)
        elif part.columns:
            for i, values in zip(part.numbers, part.values, strict=True):
                _aggregate(columns, links, own, part.columns[i], values)
        else:
            for number, values in zip(part.numbers.tolist(), part.values, strict=True):
                field = columns.of_feature(graph.target, number)
                name = f"own:{field.name}" if field else part.block
                source = own.setdefault(name, Source(0 * values, own=field))
                source.values = source.values + values
                source.channel = "" if field else part.block
                source.parts[number] = source.parts.get(number, 0) + values
    relations = display(columns.graph)[graph.target].links
    for cell in (one for one in columns.own if one.name in relations):
        name = f"own:{cell.name}"
        if links.take(own.get(name, Source(0 * found.bias)), cell, relations[cell.name]):
            own.pop(name, None)
    return [*links.merged(), *own.values()]


def _aggregate(
    columns: Columns, links: _Links, own: dict[str, Source], column: Column, values: Values
) -> None:
    """Count an aggregate for the neighbours behind it, or for the column of linked rows.

    Neighbours that other target nodes share divide what lies behind them by the number of walks.
    """
    neighbours, kind = links.of(column.walk[0]), column.walk[0][2]
    nodes = columns.graph.nodes[kind]
    if column.function == "node" and len(column.walk) == 1:
        neighbours = [n for n in neighbours if nodes.identity(n) == column.node] or neighbours
    if len(neighbours) == 1:
        links.add(kind, np.array(neighbours), values[None])
        return
    share = links.shares(column.walk)
    if share is not None:
        links.add(kind, np.array(neighbours), share[:, None] * values)
        return
    field = columns.of_feature(column.walk[-1][2], column.feature)
    about = field.name if field else column.node or "count"
    source = own.setdefault(f"{column.walk}:{about}", Source(0 * values))
    source.values = source.values + values
    source.parts[column] = source.parts.get(column, 0) + values


class _Links:
    """The neighbours of a node, and what they add."""

    def __init__(self, graph: Graph, node: int) -> None:
        self.graph, self.node = graph, node
        self._numbers: dict[str, list[NDArray[Any]]] = {}
        self._values: dict[str, list[Values]] = {}
        self._neighbours: dict[EdgeType, list[int]] = {}
        self._shares: dict[Walk, Values | None] = {}
        self._cells: dict[tuple[str, int], Field] = {}

    def of(self, step: EdgeType) -> list[int]:
        """Return the distinct neighbours of the node along a relation."""
        if step not in self._neighbours:
            ends = self.graph.adjacency(step).of_node(self.node)
            self._neighbours[step] = torch.unique(ends).tolist()
        return self._neighbours[step]

    def shares(self, walk: Walk) -> Values | None:
        """Return the share of each neighbour in the walks of two hops.

        None if there are none, or if the neighbours are rows of this node alone.
        """
        if walk not in self._shares:
            numbers = torch.tensor(self.of(walk[0]), dtype=torch.long)
            share = None
            if len(walk) == 2 and not self._are_private(walk[0][2], numbers):
                begin, end = self.graph.adjacency(walk[1]).bounds(numbers)
                count = (end - begin).double() - float(walk[1][2] == self.graph.target)
                total = float(count.clamp(min=0).sum())
                share = (count.clamp(min=0) / total).numpy() if total else None
            self._shares[walk] = share
        return self._shares[walk]

    def take(self, source: Source, field: Field, relation: str) -> bool:
        """Count what a column adds for the neighbours that its cell names, if it names some.

        What absent values of a list add is divided among those that are there.
        """
        step = next((e for e in self.graph.links if e[:2] == (self.graph.target, relation)), None)
        row = self.graph.targets.rows(torch.tensor([self.node]))
        if step is None or row is None:
            return False
        names: Sequence[str] = field.fitted.get("values", ())
        cell = row.to_dense()[0][field.start : field.start + len(names)].nonzero().flatten()
        values = {names[i]: field.start + i for i in cell.tolist()}
        places = {self.graph.nodes[step[2]].identity(n): n for n in self.of(step)}
        if not values and len(places) == 1:  # a rare value, or a number
            values = dict.fromkeys(places, -1)
        if not values or not values.keys() <= places.keys():
            return False
        own = {name: source.parts.get(i, 0 * source.values) for name, i in values.items()}
        rest = (source.values - sum(own.values())) / len(own)
        for name, i in values.items():
            part = Field(field.name, field.kind, i, 1, {}) if len(values) > 1 else field
            self._cells[step[2], places[name]] = part
            if source.parts:
                self.add(step[2], np.array([places[name]]), (own[name] + rest)[None])
        return True

    def add(self, kind: str, numbers: NDArray[Any], values: Values) -> None:
        self._numbers.setdefault(kind, []).append(numbers)
        self._values.setdefault(kind, []).append(values)

    def merged(self) -> Iterator[Source]:
        for kind, some in self._numbers.items():
            numbers, place = np.unique(np.concatenate(some), return_inverse=True)
            values = np.concatenate(self._values[kind])
            total = np.zeros((len(numbers), values.shape[1]))
            np.add.at(total, place, values)
            if len(numbers) > 1 and self._are_private(kind, torch.from_numpy(numbers)):
                yield Source(total.sum(0), kind, tuple(numbers.tolist()))
                continue
            for number, row in zip(numbers.tolist(), total, strict=True):
                yield Source(row, kind, (number,), own=self._cells.get((kind, number)))

    def _are_private(self, kind: str, numbers: torch.Tensor) -> bool:
        """Return whether some nodes have no names, and are linked to no other target node."""
        back = [e for e in self.graph.links if (e[0], e[2]) == (kind, self.graph.target)]
        if kind == self.graph.target or not back:
            return False
        degree = torch.zeros_like(numbers)
        for e in back:
            begin, end = self.graph.adjacency(e).bounds(numbers)
            degree += end - begin
        nodes, some = self.graph.nodes[kind], numbers.tolist()
        named = (nodes.names is not None and nodes.title(n) != nodes.identity(n) for n in some)
        return bool((degree <= 1).all()) and not any(named)


def blank(row: torch.Tensor, field: Field) -> torch.Tensor:
    """Return the features of a node ``[F]`` with a column missing."""
    row = row.clone()
    row[field.start : field.start + field.width] = 0
    if field.fitted.get("gaps"):
        row[field.start + field.width - 1] = 1
    return row
