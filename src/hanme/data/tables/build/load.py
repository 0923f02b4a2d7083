"""Load a graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hanme.data.store import GraphCache, content_key, open_store
from hanme.data.store.write import WORK, add_labels, create_store, finish
from hanme.data.tables.build.expand import expand
from hanme.data.tables.build.features import Fitted
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.labels import read_labels
from hanme.data.tables.build.links import LinkRows, Made, open_links
from hanme.data.tables.build.nodes import Ids, read_rows
from hanme.data.tables.build.split import (
    GROUP,
    check_parts,
    check_split,
    conditions,
    draw,
    groups,
    read_split,
)
from hanme.data.tables.build.store_builder import OnDisk
from hanme.data.tables.read.reader import Reader
from hanme.data.tables.read.sources import ResolvedSource, data_files
from hanme.data.tables.schema.config import GraphConfig, config_path, read_config
from hanme.data.tables.schema.sections import LinkTable, Source
from hanme.graph import Graph, Nodes, Texts
from hanme.graph.defaults import with_defaults
from hanme.graph.features import Features, check_features

LARGE = 1 << 28
"""Tables whose files have more bytes together are stored on disk by themselves: 256 MB."""


def load_tables(
    name: str | Path,
    *,
    features: Features = "given",
    seed: int = 0,
    fitted: FittedGraph | None = None,
    cache: Path | None = None,
) -> Graph:
    """Load the graph of a ``graph.toml``.

    Args:
        name: The file, or a folder with one of that name.
        features: What node types other than the target get, see
            :func:`~hanme.graph.features.fill_features`.
        seed: Draws the split where the tables have none.
        fitted: What a run has learnt from its tables. Features are then made in its way, and labels
            that it does not know count as none.
        cache: A folder to keep the graph in; it is read from there while the tables stay the same.
            If the tables are large, it is a store, see :data:`LARGE`.
    """
    return Tables.of(name, fitted).load(features, seed, cache)


def is_large(name: str | Path) -> bool:
    """Return whether the graph of a ``graph.toml`` is stored on disk instead of loaded."""
    return Tables.of(name).size > LARGE


def tell(text: str) -> None:
    """Tell the user what takes long."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Tables:
    """A ``graph.toml`` whose tables were found."""

    path: Path  # the file, beside which its tables are
    config: GraphConfig  # what it says; no relation has ``each``
    sources: Mapping[str, ResolvedSource]  # where its tables are
    fitted: FittedGraph | None = None  # what a run has learnt, in whose order `config` then is

    @classmethod
    def of(cls, name: str | Path, fitted: FittedGraph | None = None) -> Tables:
        """Find the tables of a ``graph.toml``, or of the one in a folder."""
        path = config_path(name)
        return cls.find(read_config(path), path, fitted)

    @classmethod
    def find(
        cls,
        config: GraphConfig,
        path: Path,
        fitted: FittedGraph | None = None,
        frames: Mapping[str, Any] | None = None,
    ) -> Tables:
        """Find the tables of a configuration in files, or among frames by name."""
        known = None if fitted is None else set(fitted.relations)
        config = expand(config, path, known, frames)
        specs: dict[str, Source] = {
            f"nodes.{kind}": nodes for kind, nodes in config.nodes.items() if not nodes.implied
        } | {f"relations.{n}": r for n, r in config.relations.items() if isinstance(r, LinkTable)}
        sources = {k: ResolvedSource.find(s, path.parent, k, frames) for k, s in specs.items()}
        config = config if fitted is None else fitted.fit_to(config, path)
        return cls(path, config, sources, fitted)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        files = {file for source in self.sources.values() for file in source.files}
        return sum(file.stat().st_size for file in files)

    def load(self, features: Features, seed: int, cache: Path | None = None) -> Graph:
        """Load the graph, see :func:`load_tables`."""
        check_features(features)
        if cache is None:
            return self._with_split(self._in_memory(features), seed)
        key = content_key(data_files(self.sources.values()), self.path.read_text("utf-8"))
        cached = GraphCache(cache / "tables" / _short(str(self.path)), key)
        large = self.size > LARGE
        variant = f"{features}-{seed}" if large else features
        graph = cached.read(variant, mapped=large)
        learnt = self.fitted.learnt() if self.fitted else None
        if graph is not None and learnt not in (None, graph.provenance.fitted):
            graph = None  # the tables have grown since the run was trained
        if graph is None and learnt is not None:
            variant += f"-{_short(repr(learnt))}"
            graph = cached.read(variant, mapped=large)
        if large:
            return graph or self._store_large(cached, variant, features, seed)
        return self._with_split(graph or cached.keep(variant, self._in_memory(features)), seed)

    def _in_memory(self, features: Features) -> Graph:
        """Read the tables, fill in features and choose metapaths; the split is still open."""
        with Reader(self.sources.values(), self.path.parent) as reader:
            graph = self._build(reader, Made())
        graph = graph.with_reverse(dict(self.config.edge_types.values())).with_features(features)
        return self._with_metapaths(graph)

    def _store_large(
        self, cached: GraphCache, variant: str, features: Features, seed: int
    ) -> Graph:
        folder = cached.path(variant)
        tell(f"{self.path}: {self.size / 1e6:,.0f} MB of tables; the graph is stored in {folder}")
        cached.clear(variant)
        self.store(folder, features, seed, half=False, progress=tell)
        return open_store(folder)

    def store(
        self,
        folder: Path,
        features: Features,
        seed: int,
        half: bool,
        progress: Callable[[str], None],
    ) -> None:
        """Store the graph without holding it in memory, see :func:`hanme.data.store_graph`."""
        check_features(features)
        with create_store(folder) as writer:
            made = OnDisk(writer, self.config, features, half, progress)
            with Reader(self.sources.values(), self.path.parent, folder / WORK) as reader:
                graph = self._build(reader, made)
            graph = made.fill(graph)
            progress("metapaths")
            graph = self._with_metapaths(self._with_split(graph, seed), stored=True)
            add_labels(writer, graph)
            finish(writer, graph, features)

    def _with_split(self, graph: Graph, seed: int) -> Graph:
        """Draw the parts of the split that the tables leave open."""
        graph = draw(graph, self.config, seed)
        if self.fitted is None:
            check_parts(graph, self.config, str(self.path))
        return graph

    def _with_metapaths(self, graph: Graph, *, stored: bool = False) -> Graph:
        """Choose the default metapaths."""
        if self.config.metapaths is not None:
            return replace(graph, metapaths=self.config.metapaths)
        return with_defaults(graph, self.config.default_metapaths(), stored=stored)

    def _build(self, reader: Reader, made: Made) -> Graph:
        """Read the tables into a graph; made in memory, it has no reverse relations."""
        config, sources, fitted = self.config, self.sources, self.fitted
        types = config.node_types
        rows = {
            kind: read_rows(reader, sources[f"nodes.{kind}"], config, kind)
            for kind, spec in types.items()
            if not spec.implied
        }
        ids = {
            kind: Ids(reader, kind, rows[kind].table if kind in rows else None) for kind in types
        }
        opened: list[LinkRows] = []
        for name in config.relations:
            source = sources.get(f"relations.{name}")
            opened.append(open_links(reader, config, name, source, rows, opened))
            opened[-1].add_ids(ids, set(types) - set(rows))
            opened[-1].say_none()

        nodes: dict[str, Nodes] = {}
        learnt: dict[str, dict[str, Fitted]] = {}
        for kind, spec in types.items():
            known = fitted.features[kind] if fitted else None
            nodes[kind], learnt[kind] = made.nodes(ids[kind], rows.get(kind), spec, known)
        target, mine, size = (
            config.nodes[config.target],
            rows[config.target],
            ids[config.target].size,
        )
        part = conditions(config, mine, size)
        run = (fitted.labels, fitted.multilabel) if fitted else None
        labels = read_labels(mine, target, size, run, part > 0)
        split = read_split(config, mine, labels, part)
        if fitted is None and target.split is not None:
            check_split(labels, split, mine.table)
        dropped = {links.name: made.add_links(links, ids) for links in opened}
        graph = Graph(
            nodes,
            made.links,
            config.target,
            labels.y,
            labels.names,
            split,
        )
        group = groups(config, mine, graph)
        if group is not None:
            graph.targets.extra[GROUP] = group
        digest = _digest(graph, config)
        fitted = fitted or FittedGraph(
            target=config.target,
            labels=labels.names,
            multilabel=labels.multilabel,
            relations=[e for pair in config.edge_types.values() for e in pair],
            features=learnt,
            trained_on=digest,
        )
        return graph.with_provenance(
            fitted=fitted.learnt(), dropped_links=dropped, notes=reader.notes, digest=digest
        )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def _digest(graph: Graph, config: GraphConfig) -> str:
    """Hash the target's ids, labels and split, whatever files they come from."""
    digest = hashlib.sha256(config.nodes[config.target].shares.model_dump_json().encode())
    if config.split is not None:
        digest.update(config.split.model_dump_json().encode())
    ids = graph.targets.ids
    assert isinstance(ids, Texts)
    y = graph.y.numpy().astype(np.uint8 if graph.multilabel else np.int32)
    masks = graph.split.test.numpy(), graph.split.val.numpy()
    for array in (ids.text, ids.offsets.astype(np.int64), y, *masks):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
