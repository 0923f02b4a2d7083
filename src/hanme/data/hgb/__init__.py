"""Load the node classification graphs of the Heterogeneous Graph Benchmark (HGB)."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hanme.data.hgb.files import FILES, SCRAMBLED, TEST_NODES, find, is_original, read_files
from hanme.data.hgb.parse import parse
from hanme.data.store.cache import StoreCache, content_key
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.splits import hold_out

__all__ = ["load_hgb"]

VAL_SHARE = 0.2
"""Share of the labelled nodes outside the test set to validate on, as in the benchmark."""


def load_hgb(
    name: str, root: Path, source: str | os.PathLike[str] | None = None, seed: int = 0
) -> Graph:
    """Load IMDB, ACM or DBLP (https://dl.acm.org/doi/10.1145/3447548.3467350).

    Archives are downloaded to ``root``, which also caches the parsed graph. ``source`` is an
    archive, or a folder that contains it or its extracted files, directly or in a folder ``hgb``
    (default: the environment variable ``HANME_DATA``, else a download). The seed draws the
    validation nodes. A relation without one in the other direction gets a reverse ``rev_...``.
    """
    path = find(root / "hgb", name, source)
    paths = [path / file for file in FILES] if path.is_dir() else [path]
    cache = StoreCache(root, f"hgb/{name}", content_key(paths))
    graph = cache.read("parsed")
    if graph is None:
        files = read_files(path, path.name)
        whole = files["label.dat.test"].count(b"\n") == TEST_NODES[name]
        if whole and not is_original(files, name):
            raise HanmeError(
                f"{path.name}: not the benchmark's files, perhaps with a renamed {SCRAMBLED}"
            )
        graph = parse(files, path.name)
        directions = {(start, end) for start, _, end in graph.links}
        reverse = {
            (start, relation, end): (end, f"rev_{relation}", start)
            for start, relation, end in graph.links
            if (end, start) not in directions
        }
        graph = cache.keep("parsed", graph.with_reverse(reverse))
    split = hold_out(graph.split.train, graph.split.test, val=VAL_SHARE, seed=seed)
    return replace(graph, split=split)
