"""Load a graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.store import GraphCache, content_key, open_store
from hanme.data.store.write import create_store, finish
from hanme.data.tables.build.builders import MemoryBuilder, StoreBuilder
from hanme.data.tables.build.expand import expand_each
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.graph import build_graph
from hanme.data.tables.build.split import check_parts, draw_split
from hanme.data.tables.draft.infer import infer_frames
from hanme.data.tables.read.reader import Reader
from hanme.data.tables.read.sources import ResolvedSource, data_files
from hanme.data.tables.schema.config import (
    FILE,
    GraphConfig,
    check_config,
    config_path,
    read_config,
)
from hanme.data.tables.schema.sections import LinkTable, Source
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.defaults import with_defaults
from hanme.graph.features import Features, check_features

LARGE = 1 << 28
"""Total bytes of tables above which the graph is mapped from disk instead of loaded: 256 MB."""


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
        fitted: What a run has fitted to its tables. Features are then those of the run, and labels
            that it does not know count as none.
        cache: A folder to keep the graph in, from which it is read until the tables change. Large
            tables are mapped from there, see :data:`LARGE`.
    """
    return GraphSource.of(name, fitted).load(features, seed, cache)


def load_frames(
    frames: Mapping[str, Any],
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    label: str | None = None,
    features: Features = "given",
    seed: int = 0,
) -> Graph:
    """Make a graph from frames, see :meth:`hanme.graph.Graph.from_frames`."""
    if not frames or not all(isinstance(name, str) and name for name in frames):
        raise HanmeError("Expected `frames` to be tables by name, such as {'films': films}")
    path = Path.cwd() / FILE
    if config is not None and label is not None:
        raise HanmeError("`label` is for inference; a configuration names the label itself")
    if isinstance(config, str | Path):
        path = whole(config)
        checked = read_config(path)
    elif config is not None:
        checked = check_config(dict(config), "config")
    else:
        checked = infer_frames(frames, label).config
    return GraphSource.find(checked, path, frames=frames).load(features, seed)


def is_large(name: str | Path) -> bool:
    """Return whether the graph of a ``graph.toml`` is stored on disk instead of loaded."""
    return GraphSource.of(name).size > LARGE


def _report(text: str) -> None:
    """Report progress to the user."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class GraphSource:
    """A ``graph.toml`` and the files of its tables."""

    path: Path  # the file, beside which its tables are
    config: GraphConfig  # its content; no relation has ``each``
    sources: Mapping[str, ResolvedSource]  # where its tables are
    fitted: FittedGraph | None = None  # what a run has fitted, whose order `config` then has

    @classmethod
    def of(cls, name: str | Path, fitted: FittedGraph | None = None) -> GraphSource:
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
    ) -> GraphSource:
        """Find the tables of a configuration in files, or among frames by name."""
        known = None if fitted is None else set(fitted.relations)
        config = expand_each(config, path, known, frames)
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
            graph = build_graph(reader, self.config, self.sources, self.fitted, MemoryBuilder())
        graph = graph.with_reverse(dict(self.config.edge_types.values())).with_features(features)
        return self._with_metapaths(graph)

    def _store_large(
        self, cached: GraphCache, variant: str, features: Features, seed: int
    ) -> Graph:
        folder = cached.path(variant)
        _report(
            f"{self.path}: {self.size / 1e6:,.0f} MB of tables; the graph is stored in {folder}"
        )
        cached.clear(variant)
        self.store(folder, features, seed, half=False, progress=_report)
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
            builder = StoreBuilder(writer, self.config, features, half, progress)
            with Reader(self.sources.values(), self.path.parent, writer.folder) as reader:
                graph = build_graph(reader, self.config, self.sources, self.fitted, builder)
            graph = builder.fill(graph)
            progress("metapaths")
            graph = self._with_metapaths(self._with_split(graph, seed), stored=True)
            finish(writer, graph, features)

    def _with_split(self, graph: Graph, seed: int) -> Graph:
        """Draw the parts of the split that the tables leave open."""
        graph = draw_split(graph, self.config, seed)
        if self.fitted is None:
            check_parts(graph, self.config, str(self.path))
        return graph

    def _with_metapaths(self, graph: Graph, *, stored: bool = False) -> Graph:
        """Choose the default metapaths."""
        if self.config.metapaths is not None:
            return replace(graph, metapaths=self.config.metapaths)
        return with_defaults(graph, self.config.default_metapaths(), stored=stored)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
