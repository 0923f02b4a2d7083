"""Build a graph from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hanme.data.store.write import create_store, finish
from hanme.data.tables.build.features import Fitted, fit
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.leakage import find_leaks, near_duplicates, repeated
from hanme.data.tables.build.links import LinkRows, open_relations
from hanme.data.tables.build.nodes import NodeIds, feature_aliases, read_nodes
from hanme.data.tables.build.target import (
    check_parts,
    draw_split,
    name_labels,
    read_labels,
    read_parts,
)
from hanme.data.tables.build.writer import GraphWriter
from hanme.data.tables.read.reader import Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import LinkTable, Source
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Split, Texts
from hanme.graph.defaults import with_defaults
from hanme.graph.features import Features, check_features
from hanme.graph.splits import GROUPS


@dataclass(frozen=True)
class GraphSource:
    """A ``graph.toml`` and its tables, from which a store is built without loading the graph."""

    path: Path  # the ``graph.toml``, beside which its tables are
    config: GraphConfig  # its content
    sources: Mapping[str, ResolvedSource]  # its tables, by section such as ``nodes.film``
    fitted: FittedGraph | None = None  # what a run has fitted; features and labels are then its own

    @classmethod
    def find(
        cls,
        config: GraphConfig,
        path: Path,
        fitted: FittedGraph | None = None,
        frames: Mapping[str, Any] | None = None,
    ) -> GraphSource:
        """Find the tables of a configuration in files, or among frames by name."""
        specs: dict[str, Source] = {
            f"nodes.{kind}": nodes for kind, nodes in config.nodes.items() if not nodes.implied
        } | {f"relations.{n}": r for n, r in config.relations.items() if isinstance(r, LinkTable)}
        sources = {k: ResolvedSource.find(s, path.parent, k, frames) for k, s in specs.items()}
        return cls(path, config, sources, fitted)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        files = {file for table in self.sources.values() for file in table.files}
        return sum(file.stat().st_size for file in files)

    def store(
        self,
        folder: Path,
        features: Features,
        seed: int,
        *,
        progress: Callable[[str], None] = lambda text: None,
        for_memory: bool = False,
    ) -> None:
        """Store the graph, see :func:`hanme.data.store_graph`.

        With `for_memory`, metapaths are chosen for a graph that will be read into memory.
        """
        check_features(features)
        if features == "names":
            raise HanmeError(
                'features names: in tables, a column of names is a feature of kind "text"'
            )
        with create_store(folder) as store:
            with Reader(self.sources.values(), self.path.parent, store.folder) as reader:
                config, tables, ids, relations = self.open(reader)
                size = ids[config.target].size
                targets, again = self._targets(config, tables[config.target], size)
                leaks = self._leaks(config, tables, relations, targets, again, seed)
                config = config.without_relations(leaks)
                writer = GraphWriter(store, config, features, progress)
                graph = self._build(writer, config, tables, ids, relations, targets, leaks)
            graph = self.with_split(graph, seed)
            progress("metapaths")
            if config.metapaths is not None:
                graph = replace(graph, metapaths=config.metapaths)
            else:
                defaults = config.default_metapaths()
                graph = with_defaults(graph, defaults, stored=not for_memory)
            finish(store, graph, features)

    def with_split(self, graph: Graph, seed: int) -> Graph:
        """Draw the parts of the split that the tables leave open."""
        graph = draw_split(graph, self.config, seed)
        if self.fitted is None:
            check_parts(graph, self.config, str(self.path))
        return graph

    def open(
        self, reader: Reader
    ) -> tuple[GraphConfig, dict[str, Table], dict[str, NodeIds], dict[str, LinkRows]]:
        """Read the rows of all node types and relations, and number the nodes.

        Returns:
            A configuration in which no relation has ``each``; and by name, the tables of nodes,
            their ids and the rows of relations.
        """
        tables = {
            kind: read_nodes(reader, self.sources[f"nodes.{kind}"], self.config, kind)
            for kind, spec in self.config.nodes.items()
            if not spec.implied
        }
        target = self.config.nodes[self.config.target]
        if names := target.label_type:
            labels = tables[self.config.target], tables[names], target.label_separator
            tables[self.config.target] = name_labels(*labels)
        ids = {k: NodeIds(reader, k, tables.get(k)) for k in self.config.node_types}
        known = set(self.fitted.relations) if self.fitted else None
        opened = open_relations(reader, self.config, self.sources, ids, known)
        relations = {links.name: links for some in opened.values() for links in some}
        specs = {name: links.spec for name, links in relations.items()}
        config = self.config.model_copy(update={"relations": specs})
        try:
            config.check_names()
        except ValueError as error:
            raise HanmeError(f"{self.path}: {error}") from None
        if self.fitted:
            config = self.fitted.fit_to(config.without_relations(self.fitted.leaks), self.path)
        return config, tables, ids, relations

    def _targets(
        self, config: GraphConfig, table: Table, size: int
    ) -> tuple[Graph, NDArray[np.bool_]]:
        """Read labels, split column and near-duplicates.

        Returns:
            A graph of the target's nodes alone, and the rows that repeat earlier ones.
        """
        part = read_parts(config, table, size)
        y, labels = read_labels(table, config.nodes[config.target], size, self.fitted, part != 0)
        labelled = (y > 0).any(dim=1) if y.dim() == 2 else y >= 0
        split = Split.of(torch.where(labelled, torch.from_numpy(part), -1))
        nodes = Nodes(config.target, size)
        columns = [alias for alias in table.columns if alias not in ("id", "label", "split")]
        groups = near_duplicates(table, columns)
        again = repeated(groups, table.size)
        if groups is not None and not (config.split and config.split.duplicates == "apart"):
            table.reader.notes.append(
                f"{int(again.sum()):,} rows of {config.target} nearly repeat others and are drawn "
                "together with these, into parts of the split as into folds. To draw each row by "
                'itself, write [split] duplicates = "apart"'
            )
            alone = np.arange(table.size, size) + size  # ids without a row
            nodes.extra[GROUPS] = torch.from_numpy(np.concatenate([groups, alone]))
        return Graph({config.target: nodes}, {}, config.target, y, labels, split), again

    def _leaks(
        self,
        config: GraphConfig,
        tables: Mapping[str, Table],
        relations: Mapping[str, LinkRows],
        targets: Graph,
        again: NDArray[np.bool_],
        seed: int,
    ) -> list[str]:
        """Return what gives the label away in training rows, or did when a run was trained."""
        if self.fitted:
            return self.fitted.leaks
        train = draw_split(targets, config, seed).split.train.numpy()
        hidden = ~train[: tables[config.target].size] | again
        return find_leaks(config, tables, relations.values(), hidden)

    def _build(
        self,
        writer: GraphWriter,
        config: GraphConfig,
        tables: Mapping[str, Table],
        ids: Mapping[str, NodeIds],
        relations: Mapping[str, LinkRows],
        targets: Graph,
        leaks: list[str],
    ) -> Graph:
        """Write nodes, links and features; the split is still open."""
        run, nodes, fitted = self.fitted, dict[str, Nodes](), dict[str, dict[str, Fitted]]()
        for kind, spec in config.node_types.items():
            used = [c for c in spec.features if config.column_name(kind, c) not in leaks]
            columns = run.features[kind] if run else dict.fromkeys(used)
            fitted[kind] = {
                column: fit(tables[kind], feature_aliases(spec)[column], spec.features[column], one)
                for column, one in columns.items()
            }
            nodes[kind] = writer.add_nodes(ids[kind], spec, fitted[kind])
        dropped = {name: writer.add_links(relations[name], ids) for name in config.relations}
        graph = replace(targets, nodes=nodes, links=writer.links)
        graph.targets.extra.update(targets.targets.extra)
        writer.fill(graph)
        digest = _digest(graph, config)
        run = run or FittedGraph(
            target=config.target,
            labels=graph.labels,
            multilabel=graph.multilabel,
            relations=writer.edge_types,
            features=fitted,
            leaks=leaks,
            trained_on=digest,
        )
        return graph.with_provenance(
            fitted=run.learnt(),
            dropped_links=dropped,
            notes=tables[config.target].reader.notes,
            digest=digest,
            display=config.display,
        )


def _digest(graph: Graph, config: GraphConfig) -> str:
    """Hash the target's ids, labels and split, whatever files they come from."""
    digest = hashlib.sha256(config.nodes[config.target].shares.model_dump_json().encode())
    if config.split is not None:
        digest.update(config.split.model_dump_json(exclude={"duplicates"}).encode())
    ids = graph.targets.ids
    assert isinstance(ids, Texts)
    y = graph.y.numpy().astype(np.uint8 if graph.multilabel else np.int32)
    masks = graph.split.test.numpy(), graph.split.val.numpy()
    for array in (ids.text, ids.offsets.astype(np.int64), y, *masks):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
