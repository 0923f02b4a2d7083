"""Load a graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hanme.common.files import whole
from hanme.data.store.cache import StoreCache, content_key
from hanme.data.store.open import open_store
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.graph import GraphSource
from hanme.data.tables.draft.infer import infer_frames
from hanme.data.tables.read.sources import data_files
from hanme.data.tables.schema.config import (
    FILE,
    check_config,
    config_path,
    read_config,
)
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import Features

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
    """Load the graph of a ``graph.toml``, or of the one in a folder, see :func:`hanme.data.load`.

    In a `cache` folder, it is kept until the tables change; large tables are mapped from there.
    """
    source = open_source(name, fitted)
    if cache is None:
        return _in_memory(source, features, seed)
    key = content_key(data_files(source.sources.values()), source.path.read_text("utf-8"))
    cached = StoreCache(cache, f"tables/{_short(str(source.path))}", key)
    large = source.size > LARGE
    # The training rows decide which columns are left out; a large store is shared by all seeds, so
    # those of the seed that it was built with do.
    variant = f"{features}-mapped" if large else f"{features}-{seed}"
    graph = cached.read(variant, mapped=large)
    learnt = fitted.learnt() if fitted else None
    if learnt is not None and (graph is None or graph.provenance.fitted != learnt):
        variant += f"-{_short(repr(learnt))}"  # the tables have grown since the run was trained
        graph = cached.read(variant, mapped=large)
    if graph is None and large:
        mb, path = source.size / 1e6, cached.path(variant)
        _report(f"{source.path}: {mb:,.0f} MB of tables; the graph is stored in {path}")

        def store(folder: Path) -> None:
            source.store(folder, features, seed, progress=_report)

        graph = cached.write(variant, store, mapped=True)
    elif graph is None:
        graph = cached.keep(variant, _in_memory(source, features, seed))
    return source.with_split(graph, seed)


def load_frames(
    frames: Mapping[str, Any],
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    label: str | None = None,
    features: Features = "given",
    seed: int = 0,
) -> Graph:
    """Make a graph from frames, see :meth:`hanme.graph.Graph.from_frames`."""
    named = isinstance(frames, Mapping) and all(isinstance(n, str) and n for n in frames)
    if not named or not frames:
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
    return _in_memory(GraphSource.find(checked, path, frames=frames), features, seed)


def is_large(name: str | Path) -> bool:
    """Return whether the graph of a ``graph.toml`` is stored on disk instead of loaded."""
    return open_source(name).size > LARGE


def open_source(name: str | Path, fitted: FittedGraph | None = None) -> GraphSource:
    """Find the tables of a ``graph.toml``, or of the one in a folder."""
    path = config_path(name)
    return GraphSource.find(read_config(path), path, fitted)


def _in_memory(source: GraphSource, features: Features, seed: int) -> Graph:
    with TemporaryDirectory(prefix="hanme-") as folder:
        source.store(Path(folder) / "graph", features, seed, for_memory=True)
        return open_store(Path(folder) / "graph", mapped=False)


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
