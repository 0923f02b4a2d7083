"""Parse the text files of the Heterogeneous Graph Benchmark.

``info.dat`` says what the numbers in the others mean. ``node.dat`` (id, name, type, features),
``link.dat`` (start, end, relation, weight), ``label.dat`` and ``label.dat.test`` (node, name, type,
labels) are tables with tabs between cells. Messages name the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.files import parse_json
from hanme.errors import HanmeError, one_line
from hanme.graph import EdgeType, Graph, Nodes, Split
from hanme.graph.features import to_torch

Ints = NDArray[np.int64]
T = TypeVar("T")


def parse(files: dict[str, bytes], title: str) -> Graph:
    """Parse a graph; all labelled nodes outside the test set are for training.

    Errors begin with `title` and the name of the file.
    """

    def part(file: str, read: Callable[..., T], *arguments: Any) -> T:
        try:
            return read(files[file], *arguments)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else one_line(error)
            raise HanmeError(f"{title}: {file}: not as in the benchmark: {why}") from None

    types, relations, target, labels = part("info.dat", _info)
    nodes, type_of, place = part("node.dat", _nodes, types)
    links = part("link.dat", _links, relations, type_of, place)
    is_target = type_of == target
    train, train_labels = part("label.dat", _labels, is_target, len(labels))
    test, test_labels = part("label.dat.test", _labels, is_target, len(labels))
    if np.isin(train, test).any():
        raise HanmeError(f"{title}: label.dat.test: it has nodes of label.dat")
    size = int(is_target.sum())
    rows = torch.from_numpy(place[np.concatenate([train, test])])
    columns = torch.from_numpy(np.concatenate([train_labels, test_labels]))
    y = torch.full((size,), -1)
    if len(set(rows.tolist())) == len(rows):
        y[rows] = columns
    else:
        y = torch.zeros(size, len(labels))
        y[rows, columns] = 1
    masks = torch.zeros(3, size, dtype=torch.bool)
    masks[0, place[train]] = masks[2, place[test]] = True
    return Graph(nodes, links, types[target], y, labels, Split(*masks))


Relation = tuple[tuple[int, int], EdgeType]  # numbers of the node types at both ends, name


def _info(content: bytes) -> tuple[dict[int, str], dict[int, Relation], int, list[str]]:
    """Return node types and relations by number, the type that has labels, and the labels.

    The only relation between two types is called ``to``. Of several, each is called by its meaning
    without the types (``paper-cite-paper`` is ``cite``), or by its number (``link3``) where that
    is empty or ambiguous.
    """
    info = parse_json(content)
    types = {int(n): str(name) for n, name in info["node.dat"]["node type"].items()}
    ((target, classes),) = info["label.dat"]["node type"].items()
    labels = [str(classes[str(i)]) for i in range(len(classes))]
    if not labels or int(target) not in types or len(set(types.values())) < len(types):
        raise ValueError("no labels, or node types that are not unique")
    links = info["link.dat"]["link type"]
    ends = {n: (int(link["start"]), int(link["end"])) for n, link in links.items()}
    names: dict[EdgeType, str] = {}
    for n, link in links.items():
        start, end = (types[number] for number in ends[n])
        words = str(link["meaning"]).removeprefix(start).removesuffix(end)
        name = re.sub(r"\W+", "_", words).strip("_") or f"link{n}"
        name = "to" if list(ends.values()).count(ends[n]) == 1 else name
        names[(start, f"link{n}" if (start, name, end) in names else name, end)] = n
    relations = {int(n): (ends[n], name) for name, n in names.items()}
    return types, relations, int(target), labels


def _nodes(content: bytes, kinds: dict[int, str]) -> tuple[dict[str, Nodes], Ints, Ints]:
    """Return nodes by type; and, by id in the file, the type and the number within the type."""
    names: dict[int, list[str]] = {number: [] for number in kinds}
    rows: dict[int, list[_Row]] = {number: [] for number in kinds}
    type_of, place = [], []
    for i, line in enumerate(BytesIO(content)):
        number, name, kind, *features = line.rstrip(b"\r\n").split(b"\t")
        if int(number) != i:
            raise ValueError(f"line {i + 1}: ids must be 0, 1, 2, ... in this order")
        type_of.append(int(kind))
        place.append(len(names[int(kind)]))
        names[int(kind)].append(name.decode())
        cells = [cell for text in features for cell in text.split(b",")]
        columns = [column for column, cell in enumerate(cells) if cell not in (b"0", b"0.0")]
        rows[int(kind)].append((columns, [float(cells[column]) for column in columns], len(cells)))
    nodes = {
        kind: Nodes(kind, len(names[number]), _matrix(rows[number]), names[number])
        for number, kind in kinds.items()
    }
    return nodes, np.array(type_of, np.int64), np.array(place, np.int64)


_Row = tuple[list[int], list[float], int]  # columns and values that are not zero, width


def _matrix(rows: list[_Row]) -> Tensor | None:
    """Return the features of a type; None if it has none."""
    widths = {width for _, _, width in rows}
    if widths <= {0}:
        return None
    if len(widths) > 1:
        raise ValueError("nodes of one type have different numbers of features")
    indptr = np.cumsum([0, *(len(columns) for columns, _, _ in rows)])
    indices = np.concatenate([columns for columns, _, _ in rows]).astype(np.int64)
    with np.errstate(over="ignore"):  # an overflow is infinite, and refused below
        values = np.concatenate([values for _, values, _ in rows]).astype(np.float32)
    if not np.isfinite(values).all():
        raise ValueError("a feature is not finite")
    matrix = csr_array((values, indices, indptr), shape=(len(rows), widths.pop()))
    matrix.eliminate_zeros()
    return to_torch(matrix)


def _links(
    content: bytes, relations: dict[int, Relation], type_of: Ints, place: Ints
) -> dict[EdgeType, Tensor]:
    if not content.strip():
        raise ValueError("the file is empty")
    table = np.loadtxt(BytesIO(content), np.int64, None, delimiter="\t", usecols=range(3), ndmin=2)
    if not 0 <= table[:, :2].min() <= table[:, :2].max() < len(place):
        raise ValueError("a link leads to a node that is not in node.dat")
    if not np.isin(table[:, 2], list(relations)).all():
        raise ValueError("a link type is not in info.dat")
    links: dict[EdgeType, Tensor] = {}
    for number, (expected, name) in relations.items():
        ends = table[table[:, 2] == number, :2].T
        if (type_of[ends] != np.array([expected]).T).any():
            raise ValueError(f"a link of type {number} does not join {name[0]} and {name[2]}")
        links[name] = torch.from_numpy(place[ends])
    return links


def _labels(content: bytes, is_target: NDArray[np.bool_], classes: int) -> tuple[Ints, Ints]:
    """Return a node, by its id in the file, and a label for each label of each node."""
    numbers, texts = list[int](), list[list[bytes]]()
    for line in filter(bytes.strip, BytesIO(content)):  # a name may contain a carriage return
        number, _, _, text, *_ = line.rstrip(b"\r\n").split(b"\t")
        numbers.append(int(number))
        texts.append(text.split(b","))
    if not numbers:
        raise ValueError("the file is empty")
    nodes = np.array(numbers, np.int64)
    labels = np.array([int(label) for some in texts for label in some], np.int64)
    if len(np.unique(nodes)) < len(nodes):
        raise ValueError("a node is not unique")
    if not np.isin(nodes, np.flatnonzero(is_target)).all():
        raise ValueError("a node is not of the type that has labels")
    if not np.isin(labels, np.arange(classes)).all():
        raise ValueError(f"a label is not among 0 to {classes - 1}")
    return np.repeat(nodes, [len(some) for some in texts]), labels
