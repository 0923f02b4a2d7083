"""Load a graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hanme.datasets.cache import DamagedCache, read_cache, write_cache
from hanme.datasets.store.open import is_store, open_store
from hanme.datasets.store.write import WORK, add_labels, finish, storing
from hanme.datasets.tables.config import GraphConfig, config_path, read_config
from hanme.datasets.tables.expand import expand
from hanme.datasets.tables.features import Fitted
from hanme.datasets.tables.fitted import FittedGraph
from hanme.datasets.tables.keys import LinkTable, Source
from hanme.datasets.tables.labels import read_labels
from hanme.datasets.tables.links import LinkRows, Made, open_links
from hanme.datasets.tables.nodes import Ids, read_rows
from hanme.datasets.tables.ondisk import OnDisk
from hanme.datasets.tables.read import Reader
from hanme.datasets.tables.sources import ResolvedSource, fingerprint
from hanme.datasets.tables.split import (
    GROUP,
    check_parts,
    check_split,
    conditions,
    draw,
    groups,
    read_split,
)
from hanme.graph import Graph, Nodes, Texts
from hanme.graph.defaults import with_defaults
from hanme.graph.features import Features, check_features, fill_features

LARGE = 1 << 28
"""Tables whose files have more bytes together are stored on disk by themselves: 256 MB."""


def tell(text: str) -> None:
    """Tell the user what takes long."""
    print(text, file=sys.stderr, flush=True)


def is_large(name: str | Path) -> bool:
    """Return whether the graph of a ``graph.toml`` is stored on disk instead of loaded."""
    path = config_path(name)
    return _size(_resolved(read_config(path), path)[1]) > LARGE


def _size(sources: Mapping[str, ResolvedSource]) -> int:
    return sum(file.stat().st_size for file in {f for s in sources.values() for f in s.files})


def load_tables(
    name: str | Path,
    *,
    features: Features = "given",
    seed: int = 483,
    fitted: FittedGraph | None = None,
    cache: Path | None = None,
) -> Graph:
    """Load the graph of a ``graph.toml``.

    Args:
        name: The file, or a folder with one of that name.
        features: What node types other than the target get, see
            :func:`~hanme.graph.features.fill_features`.
        seed: Draws the split where the tables have none.
        fitted: What a run has learnt from its tables. Features are then made in its way, and labels
            that it does not know count as none.
        cache: A folder to keep the graph in; it is read from there while the tables stay the same.
            If the tables are large, it is a store, see :data:`LARGE`.
    """
    path = config_path(name)
    return load_config(
        read_config(path), path, features=features, seed=seed, fitted=fitted, cache=cache
    )


def load_config(
    config: GraphConfig,
    path: Path,
    *,
    features: Features,
    seed: int,
    fitted: FittedGraph | None = None,
    cache: Path | None = None,
    frames: Mapping[str, Any] | None = None,
) -> Graph:
    """Load the graph of a configuration; `path` is its file, beside which its tables are."""
    check_features(features)
    config, sources = _resolved(config, path, fitted, frames)
    if cache is not None and _size(sources) > LARGE:
        return open_store(_kept(path, sources, features, seed, fitted, cache))
    graph = _open(path, config, sources, features, fitted, cache)
    graph = graph.with_reverse(dict(config.edge_types.values()))
    return _completed(graph, config, path, seed, fitted)


def _completed(
    graph: Graph, config: GraphConfig, path: Path, seed: int, fitted: FittedGraph | None
) -> Graph:
    """Draw what the tables leave open of the split, and choose the default metapaths."""
    graph = draw(graph, config, seed)
    if fitted is None:
        check_parts(graph, config, str(path))
    if config.metapaths is not None:
        return replace(graph, metapaths=config.metapaths)
    return with_defaults(graph, config.default_metapaths())


def _kept(
    path: Path,
    sources: Mapping[str, ResolvedSource],
    features: Features,
    seed: int,
    fitted: FittedGraph | None,
    cache: Path,
) -> Path:
    """Return the store of large tables in the cache, made if the tables have changed."""
    mark = fingerprint(sources.values(), path.read_text())[:24]
    own = cache / "stores" / _short(str(path))
    folder = own / f"{mark}-{features}-{seed}"
    if fitted is not None and not (
        is_store(folder) and open_store(folder).fitted == fitted.learnt()
    ):
        folder = folder.with_name(f"{folder.name}-{_short(repr(fitted.learnt()))}")
    if not is_store(folder):
        for before in own.glob("*"):
            if not before.name.startswith(mark):  # of tables that were others
                shutil.rmtree(before)
        tell(f"{path}: {_size(sources) / 1e6:,.0f} MB of tables; the graph is stored in {folder}")
        store_tables(path, folder, features=features, seed=seed, fitted=fitted, say=tell)
    return folder


def _short(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def store_tables(
    name: str | Path,
    folder: Path,
    *,
    features: Features = "given",
    seed: int = 483,
    half: bool = False,
    fitted: FittedGraph | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Store the graph of a ``graph.toml`` without holding it in memory.

    Args:
        name: The file, or a folder with one of that name.
        folder: A new or empty folder.
        features: See :func:`load_tables`.
        seed: Draws the split where the tables have none.
        half: Whether to store features in half precision.
        fitted: See :func:`load_tables`.
        say: Called with what is being written.
    """
    check_features(features)
    path = config_path(name)
    config, sources = _resolved(read_config(path), path, fitted)
    with storing(folder) as writer:
        made = OnDisk(writer, config.node_types, dict(config.edge_types.values()), half, say)
        with Reader(sources.values(), path.parent, folder / WORK) as reader:
            graph = _build(reader, config, sources, fitted, made)
        graph = made.fill(graph, features)
        say("metapaths")
        graph = _completed(graph, config, path, seed, fitted)
        add_labels(writer, graph)
        finish(writer, graph, features)


def _resolved(
    config: GraphConfig,
    path: Path,
    fitted: FittedGraph | None = None,
    frames: Mapping[str, Any] | None = None,
) -> tuple[GraphConfig, dict[str, ResolvedSource]]:
    """Return a configuration in which no relation has ``each``, and where its tables are.

    It is in the order of what a run has learnt, if one has.
    """
    known = None if fitted is None else {relation for _, relation, _ in fitted.relations}
    config = expand(config, path, known, frames)
    specs: dict[str, Source] = {f"nodes.{t}": n for t, n in config.nodes.items() if not n.implied}
    specs |= {f"relations.{n}": r for n, r in config.relations.items() if isinstance(r, LinkTable)}
    sources = {k: ResolvedSource.find(s, path.parent, k, frames) for k, s in specs.items()}
    return (config if fitted is None else fitted.fit_to(config, path)), sources


def _open(
    path: Path,
    config: GraphConfig,
    sources: Mapping[str, ResolvedSource],
    features: Features,
    fitted: FittedGraph | None,
    cache: Path | None,
) -> Graph:
    """Take the graph from the cache, or read the tables and fill in features."""
    mark = fingerprint(sources.values(), config.model_dump_json())
    file = None
    if cache is not None:
        file = cache / "tables" / f"{_short(str(path))}-{features}.safetensors"
        graph = _cached(file, mark)
        if graph is not None and (fitted is None or fitted.learnt() == graph.fitted):
            return graph
        if fitted is not None:  # the tables have grown: a graph in the run's way, in its own file
            file = file.with_stem(f"{file.stem}-run")
            mark += hashlib.sha256(str(fitted.learnt()).encode()).hexdigest()
            if (graph := _cached(file, mark)) is not None:
                return graph
    with Reader(sources.values(), path.parent) as reader:
        graph = _build(reader, config, sources, fitted, Made())
    links_ = graph.with_reverse(dict(config.edge_types.values())).links
    graph.nodes = fill_features(graph.nodes, links_, graph.target, features)
    if file is not None:
        write_cache(graph, file, mark)
    return graph


def _cached(file: Path, mark: str) -> Graph | None:
    try:
        return read_cache(file, mark)
    except DamagedCache:  # reading the tables again mends it
        return None


def _build(
    reader: Reader,
    config: GraphConfig,
    sources: Mapping[str, ResolvedSource],
    fitted: FittedGraph | None,
    made: Made,
) -> Graph:
    """Read the tables into a graph; made in memory, it has no reverse relations."""
    types = config.node_types
    rows = {
        kind: read_rows(reader, sources[f"nodes.{kind}"], config, kind)
        for kind, spec in types.items()
        if not spec.implied
    }
    ids = {kind: Ids(reader, kind, rows[kind].table if kind in rows else None) for kind in types}
    opened: list[LinkRows] = []
    for name in config.relations:
        source = sources.get(f"relations.{name}")
        opened.append(open_links(reader, config, name, source, rows, opened))
        opened[-1].add_ids(ids, set(types) - set(rows))

    nodes: dict[str, Nodes] = {}
    learnt: dict[str, dict[str, Fitted]] = {}
    for kind, spec in types.items():
        known = fitted.features[kind] if fitted else None
        nodes[kind], learnt[kind] = made.nodes(ids[kind], rows.get(kind), spec, known)
    target, mine, size = config.nodes[config.target], rows[config.target], ids[config.target].size
    part = conditions(config, mine, size)
    run = (fitted.labels, fitted.multilabel) if fitted else None
    labels = read_labels(mine, target, size, run, part > 0)
    split = read_split(config, mine, labels, part)
    if fitted is None and target.split is not None:
        check_split(labels, split, mine.table)
    dropped = {links.name: made.add_links(links, ids) for links in opened}
    graph = Graph(
        nodes,
        made.links,
        config.target,
        labels.y,
        labels.names,
        split,
        weights=made.weights,
        dropped=dropped,
        notes=reader.notes,
    )
    group = groups(config, mine, graph)
    if group is not None:
        graph.targets.extra[GROUP] = group
    graph.digest = _digest(graph, config)
    fitted = fitted or FittedGraph(
        target=config.target,
        labels=labels.names,
        multilabel=labels.multilabel,
        relations=[e for pair in config.edge_types.values() for e in pair],
        features=learnt,
        trained_on=graph.digest,
    )
    graph.fitted = fitted.learnt()
    return graph


def _digest(graph: Graph, config: GraphConfig) -> str:
    """Hash the target's ids, labels and split, whatever files they come from."""
    digest = hashlib.sha256(config.nodes[config.target].shares.model_dump_json().encode())
    if config.split is not None:
        digest.update(config.split.model_dump_json().encode())
    ids = graph.targets.ids
    assert isinstance(ids, Texts)
    y = graph.y.numpy().astype(np.uint8 if graph.multilabel else np.int32)
    masks = graph.split.test.numpy(), graph.split.val.numpy()
    for array in (ids.text, ids.offsets.astype(np.int64), y, *masks):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
