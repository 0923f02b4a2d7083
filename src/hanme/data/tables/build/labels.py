"""Read the labels of a target table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.data.tables.build.features import most_frequent, placed
from hanme.data.tables.build.nodes import NodeRows
from hanme.data.tables.read.reader import Table, column
from hanme.data.tables.schema.sections import NodeTable
from hanme.errors import HanmeError

MOST_LABELS = 1000
OTHER = "other"


@dataclass(frozen=True)
class Labels:
    """The content of the label column."""

    names: list[str]  # what the labels are called
    multilabel: bool  # whether a node may have several
    y: Tensor  # the labels, as :class:`~hanme.graph.Graph` has them


@dataclass(frozen=True)
class _Cells:
    """A label of a node, for each that it has: the row it is in, the node, its place in names."""

    row: NDArray[np.int64]
    node: NDArray[np.int64]
    place: NDArray[np.int64]


def read_labels(
    rows: NodeRows,
    nodes: NodeTable,
    size: int,
    known: tuple[list[str], bool] | None,
    held: NDArray[np.bool_],
) -> Labels:
    """Read the labels of ``size`` nodes; those without a row have none.

    ``known`` has the labels of a trained run, and whether a node may have several there. Other
    labels then count as none, and a table without labels is no mistake. ``held`` says which rows
    are not trained on, as far as a condition says so.
    """
    multilabel = known[1] if known is not None else nodes.label_separator is not None
    names = known[0] if known is not None else None
    none = np.zeros(0, np.int64)
    cells = _Cells(none, none, none)
    if nodes.label is not None:
        names, cells = _cells(rows, nodes, names)
        if known is None:
            names, cells = _without_rare(names, cells, nodes, held, rows.every)
            _check_names(names, rows.every.column_title("label"))
    if names is None:
        raise HanmeError(
            f"{rows.table.parts[0][0]}: the target has no labels; name their column with label = "
        )
    if not multilabel:
        _check_single(cells, names, rows.every)
    y: NDArray[Any] = np.zeros((size, len(names)), np.float32) if multilabel else np.full(size, -1)
    if multilabel:
        y[cells.node, cells.place] = 1
    else:
        y[cells.node] = cells.place
    return Labels(names, multilabel, torch.from_numpy(y))


def _cells(rows: NodeRows, nodes: NodeTable, known: list[str] | None) -> tuple[list[str], _Cells]:
    """Return the labels, and which node has which of them."""
    table = rows.every
    if table.kinds["label"] == "list" and nodes.label_separator is None:
        raise HanmeError(
            f"{table.column_title('label')}: it has lists, so that a node may have several "
            'labels; say so with label_separator = "|"'
        )
    items = table.items("label", nodes.label_separator)
    most = MOST_LABELS + 1 if nodes.label_min_count is None else table.size
    names = known
    if names is None:
        names = sorted(most_frequent(table, items, most))
    joined = known is not None and nodes.label_rest == OTHER and OTHER in known
    if joined:  # labels that the run does not know are among its others
        names = sorted({*names, *most_frequent(table, items, table.size)})
    found = placed(table, items, names)
    row, place = (column(found, key, 0).astype(np.int64) for key in ("row", "place"))
    if joined and known is not None:
        to = np.array([known.index(n if n in known else OTHER) for n in names], np.int64)
        names, place = known, to[place]
    return names, _Cells(row, row if rows.node is None else rows.node[row], place)


def _without_rare(
    names: list[str], cells: _Cells, nodes: NodeTable, held: NDArray[np.bool_], table: Table
) -> tuple[list[str], _Cells]:
    """Drop labels that too few nodes have that may be trained on, or join them as one."""
    fewest = nodes.label_min_count or 0
    trained = np.ones(len(cells.row), np.bool_) if not held.any() else ~held[cells.node]
    pairs = np.unique(cells.node[trained] * len(names) + cells.place[trained])
    counts = np.bincount(pairs % max(1, len(names)), minlength=len(names))
    if nodes.label_min_count is None:
        for i in np.flatnonzero(counts[cells.place] == 0)[:1] if held.any() else ():
            raise HanmeError(
                f"{table.place(int(cells.row[i]), 'label')}: no row in train has the label "
                f"{names[cells.place[i]]!r}; label_min_count = 1 leaves such labels out"
            )
        return names, cells
    rare = counts < fewest
    if not rare.any():
        return names, cells
    listed = [name for name, few in zip(names, rare, strict=True) if few]
    shown = ", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")
    what = "dropped" if nodes.label_rest == "drop" else f"joined as {OTHER}"
    plural = "label" if len(listed) == 1 else "labels"
    table.reader.notes.append(
        f"{len(listed):,} {plural} of fewer than {fewest} training rows {what}: {shown}"
    )
    kept = sorted({*names} - {*listed} | ({OTHER} if nodes.label_rest == OTHER else set()))
    rest = kept.index(OTHER) if nodes.label_rest == OTHER else -1
    place = np.array([kept.index(n) if n in kept else rest for n in names])[cells.place]
    given = place >= 0
    return kept, _Cells(cells.row[given], cells.node[given], place[given])


def _check_single(cells: _Cells, names: list[str], table: Table) -> None:
    """Refuse several labels for a node of which several rows make one."""
    order = np.lexsort((cells.row, cells.node))
    node, place = cells.node[order], cells.place[order]
    other = np.flatnonzero((node[1:] == node[:-1]) & (place[1:] != place[:-1]))
    if other.size:
        i = order[other[0] + 1]
        raise HanmeError(
            f"{table.place(int(cells.row[i]), 'label')}: {names[cells.place[i]]!r}, but an earlier "
            'row of this node has another label; label_separator = "|" allows several'
        )


def _check_names(names: list[str], where: str) -> None:
    if not names:
        raise HanmeError(f"{where}: no row has a label, so there is nothing to learn from")
    if len(names) == 1:
        raise HanmeError(f"{where}: every label is {names[0]!r}; two different ones are needed")
    if len(names) > MOST_LABELS:
        raise HanmeError(
            f"{where}: more than {MOST_LABELS:,} different labels; label_min_count = 5 leaves out "
            "those of fewer rows"
        )
