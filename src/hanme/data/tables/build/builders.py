"""Hold the nodes and links of tables in memory, or write them into a store a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array, hstack, vstack
from torch import Tensor

from hanme.data.store.files import StoreWriter
from hanme.data.store.manifest import NodeType
from hanme.data.store.open import stored_links, stored_nodes
from hanme.data.store.write import add_features, add_texts, index_dtype
from hanme.data.tables.build.features import Fitted
from hanme.data.tables.build.links import NumberedLinks
from hanme.data.tables.build.nodes import NodeIds, NodeRows, feature_rows
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import NodeTable
from hanme.graph import EdgeType, Graph, Nodes, Texts
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.features import Features, mean_rows, to_fill, to_scipy, to_torch

LINKS = 1 << 24
"""Links that are sorted at a time: 256 MB of node numbers."""

NUMBERS = 1 << 22
"""Numbers of features in memory at a time: 16 MB, and a few times that while they are computed."""

TEXTS = 1 << 20
"""Texts in memory at a time: about 100 MB of Python strings."""


class MemoryBuilder:
    """Hold nodes and links in memory; the reverse relations are still missing."""

    def __init__(self) -> None:
        self.links: dict[EdgeType, Tensor] = {}

    def add_nodes(
        self, ids: NodeIds, rows: NodeRows | None, spec: NodeTable, fitted: Mapping[str, Fitted]
    ) -> Nodes:
        """Add the nodes of a type."""
        size = max(1, ids.size)
        names = texts = Texts.of(chain.from_iterable(ids.texts(size)))
        x = None
        if rows is not None and any(one.width for one in fitted.values()):
            features = feature_rows(ids, rows.table, spec, fitted, size)
            x = to_torch(csr_array(vstack(list(features), format="csr")))
        if rows is not None and spec.name is not None:
            names = Texts.of(chain.from_iterable(ids.texts(size, rows.table)))
        return Nodes(ids.kind, ids.size, x, names, texts)

    def add_links(self, links: NumberedLinks) -> None:
        """Add the links of a relation, in the order of their rows."""
        ends = links.reader.arrays(f"SELECT source, target FROM {links.sql} ORDER BY ordinal")
        self.links[links.edge_type] = torch.from_numpy(np.stack(ends).astype(np.int64))


class StoreBuilder:
    """Write nodes and links into a store, and return them mapped from it.

    DuckDB joins and sorts the links, and uses the disk for it.
    """

    def __init__(
        self,
        writer: StoreWriter,
        config: GraphConfig,
        features: Features,
        half: bool,
        progress: Callable[[str], None],
    ) -> None:
        self.writer, self.features, self.half, self.progress = writer, features, half, progress
        self.kinds, self.reverse = list(config.node_types), dict(config.edge_types.values())
        self.replaced = {*self.kinds} - {config.target} if features in ("mean", "onehot") else set()
        self.edge_types = [e for pair in self.reverse.items() for e in pair]
        self.links = Relations()

    def add_nodes(
        self, ids: NodeIds, rows: NodeRows | None, spec: NodeTable, fitted: Mapping[str, Fitted]
    ) -> Nodes:
        """Write the nodes of a type; features that :meth:`fill` replaces are left out."""
        number = self.kinds.index(ids.kind)
        self.progress(f"{ids.kind}: {ids.size:,} nodes")
        add_texts(self.writer, f"nodes.{number}.ids", ids.texts(TEXTS))
        width = sum(one.width for one in fitted.values()) if ids.kind not in self.replaced else 0
        if rows is not None and width:
            x = feature_rows(ids, rows.table, spec, fitted, max(1, NUMBERS // width))
            add_features(self.writer, number, x, width, self.half)
        named = rows is not None and spec.name is not None
        if rows is not None and named:
            add_texts(self.writer, f"nodes.{number}.names", ids.texts(TEXTS, rows.table))
        return self._mapped(ids.kind, ids.size, width or None, named_by_id=not named)

    def _mapped(self, kind: str, size: int, width: int | None, *, named_by_id: bool) -> Nodes:
        about = NodeType(nodes=size, width=width, named_by_id=named_by_id, extra=[])
        return stored_nodes(self.writer.arrays, self.kinds.index(kind), kind, about)

    def add_links(self, links: NumberedLinks) -> None:
        """Write the links of a relation and of its reverse, each sorted by both ends."""
        forward, backward = links.edge_type, self.reverse[links.edge_type]
        self.progress(f"{'-'.join(forward)}: links")
        self._write_links(links, forward, ("source", "target"), links.sizes)
        self._write_links(links, backward, ("target", "source"), links.sizes[::-1])

    def _write_links(
        self,
        links: NumberedLinks,
        edge_type: EdgeType,
        ends: tuple[str, str],
        sizes: tuple[int, int],
    ) -> None:
        (near, far), number = ends, self.edge_types.index(edge_type)
        node, count = links.reader.arrays(
            f"SELECT {near} AS node, count(*) AS links FROM {links.sql} GROUP BY {near}"
        )
        begin = np.zeros(sizes[0] + 1, np.int64)
        begin[1 + node] = count
        begin = np.cumsum(begin)
        self.writer.add(f"links.{number}.begin", begin)
        with self.writer.array(f"links.{number}.end", index_dtype(sizes[1])) as column:
            for first, last in Adjacency(torch.from_numpy(begin), torch.empty(0)).chunks(LINKS):
                (part,) = links.reader.arrays(
                    f"SELECT {far} FROM {links.sql} WHERE {near} >= ? AND {near} < ? "
                    f"ORDER BY {near}, {far}",
                    first,
                    last,
                )
                column.append(part)
        self.links.adjacency[edge_type] = stored_links(self.writer.arrays, number)

    def fill(self, graph: Graph) -> Graph:
        """Give every node type features, as :func:`~hanme.graph.features.fill_features` does."""
        reverse = self.reverse | {back: there for there, back in self.reverse.items()}
        for kind, into in to_fill(graph.nodes, self.links, graph.target, self.features):
            nodes = graph.nodes[kind]
            neighbours = {other: [reverse[e] for e in some] for other, some in into.items()}
            x, width = _one_hot(nodes.num_nodes), nodes.num_nodes
            if into:
                x = _means(graph, neighbours)
                width = sum(graph.nodes[other].width or 0 for other in into)
            self.progress(f"{kind}: {width:,} features from its neighbours")
            add_features(self.writer, self.kinds.index(kind), x, width, self.half)
            named_by_id = nodes.names is nodes.ids
            graph.nodes[kind] = self._mapped(kind, nodes.num_nodes, width, named_by_id=named_by_id)
        return graph


def _means(graph: Graph, neighbours: Mapping[str, list[EdgeType]]) -> Iterator[csr_array]:
    """Yield the mean features of each node's neighbours, one type beside the other."""
    total = sum(graph.adjacency(e).indptr for some in neighbours.values() for e in some)
    widest = max(graph.nodes[other].width or 1 for other in neighbours)
    assert isinstance(total, torch.Tensor)
    for begin, end in Adjacency(total, torch.empty(0)).chunks(max(1, 8 * NUMBERS // widest)):
        blocks = [_mean(graph, other, some, begin, end) for other, some in neighbours.items()]
        yield csr_array(hstack(blocks))


def _mean(graph: Graph, other: str, relations: list[EdgeType], begin: int, end: int) -> csr_array:
    links = [graph.adjacency(e).links(torch.arange(begin, end)) for e in relations]
    parent, ends = (torch.cat(part) for part in zip(*links, strict=True))
    distinct, place = torch.unique(ends, return_inverse=True)
    x = graph.nodes[other].rows(distinct)
    assert x is not None
    features = x.numpy() if x.layout == torch.strided else to_scipy(x)
    return mean_rows(parent.numpy(), place.numpy(), end - begin, features)


def _one_hot(size: int) -> Iterator[csr_array]:
    """Yield one feature for each node."""
    for begin in range(0, size, TEXTS):
        rows = min(TEXTS, size - begin)
        yield csr_array(eye_array(rows, size, k=begin, dtype=np.float32, format="csr"))
