"""The labels and the split of a target table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanme.datasets.tables_config import Nodes
from hanme.datasets.tables_features import cell_items, most_frequent, placed
from hanme.datasets.tables_read import Reader, Table, column
from hanme.errors import HanmeError

SPLITS = ("train", "val", "test")
MOST_LABELS = 1000


@dataclass(frozen=True)
class Labels:
    """What the label and split columns say.

    Args:
        names: The labels, by name.
        multilabel: Whether a node may have several.
        y: Multi-hot ``[rows, labels]`` if so, else ``[rows]`` with -1 for none.
        part: Per row 0, 1 or 2 for train, val and test, or -1; None without a split column.
    """

    names: list[str]
    multilabel: bool
    y: NDArray[np.integer]
    part: NDArray[np.integer] | None

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return np.asarray((self.y > 0).any(axis=1) if self.multilabel else self.y >= 0)


def read_labels(
    reader: Reader, table: Table, nodes: Nodes, known: list[str] | None, several: bool = False
) -> Labels:
    """Reads the labels of a table.

    Args:
        known: The labels of a trained run; others count as none, and none at all is no mistake.
        several: Whether a node may have several in that run.
    """
    multilabel = several if known is not None else nodes.label_separator is not None
    names, found = known, {}
    if nodes.label is not None:
        if table.kinds["label"] == "list" and nodes.label_separator is None:
            raise HanmeError(
                f"{table.parts[0][0]}, column {nodes.label}: it has lists, so that a node may have "
                'several labels; say so with label_separator = "|"'
            )
        items = cell_items(table, "label", nodes.label_separator)
        if names is None:
            names = sorted(most_frequent(reader, table, items, MOST_LABELS + 1))
            _check_names(names, f"{table.parts[0][0]}, column {nodes.label}")
        found = placed(reader, table, items, names)
    if names is None:
        raise HanmeError(
            f"{table.parts[0][0]}: the target has no labels; say in which column they are, label = "
        )
    y = _matrix(found, table.size, names, multilabel)
    labels = Labels(names, multilabel, y, _read_split(reader, table) if nodes.split else None)
    if known is None:
        _check_split(labels, table)
    return labels


def _check_names(names: list[str], where: str) -> None:
    if not names:
        raise HanmeError(f"{where}: no row has a label, so there is nothing to learn from")
    if len(names) == 1:
        raise HanmeError(f"{where}: every label is {names[0]!r}; two different ones are needed")
    if len(names) > MOST_LABELS:
        raise HanmeError(f"{where}: more than {MOST_LABELS:,} different labels")


def _matrix(
    found: dict[str, Any], rows: int, names: list[str], multilabel: bool
) -> NDArray[np.integer]:
    row, place = (
        column(found, name, 0).astype(np.int64) if found else np.zeros(0, np.int64)
        for name in ("row", "place")
    )
    if multilabel:
        many = np.zeros((rows, len(names)), np.uint8)
        many[row, place] = 1
        return many
    one = np.full(rows, -1, np.int32)
    one[row] = place
    return one


def _read_split(reader: Reader, table: Table) -> NDArray[np.integer]:
    values = ", ".join(f"'{name}'" for name in SPLITS)
    wrong = reader.rows(
        f"SELECT rowid, split FROM {table.sql} WHERE trim(split) NOT IN ({values}, '') "
        "ORDER BY rowid LIMIT 1"
    )
    if wrong:
        row, value = wrong[0]
        raise HanmeError(
            f"{table.place(row, 'split')}: {value[:60]!r} is none of {', '.join(SPLITS)} or empty"
        )
    found = reader.arrays(
        f"SELECT coalesce(list_position([{values}], trim(split)), 0) - 1 AS part FROM {table.sql}"
    )
    return column(found, "part", -1).astype(np.int8)


def _check_split(labels: Labels, table: Table) -> None:
    if labels.part is None:
        return
    bare = np.flatnonzero((labels.part >= 0) & ~labels.labelled)
    if bare.size:
        row = int(bare[0])
        raise HanmeError(
            f"{table.place(row, 'split')}: the row is in {SPLITS[labels.part[row]]}, "
            "but has no label"
        )
    for part, name in enumerate(SPLITS[:2]):
        if not (labels.part == part).any():
            title = table.parts[0][0]
            raise HanmeError(f"{title}, column {table.columns['split']}: no row is in {name}")
    y, train = labels.y, labels.part == 0
    if labels.multilabel:
        new = ~y[train].any(axis=0)
        unlearnt = y[:, new].any(axis=1)
    else:
        new = np.bincount(y[train], minlength=len(labels.names)) == 0
        unlearnt = new[y] & labels.labelled
    rows = np.flatnonzero(unlearnt)
    if rows.size:
        row = int(rows[0])
        label = int(np.flatnonzero(new & (y[row] > 0))[0] if labels.multilabel else y[row])
        raise HanmeError(
            f"{table.place(row, 'label')}: no row in train has the label {labels.names[label]!r}"
        )
