"""Read the labels of the target, and split its nodes: by a column, by conditions or at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.read.reader import Table
from hanme.data.tables.read.scan import Kind
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import NodeTable
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.splits import PARTS, stratified

MAX_LABELS = 1000
"""Maximum number of labels: a column with more is hardly the label."""


def read_labels(
    table: Table, nodes: NodeTable, size: int, run: FittedGraph | None, held_out: NDArray[np.bool_]
) -> tuple[Tensor, list[str]]:
    """Read the labels of `size` target nodes; those without a row have none.

    Labels that a trained `run` does not know count as none, and a table without labels is then not
    an error. `held_out` nodes are reserved for validation or test by a condition.

    Returns:
        The labels as in :class:`~hanme.graph.Graph`, and their names.
    """
    multilabel = run.multilabel if run else nodes.label_separator is not None
    names = run.labels if run else []
    matrix = csr_array((table.size, len(names)))
    if nodes.label is not None:
        items = table.items("label", nodes.label_separator)
        names = run.labels if run else _names(table, nodes, items)
        matrix = table.counts(items, names)
        if run is None:
            names, matrix = _without_rare(names, matrix, nodes, held_out[: table.size], table)
            _check_names(names, table.column_title("label"))
    elif run is None:
        raise HanmeError(
            f"{table.parts[0][0]}: the target has no labels; name their column with label = "
        )
    row, label = matrix.nonzero()
    if multilabel:
        y = torch.zeros(size, len(names))
        y[row, label] = 1
        return y, names
    y = torch.full((size,), -1)
    y[row] = torch.from_numpy(label.astype(np.int64))
    return y, names


def name_labels(table: Table, names: Table, separator: str | None) -> Table:
    """Replace labels that are ids of a node type by its names, each of several in a cell."""
    sql, items = table.reader.new_name(), table.items("label", separator)
    several = table.kinds["label"] == "list" or separator is not None
    table.reader.rows(
        f"CREATE TEMP TABLE {sql} AS WITH items AS (SELECT rowid AS row, unnest({items}) AS item, "
        f"generate_subscripts({items}, 1) AS place FROM {table.sql}), "
        "named AS (SELECT row, list(coalesce(n.name, item) ORDER BY place) AS label FROM items "
        f"LEFT JOIN {names.sql} AS n ON item = n.id GROUP BY row) "
        f"SELECT t.* REPLACE (named.label{'' if several else '[1]'} AS label) FROM {table.sql} AS "
        "t LEFT JOIN named ON t.rowid = row ORDER BY t.rowid"
    )
    kind: Kind = "list" if several else "text"
    return replace(table, sql=sql, kinds={**table.kinds, "label": kind})


def _names(table: Table, nodes: NodeTable, items: str) -> list[str]:
    if table.kinds["label"] == "list" and nodes.label_separator is None:
        raise HanmeError(
            f"{table.column_title('label')}: cells are lists, so a node may have several labels; "
            'confirm it with label_separator = "|"'
        )
    limit = MAX_LABELS + 1 if nodes.label_min_count is None else table.size
    return sorted(table.most_frequent(items, limit))


def _without_rare(
    names: list[str],
    matrix: csr_array,
    nodes: NodeTable,
    held_out: NDArray[np.bool_],
    table: Table,
) -> tuple[list[str], csr_array]:
    """Drop labels of too few rows that may be trained on, or refuse labels of none."""
    rows = (matrix[~held_out] > 0).sum(axis=0)
    kept = rows >= (nodes.label_min_count or 1)
    rare = [name for name, keep in zip(names, kept, strict=True) if not keep]
    if rare and nodes.label_min_count is None:
        row, label = matrix[:, ~kept].nonzero()
        raise HanmeError(
            f"{table.place(int(row[0]), 'label')}: no row in train has the label "
            f"{rare[label[0]]!r}; label_min_count = 1 leaves such labels out"
        )
    if rare:
        table.reader.notes.append(
            f"{len(rare):,} {'label' if len(rare) == 1 else 'labels'} of fewer than "
            f"{nodes.label_min_count} training rows dropped: {', '.join(rare[:5])}"
            f"{', ...' if len(rare) > 5 else ''}"
        )
    return [name for name in names if name not in rare], matrix[:, kept]


def _check_names(names: list[str], where: str) -> None:
    if not names:
        raise HanmeError(f"{where}: no row has a label, so there is nothing to learn from")
    if len(names) == 1:
        raise HanmeError(f"{where}: every label is {names[0]!r}; two different ones are needed")
    if len(names) > MAX_LABELS:
        raise HanmeError(
            f"{where}: more than {MAX_LABELS:,} different labels; label_min_count = 5 leaves out "
            "those of fewer rows"
        )


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
        drawn = stratified(
            graph.y, val=shares.val, test=shares.test, seed=seed, groups=graph.groups
        )
        return replace(graph, split=drawn)
    name, other = ("val", "test") if rule.val is None else ("test", "val")
    if share := getattr(shares, name) / (1 - getattr(shares, other)):
        y = graph.y.clone()
        y[~(split.train | getattr(split, name))] = 0 if graph.multilabel else -1
        rest = stratified(y, val=share, test=0, seed=seed, groups=graph.groups)
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
