"""Make the nodes and links of tables as files of a store, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array, hstack

from hanme.data.store.files import StoreWriter
from hanme.data.store.manifest import NodeType
from hanme.data.store.open import stored_links, stored_nodes
from hanme.data.store.write import add_features, add_links, add_texts, index_dtype
from hanme.data.tables.build.features import Fitted, width
from hanme.data.tables.build.links import LinkRows, Made, read_links, repeated_how, say_repeated
from hanme.data.tables.build.nodes import Ids, NodeRows, feature_rows, learn
from hanme.data.tables.read.reader import column
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import LinkTable, NodeTable
from hanme.graph import EdgeType, Graph, Nodes
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.features import Features, mean_rows, to_fill, to_scipy

LINKS = 1 << 24
"""How many links are sorted at a time."""

NUMBERS = 1 << 22
"""About how many numbers of features are in memory at a time."""

TEXTS = 1 << 20
"""How many texts are in memory at a time."""


class OnDisk(Made):
    """Write nodes and links into a store, and give them as mapped from it.

    Links are joined and sorted by DuckDB, which uses the disk. A relation that has weights, or
    whose repeated links are an error, is read into memory.
    """

    def __init__(
        self,
        writer: StoreWriter,
        config: GraphConfig,
        features: Features,
        half: bool,
        progress: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.writer, self.features, self.half, self.progress = writer, features, half, progress
        self.kinds, self.reverse = list(config.node_types), dict(config.edge_types.values())
        self.replaced = {*self.kinds} - {config.target} if features in ("mean", "onehot") else set()
        self.edge_types = [e for pair in self.reverse.items() for e in pair]
        self.relations = Relations()
        self.links = self.relations

    def nodes(
        self, ids: Ids, rows: NodeRows | None, spec: NodeTable, known: dict[str, Fitted] | None
    ) -> tuple[Nodes, dict[str, Fitted]]:
        """Write ids, names and features of a node type, unless :meth:`fill` gives it others."""
        number = self.kinds.index(ids.kind)
        self.progress(f"{ids.kind}: {ids.size:,} nodes")
        add_texts(self.writer, f"nodes.{number}.ids", ids.texts(TEXTS))
        learnt = learn(rows, spec, known)
        columns = 0 if ids.kind in self.replaced else sum(map(width, learnt.values()))
        if rows is not None and columns:
            size = max(1, NUMBERS // columns)
            found = feature_rows(ids, rows.table, spec, learnt, size)
            add_features(self.writer, number, found, columns, self.half)
        if rows is not None and spec.name is not None:
            add_texts(self.writer, f"nodes.{number}.names", ids.texts(TEXTS, rows.table))
        by_id = rows is None or spec.name is None
        return self._nodes(ids.kind, ids.size, columns or None, by_id), learnt

    def _nodes(self, kind: str, size: int, columns: int | None, by_id: bool) -> Nodes:
        about = NodeType(nodes=size, width=columns, named_by_id=by_id, extra=[])
        return stored_nodes(self.writer.arrays, self.kinds.index(kind), kind, about)

    def add_links(self, rows: LinkRows, ids: Mapping[str, Ids]) -> int:
        """Write the links of a relation and of its reverse, see :func:`read_links`."""
        there = rows.edge_type
        pairs = ((there, "source", "target"), (self.reverse[there], "target", "source"))
        self.progress(f"{'-'.join(there)}: {rows.table.size:,} rows")
        how, reader = repeated_how(rows), rows.table.reader
        if how == "error" or (isinstance(rows.relation, LinkTable) and rows.relation.weight):
            return self._in_memory(rows, ids)
        numbered = reader.new_name()
        reader.connection.execute(
            f"CREATE TEMP TABLE {numbered} AS SELECT s.node AS source, t.node AS target FROM "
            f"{rows.numbered(ids)}",
            list(rows.values),
        )
        ((dropped,),) = reader.rows(
            f"SELECT count(*) FROM {numbered} WHERE source IS NULL OR target IS NULL"
        )
        if dropped and rows.relation.unknown == "refuse":
            read_links(rows, ids)  # which says where
        for edge_type, near, far in pairs:
            again = self._sorted(ids, numbered, edge_type, near, far, how == "first")
        say_repeated(rows, again)
        reader.connection.execute(f"DROP TABLE {numbered}")
        return int(dropped)

    def _in_memory(self, rows: LinkRows, ids: Mapping[str, Ids]) -> int:
        there = rows.edge_type
        edges, dropped = read_links(rows, ids)
        for edge_type, links in ((there, edges), (self.reverse[there], edges.flip(0))):
            number = self.edge_types.index(edge_type)
            sources, targets = ids[edge_type[0]].size, ids[edge_type[2]].size
            add_links(self.writer, number, Adjacency.of(links, sources), targets)
            self.relations.adjacency[edge_type] = stored_links(self.writer.arrays, number)
        return dropped

    def _sorted(
        self,
        ids: Mapping[str, Ids],
        numbered: str,
        edge_type: EdgeType,
        near: str,
        far: str,
        once: bool,
    ) -> int:
        """Write links sorted by one end, then the other; return how many are repetitions."""
        source, target = ids[edge_type[0]], ids[edge_type[2]]
        reader = source.reader
        both = f"FROM {numbered} WHERE source IS NOT NULL AND target IS NOT NULL"
        counted = f"count(DISTINCT {far})" if once else "count(*)"
        found = reader.arrays(
            f"SELECT {near} AS node, {counted} AS links, count(*) AS every {both} GROUP BY {near}"
        )
        begin = np.zeros(source.size + 1, np.int64)
        begin[1 + column(found, "node", 0)] = column(found, "links", 0)
        every = int(column(found, "every", 0).sum())
        begin = np.cumsum(begin)
        number = self.edge_types.index(edge_type)
        self.writer.add(f"links.{number}.begin", begin)
        again = every - int(begin[-1])
        with self.writer.array(f"links.{number}.end", index_dtype(target.size)) as ends:
            for first, last in Adjacency(torch.from_numpy(begin), torch.empty(0)).chunks(LINKS):
                some = reader.arrays(
                    f"SELECT {'DISTINCT' if once else ''} {near} AS near, {far} AS far {both} "
                    f"AND {near} >= ? AND {near} < ? ORDER BY near, far",
                    first,
                    last,
                )
                far_ends = column(some, "far", 0)
                ends.append(far_ends)
                same = far_ends[1:] == far_ends[:-1]
                inner = begin[first + 1 : last] - begin[first]
                same[inner[(inner > 0) & (inner < len(far_ends))] - 1] = False
                again += int(same.sum())
        self.relations.adjacency[edge_type] = stored_links(self.writer.arrays, number)
        return again

    def fill(self, graph: Graph) -> Graph:
        """Give every node type features, as :func:`~hanme.graph.features.fill_features` does."""
        back = self.reverse | {back: there for there, back in self.reverse.items()}
        for kind, into in to_fill(graph.nodes, self.relations, graph.target, self.features):
            size = graph.nodes[kind].num_nodes
            columns = sum(graph.nodes[other].width or 0 for other in into)
            means = {other: [back[e] for e in some] for other, some in into.items()}
            rows = _means(graph, means) if into else _ids(size)
            self._write(graph, kind, rows, columns if into else size)
        return graph

    def _write(self, graph: Graph, kind: str, rows: Iterator[csr_array], columns: int) -> None:
        self.progress(f"{kind}: {columns:,} features from its neighbours")
        nodes = graph.nodes[kind]
        add_features(self.writer, self.kinds.index(kind), rows, columns, self.half)
        by_id = nodes.names is nodes.ids
        graph.nodes[kind] = self._nodes(kind, nodes.num_nodes, columns, by_id)


def _means(graph: Graph, neighbours: Mapping[str, list[EdgeType]]) -> Iterator[csr_array]:
    """Yield the mean features of each node's neighbours, type by type side by side."""
    total = sum(graph.adjacency(e).indptr for some in neighbours.values() for e in some)
    widest = max(graph.nodes[other].width or 1 for other in neighbours)
    assert isinstance(total, torch.Tensor)
    for begin, end in Adjacency(total, torch.empty(0)).chunks(max(1, 8 * NUMBERS // widest)):
        blocks = [_mean(graph, other, some, begin, end) for other, some in neighbours.items()]
        yield csr_array(hstack(blocks))


def _mean(graph: Graph, other: str, relations: list[EdgeType], begin: int, end: int) -> csr_array:
    found = [graph.adjacency(e).links(torch.arange(begin, end)) for e in relations]
    parent, ends = (torch.cat(part) for part in zip(*found, strict=True))
    met, place = torch.unique(ends, return_inverse=True)
    x = graph.nodes[other].rows(met)
    assert x is not None
    features = x.numpy() if x.layout == torch.strided else to_scipy(x)
    return mean_rows(parent.numpy(), place.numpy(), end - begin, features)


def _ids(size: int) -> Iterator[csr_array]:
    """Yield a feature for each node."""
    for begin in range(0, size, TEXTS):
        rows = min(TEXTS, size - begin)
        yield csr_array(eye_array(rows, size, k=begin, dtype=np.float32, format="csr"))
