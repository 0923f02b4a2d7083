"""Read the text files of the Heterogeneous Graph Benchmark.

A graph is five files. ``info.dat`` says what the numbers in the others mean. ``node.dat`` (id,
name, type, features), ``link.dat`` (start, end, relation, weight), ``label.dat`` and
``label.dat.test`` (node, name, type, labels) are tables with tabs between cells. They are read a
line at a time, and a mistake is reported with its file and line.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.data.hgb.info import Info, TextFiles, read_info, relation_names
from hanme.errors import HanmeError
from hanme.graph import EdgeType, Graph, Nodes, Split
from hanme.graph.features import to_torch

_NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DOT, _ZERO, _COMMA = b".0,"
_SparseRow = tuple[NDArray[np.int32], NDArray[np.float32]]  # where it is not zero, and its values


def parse(files: TextFiles) -> Graph:
    """Read a graph from its five files.

    In its split, all labelled nodes outside the test set are for training; none are for validation.

    Raises:
        HanmeError: If a file is malformed, with the file and the line.
    """
    info = read_info(files)
    nodes = _read_nodes(files, info)
    links = _read_links(files, info, nodes)
    known = _read_labels(files, "label.dat", info, nodes)
    hidden = _read_labels(files, "label.dat.test", info, nodes, taken=known)

    labels = known | hidden
    size = len(nodes.names[info.target])
    multilabel = any(len(classes) > 1 for classes in labels.values())
    y = torch.zeros(size, len(info.classes)) if multilabel else torch.full((size,), -1)
    for node, classes in labels.items():
        if multilabel:
            y[node, classes] = 1
        else:
            y[node] = classes[0]
    return Graph(
        nodes={
            kind: Nodes(kind, len(names), nodes.features.get(kind), names)
            for kind, names in nodes.names.items()
        },
        links=links,
        target=info.target,
        y=y,
        labels=info.classes,
        split=Split(_mask(size, known), torch.zeros(size, dtype=torch.bool), _mask(size, hidden)),
    )


def _mask(size: int, nodes: Iterable[int]) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(nodes)] = True
    return mask


@dataclass(slots=True)
class _Row:
    place: str
    number: int
    cells: list[bytes]

    def error(self, what: str) -> HanmeError:
        return HanmeError(f"{self.place} line {self.number}: {what}")

    def integer(self, column: int, what: str) -> int:
        return self.as_integer(self.cells[column], what)

    def as_integer(self, cell: bytes, what: str) -> int:
        # int() would also take "1_0", " 1" and "-1".
        if not cell.isdigit() or len(cell) > 18:
            raise self.error(f"{what} must be a whole number, but is {_show(cell)}")
        return int(cell)


def _show(cell: bytes) -> str:
    text = cell.decode(errors="replace")
    return repr(text if len(text) <= 24 else text[:24] + "...")


def _rows(files: TextFiles, file: str, columns: Iterable[int]) -> Iterator[_Row]:
    place = f"{files.title}: {file}"
    number = 0
    for number, line in enumerate(files.lines(file), start=1):
        row = _Row(place, number, line.rstrip(b"\r\n").split(b"\t"))
        if len(row.cells) not in columns:
            expected = " or ".join(map(str, columns))
            raise row.error(f"expected {expected} tab-separated columns, but got {len(row.cells)}")
        if not line.isascii():
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise row.error(f"not UTF-8 text (byte {error.start} of the line)") from None
        yield row
    if number == 0:
        raise HanmeError(f"{place}: the file is empty")


@dataclass
class _ParsedNodes:
    names: dict[str, list[str]]
    features: dict[str, Tensor]
    places: dict[int, tuple[str, int]]  # id in the file -> type, id within the type

    def find(self, row: _Row, column: int) -> tuple[str, int]:
        number = row.integer(column, "node id")
        try:
            return self.places[number]
        except KeyError:
            raise row.error(f"node {number} is not in node.dat") from None


def _read_nodes(files: TextFiles, info: Info) -> _ParsedNodes:
    names: dict[str, list[str]] = {kind: [] for kind in info.types.values()}
    rows: dict[str, list[_SparseRow]] = {kind: [] for kind in info.types.values()}
    widths: dict[str, int] = {}
    places: dict[int, tuple[str, int]] = {}
    for row in _rows(files, "node.dat", columns=(3, 4)):
        number = row.integer(0, "node id")
        if number in places:
            raise row.error(f"node {number} was listed before")
        type_number = row.integer(2, "node type")
        if type_number not in info.types:
            raise row.error(f"node type {type_number} is not in info.dat")
        kind = info.types[type_number]
        places[number] = kind, len(names[kind])
        names[kind].append(row.cells[1].decode())
        width, sparse = _sparse_row(row)
        if widths.setdefault(kind, width) != width:
            raise row.error(
                f"node has {width} features, but the {kind} nodes before it have {widths[kind]}"
            )
        rows[kind].append(sparse)

    if max(places) >= len(places):
        gap = next(number for number in count() if number not in places)
        raise HanmeError(
            f"{files.title}: node.dat: node {gap} is missing (ids must run from 0 without gaps)"
        )
    features = {kind: _matrix(rows[kind], width) for kind, width in widths.items() if width}
    return _ParsedNodes(names, features, places)


def _matrix(rows: list[_SparseRow], width: int) -> Tensor:
    columns, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    indptr = np.cumsum([0, *(len(some) for some, _ in rows)])
    matrix = csr_array((values, columns, indptr), shape=(len(rows), width))
    matrix.eliminate_zeros()
    return to_torch(matrix)


def _sparse_row(row: _Row) -> tuple[int, _SparseRow]:
    """Parse comma-separated numbers: return how many there are, and which are not zero."""
    if len(row.cells) < 4:
        return 0, (np.zeros(0, np.int32), np.zeros(0, np.float32))
    text = b"," + row.cells[3] + b","
    raw = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(raw == _COMMA)
    starts, ends = commas[:-1] + 1, commas[1:]
    lengths = ends - starts
    # Nearly all values are "0" or "0.0"; finding these at once reads 185 MB in seconds.
    zero = (raw[starts] == _ZERO) & (raw[ends - 1] == _ZERO)
    zero &= (lengths == 1) | ((lengths == 3) & (raw[ends - 2] == _DOT))

    columns = np.flatnonzero(~zero)
    spans = zip(starts[columns].tolist(), ends[columns].tolist(), strict=True)
    texts = [text[start:end] for start, end in spans]
    numbers = [float(number) if _NUMBER.fullmatch(number) else np.nan for number in texts]
    with np.errstate(over="ignore"):  # a value that overflows is infinite, and refused below
        values = np.array(numbers, np.float64).astype(np.float32)
    if not np.isfinite(values).all():
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise row.error(
            f"feature {columns[bad] + 1} must be a finite number, but is {_show(texts[bad])}"
        )
    return len(ends), (columns.astype(np.int32), values)


def _read_links(files: TextFiles, info: Info, nodes: _ParsedNodes) -> dict[EdgeType, Tensor]:
    relations = relation_names(info)
    links = {number: (array("q"), array("q")) for number in relations}
    for row in _rows(files, "link.dat", columns=(4,)):
        start_type, start = nodes.find(row, 0)
        end_type, end = nodes.find(row, 1)
        number = row.integer(2, "link type")
        if number not in relations:
            raise row.error(f"link type {number} is not in info.dat")
        expected = relations[number][0], relations[number][2]
        if (start_type, end_type) != expected:
            raise row.error(
                f"link type {number} joins {' to '.join(expected)}, "
                f"but these nodes are {start_type} and {end_type}"
            )
        # All weights are 1: they are checked, to notice a line that was cut short, but not kept.
        if not _NUMBER.fullmatch(row.cells[3]):
            raise row.error(f"link weight must be a number, but is {_show(row.cells[3])}")
        links[number][0].append(start)
        links[number][1].append(end)
    return {
        relation: torch.from_numpy(np.array(links[number], np.int64))
        for number, relation in relations.items()
    }


def _read_labels(
    files: TextFiles, file: str, info: Info, nodes: _ParsedNodes, taken: Iterable[int] = ()
) -> dict[int, list[int]]:
    """Read the labels of target nodes; `taken` nodes have theirs in another file."""
    labels: dict[int, list[int]] = {}
    for row in _rows(files, file, columns=(4,)):
        kind, node = nodes.find(row, 0)
        number = row.integer(2, "node type")
        if kind != info.target:
            raise row.error(f"a node of type {kind} is labelled, but only {info.target} has labels")
        if number != info.target_number:
            raise row.error(f"node type is {number}, but node.dat says {info.target_number}")
        if node in labels or node in taken:
            raise row.error("node was labelled before" + (" in label.dat" if node in taken else ""))
        classes = [row.as_integer(cell, "label") for cell in row.cells[3].split(b",")]
        for label in classes:
            if label >= len(info.classes):
                raise row.error(f"label {label} is not in info.dat")
        labels[node] = classes
    return labels
