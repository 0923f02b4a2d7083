"""Split the target's nodes: by a column, by conditions or at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from hanme.data.tables.read.reader import Table
from hanme.data.tables.schema.config import GraphConfig
from hanme.errors import HanmeError
from hanme.graph import Graph, Split
from hanme.graph.splits import PARTS, stratified

DUPLICATES = "duplicates"
"""Name of a tensor of group numbers: nodes of a group nearly repeat each other."""


def read_parts(config: GraphConfig, table: Table, size: int) -> NDArray[np.int64]:
    """Return the part of each target node, ``[N]``: by the split column, where -1 is none.

    Without such a column, it is 1 or 2 where a condition is true, else 0.
    """
    part = np.zeros(size, np.int64)
    if config.nodes[config.target].split is None:
        for i, name in ((1, "val"), (2, "test")):  # test takes precedence
            if condition := getattr(config.split, name, None):
                fulfilled = table.reader.evaluate(table, condition, f"split.{name}")
                part[: table.size][fulfilled] = i
        return part
    names = ", ".join(f"'{name}'" for name in PARTS)
    for row, value in table.reader.rows(
        f"SELECT rowid, split FROM {table.sql} WHERE split NOT IN ({names}) ORDER BY rowid LIMIT 1"
    ):
        raise HanmeError(
            f"{table.place(row, 'split')}: expected {', '.join(PARTS)} or an empty cell, but got "
            f"{value[:60]!r}"
        )
    part[:] = -1
    (part[: table.size],) = table.reader.arrays(
        f"SELECT list_position([{names}], split) - 1 FROM {table.sql} ORDER BY rowid", missing=-1
    )
    return part


def draw_split(graph: Graph, config: GraphConfig, seed: int) -> Graph:
    """Draw the parts that the tables do not determine, again if they were drawn before."""
    nodes, rule, split = config.nodes[config.target], config.split, graph.split
    shares = nodes.shares
    if nodes.split is not None or (rule and rule.val and rule.test):
        return graph
    if rule is None or rule.val is rule.test:
        split = stratified(graph.y, val=shares.val, test=shares.test, seed=seed)
        if DUPLICATES in graph.targets.extra:
            split = _together(split, graph.targets.extra[DUPLICATES].numpy())
        return replace(graph, split=split)
    name, other = ("val", "test") if rule.val is None else ("test", "val")
    if share := getattr(shares, name) / (1 - getattr(shares, other)):
        y = graph.y.clone()
        y[~(split.train | getattr(split, name))] = 0 if graph.multilabel else -1
        rest = stratified(y, val=share, test=0, seed=seed)
        split = split._replace(train=rest.train, **{name: rest.val})
    return replace(graph, split=split)


def _together(split: Split, group: NDArray[np.int64]) -> Split:
    """Move the nodes of a group to the same part: train if one is there, else val."""
    part = np.select([mask.numpy() for mask in split], range(len(PARTS)), len(PARTS))
    first = np.full(int(group.max()) + 1, len(PARTS))
    np.minimum.at(first, group, part)
    return Split.of(torch.from_numpy(np.where(part < len(PARTS), first[group], -1)))


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
