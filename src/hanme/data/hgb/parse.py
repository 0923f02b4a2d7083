"""Parse the text files of the Heterogeneous Graph Benchmark.

``info.dat`` says what the numbers in the others mean. ``node.dat`` (id, name, type, features),
``link.dat`` (start, end, relation, weight), ``label.dat`` and ``label.dat.test`` (node, name, type,
labels) are tables with tabs between cells. Messages name the file and the line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.data.hgb.archive import GraphFiles
from hanme.data.hgb.info import Info, read_info, relation_names
from hanme.errors import HanmeError
from hanme.graph import EdgeType, Graph, Nodes, Split
from hanme.graph.features import to_torch

_DOT, _ZERO, _COMMA = b".0,"
_LINK = np.dtype([("start", "i8"), ("end", "i8"), ("type", "i8"), ("weight", "f8")])
_SparseRow = tuple[NDArray[np.int64], NDArray[np.float32]]  # columns, values


def parse(files: GraphFiles) -> Graph:
    """Parse a graph.

    In its split, all labelled nodes outside the test set are for training; none are for validation.

    Raises:
        HanmeError: If a file is malformed, with the file and the line.
    """
    with files.open("info.dat") as file:
        info = read_info(file.read(), f"{files.title}: info.dat")
    target = info.types[info.target]
    nodes = _read_nodes(files, info)
    links = _read_links(files, info, nodes)
    train = _read_labels(files, "label.dat", info, nodes)
    test = _read_labels(files, "label.dat.test", info, nodes)
    if both := train.keys() & test.keys():
        raise HanmeError(
            f"{files.title}: label.dat.test: {target} {min(both)} is also in label.dat"
        )
    size = len(nodes.names[target])
    return Graph(
        nodes={
            kind: Nodes(kind, len(names), nodes.features.get(kind), names)
            for kind, names in nodes.names.items()
        },
        links=links,
        target=target,
        y=_label_tensor(train | test, size, len(info.labels)),
        labels=info.labels,
        split=Split(_mask(size, train), _mask(size, {}), _mask(size, test)),
    )


def _label_tensor(labels: dict[int, list[int]], size: int, classes: int) -> Tensor:
    multilabel = any(len(of_node) > 1 for of_node in labels.values())
    y = torch.zeros(size, classes) if multilabel else torch.full((size,), -1)
    for node, of_node in labels.items():
        if multilabel:
            y[node, of_node] = 1
        else:
            y[node] = of_node[0]
    return y


def _mask(size: int, labels: dict[int, list[int]]) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(labels)] = True
    return mask


def _for_each_row(
    files: GraphFiles, name: str, columns: tuple[int, ...], use: Callable[[list[bytes]], None]
) -> None:
    """Call a function with the cells of each line; its ValueError is reported with the line."""
    number = 0
    with files.open(name) as file:
        for number, line in enumerate(file, start=1):
            cells = line.rstrip(b"\r\n").split(b"\t")
            try:
                if len(cells) not in columns:
                    expected = " or ".join(map(str, columns))
                    raise ValueError(f"expected {expected} tab-separated cells, got {len(cells)}")
                use(cells)
            except ValueError as error:
                raise HanmeError(f"{files.title}: {name} line {number}: {error}") from None
    if number == 0:
        raise HanmeError(f"{files.title}: {name}: the file is empty")


@dataclass
class _ParsedNodes:
    names: dict[str, list[str]]
    features: dict[str, Tensor]
    type_number: NDArray[np.int64]  # by id in the file
    place: NDArray[np.int64]  # number within the type, by id in the file


def _read_nodes(files: GraphFiles, info: Info) -> _ParsedNodes:
    names: dict[str, list[str]] = {kind: [] for kind in info.types.values()}
    rows: dict[str, list[_SparseRow]] = {kind: [] for kind in info.types.values()}
    widths: dict[str, int] = {}
    nodes: dict[int, tuple[int, int]] = {}

    def add(cells: list[bytes]) -> None:
        number, type_number = int(cells[0]), int(cells[2])
        kind = info.types.get(type_number)
        if kind is None:
            raise ValueError(f"node type {type_number} is not in info.dat")
        if number in nodes:
            raise ValueError(f"node {number} is not unique")
        nodes[number] = type_number, len(names[kind])
        names[kind].append(cells[1].decode())
        width, row = _sparse_row(cells[3]) if len(cells) == 4 else (0, None)
        if widths.setdefault(kind, width) != width:
            raise ValueError(f"{width} features, but earlier {kind} nodes have {widths[kind]}")
        if row is not None:
            rows[kind].append(row)

    _for_each_row(files, "node.dat", (3, 4), add)
    if missing := set(range(len(nodes))) - nodes.keys():
        raise HanmeError(
            f"{files.title}: node.dat: no node {min(missing)}; ids must be 0, 1, 2, ..."
        )
    table = np.array([nodes[number] for number in range(len(nodes))], np.int64)
    features = {kind: _matrix(rows[kind], width) for kind, width in widths.items() if width}
    return _ParsedNodes(names, features, table[:, 0], table[:, 1])


def _sparse_row(text: bytes) -> tuple[int, _SparseRow]:
    """Parse comma-separated numbers: return their count, and those that are not zero."""
    text = b"," + text + b","
    raw = np.frombuffer(text, np.uint8)
    commas = np.flatnonzero(raw == _COMMA)
    starts, ends = commas[:-1] + 1, commas[1:]
    lengths = ends - starts
    # Nearly all values are "0" or "0.0". Finding these by vector operations parses IMDB's 185 MB
    # in a second.
    zero = (raw[starts] == _ZERO) & (raw[ends - 1] == _ZERO)
    zero &= (lengths == 1) | ((lengths == 3) & (raw[ends - 2] == _DOT))
    columns = np.flatnonzero(~zero)
    spans = zip(starts[columns].tolist(), ends[columns].tolist(), strict=True)
    with np.errstate(over="ignore"):  # an overflow is infinite, and refused below
        values = np.array([float(text[start:end]) for start, end in spans], np.float32)
    if not np.isfinite(values).all():
        raise ValueError(f"feature {columns[~np.isfinite(values)][0] + 1} is not finite")
    return len(ends), (columns, values)


def _matrix(rows: list[_SparseRow], width: int) -> Tensor:
    columns, values = (np.concatenate(part) for part in zip(*rows, strict=True))
    indptr = np.cumsum([0, *(len(some) for some, _ in rows)])
    matrix = csr_array((values, columns, indptr), shape=(len(rows), width))
    matrix.eliminate_zeros()
    return to_torch(matrix)


def _read_links(files: GraphFiles, info: Info, nodes: _ParsedNodes) -> dict[EdgeType, Tensor]:
    where = f"{files.title}: link.dat"
    try:
        with files.open("link.dat") as file, warnings.catch_warnings(action="ignore"):
            table = np.loadtxt(file, _LINK, comments=None, delimiter="\t", ndmin=1)
    except ValueError as error:
        _for_each_row(files, "link.dat", (4,), _check_link)  # which names the line
        raise HanmeError(f"{where}: {error}") from None
    if not table.size:
        raise HanmeError(f"{where}: the file is empty")

    def refuse(wrong: NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            raise HanmeError(f"{where} line {int(wrong.argmax()) + 1}: {why}")

    size = len(nodes.place)
    for end in ("start", "end"):
        refuse((table[end] < 0) | (table[end] >= size), f"its {end} is not in node.dat")
    refuse(~np.isin(table["type"], list(info.relations)), "its link type is not in info.dat")
    links: dict[EdgeType, Tensor] = {}
    for number, name in relation_names(info).items():
        mine = table["type"] == number
        for end, expected in zip(("start", "end"), info.relations[number], strict=False):
            wrong = mine & (nodes.type_number[table[end]] != expected)
            refuse(wrong, f"link type {number} is {'-'.join(name)}, but its {end} is not")
        ends = [nodes.place[table[end][mine]] for end in ("start", "end")]
        links[name] = torch.from_numpy(np.stack(ends))
    return links


def _check_link(cells: list[bytes]) -> None:
    for cell in cells[:3]:
        int(cell)
    float(cells[3])


def _read_labels(
    files: GraphFiles, name: str, info: Info, nodes: _ParsedNodes
) -> dict[int, list[int]]:
    """Read the labels of target nodes, by their number within the type."""
    labels: dict[int, list[int]] = {}

    def add(cells: list[bytes]) -> None:
        number, type_number = int(cells[0]), int(cells[2])
        if not 0 <= number < len(nodes.place):
            raise ValueError(f"node {number} is not in node.dat")
        if {type_number, int(nodes.type_number[number])} != {info.target}:
            raise ValueError(
                f"node {number} is no {info.types[info.target]}, and only these have labels"
            )
        node, classes = int(nodes.place[number]), [int(cell) for cell in cells[3].split(b",")]
        if node in labels:
            raise ValueError(f"node {number} is not unique")
        if not all(0 <= label < len(info.labels) for label in classes):
            raise ValueError(f"labels {classes}: expected 0 to {len(info.labels) - 1}")
        labels[node] = classes

    _for_each_row(files, name, (4,), add)
    return labels
