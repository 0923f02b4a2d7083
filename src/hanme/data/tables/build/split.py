"""Split the target's nodes: by a column, by conditions, by groups or at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from hanme.data.tables.build.labels import Labels
from hanme.data.tables.build.nodes import NodeRows
from hanme.data.tables.read.reader import Table
from hanme.data.tables.schema.config import GraphConfig
from hanme.errors import HanmeError
from hanme.graph import Graph, Split
from hanme.graph.splits import PARTS, grouped, stratified

GROUP = "group"


def evaluate_conditions(config: GraphConfig, table: Table, size: int) -> NDArray[np.int64]:
    """Return for each node 1 or 2 if a condition assigns it to val or test, else 0, ``[N]``."""
    part = np.zeros(size, np.int64)
    for i, name in ((1, "val"), (2, "test")):  # test takes precedence
        condition = getattr(config.split, name, None)
        if condition is not None:
            fulfilled = table.reader.evaluate(table, condition, f"split.{name}")
            part[: table.size][fulfilled] = i
    return part


def read_split(config: GraphConfig, table: Table, labels: Labels, part: NDArray[np.int64]) -> Split:
    """Return the split of the column or of conditions; other labelled nodes are for training."""
    if config.nodes[config.target].split is None:
        return Split.of(torch.from_numpy(np.where(labels.labelled, part, -1)))
    names = ", ".join(f"'{name}'" for name in PARTS)
    for row, value in table.reader.rows(
        f"SELECT rowid, split FROM {table.sql} WHERE split NOT IN ({names}) ORDER BY rowid LIMIT 1"
    ):
        raise HanmeError(
            f"{table.place(row, 'split')}: expected {', '.join(PARTS)} or an empty cell, but got "
            f"{value[:60]!r}"
        )
    part = np.full_like(part, -1)
    (part[: table.size],) = table.reader.arrays(
        f"SELECT list_position([{names}], split) - 1 FROM {table.sql}", missing=-1
    )
    return Split.of(torch.from_numpy(part))


def check_split_column(labels: Labels, split: Split, table: Table) -> None:
    """Refuse parts of unlabelled rows, and labels that no training row has."""
    part = np.select([mask.numpy() for mask in split], range(len(PARTS)), -1)
    for row in np.flatnonzero((part >= 0) & ~labels.labelled)[:1]:
        raise HanmeError(
            f"{table.place(int(row), 'split')}: the row is in {PARTS[part[row]]}, but has no label"
        )
    for name, mask in zip(PARTS[:2], split, strict=False):
        if not mask.any():
            raise HanmeError(f"{table.column_title('split')}: no row is in {name}")
    y = labels.y.numpy()
    if labels.multilabel:
        unseen = np.argwhere((y > 0) & ~(y[part == 0] > 0).any(axis=0))
    else:
        rows = np.flatnonzero((y >= 0) & ~np.isin(y, y[part == 0]))
        unseen = np.stack([rows, y[rows]], 1)
    for row, label in unseen[:1]:
        raise HanmeError(
            f"{table.place(int(row), 'label')}: no row in train has the label "
            f"{labels.names[label]!r}"
        )


def group_numbers(config: GraphConfig, rows: NodeRows, graph: Graph) -> Tensor | None:
    """Return a number per target node, equal for nodes that belong into the same part."""
    group = config.split.group if config.split else None
    if group is None:
        return None
    size = graph.targets.num_nodes
    if group in config.relations:
        source, _, target = edge_type = config.edge_types[group][0]
        if config.target not in (source, target):
            raise HanmeError(f"split.group: the relation {group} does not join {config.target}")
        links = graph.links[edge_type].numpy()
        near, far = links if source == config.target else links[::-1]
        total = size + int(far.max(initial=-1)) + 1
        ones = np.ones(len(near), np.int8)
        matrix = coo_array((ones, (near, size + far)), shape=(total, total))
        _, component = connected_components(matrix, directed=False)
        return torch.from_numpy(component[:size].astype(np.int64))
    numbers = np.arange(size) + rows.table.size + 1  # a node without a value is a group of its own
    (code,) = rows.table.reader.arrays(
        "SELECT CASE WHEN together IS NOT NULL THEN dense_rank() OVER (ORDER BY together) END "
        f"FROM {rows.table.sql} ORDER BY rowid",
        missing=-1,
    )
    numbers[: rows.table.size] = np.where(code < 0, numbers[: rows.table.size], code)
    return torch.from_numpy(numbers)


def draw_split(graph: Graph, config: GraphConfig, seed: int) -> Graph:
    """Draw the parts that the tables do not determine."""
    nodes, rule, split = config.nodes[config.target], config.split, graph.split
    shares = nodes.shares
    if nodes.split is not None:
        return graph
    if rule is None:
        split = stratified(graph.y, val=shares.val, test=shares.test, seed=seed)
    elif rule.group is not None:
        group = graph.targets.extra[GROUP]
        split = grouped(graph.y, group, val=shares.val, test=shares.test, seed=seed)
    elif rule.val is None or (rule.test is None and shares.test):
        name, other = ("val", "test") if rule.val is None else ("test", "val")
        share = getattr(shares, name) / (1 - getattr(shares, other))
        y = graph.y.clone()
        y[~split.train] = 0 if graph.multilabel else -1
        rest = stratified(y, val=share, test=0, seed=seed)
        split = split._replace(train=rest.train, **{name: rest.val})
    return replace(graph, split=split)


def check_parts(graph: Graph, config: GraphConfig, where: str) -> None:
    """Refuse a split that leaves nothing to train or to validate on."""
    counts = {name: int(mask.sum()) for name, mask in zip(PARTS, graph.split, strict=True)}
    for name, count in counts.items():
        condition = getattr(config.split, name, None)
        if not count and (condition is not None or name != "test"):
            chosen = f" for which {condition}" if condition else ""
            raise HanmeError(
                f"{where}: no labelled row{chosen} is left for {name}; of {sum(counts.values())}, "
                + ", ".join(f"{count} are in {name}" for name, count in counts.items())
            )
