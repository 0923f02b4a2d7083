"""Read the labels of a target table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.read.reader import Table
from hanme.data.tables.schema.sections import NodeTable
from hanme.errors import HanmeError

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
    names, multilabel = (run.labels, run.multilabel) if run else ([], bool(nodes.label_separator))
    row = label = np.zeros(0, np.int64)
    if nodes.label is not None:
        items = table.items("label", nodes.label_separator)
        if run is None:
            names = _names(table, nodes, items)
        row, label = table.positions(items, names)
        if run is None:
            names, row, label = _without_rare(names, row, label, nodes, held_out, table)
            _check_names(names, table.column_title("label"))
    elif run is None:
        raise HanmeError(
            f"{table.parts[0][0]}: the target has no labels; name their column with label = "
        )
    y: NDArray[Any] = np.zeros((size, len(names)), np.float32) if multilabel else np.full(size, -1)
    if multilabel:
        y[row, label] = 1
    else:
        y[row] = label
    return torch.from_numpy(y), names


def name_labels(table: Table, names: Table) -> Table:
    """Replace labels that are ids of a node type by its names."""
    sql = table.reader.new_name()
    table.reader.rows(
        f"CREATE TEMP TABLE {sql} AS SELECT t.* REPLACE (coalesce(n.name, t.label) AS label) "
        f"FROM {table.sql} AS t LEFT JOIN {names.sql} AS n ON t.label = n.id ORDER BY t.rowid"
    )
    return replace(table, sql=sql)


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
    row: NDArray[np.int64],
    label: NDArray[np.int64],
    nodes: NodeTable,
    held_out: NDArray[np.bool_],
    table: Table,
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Drop labels of too few rows that may be trained on, or refuse labels of none."""
    may_train = ~held_out[row]
    pairs = np.unique(np.stack([row[may_train], label[may_train]]), axis=1)
    kept = np.bincount(pairs[1], minlength=len(names)) >= (nodes.label_min_count or 1)
    rare = [name for name, keep in zip(names, kept, strict=True) if not keep]
    if not rare:
        return names, row, label
    if nodes.label_min_count is None:
        i = int(np.flatnonzero(~kept[label])[0])
        raise HanmeError(
            f"{table.place(int(row[i]), 'label')}: no row in train has the label "
            f"{names[label[i]]!r}; label_min_count = 1 leaves such labels out"
        )
    table.reader.notes.append(
        f"{len(rare):,} {'label' if len(rare) == 1 else 'labels'} of fewer than "
        f"{nodes.label_min_count} training rows dropped: {', '.join(rare[:5])}"
        f"{', ...' if len(rare) > 5 else ''}"
    )
    some = kept[label]
    return sorted({*names} - {*rare}), row[some], (np.cumsum(kept) - 1)[label[some]]


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
