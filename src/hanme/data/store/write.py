"""Write a graph into a store."""

from __future__ import annotations

import re
import shutil
import zlib
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

from hanme.common.arrays import take_rows
from hanme.common.files import is_leftover, lock, remove_on_error
from hanme.data.store.files import MANIFEST, StoreWriter
from hanme.data.store.manifest import PROVENANCE, NodeType, open_arrays
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Texts
from hanme.graph.adjacency import Adjacency
from hanme.graph.features import to_scipy

LOCK, WORK = ".lock", ".work"
OURS = re.compile(r"((nodes|links)\.[0-9]+\.[a-z.]+|y|part|checksums)\.bin")
"""The names of the files of a store, also of one whose writer was killed."""

DENSE = 1 / 3
"""Share of nonzero features from which a dense matrix takes less space than a sparse one."""

ROWS = 1 << 18
"""Rows that are converted at a time, to bound the memory of a conversion."""

Progress = Callable[[str], None]


@contextmanager
def create_store(folder: Path) -> Iterator[StoreWriter]:
    """Yield a writer for a new or empty folder; remove the files of a killed writer first."""
    if (folder / MANIFEST).exists():
        raise HanmeError(f"{folder}: already contains a stored graph; choose another folder")
    if folder.exists() and (not folder.is_dir() or not all(map(_ours, folder.iterdir()))):
        raise HanmeError(f"{folder}: expected a new or empty folder to store a graph in")
    with remove_on_error(folder), lock(folder / LOCK, str(folder)):
        _clear(folder)
        (folder / WORK).mkdir()
        try:
            yield StoreWriter(folder)
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
    graph: Graph,
    folder: Path,
    *,
    features: str,
    half: bool = False,
    keep_layout: bool = False,
    progress: Progress = lambda text: None,
) -> None:
    """Store a graph that is in memory, see :func:`hanme.data.store_graph`.

    Args:
        graph: The graph.
        folder: A new or empty folder.
        features: How features were filled in, for the manifest.
        half: Whether to store features in half precision.
        keep_layout: Whether features stay dense or sparse as they are (default: the smaller).
        progress: Called with a line about each part.
    """
    with create_store(folder) as writer:
        for i, nodes in enumerate(graph.nodes.values()):
            progress(f"{nodes.kind}: {nodes.num_nodes:,} nodes")
            for what, texts in (("ids", nodes.ids), ("names", nodes.names)):
                if texts is not None and (what == "ids" or texts is not nodes.ids):
                    add_texts(writer, f"nodes.{i}.{what}", [texts])
            if (x := nodes.x) is not None:
                dense = x.layout == torch.strided if keep_layout else None
                rows = (to_scipy(_slice(x, begin)) for begin in range(0, nodes.num_nodes, ROWS))
                add_features(writer, i, rows, x.size(1), half, dense)
        for i, (edge_type, count) in enumerate(graph.num_links.items()):
            progress(f"{'-'.join(edge_type)}: {count:,} links")
            add_links(writer, i, graph.adjacency(edge_type), graph.sizes[edge_type[2]])
        add_labels(writer, graph)
        finish(writer, graph, features)


def _extra(nodes: Nodes) -> list[str]:
    return [key for key, tensor in nodes.extra.items() if tensor.dtype == torch.int64]


def add_features(
    writer: StoreWriter,
    number: int,
    rows: Iterable[csr_array],
    width: int,
    half: bool,
    dense: bool | None = None,
) -> None:
    """Write the features of a node type; by default, the first rows decide how."""
    blocks = iter(rows)
    first = next(blocks, csr_array((0, width)))  # a type may have no nodes
    start, value = f"nodes.{number}", "float16" if half else "float32"
    if dense is None:
        dense = first.nnz >= DENSE * first.shape[0] * width
    if dense:
        with writer.array(f"{start}.x", value, (width,)) as x:
            for block in chain([first], blocks):
                x.append(_finite(block.toarray(), value))
        return
    with (
        writer.array(f"{start}.begin", "int64") as begin,
        writer.array(f"{start}.column", index_dtype(width)) as column,
        writer.array(f"{start}.value", value) as values,
    ):
        begin.append(np.zeros(1, np.int64))
        for block in chain([first], blocks):
            begin.append(values.rows + block.indptr[1:].astype(np.int64))
            column.append(block.indices)
            values.append(_finite(block.data, value))


def add_texts(writer: StoreWriter, name: str, parts: Iterable[Iterable[str]]) -> None:
    """Write texts and an index by hash."""
    hashes = [np.zeros(0, np.int64)]
    with (
        writer.array(f"{name}.text", "uint8") as text,
        writer.array(f"{name}.offsets", "int64") as offsets,
    ):
        offsets.append(np.zeros(1, np.int64))
        for part in parts:
            some = Texts.of(part)
            hashes.append(np.fromiter(map(text_hash, some), np.int64, len(some)))
            offsets.append(text.rows + some.offsets[1:] - some.offsets[0])
            text.append(some.text)
    every = np.concatenate(hashes)
    order = np.argsort(every, kind="stable")
    writer.add(f"{name}.hash", every[order])
    writer.add(f"{name}.order", order.astype(index_dtype(len(order))))


def add_links(writer: StoreWriter, number: int, links: Adjacency, targets: int) -> None:
    """Write the links of a relation to nodes of a type with ``targets`` nodes."""
    writer.add(f"links.{number}.begin", links.indptr.numpy())
    writer.add(f"links.{number}.end", links.indices.numpy().astype(index_dtype(targets)))


def text_hash(text: str) -> int:
    """Hash a text. Sorted hashes find one text among millions; equal ones are compared."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def add_labels(writer: StoreWriter, graph: Graph) -> None:
    """Write the labels, and the part of the split that each target node is in, 255 for none."""
    y = graph.y.numpy()
    single = "int16" if len(graph.labels) < 2**15 else "int32"
    writer.add("y", y.astype(np.uint8 if graph.multilabel else single))
    part = np.full(len(y), 255, np.uint8)
    for i, mask in enumerate(graph.split):
        part[mask.numpy()] = i
    writer.add("part", part)


def finish(writer: StoreWriter, graph: Graph, features: str) -> None:
    """Write the integers among the extra tensors and, last, the manifest."""
    for i, nodes in enumerate(graph.nodes.values()):
        for key in _extra(nodes):
            writer.add(f"nodes.{i}.extra.{key}", nodes.extra[key].numpy())
    about = {
        kind: NodeType(
            nodes=nodes.num_nodes,
            width=nodes.width,
            named_by_id=nodes.names is nodes.ids,
            extra=_extra(nodes),
        ).model_dump()
        for kind, nodes in graph.nodes.items()
    }
    header = {key: getattr(graph, key) for key in ("target", "labels", "metapaths")}
    header |= {key: getattr(graph.provenance, key) for key in PROVENANCE}
    writer.finish(header | {"types": about, "relations": graph.edge_types, "features": features})


def check_store(folder: Path) -> int:
    """Verify all checksums of a store; return the number of bytes verified."""
    _, arrays = open_arrays(folder)
    for array in arrays.values():
        array.all()
    return sum(array.path.stat().st_size for array in arrays.values())


def _slice(x: Tensor, begin: int) -> Tensor:
    return take_rows(x, torch.arange(begin, min(begin + ROWS, x.size(0))))


def _finite(values: NDArray[Any], kind: str) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        values = values.astype(kind)
    if kind == "float16" and not np.isfinite(values).all():
        raise HanmeError("a feature is too large for half precision; store it without --half")
    return values


def index_dtype(size: int) -> str:
    """Return the integer type for numbers below ``size``."""
    return "int32" if size < 2**31 else "int64"
