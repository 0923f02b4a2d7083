"""Split the target's rows: by a column, by conditions, or by groups."""

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
from hanme.data.tables.read.reader import Table, column
from hanme.data.tables.schema.config import GraphConfig
from hanme.errors import HanmeError
from hanme.graph import Graph, Split
from hanme.graph.splits import PARTS, grouped, stratified

GROUP = "group"


def conditions(config: GraphConfig, rows: NodeRows, size: int) -> NDArray[np.int64]:
    """Return for each node 1 or 2 where a condition says val or test, else 0."""
    part = np.zeros(size, np.int64)
    rule = config.split
    for i, name in ((1, "val"), (2, "test")):  # a row that both want is a test row
        text = getattr(rule, name) if rule is not None else None
        if text is not None:
            part[: rows.table.size][rows.table.reader.true(rows.table, text, f"split.{name}")] = i
    return part


def read_split(
    config: GraphConfig, rows: NodeRows, labels: Labels, part: NDArray[np.int64]
) -> Split:
    """Return the split of the column or of conditions; other labelled nodes are for training."""
    labelled = _labelled(labels)
    if config.nodes[config.target].split is not None:
        given = np.full(len(labelled), -1)
        given[: rows.table.size] = _column(rows.table)
        part = given
    else:
        part = np.where(labelled, part, -1)
    return Split.of(torch.from_numpy(part))


def _column(table: Table) -> NDArray[np.integer]:
    """Return for each row 0, 1 or 2 for train, val and test, or -1."""
    values = ", ".join(f"'{name}'" for name in PARTS)
    wrong = table.reader.rows(
        f"SELECT rowid, split FROM {table.sql} WHERE split NOT IN ({values}) ORDER BY rowid LIMIT 1"
    )
    if wrong:
        row, value = wrong[0]
        raise HanmeError(
            f"{table.place(row, 'split')}: {value[:60]!r} is none of {', '.join(PARTS)} or empty"
        )
    found = table.reader.arrays(
        f"SELECT coalesce(list_position([{values}], split), 0) - 1 AS part FROM {table.sql}"
    )
    return column(found, "part", -1)


def check_split(labels: Labels, split: Split, table: Table) -> None:
    """Refuse parts of unlabelled rows, and a split column that leaves nothing to learn."""
    part = np.select([mask.numpy() for mask in split], range(len(PARTS)), -1)
    bare = np.flatnonzero((part >= 0) & ~_labelled(labels))
    if bare.size:
        row = int(bare[0])
        raise HanmeError(
            f"{table.place(row, 'split')}: the row is in {PARTS[part[row]]}, but has no label"
        )
    for i, name in enumerate(PARTS[:2]):
        if not (part == i).any():
            raise HanmeError(f"{table.column_title('split')}: no row is in {name}")
    for row, label in _unknown(labels, part == 0):
        raise HanmeError(
            f"{table.place(row, 'label')}: no row in train has the label {labels.names[label]!r}"
        )


def _labelled(labels: Labels) -> NDArray[np.bool_]:
    y = labels.y.numpy()
    return np.asarray((y > 0).any(axis=1) if labels.multilabel else y >= 0)


def _unknown(labels: Labels, train: NDArray[np.bool_]) -> list[list[int]]:
    """Return the first row with a label that no training row has, and the label."""
    y = labels.y.numpy()
    if labels.multilabel:
        found = np.argwhere((y > 0) & ~(y[train] > 0).any(axis=0))[:1]
    else:
        rows = np.flatnonzero((y >= 0) & ~np.isin(y, np.unique(y[train])))[:1]
        found = np.stack([rows, y[rows]], 1)
    return [[int(row), int(label)] for row, label in found]


def groups(config: GraphConfig, rows: NodeRows, graph: Graph) -> Tensor | None:
    """Return a number per target node, the same for nodes that belong into the same part."""
    group = config.split.group if config.split else None
    if group is None:
        return None
    size = graph.targets.num_nodes
    if group in config.relations:
        source, _, target = there = config.edge_types[group][0]
        if config.target not in (source, target):
            raise HanmeError(f"split.group: the relation {group} does not join {config.target}")
        links = graph.links[there].numpy()
        mine, other = links if source == config.target else links[::-1]
        total = size + int(other.max(initial=-1)) + 1
        ones = np.ones(len(mine), np.int8)
        matrix = coo_array((ones, (mine, size + other)), shape=(total, total))
        _, found = connected_components(matrix, directed=False)
        return torch.from_numpy(found[:size].astype(np.int64))
    codes = rows.table.reader.arrays(
        "SELECT dense_rank() OVER (ORDER BY together) AS code, together IS NULL AS alone "
        f"FROM {rows.table.sql} ORDER BY rowid"
    )
    found = np.arange(size) + rows.table.size + 1  # a node without a value is a group of its own
    given = ~column(codes, "alone", 1).astype(np.bool_)
    found[: rows.table.size][given] = column(codes, "code", 0)[given]
    return torch.from_numpy(found)


def draw(graph: Graph, config: GraphConfig, seed: int) -> Graph:
    """Draw what the tables leave open of the split."""
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
    if config.nodes[config.target].split is not None:
        return
    rule, counts = config.split, [int(mask.sum()) for mask in graph.split]
    if rule is None or rule.group is not None:
        if not counts[1] or not counts[0]:
            hint = f"; the groups of {rule.group} are too large" if rule else ""
            raise HanmeError(
                f"{where}: {sum(counts)} labelled nodes are too few to train and to validate on"
                f"{hint}"
            )
        return
    for name, count, text in zip(PARTS, counts, (None, rule.val, rule.test), strict=True):
        if not count and (text is not None or name != "test"):
            shown = f" for which {text}" if text else ""
            raise HanmeError(f"{where}: split: no labelled row{shown} is left for {name}")
