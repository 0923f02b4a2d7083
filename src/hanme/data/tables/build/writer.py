"""Write nodes, links and features into a store, a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array, hstack

from hanme.data.store.files import StoreWriter
from hanme.data.store.manifest import NodeType
from hanme.data.store.open import StoredAdjacency, StoredNodes
from hanme.data.store.write import add_features, add_texts, index_dtype
from hanme.data.tables.build.features import Fitted
from hanme.data.tables.build.links import LinkRows
from hanme.data.tables.build.nodes import NodeIds
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import NodeTable
from hanme.graph import EdgeType, Graph, Nodes
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.features import Features, mean_rows, to_fill, to_scipy

LINKS = 1 << 24
"""Links that are sorted at a time: 256 MB of node numbers."""

NUMBERS = 1 << 22
"""Numbers of features in memory at a time: 16 MB, and a few times that while they are computed."""

TEXTS = 1 << 20
"""Texts in memory at a time: about 100 MB of Python strings."""


class GraphWriter:
    """Write nodes and links into a store, and return them mapped from it.

    DuckDB joins and sorts the links, and uses the disk for it.
    """

    def __init__(
        self,
        store: StoreWriter,
        config: GraphConfig,
        features: Features,
        progress: Callable[[str], None],
    ) -> None:
        self.store, self.features, self.progress = store, features, progress
        self.kinds, self.reverse = list(config.node_types), dict(config.edge_types.values())
        self.replaced = {*self.kinds} - {config.target} if features in ("mean", "onehot") else set()
        self.edge_types = [e for pair in self.reverse.items() for e in pair]
        self.links = Relations()

    def add_nodes(self, ids: NodeIds, spec: NodeTable, fitted: Mapping[str, Fitted]) -> Nodes:
        """Write the nodes of a type; features that :meth:`fill` replaces are left out."""
        number = self.kinds.index(ids.kind)
        self.progress(f"{ids.kind}: {ids.size:,} nodes")
        add_texts(self.store, f"nodes.{number}.ids", ids.texts(TEXTS))
        width = sum(map(len, fitted.values())) if ids.kind not in self.replaced else 0
        if width:
            x = ids.features(spec, fitted, max(1, NUMBERS // width))
            add_features(self.store, number, x, width)
        if spec.name is not None:
            add_texts(self.store, f"nodes.{number}.names", ids.texts(TEXTS, names=True))
        return self._mapped(ids.kind, ids.size, width or None, named_by_id=spec.name is None)

    def _mapped(self, kind: str, size: int, width: int | None, *, named_by_id: bool) -> Nodes:
        about = NodeType(nodes=size, width=width, named_by_id=named_by_id, extra=[])
        return StoredNodes(self.store.arrays, self.kinds.index(kind), kind, about)

    def add_links(self, links: LinkRows, ids: Mapping[str, NodeIds]) -> int:
        """Write the links of a relation and of its reverse; return how many were dropped."""
        self.progress(f"{'-'.join(links.edge_type)}: links")
        source, target = (ids[kind] for kind in links.edge_type[::2])
        sql, dropped = links.number(source, target)
        self._write_links(links.edge_type, sql, ("source", source), ("target", target))
        back = self.reverse[links.edge_type]
        self._write_links(back, sql, ("target", target), ("source", source))
        source.reader.rows(f"DROP TABLE {sql}")
        return dropped

    def _write_links(
        self, edge_type: EdgeType, sql: str, start: tuple[str, NodeIds], end: tuple[str, NodeIds]
    ) -> None:
        """Write links by their start, sorted by both ends."""
        (near, starts), (far, ends), number = start, end, self.edge_types.index(edge_type)
        node, count = starts.reader.arrays(f"SELECT {near}, count(*) FROM {sql} GROUP BY {near}")
        begin = np.zeros(starts.size + 1, np.int64)
        begin[1 + node] = count
        begin = np.cumsum(begin)
        self.store.add(f"links.{number}.begin", begin)
        with self.store.array(f"links.{number}.end", index_dtype(ends.size)) as column:
            for first, last in Adjacency(torch.from_numpy(begin), torch.empty(0)).chunks(LINKS):
                some = f"FROM {sql} WHERE {near} >= {first} AND {near} < {last}"
                column.append(*starts.reader.arrays(f"SELECT {far} {some} ORDER BY {near}, {far}"))
        self.links.adjacency[edge_type] = StoredAdjacency(self.store.arrays, number)

    def fill(self, graph: Graph) -> None:
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
            add_features(self.store, self.kinds.index(kind), x, width)
            named_by_id = nodes.names is nodes.ids
            graph.nodes[kind] = self._mapped(kind, nodes.num_nodes, width, named_by_id=named_by_id)


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
