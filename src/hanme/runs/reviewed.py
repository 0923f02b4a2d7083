"""Labels that a person has reviewed, read from a CSV file and added to a graph."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hanme.common.files import regular
from hanme.common.options import Closed
from hanme.common.text import csv_line, from_csv_cell
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes
from hanme.graph.nodes import UnknownNode

ACTIONS = ("confirm", "correct", "skip")
SEPARATOR = "|"
"""Separates the labels of a node that has several."""


class ReviewedLabel(Closed):
    """The last answer for a node: its labels as in the file, and the row of the file."""

    label: str
    row: int


class Answer(NamedTuple):
    """A row of the file."""

    label: str  # the labels as in the file, see :func:`label_cell`
    action: str  # one of ``ACTIONS``
    row: int


def read_reviewed(path: Path) -> dict[str, ReviewedLabel]:
    """Read the reviewed labels by id; of several answers for an id, the last one counts.

    ``skip`` withdraws earlier answers for the id, and so does a row without a label.
    """
    try:
        text = regular(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise HanmeError(f"{path}: not a CSV file in UTF-8 ({error})") from None
    return {
        node: ReviewedLabel(label=answer.label, row=answer.row)
        for node, answer in parse_answers(text, path).items()
        if answer.label.strip(" ") and answer.action != "skip"
    }


def parse_answers(text: str, path: Path) -> dict[str, Answer]:
    """Return the last answer for each id in the text of a CSV file.

    It has the columns ``id`` and ``label``. A column ``action`` is optional, and an empty action
    is ``confirm``. Other columns are not read. `path` is what messages call the file.
    """
    try:
        head, *rows = [*csv.reader(io.StringIO(text, newline=""), strict=True)] or [[]]
    except csv.Error as error:
        raise HanmeError(f"{path}: not a CSV file in UTF-8 ({error})") from None
    for column in ("id", "label"):
        if column not in head:
            raise HanmeError(f"{path} row 1: expected a column {column}, but got {head}")
    answers: dict[str, Answer] = {}
    for number, cells in enumerate(rows, start=2):
        if not cells:
            continue  # a blank line
        if len(cells) != len(head):
            expected = f"expected {len(head)} cells, but got {len(cells)}"
            raise HanmeError(f"{path} row {number}: {expected}")
        row = dict(zip(head, map(from_csv_cell, cells), strict=True))
        action = row.get("action", "").strip() or "confirm"
        if action not in ACTIONS:
            expected = f"expected {', '.join(ACTIONS)}, but got {action!r}"
            raise HanmeError(f"{path} row {number}, column action: {expected}")
        if not row["id"].strip(" "):
            raise HanmeError(f"{path} row {number}, column id: it is empty")
        answers.pop(row["id"], None)
        answers[row["id"]] = Answer(row["label"], action, number)
    return answers


def label_cell(labels: Sequence[str]) -> str:
    """Return the labels of a node as one cell, separated by ``|``; one that has it is in quotes."""
    return csv_line(labels, SEPARATOR)


def _labels(graph: Graph, cell: str) -> list[str]:
    """Return the labels of a cell; the first of two readings with labels that the graph has."""
    parts = next(csv.reader(io.StringIO(cell, newline=""), delimiter=SEPARATOR), [])
    parts = [part if part in graph.labels else part.strip() for part in parts]
    ways = (parts, [cell]) if graph.multilabel else ([cell], parts)
    for labels in ways:
        if set(labels) <= set(graph.labels) and (graph.multilabel or len(labels) == 1):
            return labels
    return ways[0]


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
            number = find_node(graph.targets, node)
        except HanmeError as error:
            if skip_unknown:
                continue
            raise HanmeError(f"{where} id: {error}") from None
        labels = _labels(graph, answer.label)
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


def find_node(nodes: Nodes, text: str) -> int:
    """Return the number of a node, given what :meth:`Nodes.identity` gives, else its name.

    In a graph without ids, a number may be the name of another node. Blanks around the text do not
    count if nothing has them.
    """
    if nodes.ids is None and re.fullmatch(r"[0-9]{1,18}", text):
        number = int(text)
        if number < nodes.num_nodes and nodes.identity(number) == text:
            return number
    try:
        return nodes.find(text)
    except UnknownNode:
        return nodes.find(text.strip())
