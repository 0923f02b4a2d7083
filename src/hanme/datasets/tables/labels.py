"""Read the labels and the split of a target table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.datasets.tables.config import NodeTable
from hanme.datasets.tables.features import cell_items, most_frequent, placed
from hanme.datasets.tables.read import Reader, Table, column
from hanme.errors import HanmeError
from hanme.graph import Split
from hanme.graph.splits import PARTS

MOST_LABELS = 1000


@dataclass(frozen=True)
class Labels:
    """The content of the label and split columns.

    Args:
        names: What the labels are called.
        multilabel: Whether a node may have several.
        y: The labels, as :class:`~hanme.graph.Graph` has them.
        split: The split of its column; without one, all labelled nodes are for training.
    """

    names: list[str]
    multilabel: bool
    y: Tensor
    split: Split


def read_labels(
    reader: Reader, table: Table, nodes: NodeTable, known: list[str] | None, several: bool = False
) -> Labels:
    """Read the labels of a table.

    Args:
        reader: Reads the table.
        table: The table.
        nodes: What ``graph.toml`` says of it.
        known: The labels of a trained run. Other labels then count as none, and a table without
            labels is no mistake.
        several: Whether a node may have several labels in that run.
    """
    multilabel = several if known is not None else nodes.label_separator is not None
    names, row, place = known, np.zeros(0, np.int64), np.zeros(0, np.int64)
    if nodes.label is not None:
        if table.kinds["label"] == "list" and nodes.label_separator is None:
            raise HanmeError(
                f"{table.column_title('label')}: it has lists, so that a node may have several "
                'labels; say so with label_separator = "|"'
            )
        items = cell_items(table, "label", nodes.label_separator)
        if names is None:
            names = sorted(most_frequent(reader, table, items, MOST_LABELS + 1))
            _check_names(names, table.column_title("label"))
        found = placed(reader, table, items, names)
        row, place = (column(found, key, 0).astype(np.int64) for key in ("row", "place"))
    if names is None:
        raise HanmeError(
            f"{table.parts[0][0]}: the target has no labels; name their column with label = "
        )
    y: NDArray[Any] = (
        np.zeros((table.size, len(names)), np.float32) if multilabel else np.full(table.size, -1)
    )
    if multilabel:
        y[row, place] = 1
    else:
        y[row] = place
    labelled = np.asarray(y.any(axis=1) if multilabel else y >= 0)
    part = _read_split(reader, table) if nodes.split else np.where(labelled, 0, -1)
    if known is None and nodes.split:
        _check_split(y, labelled, part, names, table)
    split = Split(*(torch.from_numpy(part == i) for i in range(len(PARTS))))
    return Labels(names, multilabel, torch.from_numpy(y), split)


def _check_names(names: list[str], where: str) -> None:
    if not names:
        raise HanmeError(f"{where}: no row has a label, so there is nothing to learn from")
    if len(names) == 1:
        raise HanmeError(f"{where}: every label is {names[0]!r}; two different ones are needed")
    if len(names) > MOST_LABELS:
        raise HanmeError(f"{where}: more than {MOST_LABELS:,} different labels")


def _read_split(reader: Reader, table: Table) -> NDArray[np.integer]:
    """Return for each row 0, 1 or 2 for train, val and test, or -1."""
    values = ", ".join(f"'{name}'" for name in PARTS)
    wrong = reader.rows(
        f"SELECT rowid, split FROM {table.sql} WHERE trim(split) NOT IN ({values}, '') "
        "ORDER BY rowid LIMIT 1"
    )
    if wrong:
        row, value = wrong[0]
        raise HanmeError(
            f"{table.place(row, 'split')}: {value[:60]!r} is none of {', '.join(PARTS)} or empty"
        )
    found = reader.arrays(
        f"SELECT coalesce(list_position([{values}], trim(split)), 0) - 1 AS part FROM {table.sql}"
    )
    return column(found, "part", -1)


def _check_split(
    y: NDArray[Any],
    labelled: NDArray[np.bool_],
    part: NDArray[np.integer],
    names: list[str],
    table: Table,
) -> None:
    """Refuse a part of unlabelled rows, and a split that leaves nothing or too little to learn."""
    bare = np.flatnonzero((part >= 0) & ~labelled)
    if bare.size:
        row = int(bare[0])
        raise HanmeError(
            f"{table.place(row, 'split')}: the row is in {PARTS[part[row]]}, but has no label"
        )
    for i, name in enumerate(PARTS[:2]):
        if not (part == i).any():
            raise HanmeError(f"{table.column_title('split')}: no row is in {name}")
    if y.ndim == 1:
        places = np.flatnonzero(labelled & ~np.isin(y, y[part == 0]))
        unseen = [(row, y[row]) for row in places[:1]]
    else:
        unseen = np.argwhere((y > 0) & ~y[part == 0].any(axis=0))[:1].tolist()
    for row, label in unseen:
        raise HanmeError(
            f"{table.place(row, 'label')}: no row in train has the label {names[label]!r}"
        )
