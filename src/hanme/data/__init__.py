"""Load graphs.

A data set is referred to by its name, or by the path of a ``graph.toml`` that describes a user's
own tables, or of a store. ``IMDB`` is the data set; ``./IMDB`` is a folder of that name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from hanme.common.options import check_options
from hanme.data.hgb import load_hgb
from hanme.data.planted import planted
from hanme.data.store.open import check_store, is_store, open_store, stored_features
from hanme.data.store.write import write_store
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.load import load_frames, load_tables, open_source
from hanme.data.tables.schema.config import FILE, config_path, is_tables
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import Features

__all__ = [
    "METAPATHS",
    "check_store",
    "default_features",
    "is_store",
    "is_tables",
    "known_name",
    "load",
    "load_frames",
    "planted",
    "store_graph",
]

METAPATHS: dict[str, list[str]] = {
    "planted": ["movie-director-movie", "movie-actor-movie"],
    "IMDB": ["movie-director-movie", "movie-actor-movie"],
    "ACM": ["paper-author-paper", "paper-subject-paper"],
    "DBLP": ["author-paper-author", "author-paper-venue-paper-author"],
}
"""The data sets by name, each with its default metapaths. IMDB's are the paper's."""


def load(
    name: str,
    *,
    source: str | Path | None = None,
    features: Features | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    fitted: FittedGraph | None = None,
) -> Graph:
    """Load a graph by name or path.

    Args:
        name: A name of ``METAPATHS``; or a ``graph.toml``, a folder with one, or a store.
        source: Where the benchmark's files are: a folder or an archive (default: the environment
            variable ``HANME_DATA``, else a download); or another ``graph.toml`` or store to read
            instead of the one named.
        features: What node types other than the target get, see
            :func:`~hanme.graph.features.fill_features` (default: a store's own, else ``"given"``).
        seed: Draws the validation nodes, and the whole planted graph.
        options: Further keyword arguments of :func:`planted`.
        fitted: What a run has fitted to the columns of its ``graph.toml``.
    """
    name, options = known_name(name), options or {}
    if options and name != "planted":
        raise HanmeError(f"{name} takes no options, but got {', '.join(options)}")
    cache = Path(os.environ.get("HANME_CACHE") or platformdirs.user_cache_dir("hanme"))
    if is_store(source or name):
        name, source, seed, options = known_name(str(source or name)), None, 0, {}
        graph, features = _open(name, features, fitted)
    elif name == "planted":
        if source is not None:
            raise HanmeError(f"planted is generated and takes no files, but got {source}")
        check_options("planted", planted, options, own=("seed",))
        graph = planted(seed=seed, **options).with_features(features := features or "given")
    elif name in METAPATHS:
        graph = replace(load_hgb(name, cache, source, seed), metapaths=METAPATHS[name])
        graph = graph.with_features(features := features or "given")
    else:
        features = features or "given"
        graph = load_tables(
            source or name, features=features, seed=seed, fitted=fitted, cache=cache
        )
    origin = {"name": name, "source": None if source is None else str(source), "seed": seed}
    return graph.with_provenance(origin=origin | {"features": features, "options": options})


def _open(
    name: str, features: Features | None, fitted: FittedGraph | None
) -> tuple[Graph, Features]:
    """Open a store, if it has the features that were requested; return how they were filled."""
    graph, stored = open_store(name), stored_features(name)
    if features not in (None, stored):
        raise HanmeError(f"{name}: stored with features = {stored}, not {features}; store it again")
    learnt = {**(graph.provenance.fitted or {}), "trained_on": ""}
    if fitted is not None and fitted.learnt() | {"trained_on": ""} != learnt:
        raise HanmeError(
            f"{name}: stored with other features, labels or relations than the run was trained with"
        )
    return graph, stored


def store_graph(
    name: str,
    folder: Path,
    *,
    progress: Callable[[str], None] = lambda text: None,
    **arguments: Any,
) -> None:
    """Store a graph in a new or empty folder, which :func:`load` then opens by mapping its files.

    ``progress`` is called with a line about each part. Other arguments are those of :func:`load`.
    """
    name, source = known_name(name), arguments.get("source")
    if is_tables(name) and not is_store(source or name) and not arguments.get("options"):
        filled: Features = arguments.get("features") or "given"
        seed = arguments.get("seed", 0)
        open_source(source or name).store(folder, filled, seed, progress=progress)
        return
    graph = load(name, **arguments)
    features = graph.provenance.origin["features"] if graph.provenance.origin else "given"
    write_store(graph, folder, features=features, progress=progress)


def known_name(name: str) -> str:
    """Return the name that loads a data set from any folder: a known one, or an absolute path."""
    if name in METAPATHS:
        if (Path(name) / FILE).exists():
            raise HanmeError(f"{name}: the data set or the folder? Write ./{name} for the folder")
        return name
    if is_store(name):
        return str(Path(name).absolute())
    if is_tables(name):
        return str(config_path(name))
    if os.path.isdir(name):
        raise HanmeError(f"{name}: a folder without a {FILE}; write one with: hanme init {name}")
    raise HanmeError(
        f"unknown data set {name!r}; expected {', '.join(METAPATHS)}, a graph.toml or a store"
    )


def default_features(name: str) -> Features:
    """Return the features of other node types by default: a store's own, else ``"given"``."""
    return stored_features(name) if is_store(name) else "given"
