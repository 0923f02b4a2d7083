"""Where graphs come from.

Each is a ``HeteroData`` with, beside ``x`` and ``edge_index``: ``target``, the node type to
classify; ``multilabel``; names of nodes in ``data[type].name``; and on the target ``y``,
``label_names``, ``train_mask``, ``val_mask`` and ``test_mask``.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from torch_geometric.data import HeteroData

from hanme.datasets.hgb import HGB
from hanme.datasets.planted import planted
from hanme.errors import HanmeError

__all__ = ["HGB", "METAPATHS", "cache_folder", "known_name", "load", "planted"]

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
    features: str = "mean",
    seed: int = 483,
    options: dict[str, Any] | None = None,
) -> HeteroData:
    """A graph by name: ``planted``, or one of the Heterogeneous Graph Benchmark.

    Args:
        name: See ``METAPATHS`` for the names.
        source: Where the benchmark's files are: a folder or an archive.
        features: What node types other than the target get, see :class:`HGB`.
        seed: Draws the validation nodes, and the whole planted graph.
        options: Further keyword arguments of :func:`planted`.
    """
    name = known_name(name)
    options = options or {}
    if name == "planted":
        return planted(seed=seed, **_knobs(options))
    if options:
        raise HanmeError(f"{name} takes no options, but got {', '.join(options)}")
    return HGB(cache_folder(), name, source=source, features=features, seed=seed)[0]


def known_name(name: str) -> str:
    """A data set's name as it is written in ``METAPATHS``, however it was typed."""
    for known in METAPATHS:
        if known.lower() == name.lower():
            return known
    raise HanmeError(f"unknown data set {name!r}; there are {', '.join(METAPATHS)}")


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
