"""Write a graph into a store."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.csr import take_rows
from hanme.common.files import is_leftover, lock, remove_on_error
from hanme.data.store.files import MANIFEST, Writer
from hanme.data.store.manifest import PROVENANCE, NodeType, open_files
from hanme.errors import HanmeError
from hanme.graph import Graph, Texts
from hanme.graph.adjacency import Adjacency
from hanme.graph.features import to_scipy

LOCK, WORK = ".lock", ".work"
OURS = re.compile(r"((nodes|links)\.[0-9]+\.[a-z.]+|y|part|checksums)\.bin")
"""The files that a store has, and that one which was killed has left; nobody else's."""

DENSE = 1 / 3
"""The share of numbers other than 0 from which on features are stored as a dense matrix."""

BASE, MIX = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)  # see hashes

ROWS = 1 << 18
"""How many rows are written at a time."""

Say = Callable[[str], None]


@contextmanager
def storing(folder: Path) -> Iterator[Writer]:
    """Give a writer for a folder; what a killed process has left in it is removed first."""
    if (folder / MANIFEST).exists():
        raise HanmeError(f"{folder}: a stored graph is there already; choose another folder")
    if folder.exists() and (not folder.is_dir() or not all(map(_ours, folder.iterdir()))):
        raise HanmeError(f"{folder}: expected a new or empty folder to store a graph in")
    with remove_on_error(folder), lock(folder / LOCK, str(folder)):
        _clear(folder)
        (folder / WORK).mkdir()
        try:
            yield Writer(folder)
        finally:
            shutil.rmtree(folder / WORK)
            if not (folder / MANIFEST).exists():
                _clear(folder)


def _ours(path: Path) -> bool:
    return bool(OURS.fullmatch(path.name)) or is_leftover(path) or path.name in (LOCK, WORK)


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) or is_leftover(path):
            path.unlink()
    shutil.rmtree(folder / WORK, ignore_errors=True)


def write_store(
    graph: Graph, folder: Path, *, features: str, half: bool = False, say: Say = lambda text: None
) -> None:
    """Store a graph that is in memory, see :func:`hanme.data.store_graph`.

    ``features`` tells who opens it how they were filled in.
    """
    with storing(folder) as writer:
        for i, nodes in enumerate(graph.nodes.values()):
            say(f"{nodes.kind}: {nodes.num_nodes:,} nodes")
            for what, texts in (("ids", nodes.ids), ("names", nodes.names)):
                if texts is not None and (what == "ids" or texts is not nodes.ids):
                    add_texts(writer, f"nodes.{i}.{what}", [texts])
            if nodes.x is not None:
                every = range(0, nodes.num_nodes, ROWS)
                rows = (to_scipy(_slice(nodes.x, begin)) for begin in every)
                add_features(writer, i, rows, nodes.x.size(1), half)
        for i, (edge_type, count) in enumerate(graph.num_links.items()):
            say(f"{'-'.join(edge_type)}: {count:,} links")
            links, targets = graph.adjacency(edge_type), graph.sizes[edge_type[2]]
            add_links(writer, i, links, targets)
        add_labels(writer, graph)
        finish(writer, graph, features)


def add_features(
    writer: Writer, number: int, rows: Iterable[csr_array], width: int, half: bool
) -> None:
    """Write the features of a node type, dense or sparse by what the first rows are like."""
    given = iter(rows)
    first = next(given, csr_array((0, width)))  # a type may have no nodes
    start, value = f"nodes.{number}", "float16" if half else "float32"
    if first.nnz >= DENSE * first.shape[0] * width:
        with writer.column(f"{start}.x", value, (width,)) as x:
            for some in chain([first], given):
                x.append(_finite(some.toarray(), value))
        return
    with (
        writer.column(f"{start}.begin", "int64") as begin,
        writer.column(f"{start}.column", smallest(width)) as column,
        writer.column(f"{start}.value", value) as values,
    ):
        begin.append(np.zeros(1, np.int64))
        for some in chain([first], given):
            begin.append(values.rows + some.indptr[1:].astype(np.int64))
            column.append(some.indices)
            values.append(_finite(some.data, value))


def add_texts(writer: Writer, name: str, parts: Iterable[Iterable[str]]) -> None:
    """Write texts and the index that finds one of them."""
    found = [np.zeros(0, np.int64)]
    with (
        writer.column(f"{name}.text", "uint8") as text,
        writer.column(f"{name}.offsets", "int64") as offsets,
    ):
        offsets.append(np.zeros(1, np.int64))
        for part in parts:
            some = Texts.of(part)
            found.append(hashes(some.text, some.offsets))
            offsets.append(text.rows + some.offsets[1:] - some.offsets[0])
            text.append(some.text)
    every = np.concatenate(found)
    order = np.argsort(every, kind="stable")
    writer.add(f"{name}.hash", every[order])
    writer.add(f"{name}.order", order.astype(smallest(len(order))))


def add_links(writer: Writer, number: int, links: Adjacency, targets: int) -> None:
    """Write the links of a relation, to so many target nodes."""
    writer.add(f"links.{number}.begin", links.indptr.numpy())
    writer.add(f"links.{number}.end", links.indices.numpy().astype(smallest(targets)))


def hashes(text: NDArray[np.uint8], offsets: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return a hash of each text, Σ_i (byte_i + 1) BASE^i modulo 2^64, its bits mixed.

    Sorted, they find one text among millions.
    """
    sizes = np.diff(offsets)
    place = np.arange(len(text)) - np.repeat(offsets[:-1] - offsets[0], sizes)
    powers = np.full(int(sizes.max(initial=0)) + 1, BASE)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    total = np.zeros(len(text) + 1, np.uint64)
    np.cumsum((text.astype(np.uint64) + np.uint64(1)) * powers[place], out=total[1:])
    ends = offsets - offsets[0]
    found = (total[ends[1:]] - total[ends[:-1]]) * MIX
    mixed: NDArray[np.int64] = (found ^ (found >> np.uint64(29))).view(np.int64)
    return mixed


def add_labels(writer: Writer, graph: Graph) -> None:
    """Write the labels, and the part of the split that each target node is in, 255 for none."""
    y = graph.y.numpy()
    single = "int16" if len(graph.labels) < 2**15 else "int32"
    writer.add("y", y.astype(np.uint8 if graph.multilabel else single))
    part = np.full(len(y), 255, np.uint8)
    for i, mask in enumerate(graph.split):
        part[mask.numpy()] = i
    writer.add("part", part)


def finish(writer: Writer, graph: Graph, features: str) -> None:
    """Write the manifest: all that is not in arrays."""
    about = {
        kind: NodeType(
            nodes=nodes.num_nodes, width=nodes.width, named_by_id=nodes.names is nodes.ids
        ).model_dump()
        for kind, nodes in graph.nodes.items()
    }
    header = {key: getattr(graph, key) for key in ("target", "labels", "metapaths")}
    header |= {key: getattr(graph.provenance, key) for key in PROVENANCE}
    writer.finish(header | {"types": about, "relations": graph.edge_types, "features": features})


def check_store(folder: Path) -> int:
    """Check all files of a store against their checksums; return how many bytes there are."""
    _, files = open_files(folder)
    for file in files.values():
        file.whole()
    return sum(file.path.stat().st_size for file in files.values())


def _slice(x: Tensor, begin: int) -> Tensor:
    return take_rows(x, torch.arange(begin, min(begin + ROWS, x.size(0))))


def _finite(values: NDArray[Any], kind: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        values = values.astype(kind)
    if kind == "float16" and not np.isfinite(values).all():
        raise HanmeError("a feature is too large for half precision; store it without --half")
    return values


def smallest(size: int) -> str:
    """Return the type of integers below a number."""
    return "int32" if size < 2**31 else "int64"
