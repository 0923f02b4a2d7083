"""The node classification graphs of the Heterogeneous Graph Benchmark (HGB)."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import HeteroData, InMemoryDataset

from hanme.datasets.features import check_choice, fill_features
from hanme.datasets.graph import EdgeType, Graph, to_hetero_data
from hanme.datasets.hgb_files import NAMES, SCRAMBLED, TRAP, Files, by_hand, download, find
from hanme.datasets.hgb_text import parse
from hanme.datasets.splits import split
from hanme.datasets.store import DamagedCache, load_graph, save_graph
from hanme.errors import HanmeError

TEST_LABELS = {
    "IMDB": (3202, "98724eb10cee43cbcfa9fe99b4e404433885f65a329cb239edeb6ed0839caa5b"),
    "ACM": (2118, "bebe3ca3524f7fe5126e924fe690578ea6b80c53fb2fc37428278f82d00f5d7d"),
    "DBLP": (2840, "486c1176dc6547091e111ed8df596e0fccf86ef6e535f03ae07db20be7ea50f7"),
}
"""How many nodes the true test set has, and the digest of their labels."""


class HGB(InMemoryDataset):
    r"""A graph of the `Heterogeneous Graph Benchmark <https://dl.acm.org/doi/10.1145/3447548.3467350>`_.

    The only element is a :class:`~torch_geometric.data.HeteroData` with

    - ``data[type].x``, sparse CSR, ``data[type].num_nodes`` and ``data[type].name``;
    - ``data[start, relation, end].edge_index``, and a relation ``rev_...`` back where the
      benchmark has none at all in that direction;
    - ``data.target``, the labelled type, and ``data.multilabel``;
    - ``data[target].y``: multi-hot ``[num_nodes, num_classes]`` if multi-label, else
      ``[num_nodes]`` with -1 for unlabelled nodes; ``label_names``, ``train_mask``, ``val_mask``
      and ``test_mask``.

    Files are taken from `source`, else from the environment variable ``HANME_DATA``, else from an
    earlier download, else from the cache, else they are downloaded. What was parsed is kept in
    ``root/hgb/NAME.safetensors`` and read from there as long as the files stay the same.

    Args:
        root: The folder for downloads and the cache.
        name: ``"IMDB"``, ``"ACM"``, ``"DBLP"`` or ``"Freebase"``.
        source: An archive ``NAME.zip``, or a folder that holds it, or its extracted files, directly
            or in a folder ``hgb``.
        features: What node types other than the target get, see
            :func:`~hanme.datasets.features.fill_features`.
        seed: The seed by which validation nodes are drawn.
        val_share: The share of the labelled nodes outside the test set to validate on.
        transform: A transform to apply on every access.
        force_reload: Whether to parse the files again, whatever the cache has.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        *,
        source: str | os.PathLike[str] | None = None,
        features: str = "mean",
        seed: int = 483,
        val_share: float = 0.2,
        transform: Callable[[HeteroData], HeteroData] | None = None,
        force_reload: bool = False,
    ) -> None:
        known = {known.lower(): known for known in NAMES}
        if name.lower() not in known:
            raise HanmeError(f"Expected `name` to be one of {', '.join(NAMES)}, but got {name!r}")
        check_choice(features)
        super().__init__(os.fspath(root), transform)
        self.name = known[name.lower()]
        graph = _load(Path(self.root) / "hgb", self.name, source, force_reload)
        data = to_hetero_data(graph, _reverse(graph))
        target = data[graph.target]
        target.train_mask, target.val_mask = split(
            torch.from_numpy(graph.labelled), val_share=val_share, seed=seed
        )
        self._data = fill_features(data, graph.target, features)

    @property
    def num_classes(self) -> int:
        """The number of different labels."""
        return len(self._data[self._data.target].label_names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _reverse(graph: Graph) -> dict[EdgeType, EdgeType]:
    """A relation back for each where the benchmark has none at all in that direction."""
    directions = {(start, end) for start, _, end in graph.links}
    return {
        (start, relation, end): (end, f"rev_{relation}", start)
        for start, relation, end in graph.links
        if (end, start) not in directions
    }


def _load(
    folder: Path, name: str, source: str | os.PathLike[str] | None, force_reload: bool
) -> Graph:
    """Gets the graph from where it is nearest, and keeps it in `folder` for the next time."""
    cache = folder / f"{name}.safetensors"
    found = find(folder, name, source)
    if not force_reload:
        try:
            if graph := load_graph(cache, found.fingerprint() if found else None):
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
    try:
        save_graph(graph, cache, found.fingerprint())
    except OSError as error:
        warnings.warn(
            f"{cache} cannot be written, so the next start is slow: {error}", stacklevel=3
        )
    return graph


def _refuse_scrambled(graph: Graph, name: str, title: str) -> None:
    if name not in TEST_LABELS:
        return
    size, digest = TEST_LABELS[name]
    if graph.test.sum() == size and _label_digest(graph) != digest:
        raise HanmeError(
            f"{title}: label.dat.test does not have the benchmark's labels, "
            f"as if it were a renamed {TRAP}: {SCRAMBLED}"
        )


def _label_digest(graph: Graph) -> str:
    """Hashes the test set's nodes and labels, in whatever order and form they were written."""
    nodes = np.flatnonzero(graph.test)
    labels = graph.y[nodes].astype("<i8")
    return hashlib.sha256(nodes.astype("<i8").tobytes() + labels.tobytes()).hexdigest()
