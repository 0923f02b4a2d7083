"""Open a store as a graph, mapped into memory or read into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.arrays import concat_ranges, indptr_of
from hanme.data.store.files import MANIFEST, MARKER, MappedArray
from hanme.data.store.manifest import PROVENANCE, NodeType, open_arrays, read_manifest
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Provenance, Split, Texts
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.features import Features

Arrays = Mapping[str, MappedArray]


def is_store(path: str | Path) -> bool:
    """Return whether a path is the folder of a store, by the first key of its manifest."""
    try:
        with (Path(path) / MANIFEST).open("rb") as file:
            return f'"{MARKER}"'.encode() in file.read(64)
    except (OSError, ValueError):
        return False


def stored_features(path: str | Path) -> Features:
    """Return how features were filled in when the graph was stored."""
    return read_manifest(Path(path)).features


def check_store(folder: Path) -> int:
    """Verify all checksums of a store; return the number of bytes verified."""
    return sum(array.all().nbytes for array in open_arrays(folder)[1].values())


def open_store(path: str | Path, *, mapped: bool = True) -> Graph:
    """Open a store as a graph: mapped from its files, or read into memory and all verified."""
    manifest, arrays = open_arrays(Path(path), mapped=mapped)
    links, kinds = Relations(), enumerate(manifest.types.items())
    for i, edge_type in enumerate(manifest.relations):
        links.adjacency[edge_type] = StoredAdjacency(arrays, i)
    nodes: dict[str, Nodes] = {k: StoredNodes(arrays, i, k, about) for i, (k, about) in kinds}
    if not mapped:
        for array in arrays.values():
            array.all()
        nodes = {kind: _in_memory(some) for kind, some in nodes.items()}
    y = arrays["y"].all()
    return (StoredGraph if mapped else Graph)(
        nodes=nodes,
        links=links if mapped else dict(links),
        target=manifest.target,
        y=y.float() if y.dim() == 2 else y.long(),
        labels=manifest.labels,
        split=Split.of(arrays["part"].all()),
        metapaths=manifest.metapaths,
        provenance=Provenance(**{key: getattr(manifest, key) for key in PROVENANCE}),
    )


def _in_memory(nodes: Nodes) -> Nodes:
    ids, names = (
        Texts(texts.text, texts.offsets) if isinstance(texts, Texts) else None
        for texts in (nodes.ids, nodes.names)
    )
    names = ids if nodes.names is nodes.ids else names
    return Nodes(nodes.kind, nodes.num_nodes, nodes.x, names, ids, nodes.extra)


class StoredGraph(Graph):
    """A graph whose nodes and links are in the files of a store."""

    stored = True

    def with_features(self, how: Features) -> Graph:
        """Refuse: features are filled in when a graph is stored."""
        raise HanmeError(
            "a stored graph keeps its features; choose them with hanme inspect --store"
        )

    def in_memory(self) -> Graph:
        """Read all nodes and links."""
        return Graph(
            nodes={kind: _in_memory(nodes) for kind, nodes in self.nodes.items()},
            links=dict(self.links),
            target=self.target,
            y=self.y,
            labels=self.labels,
            split=self.split,
            metapaths=self.metapaths,
            visible=self.visible,
            provenance=self.provenance,
        )


class StoredAdjacency(Adjacency):
    """The links of a relation, given by number, mapped from two files."""

    def __init__(self, arrays: Arrays, relation: int) -> None:
        self._indptr, self._indices = (arrays[f"links.{relation}.{e}"] for e in ("begin", "end"))

    def __len__(self) -> int:
        return len(self._indices)

    @property
    def indptr(self) -> Tensor:  # type: ignore[override]
        """Where the links of each node begin."""
        return self._indptr.all()

    @property
    def indices(self) -> Tensor:  # type: ignore[override]
        """The end of each link."""
        return self._indices.all()

    def bounds(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Return where the links of some nodes begin and end."""
        return self._indptr.rows(nodes), self._indptr.rows(nodes + 1)

    def ends(self, places: Tensor) -> Tensor:
        """Return the ends of the links at some places."""
        return self._indices.rows(places).long()


class StoredNodes(Nodes):
    """The nodes of a type, given by number; their features are read when they are needed."""

    def __init__(self, arrays: Arrays, number: int, kind: str, about: NodeType) -> None:
        def texts(name: str) -> StoredTexts | None:
            parts = [f"nodes.{number}.{name}.{part}" for part in ("text", "offsets")]
            return StoredTexts(*map(arrays.__getitem__, parts)) if parts[0] in arrays else None

        start, ids = f"nodes.{number}", texts("ids")
        parts = ("x",) if f"{start}.x" in arrays else ("begin", "column", "value")
        self._parts = [arrays[f"{start}.{p}"] for p in parts if about.width is not None]
        self._width = about.width
        self._x: Tensor | None = None
        super().__init__(kind, about.nodes, None, ids if about.named_by_id else texts("names"), ids)
        self.extra = {key: arrays[f"{start}.extra.{key}"].all() for key in about.extra}

    @property
    def x(self) -> Tensor | None:
        """All features; single ones are read by :meth:`rows`."""
        if self._x is None and self._width is not None:
            self._x = self._matrix([part.all() for part in self._parts])
        return self._x

    @x.setter
    def x(self, x: Tensor | None) -> None:
        self._x = x

    @property
    def width(self) -> int | None:
        """The number of features, None for nodes without any."""
        return self._width

    def rows(self, numbers: Tensor) -> Tensor | None:
        """Return the features of some nodes, ``[R, F]``; only these are read."""
        if self._width is None:
            return None
        if len(self._parts) == 1:
            return self._parts[0].rows(numbers)
        first, column, value = self._parts
        begin = first.rows(numbers)
        degree = first.rows(numbers + 1) - begin
        places, _ = concat_ranges(begin, degree)
        return self._matrix([indptr_of(degree), column.rows(places), value.rows(places)])

    def _matrix(self, parts: Sequence[Tensor]) -> Tensor:
        """Return a dense matrix as it is, or the sparse one of row pointers, columns and values."""
        if len(parts) == 1:
            return parts[0]
        size = (parts[0].numel() - 1, self._width or 0)
        return torch.sparse_csr_tensor(parts[0], parts[1].long(), parts[2], size)


class StoredTexts(Texts):
    """Texts in two files: their bytes, and where each begins."""

    def __init__(self, text: MappedArray, offsets: MappedArray) -> None:
        self._text, self._offsets = text, offsets

    @property
    def text(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The bytes of all texts."""
        return np.asarray(self._text.all())

    @property
    def offsets(self) -> NDArray[np.integer]:  # type: ignore[override]
        """Where each text begins."""
        return np.asarray(self._offsets.all())

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _decode(self, index: int) -> str:
        return self.some(torch.tensor([index]))[0]

    def some(self, numbers: Tensor) -> list[str]:
        """Return the texts with these numbers; only these are read."""
        begin = self._offsets.rows(numbers)
        size = self._offsets.rows(numbers + 1) - begin
        read = self._text.rows(concat_ranges(begin, size)[0]).numpy()
        return list(Texts(read, indptr_of(size).numpy()))
