"""Write a graph into a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
from scipy.sparse import csr_array

from hanme.common.arrays import take_rows
from hanme.common.files import lock, name_path, remove_leftovers, sync_folder
from hanme.data.store.files import MANIFEST, StoreWriter
from hanme.data.store.manifest import PROVENANCE
from hanme.errors import HanmeError
from hanme.graph import Graph, Texts
from hanme.graph.features import to_scipy

DENSE = 1 / 3
"""Share of nonzero features from which a dense matrix takes less space than a sparse one."""

ROWS = 1 << 18
"""Rows that are converted at a time, to bound the memory of a conversion."""


@contextmanager
def create_store(folder: Path) -> Iterator[StoreWriter]:
    """Yield a writer for a folder beside a new or empty one, which it replaces in the end."""
    if (folder / MANIFEST).exists():
        raise HanmeError(f"{folder}: already contains a stored graph; choose another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HanmeError(f"{folder}: expected a new or empty folder to store a graph in")
    with lock(folder.with_name(f".{folder.name}.lock"), str(folder)):
        remove_leftovers(folder.parent, folder.name)
        work = folder.with_name(f".{folder.name[:100]}.{uuid4().hex}")
        work.mkdir()
        try:
            with name_path(folder, work):
                yield StoreWriter(work)
                if folder.exists():
                    folder.rmdir()
                sync_folder(work)
                work.rename(folder)
                sync_folder(folder.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def write_store(
    graph: Graph,
    folder: Path,
    *,
    features: str,
    progress: Callable[[str], None] = lambda text: None,
) -> None:
    """Store a graph that is in memory; ``features`` says how its features were filled in."""
    with create_store(folder) as writer:
        for i, nodes in enumerate(graph.nodes.values()):
            progress(f"{nodes.kind}: {nodes.num_nodes:,} nodes")
            for what, texts in (("ids", nodes.ids), ("names", nodes.names)):
                if texts is not None and (what == "ids" or texts is not nodes.ids):
                    add_texts(writer, f"nodes.{i}.{what}", [texts])
            if (x := nodes.x) is not None:
                parts = torch.split(torch.arange(nodes.num_nodes), ROWS)
                rows = (to_scipy(take_rows(x, part)) for part in parts)
                add_features(writer, i, rows, x.size(1), x.layout == torch.strided)
        for i, (edge_type, count) in enumerate(graph.num_links.items()):
            progress(f"{'-'.join(edge_type)}: {count:,} links")
            links, size = graph.adjacency(edge_type), graph.sizes[edge_type[2]]
            writer.add(f"links.{i}.begin", links.indptr.numpy())
            writer.add(f"links.{i}.end", links.indices.numpy().astype(index_dtype(size)))
        finish(writer, graph, features)


def add_features(
    writer: StoreWriter,
    number: int,
    rows: Iterable[csr_array],
    width: int,
    dense: bool | None = None,
) -> None:
    """Write the features of a node type; by default, the first rows decide how."""
    blocks = iter(rows)
    first = next(blocks, csr_array((0, width)))  # a type may have no nodes
    start = f"nodes.{number}"
    if dense is None:
        dense = first.nnz >= DENSE * first.shape[0] * width
    if dense:
        with writer.array(f"{start}.x", "float32", (width,)) as x:
            for block in chain([first], blocks):
                x.append(block.toarray())
        return
    with (
        writer.array(f"{start}.begin", "int64") as begin,
        writer.array(f"{start}.column", index_dtype(width)) as column,
        writer.array(f"{start}.value", "float32") as values,
    ):
        begin.append(np.zeros(1, np.int64))
        for block in chain([first], blocks):
            begin.append(values.rows + block.indptr[1:].astype(np.int64))
            column.append(block.indices)
            values.append(block.data)


def add_texts(writer: StoreWriter, name: str, parts: Iterable[Iterable[str]]) -> None:
    """Write texts."""
    with (
        writer.array(f"{name}.text", "uint8") as text,
        writer.array(f"{name}.offsets", "int64") as offsets,
    ):
        offsets.append(np.zeros(1, np.int64))
        for part in parts:
            some = Texts.of(part)
            offsets.append(text.rows + some.offsets[1:] - some.offsets[0])
            text.append(some.text)


def finish(writer: StoreWriter, graph: Graph, features: str) -> None:
    """Write labels, split, the integers among the extra tensors and, last, the manifest."""
    y, part = graph.y.numpy(), np.full(len(graph.y), 255, np.uint8)  # 255: in no part of the split
    for i, mask in enumerate(graph.split):
        part[mask.numpy()] = i
    writer.add("part", part)
    writer.add("y", y.astype(np.uint8 if graph.multilabel else np.int32))
    types = {}
    for i, (kind, nodes) in enumerate(graph.nodes.items()):
        extra = [key for key, values in nodes.extra.items() if values.dtype == torch.int64]
        for key in extra:
            writer.add(f"nodes.{i}.extra.{key}", nodes.extra[key].numpy())
        types[kind] = {"nodes": nodes.num_nodes, "width": nodes.width, "extra": extra}
        types[kind]["named_by_id"] = nodes.names is nodes.ids
    header = {key: getattr(graph, key) for key in ("target", "labels", "metapaths")}
    header |= {key: getattr(graph.provenance, key) for key in PROVENANCE}
    writer.finish(header | {"types": types, "relations": graph.edge_types, "features": features})


def index_dtype(size: int) -> str:
    """Return the integer type for numbers below ``size``."""
    return "int32" if size < 2**31 else "int64"
