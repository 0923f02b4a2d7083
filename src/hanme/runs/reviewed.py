"""Labels that a person has reviewed, read from a CSV file and added to a graph."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hanme.common.files import regular
from hanme.common.options import Closed
from hanme.common.text import from_csv_cell
from hanme.errors import HanmeError
from hanme.graph import Graph

ACTIONS = ("confirm", "correct", "skip")
SEPARATOR = "|"
"""Separates the labels of a node that has several."""


class ReviewedLabel(Closed):
    """The last answer for a node: its labels as in the file, and the row of the file."""

    label: str
    row: int


def read_reviewed(path: Path) -> dict[str, ReviewedLabel]:
    """Read the reviewed labels by id; of several answers for an id, the last one counts.

    The file has the columns ``id`` and ``label``; several labels are separated by ``|``. A column
    ``action`` is optional: ``skip`` withdraws earlier answers for the id, and so does a row without
    a label. Other columns are not read.
    """
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            head, *rows = [*csv.reader(file, strict=True)] or [[]]
    except (OSError, UnicodeError, csv.Error) as error:
        raise HanmeError(f"{path}: not a CSV file in UTF-8 ({error})") from None
    for column in ("id", "label"):
        if column not in head:
            raise HanmeError(f"{path} row 1: expected a column {column}, but got {head}")
    answers: dict[str, ReviewedLabel] = {}
    for number, cells in enumerate(rows, start=2):
        if len(cells) != len(head):
            expected = f"expected {len(head)} cells, but got {len(cells)}"
            raise HanmeError(f"{path} row {number}: {expected}")
        row = dict(zip(head, (from_csv_cell(cell).strip() for cell in cells), strict=True))
        action = row.get("action", "confirm")
        if action not in ACTIONS:
            expected = f"expected {', '.join(ACTIONS)}, but got {action!r}"
            raise HanmeError(f"{path} row {number}, column action: {expected}")
        if not row["id"]:
            raise HanmeError(f"{path} row {number}, column id: it is empty")
        answers.pop(row["id"], None)
        if row["label"] and action != "skip":
            answers[row["id"]] = ReviewedLabel(label=row["label"], row=number)
    return answers


def with_reviewed(
    graph: Graph, answers: Mapping[str, ReviewedLabel], *, skip_unknown: bool = False
) -> Graph:
    """Return a graph with reviewed labels instead of those of its tables.

    A node outside of the split becomes a training node. Validation and test nodes stay what they
    are, so that scores remain comparable.

    Args:
        graph: The graph.
        answers: The reviewed labels by id, name or number of a target node.
        skip_unknown: Ignore nodes that do not exist; else they are refused.
    """
    if not answers:
        return graph
    y, train = graph.y.clone(), graph.split.train.clone()
    for node, answer in answers.items():
        where = f"reviewed labels, row {answer.row}, column"
        try:
            number = graph.targets.find(node)
        except HanmeError as error:
            if skip_unknown:
                continue
            raise HanmeError(f"{where} id: {error}") from None
        labels = answer.label.split(SEPARATOR) if graph.multilabel else [answer.label]
        for label in labels:
            if label not in graph.labels:
                known = ", ".join(graph.labels)
                raise HanmeError(f"{where} label: no label {label!r}; the labels are {known}")
        positions = [graph.labels.index(label) for label in labels]
        if graph.multilabel:
            y[number] = 0
            y[number, positions] = 1
        else:
            y[number] = positions[0]
        train[number] = not (graph.split.val[number] or graph.split.test[number])
    added = int((train & ~graph.split.train).sum())
    note = f"{len(answers):,} reviewed labels: {added:,} new training nodes"
    graph = replace(graph, y=y, split=graph.split._replace(train=train))
    return graph.with_provenance(notes=[*graph.provenance.notes, note])
