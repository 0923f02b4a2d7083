"""Load the node classification graphs of the Heterogeneous Graph Benchmark (HGB)."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from hanme.data.hgb.archive import NAMES, SCRAMBLED, WHY_SCRAMBLED, find
from hanme.data.hgb.parse import parse
from hanme.data.store.cache import GraphCache, content_key
from hanme.errors import HanmeError, check_choice
from hanme.graph import EdgeType, Graph
from hanme.graph.splits import hold_out

__all__ = ["load_hgb"]

TEST_LABELS = {
    "IMDB": (3202, "98724eb10cee43cbcfa9fe99b4e404433885f65a329cb239edeb6ed0839caa5b"),
    "ACM": (2118, "bebe3ca3524f7fe5126e924fe690578ea6b80c53fb2fc37428278f82d00f5d7d"),
    "DBLP": (2840, "486c1176dc6547091e111ed8df596e0fccf86ef6e535f03ae07db20be7ea50f7"),
}
"""Size of the true test set, and SHA-256 of its nodes and labels."""

VAL_SHARE = 0.2
"""Share of the labelled nodes outside the test set to validate on, as in the benchmark."""


def load_hgb(
    name: str,
    root: str | os.PathLike[str],
    *,
    source: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Graph:
    """Load a graph of the benchmark (https://dl.acm.org/doi/10.1145/3447548.3467350).

    It has the features that the benchmark gives, and a reverse relation ``rev_...`` where the
    benchmark has no relation in that direction.

    Args:
        name: ``"IMDB"``, ``"ACM"``, ``"DBLP"`` or ``"Freebase"``.
        root: The folder for downloads and the cache. The parsed graph is kept in it and read from
            there while the files stay the same.
        source: An archive ``NAME.zip``; or a folder that contains it or its extracted files,
            directly or in a folder ``hgb`` (default: the environment variable ``HANME_DATA``, else
            a download).
        seed: Draws the validation nodes.
    """
    name = next((known for known in NAMES if known.lower() == name.lower()), name)
    check_choice("name", name, NAMES)
    folder = Path(root) / "hgb"
    files = find(folder, name, source)
    cache = GraphCache(folder / name, content_key(files.paths()))
    graph = cache.read("parsed")
    if graph is None:
        graph = parse(files)
        _refuse_scrambled(graph, name, files.title)
        graph = cache.keep("parsed", graph.with_reverse(_reverse(graph)))
    split = hold_out(graph.split.train, graph.split.test, val=VAL_SHARE, seed=seed)
    return replace(graph, split=split)


def _reverse(graph: Graph) -> dict[EdgeType, EdgeType]:
    """Name a reverse for each relation whose direction back has none."""
    directions = {(start, end) for start, _, end in graph.links}
    return {
        (start, relation, end): (end, f"rev_{relation}", start)
        for start, relation, end in graph.links
        if (end, start) not in directions
    }


def _refuse_scrambled(graph: Graph, name: str, title: str) -> None:
    """Refuse the whole test set with labels other than the benchmark's."""
    size, digest = TEST_LABELS.get(name, (0, ""))
    if int(graph.split.test.sum()) == size and _label_digest(graph) != digest:
        raise HanmeError(
            f"{title}: label.dat.test does not have the benchmark's labels, "
            f"as if it were a renamed {SCRAMBLED}: {WHY_SCRAMBLED}"
        )


def _label_digest(graph: Graph) -> str:
    """Hash the test set's nodes and labels, independent of their order in the file."""
    nodes = np.flatnonzero(graph.split.test.numpy())
    labels = graph.y.numpy()[nodes].astype("<i8")
    return hashlib.sha256(nodes.astype("<i8").tobytes() + labels.tobytes()).hexdigest()
