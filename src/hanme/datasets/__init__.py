"""Load graphs.

A data set is called by its name, or by the path of a ``graph.toml`` that describes a user's own
tables. ``IMDB`` is the data set; ``./IMDB`` is a folder of that name.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from hanme.common.options import check_options
from hanme.datasets.hgb import load_hgb
from hanme.datasets.planted import planted
from hanme.datasets.tables import (
    FILE,
    FittedGraph,
    config_path,
    is_tables,
    load_frames,
    load_tables,
)
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import Features

__all__ = [
    "METAPATHS",
    "FittedGraph",
    "cache_folder",
    "default_features",
    "is_tables",
    "known_name",
    "load",
    "load_frames",
    "load_hgb",
    "load_tables",
    "planted",
    "refuse_ambiguous",
    "tables_name",
]

METAPATHS: dict[str, list[str]] = {
    "planted": ["movie-director-movie", "movie-actor-movie"],
    "IMDB": ["movie-director-movie", "movie-actor-movie"],
    "ACM": ["paper-author-paper", "paper-subject-paper"],
    "DBLP": ["author-paper-author", "author-paper-venue-paper-author"],
    "Freebase": ["BOOK-BOOK"],
}
"""The data sets by name, each with its default metapaths. IMDB's are the paper's."""


def load(
    name: str,
    *,
    source: str | Path | None = None,
    features: Features | None = None,
    seed: int = 483,
    options: dict[str, Any] | None = None,
    fitted: FittedGraph | None = None,
) -> Graph:
    """Load a graph by name: ``planted``, one of the benchmark's, or a ``graph.toml``.

    Args:
        name: A name of ``METAPATHS``; or a ``graph.toml``, or a folder with one.
        source: Where the benchmark's files are: a folder or an archive; or another ``graph.toml``
            to read instead of the one named.
        features: What node types other than the target get, see
            :func:`~hanme.graph.features.fill_features` (default: :func:`default_features`).
        seed: Draws the validation nodes, and the whole planted graph.
        options: Further keyword arguments of :func:`planted`.
        fitted: What a run has learnt from the columns of its ``graph.toml``.
    """
    name = known_name(name)
    features = features or default_features(name)
    options = options or {}
    if name == "planted":
        if source is not None:
            raise HanmeError(f"planted is made on the spot: it takes no files, but got {source}")
        check_options("planted", planted, options, own=("seed",))
        graph = planted(seed=seed, **options).with_features(features)
    elif options:
        raise HanmeError(f"{name} takes no options, but got {', '.join(options)}")
    elif is_tables(name):
        graph = load_tables(
            source or name, features=features, seed=seed, fitted=fitted, cache=cache_folder()
        )
    else:
        graph = load_hgb(name, cache_folder(), source=source, seed=seed)
        graph = replace(graph, metapaths=METAPATHS[name]).with_features(features)
    origin = {"name": name, "source": None if source is None else str(source), "seed": seed}
    return replace(graph, origin=origin | {"features": features, "options": options})


def known_name(name: str) -> str:
    """Return the name that loads a data set from any folder.

    That is its spelling in ``METAPATHS``, in whatever case it was typed, or the whole path of a
    ``graph.toml``. In another case than there, the name of a folder with one is refused.
    """
    if name in METAPATHS:
        return name
    for known in METAPATHS:
        if known.lower() == name.lower():
            refuse_ambiguous(name)
            return known
    if is_tables(name):
        return tables_name(name)
    raise HanmeError(
        f"unknown data set {name!r}; there are {', '.join(METAPATHS)}, or name a graph.toml"
    )


def refuse_ambiguous(name: str) -> None:
    """Refuse the name of a benchmark data set, in any case, where a folder here is called so."""
    known = next((known for known in METAPATHS if known.lower() == name.lower()), None)
    if known is not None and (Path(name) / FILE).exists():
        raise HanmeError(
            f"{name}: the data set {known}, or the folder here? Write ./{name} for the folder"
            + (f", or {known} for the data set" if name != known else "")
        )


def tables_name(path: str | Path) -> str:
    """Return the whole path of a ``graph.toml``, or of the one in a folder."""
    if not is_tables(path):
        raise HanmeError(f"{path}: not a graph.toml, nor a folder with one")
    return str(config_path(path))


def default_features(name: str) -> Features:
    """Return what node types other than the target get by default.

    Tables and ``planted`` keep the features they have. A benchmark graph gets the mean of the
    target's features, as in the paper.
    """
    return "given" if name.lower() == "planted" or is_tables(name) else "mean"


def cache_folder() -> Path:
    """Return the folder of downloads and parsed graphs: ``HANME_CACHE``, or the user's cache."""
    return Path(os.environ.get("HANME_CACHE") or platformdirs.user_cache_dir("hanme"))
