"""Where graphs come from.

Each is a ``HeteroData`` with, beside ``x`` and ``edge_index``: ``target``, the node type to
classify; ``multilabel``; names of nodes in ``data[type].name``; and on the target ``y``,
``label_names``, ``train_mask``, ``val_mask`` and ``test_mask``. A data set is called by its name,
or by the path of a ``graph.toml`` that describes a user's own tables; a folder that is called like
a data set is ``./IMDB``.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from torch_geometric.data import HeteroData

from hanme.datasets.features import fill_features
from hanme.datasets.hgb import HGB
from hanme.datasets.planted import planted
from hanme.datasets.tables import FittedGraph, load_tables
from hanme.datasets.tables_config import config_path, is_tables, read_config
from hanme.errors import HanmeError

__all__ = [
    "HGB",
    "METAPATHS",
    "FittedGraph",
    "cache_folder",
    "default_features",
    "default_metapaths",
    "is_tables",
    "known_name",
    "load",
    "load_tables",
    "planted",
    "tables_name",
]

METAPATHS: dict[str, list[str]] = {
    "planted": ["movie-director-movie", "movie-actor-movie"],
    "IMDB": ["movie-director-movie", "movie-actor-movie"],
    "ACM": ["paper-author-paper", "paper-subject-paper"],
    "DBLP": ["author-paper-author", "author-paper-venue-paper-author"],
    "Freebase": ["BOOK-BOOK"],
}
"""The metapaths a model is given by default. IMDB's are the paper's."""


def load(
    name: str,
    *,
    source: str | Path | None = None,
    features: str | None = None,
    seed: int = 483,
    options: dict[str, Any] | None = None,
    fitted: FittedGraph | None = None,
) -> HeteroData:
    """A graph by name: ``planted``, one of the Heterogeneous Graph Benchmark, or a ``graph.toml``.

    Args:
        name: See ``METAPATHS`` for the names; or a ``graph.toml``, or a folder with one.
        source: Where the benchmark's files are: a folder or an archive; or another
            ``graph.toml`` to take in place of the one named.
        features: What node types other than the target get, see :class:`HGB` (default: see
            :func:`default_features`).
        seed: Draws the validation nodes, and the whole planted graph.
        options: Further keyword arguments of :func:`planted`.
        fitted: What a run has learnt of the columns of its ``graph.toml``.
    """
    name = known_name(name)
    features = features or default_features(name)
    options = options or {}
    if name == "planted":
        if source is not None:
            raise HanmeError(f"planted is made on the spot: it takes no files, but got {source}")
        return fill_features(planted(seed=seed, **_knobs(options)), "movie", features)
    if options:
        raise HanmeError(f"{name} takes no options, but got {', '.join(options)}")
    if is_tables(name):
        return load_tables(
            source or name, features=features, seed=seed, fitted=fitted, cache=cache_folder()
        )
    return HGB(cache_folder(), name, source=source, features=features, seed=seed)[0]


def known_name(name: str) -> str:
    """A data set's name as it is written in ``METAPATHS``, however it was typed; of a
    ``graph.toml`` the whole path, so that a run finds it from anywhere."""
    for known in METAPATHS:
        if known.lower() == name.lower():
            return known
    if is_tables(name):
        return tables_name(name)
    raise HanmeError(
        f"unknown data set {name!r}; there are {', '.join(METAPATHS)}, or name a graph.toml"
    )


def tables_name(path: str | Path) -> str:
    """The whole path of a ``graph.toml``, or of a folder's; never a data set of the same name."""
    if not is_tables(path):
        raise HanmeError(f"{path}: not a graph.toml, nor a folder with one")
    return str(config_path(path))


def default_metapaths(name: str) -> list[str]:
    """The metapaths a model is given by default."""
    name = known_name(name)
    return read_config(Path(name)).default_metapaths() if is_tables(name) else METAPATHS[name]


def default_features(name: str) -> str:
    """What types other than the target get: of tables the columns given, of ``planted`` its own
    words, else the mean of their neighbours', as in the paper."""
    return "given" if name.lower() == "planted" or is_tables(name) else "mean"


def _knobs(options: dict[str, Any]) -> dict[str, Any]:
    """Checks options of :func:`planted` against its signature."""
    knobs = {k: p for k, p in inspect.signature(planted).parameters.items() if k != "seed"}
    for option, value in options.items():
        if option not in knobs:
            raise HanmeError(f"planted has no option {option!r}; it has {', '.join(knobs)}")
        whole = isinstance(knobs[option].default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            kind = "a whole number" if whole else "a number"
            raise HanmeError(f"planted: {option} must be {kind}, but got {value!r}")
    return options


def cache_folder() -> Path:
    """Where downloads and parsed graphs are kept: ``HANME_CACHE``, or the user's cache folder."""
    if "HANME_CACHE" in os.environ:
        return Path(os.environ["HANME_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hanme"
