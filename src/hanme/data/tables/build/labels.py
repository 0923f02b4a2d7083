"""Read the labels of a target table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.data.tables.build.nodes import NodeRows
from hanme.data.tables.read.reader import Table
from hanme.data.tables.schema.sections import NodeTable
from hanme.errors import HanmeError

MAX_LABELS = 1000
"""Maximum number of labels: a column with more is hardly the label."""

OTHER = "other"
"""The label that rare labels are joined as."""


@dataclass(frozen=True)
class Labels:
    """The labels of the target nodes."""

    names: list[str]
    multilabel: bool  # whether a node may have several
    y: Tensor  # as in :class:`~hanme.graph.Graph`

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Whether a node has a label, ``[N]``."""
        y = self.y.numpy()
        return np.asarray((y > 0).any(axis=1) if self.multilabel else y >= 0)


@dataclass(frozen=True)
class _Cells:
    """The labels in the table, one entry for each label of a row."""

    row: NDArray[np.int64]
    node: NDArray[np.int64]
    label: NDArray[np.int64]  # its position among the names


def read_labels(
    rows: NodeRows,
    nodes: NodeTable,
    size: int,
    known: tuple[list[str], bool] | None,
    held_out: NDArray[np.bool_],
) -> Labels:
    """Read the labels of `size` nodes; those without a row have none.

    Args:
        rows: The rows of the target.
        nodes: Its section of ``graph.toml``.
        size: The number of target nodes.
        known: The labels of a trained run, and whether a node may have several there. Other labels
            then count as none, and a table without labels is not an error.
        held_out: The nodes that a condition reserves for validation or test.
    """
    names, multilabel = known or (None, nodes.label_separator is not None)
    none = np.zeros(0, np.int64)
    cells = _Cells(none, none, none)
    if nodes.label is not None:
        names, cells = _read_cells(rows, nodes, names)
        if known is None:
            names, cells = _without_rare(names, cells, nodes, held_out, rows.every)
            _check_names(names, rows.every.column_title("label"))
    if names is None:
        raise HanmeError(
            f"{rows.table.parts[0][0]}: the target has no labels; name their column with label = "
        )
    y: NDArray[Any] = np.zeros((size, len(names)), np.float32) if multilabel else np.full(size, -1)
    if multilabel:
        y[cells.node, cells.label] = 1
    else:
        _check_single(cells, names, rows.every)
        y[cells.node] = cells.label
    return Labels(names, multilabel, torch.from_numpy(y))


def _read_cells(
    rows: NodeRows, nodes: NodeTable, known: list[str] | None
) -> tuple[list[str], _Cells]:
    """Return the names of the labels, and which node has which of them."""
    table = rows.every
    if table.kinds["label"] == "list" and nodes.label_separator is None:
        raise HanmeError(
            f"{table.column_title('label')}: cells are lists, so a node may have several labels; "
            'confirm it with label_separator = "|"'
        )
    items = table.items("label", nodes.label_separator)
    limit = MAX_LABELS + 1 if nodes.label_min_count is None else table.size
    names = sorted(table.most_frequent(items, limit)) if known is None else known
    joins_unknown = known is not None and nodes.label_rest == OTHER and OTHER in known
    if joins_unknown:
        names = sorted({*names, *table.most_frequent(items, table.size)})
    row, label = table.positions(items, names)
    if joins_unknown and known is not None:
        to = np.array([known.index(n if n in known else OTHER) for n in names], np.int64)
        names, label = known, to[label]
    return names, _Cells(row, rows.nodes(row), label)


def _without_rare(
    names: list[str], cells: _Cells, nodes: NodeTable, held_out: NDArray[np.bool_], table: Table
) -> tuple[list[str], _Cells]:
    """Drop labels that too few nodes have that may be trained on, or join them as one."""
    may_train = ~held_out[cells.node]
    pairs = np.unique(cells.node[may_train] * len(names) + cells.label[may_train])
    counts = np.bincount(pairs % max(1, len(names)), minlength=len(names))
    if nodes.label_min_count is None:
        for i in np.flatnonzero(counts[cells.label] == 0)[:1]:
            raise HanmeError(
                f"{table.place(int(cells.row[i]), 'label')}: no row in train has the label "
                f"{names[cells.label[i]]!r}; label_min_count = 1 leaves such labels out"
            )
        return names, cells
    rare = [name for name, n in zip(names, counts, strict=True) if n < nodes.label_min_count]
    if not rare:
        return names, cells
    joined = nodes.label_rest == OTHER
    kept = sorted({*names} - {*rare} | ({OTHER} if joined else set()))
    rest = kept.index(OTHER) if joined else -1
    label = np.array([kept.index(n) if n in kept else rest for n in names])[cells.label]
    known = label >= 0
    table.reader.notes.append(
        f"{len(rare):,} {'label' if len(rare) == 1 else 'labels'} of fewer than "
        f"{nodes.label_min_count} training rows {f'joined as {OTHER}' if joined else 'dropped'}: "
        f"{', '.join(rare[:5])}{', ...' if len(rare) > 5 else ''}"
    )
    return kept, _Cells(cells.row[known], cells.node[known], label[known])


def _check_single(cells: _Cells, names: list[str], table: Table) -> None:
    """Refuse several labels of a node that several rows make."""
    order = np.lexsort((cells.row, cells.node))
    node, label = cells.node[order], cells.label[order]
    for place in np.flatnonzero((node[1:] == node[:-1]) & (label[1:] != label[:-1]))[:1]:
        i = order[place + 1]
        raise HanmeError(
            f"{table.place(int(cells.row[i]), 'label')}: {names[cells.label[i]]!r}, but an earlier "
            'row of this node has another label; label_separator = "|" allows several'
        )


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
