"""Answers of people to predictions: which nodes to ask about, and a file that keeps the answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import numpy as np
from filelock import FileLock
from scipy.sparse import csr_array, hstack

from hanme.common.files import sync_folder
from hanme.common.text import csv_cell, csv_line
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.reviewed import ReviewedLabel, label_cell, parse_answers
from hanme.serve.table import Ints, Table

FILE = "reviewed.csv"
COLUMNS = ("id", "label", "action", "time")

CANDIDATES = 300
"""Number of the most uncertain nodes among which those to ask about are chosen."""

SHARED = 0.7
"""Factor on the uncertainty of a node for each chosen one that it shares a neighbour with."""


class Reviews:
    """The answers for the nodes of a run by id, in a CSV file that only grows.

    A line is on the disk before :meth:`add` returns. A line that a crash has cut off was never
    confirmed to anybody; the next answer replaces it. Several servers may append to one file.
    ``hanme train --with`` reads the file; of several answers for an id, the last one counts.

    Args:
        path: The file; it is made with the first answer.
        before: The answers that the run was trained with. A new file begins with them.
    """

    def __init__(self, path: Path, before: Mapping[str, ReviewedLabel]) -> None:
        self.path, self.before, self._lock = path, before, Lock()
        self.actions: dict[str, str] = {}  # the last action for each id
        if text := self.text():
            self.actions |= {n: answer.action for n, answer in parse_answers(text, path).items()}

    def text(self) -> str:
        """Return the whole lines of the file."""
        try:
            return self._whole(self.path.read_bytes()).decode("utf-8-sig")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise HanmeError(f"{self.path}: it cannot be read ({error.strerror})") from None
        except UnicodeError:
            raise HanmeError(f"{self.path}: it is not a text in UTF-8") from None

    @staticmethod
    def _whole(content: bytes) -> bytes:
        return content[: content.rfind(b"\n") + 1]

    def add(self, node: str, labels: Sequence[str], action: str) -> None:
        """Append an answer and wait until it is on the disk."""
        lines = [_line(node, label_cell(labels), action)]
        with self._lock:
            try:
                self._append(lines)
            except OSError as error:
                raise HanmeError(f"{self.path}: it cannot be written ({error.strerror})") from None
            self.actions[node] = action

    def _append(self, lines: list[str]) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        file = os.open(self.path, flags, 0o644)
        held = FileLock(self.path.with_name(".reviewed.lock"))
        try:
            held.acquire()
            whole = len(self._whole(self.path.read_bytes()))
            os.ftruncate(file, whole)
            if not whole:
                before = [_line(id_, one.label, "confirm") for id_, one in self.before.items()]
                lines = [",".join(COLUMNS) + "\n", *before, *lines]
            content = "".join(lines).encode()
            if os.write(file, content) != len(content):
                os.ftruncate(file, whole)
                raise OSError(28, "the disk is full")
            os.fsync(file)
            if not whole:  # the file is new
                sync_folder(self.path.parent)
        finally:
            held.release()
            os.close(file)


def _line(node: str, label: str, action: str) -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return csv_line([csv_cell(node), csv_cell(label), action, now]) + "\n"


def to_review(graph: Graph, table: Table, answered: Ints, limit: int) -> tuple[Ints, int]:
    """Return the nodes whose labels would teach the model most, and the number of open ones.

    Nodes without a label come first, the most uncertain ones. Each one that is chosen, or has been
    answered, makes the others that share a neighbour with it less urgent: their answers say less.
    If every node has a label, the nodes whose labels surprise the model most come instead.
    """
    surprised = bool(table.labelled.all())
    score = np.nan_to_num(table.surprise) if surprised else table.uncertainty
    candidates = np.ones(len(table), bool) if surprised else ~table.labelled
    candidates[answered] = False
    nodes = np.flatnonzero(candidates)
    nodes = nodes[np.argsort(-score[nodes], kind="stable")[:CANDIDATES]]
    neighbours = _neighbours(graph, np.concatenate([nodes, answered]))
    own, asked = neighbours[: len(nodes)], neighbours[len(nodes) :]
    shared = np.asarray(((own @ asked.T) > 0).sum(1)).ravel()
    urgency, order = score[nodes] * SHARED ** np.minimum(shared, 50), list[int]()
    for _ in nodes[:limit]:
        order.append(int(urgency.argmax()))
        beside = (own @ own[[order[-1]]].T).toarray().ravel() > 0
        urgency[beside] *= SHARED
        urgency[order[-1]] = -1.0
    return np.asarray(nodes[order], np.int64), int(candidates.sum())


def _neighbours(graph: Graph, nodes: Ints) -> csr_array:
    """Return which neighbours of any type some target nodes have, a row per node."""
    blocks = []
    for e in graph.links:
        if e[0] == graph.target:
            ends = [graph.adjacency(e).of_node(int(node)).numpy() for node in nodes]
            begin = np.concatenate([[0], np.cumsum([len(some) for some in ends])])
            column = np.concatenate([*ends, np.zeros(0, np.int64)])
            shape = (len(nodes), graph.nodes[e[2]].num_nodes)
            blocks.append(csr_array((np.ones(len(column)), column, begin), shape=shape))
    return csr_array(hstack(blocks)) if blocks else csr_array((len(nodes), 1))
