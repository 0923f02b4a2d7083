"""Load the node classification graphs of the Heterogeneous Graph Benchmark (HGB)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from hanme.data.cache import DamagedCache, read_cache, write_cache
from hanme.data.hgb.files import NAMES, SCRAMBLED, TRAP, Files, by_hand, download, find
from hanme.data.hgb.text import parse
from hanme.errors import HanmeError, check_choice
from hanme.graph import EdgeType, Graph
from hanme.graph.splits import hold_out

TEST_LABELS = {
    "IMDB": (3202, "98724eb10cee43cbcfa9fe99b4e404433885f65a329cb239edeb6ed0839caa5b"),
    "ACM": (2118, "bebe3ca3524f7fe5126e924fe690578ea6b80c53fb2fc37428278f82d00f5d7d"),
    "DBLP": (2840, "486c1176dc6547091e111ed8df596e0fccf86ef6e535f03ae07db20be7ea50f7"),
}
"""How many nodes the true test set has, and the digest of their labels."""


def load_hgb(
    name: str,
    root: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    seed: int = 0,
    val_share: float = 0.2,
    force_reload: bool = False,
) -> Graph:
    """Load a graph of the benchmark (https://dl.acm.org/doi/10.1145/3447548.3467350).

    It has the features that the benchmark gives, and a reverse relation ``rev_...`` where the
    benchmark has no relation in that direction.

    Files are taken from `source`, else from the environment variable ``HANME_DATA``, else from an
    earlier download, else from the cache, else they are downloaded. The parsed graph is kept in
    ``root/hgb/NAME.safetensors`` and read from there as long as the files stay the same.

    Args:
        name: ``"IMDB"``, ``"ACM"``, ``"DBLP"`` or ``"Freebase"``.
        root: The folder for downloads and the cache.
        source: An archive ``NAME.zip``; or a folder that holds it or its extracted files, directly
            or in a folder ``hgb``.
        seed: Draws the validation nodes.
        val_share: The share of the labelled nodes outside the test set to validate on.
        force_reload: Parse the files again, even if the cache has the graph.
    """
    name = next((known for known in NAMES if known.lower() == name.lower()), name)
    check_choice("name", name, NAMES)
    graph = _load(Path(root) / "hgb", name, source, force_reload)
    split = hold_out(graph.split.train, graph.split.test, val=val_share, seed=seed)
    return replace(graph.with_reverse(_reverse(graph)), split=split)


def _reverse(graph: Graph) -> dict[EdgeType, EdgeType]:
    """Name a reverse for each relation whose direction back has none."""
    directions = {(start, end) for start, _, end in graph.links}
    return {
        (start, relation, end): (end, f"rev_{relation}", start)
        for start, relation, end in graph.links
        if (end, start) not in directions
    }


def _load(
    folder: Path, name: str, source: str | os.PathLike[str] | None, force_reload: bool
) -> Graph:
    """Take the graph from the cache in `folder`, or parse its files and write the cache."""
    cache = folder / f"{name}.safetensors"
    found = find(folder, name, source)
    if not force_reload:
        try:
            if graph := read_cache(cache, found.fingerprint() if found else None):
                return graph
        except DamagedCache as error:
            if found is None:  # else parsing again mends it
                raise HanmeError(
                    f"{cache} is damaged ({error}): delete it to download {name} again, "
                    f"or {by_hand(name)}"
                ) from error
    if found is None:
        archive = folder / f"{name}.zip"
        download(archive, name)
        found = Files(archive, name)
    graph = parse(found)
    _refuse_scrambled(graph, name, found.title)
    write_cache(graph, cache, found.fingerprint())
    return graph


def _refuse_scrambled(graph: Graph, name: str, title: str) -> None:
    if name not in TEST_LABELS:
        return
    size, digest = TEST_LABELS[name]
    if int(graph.split.test.sum()) == size and _label_digest(graph) != digest:
        raise HanmeError(
            f"{title}: label.dat.test does not have the benchmark's labels, "
            f"as if it were a renamed {TRAP}: {SCRAMBLED}"
        )


def _label_digest(graph: Graph) -> str:
    """Hash the test set's nodes and labels, whatever order they were written in."""
    nodes = np.flatnonzero(graph.split.test.numpy())
    labels = graph.y.numpy()[nodes].astype("<i8")
    return hashlib.sha256(nodes.astype("<i8").tobytes() + labels.tobytes()).hexdigest()
