"""Open a store as a graph, mapped into memory or read into it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.arrays import concat_ranges, indptr_of
from hanme.data.store.files import MANIFEST, MARKER, MappedArray
from hanme.data.store.manifest import PROVENANCE, Manifest, NodeType, open_arrays, read_manifest
from hanme.data.store.write import text_hash
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


def open_store(path: str | Path) -> Graph:
    """Open a store as a graph whose arrays are mapped from its files; no data is read."""
    return _mapped(*open_arrays(Path(path)))


def _mapped(manifest: Manifest, arrays: Arrays) -> Graph:
    links = Relations()
    for i, (source, name, target) in enumerate(manifest.relations):
        links.adjacency[source, name, target] = stored_links(arrays, i)
    graph = StoredGraph(
        nodes={
            kind: stored_nodes(arrays, i, kind, about)
            for i, (kind, about) in enumerate(manifest.types.items())
        },
        links=links,
        target=manifest.target,
        y=torch.empty(0),
        labels=manifest.labels,
        split=Split(*[torch.empty(0)] * 3),
        metapaths=manifest.metapaths,
        provenance=Provenance(**{key: getattr(manifest, key) for key in PROVENANCE}),
    )
    graph.attach(arrays)
    return graph


def read_store(path: str | Path) -> Graph:
    """Read a whole store into memory; all checksums are verified."""
    manifest, arrays = open_arrays(Path(path))
    for array in arrays.values():
        array.all()
    stored = _mapped(manifest, arrays)
    nodes = {kind: _in_memory(nodes) for kind, nodes in stored.nodes.items()}
    return Graph(
        nodes=nodes,
        links=dict(stored.links),
        target=stored.target,
        y=stored.y,
        labels=stored.labels,
        split=stored.split,
        metapaths=stored.metapaths,
        provenance=stored.provenance,
    )


def _in_memory(nodes: Nodes) -> Nodes:
    """Copy nodes out of the files of a store."""
    ids, names = (
        Texts(texts.text.copy(), texts.offsets.copy()) if isinstance(texts, Texts) else None
        for texts in (nodes.ids, nodes.names)
    )
    if nodes.names is nodes.ids:
        names = ids
    x = None if nodes.x is None else nodes.x.clone()
    extra = {key: tensor.clone() for key, tensor in nodes.extra.items()}
    return Nodes(nodes.kind, nodes.num_nodes, x, names, ids, extra)


class StoredGraph(Graph):
    """A graph whose arrays are in the files of a store."""

    stored = True

    def attach(self, arrays: Arrays) -> None:
        """Read labels and split from arrays when they are needed."""
        del self.y, self.split
        self._arrays = arrays

    def __getattr__(self, name: str) -> Any:
        """Read all labels, or the whole split, when they are first needed."""
        if name == "y":
            self.y = _labels(self._arrays["y"].all())
            return self.y
        if name == "split":
            self.split = Split.of(self._arrays["part"].all())
            return self.split
        raise AttributeError(name)

    @property
    def multilabel(self) -> bool:
        """Whether a node may have several labels."""
        return self.y.dim() == 2 if "y" in vars(self) else len(self._arrays["y"].shape) == 2

    def with_features(self, how: Features) -> Graph:
        """Refuse: features are filled in when a graph is stored."""
        raise HanmeError(
            "a stored graph keeps its features; choose them with hanme inspect --store"
        )

    def labels_of(self, numbers: Tensor) -> tuple[Tensor, Split]:
        """Return the labels of some target nodes, and which parts of the split they are in."""
        if "_arrays" not in vars(self):  # a copy with others
            return super().labels_of(numbers)
        y, part = (self._arrays[name].rows(numbers) for name in ("y", "part"))
        return _labels(y), Split.of(part)


def _labels(y: Tensor) -> Tensor:
    return y.float() if y.dim() == 2 else y.long()


class StoredAdjacency(Adjacency):
    """The links of a relation, mapped from two files."""

    def __init__(self, indptr: MappedArray, indices: MappedArray) -> None:
        self._indptr, self._indices = indptr, indices

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


def stored_links(arrays: Arrays, relation: int) -> Adjacency:
    """Return the links of a relation, given by number."""
    return StoredAdjacency(arrays[f"links.{relation}.begin"], arrays[f"links.{relation}.end"])


class StoredNodes(Nodes):
    """Nodes whose features are read when they are needed.

    Args:
        kind, num_nodes, names, ids: See :class:`Nodes`.
        columns: The number of features, None for nodes without any.
        files: A dense matrix; or where the row of each node begins, column numbers, and values.
    """

    def __init__(
        self,
        kind: str,
        num_nodes: int,
        names: Texts | None,
        ids: Texts | None,
        columns: int | None,
        files: Sequence[MappedArray],
    ) -> None:
        self._columns, self._from = columns, files
        self._x: Tensor | None = None
        super().__init__(kind, num_nodes, None, names, ids)

    @property
    def x(self) -> Tensor | None:
        """All features; single ones are read by :meth:`rows`."""
        if self._x is None and self._columns is not None:
            self._x = self._matrix([file.all() for file in self._from])
        return self._x

    @x.setter
    def x(self, x: Tensor | None) -> None:
        self._x = x

    @property
    def width(self) -> int | None:
        """The number of features, None for nodes without any."""
        return self._columns

    def rows(self, numbers: Tensor) -> Tensor | None:
        """Return the features of some nodes, ``[R, F]``; only these are read."""
        if self._columns is None:
            return None
        if len(self._from) == 1:
            return self._matrix([self._from[0].rows(numbers)])
        first, column, value = self._from
        begin = first.rows(numbers)
        degree = first.rows(numbers + 1) - begin
        places, _ = concat_ranges(begin, degree)
        return self._matrix([indptr_of(degree), column.rows(places), value.rows(places)])

    def _matrix(self, parts: Sequence[Tensor]) -> Tensor:
        """Return features as models take them: float32, and indices of 64 bits."""
        if len(parts) == 1:
            return parts[0].float()
        size = (parts[0].numel() - 1, self._columns or 0)
        return torch.sparse_csr_tensor(parts[0], parts[1].long(), parts[2].float(), size)


def stored_nodes(arrays: Arrays, number: int, kind: str, about: NodeType) -> Nodes:
    """Return the nodes of a type, by its number and its entry in the manifest."""
    start = f"nodes.{number}"
    ids = _texts(arrays, f"{start}.ids")
    names = ids if about.named_by_id else _texts(arrays, f"{start}.names")
    parts = ("x",) if f"{start}.x" in arrays else ("begin", "column", "value")
    x = [arrays[f"{start}.{part}"] for part in parts if about.width is not None]
    nodes = StoredNodes(kind, about.nodes, names, ids, about.width, x)
    nodes.extra = {key: arrays[f"{start}.extra.{key}"].all() for key in about.extra}
    return nodes


class StoredTexts(Texts):
    """Texts in four arrays: their bytes, where each begins, sorted hashes, and whose they are."""

    def __init__(
        self, text: MappedArray, offsets: MappedArray, hashes: MappedArray, order: MappedArray
    ) -> None:
        self._text, self._offsets = text, offsets
        self._hashes, self._order = hashes, order

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

    def find(self, text: str) -> list[int]:
        """Return the numbers of the nodes with a text, by bisection of the hashes."""

        def hash_at(place: int) -> int:
            return int(self._hashes.rows(torch.tensor([place])))

        first = bisect_left(range(len(self)), text_hash(text), key=hash_at)
        last = bisect_right(range(len(self)), text_hash(text), lo=first, key=hash_at)
        candidates: list[int] = self._order.rows(torch.arange(first, last)).tolist()
        return sorted(place for place in candidates if self[place] == text)


def _texts(arrays: Arrays, name: str) -> StoredTexts | None:
    if f"{name}.text" not in arrays:
        return None
    return StoredTexts(*(arrays[f"{name}.{part}"] for part in ("text", "offsets", "hash", "order")))
