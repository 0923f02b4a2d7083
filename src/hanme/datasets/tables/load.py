"""Load a graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from hanme.datasets.cache import DamagedCache, read_cache, write_cache
from hanme.datasets.tables.config import (
    FeatureSpec,
    GraphConfig,
    NodeTable,
    Source,
    config_path,
    read_config,
)
from hanme.datasets.tables.features import Fitted, encode, fit, read_as, side_by_side
from hanme.datasets.tables.fitted import FittedGraph
from hanme.datasets.tables.labels import read_labels
from hanme.datasets.tables.links import read_links
from hanme.datasets.tables.read import Kind, Reader, Table
from hanme.datasets.tables.sources import ResolvedSource, fingerprint
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Texts
from hanme.graph.features import Features, check_features, fill_features, to_torch
from hanme.graph.splits import stratified


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
    """
    check_features(features)
    path = config_path(name)
    config = read_config(path)
    graph = _open(path, config, features, fitted, cache)
    graph = graph.with_reverse(dict(config.edge_types.values()))
    if config.nodes[config.target].split is None:
        shares = config.nodes[config.target].shares
        split = stratified(graph.y, val=shares.val, test=shares.test, seed=seed)
        if fitted is None and not split.val.any():
            raise HanmeError(
                f"{path}: {int(graph.split.train.sum())} labelled nodes are too few to train and "
                "to validate on"
            )
        graph = replace(graph, split=split)
    return replace(graph, metapaths=config.default_metapaths())


def _open(
    path: Path,
    config: GraphConfig,
    features: Features,
    fitted: FittedGraph | None,
    cache: Path | None,
) -> Graph:
    """Take the graph from the cache, or read the tables and fill in features."""
    specs: dict[str, Source] = {f"nodes.{kind}": spec for kind, spec in config.nodes.items()}
    specs |= {f"relations.{name}": spec for name, spec in config.relations.items()}
    sources = {key: ResolvedSource.find(spec, path.parent, key) for key, spec in specs.items()}
    if fitted is not None:
        config = fitted.fit_to(config, path)
    mark = fingerprint(sources.values(), config.model_dump_json())
    file = None
    if cache is not None:
        key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:24]
        file = cache / "tables" / f"{key}-{features}.safetensors"
        graph = _cached(file, mark)
        if graph is not None and (fitted is None or fitted.learnt() == graph.fitted):
            return graph
        if fitted is not None:  # the tables have grown: a graph in the run's way, in its own file
            file = file.with_stem(f"{file.stem}-run")
            mark += hashlib.sha256(str(fitted.learnt()).encode()).hexdigest()
            if (graph := _cached(file, mark)) is not None:
                return graph
    with Reader(sources.values(), path.parent) as reader:
        graph = _build(reader, config, sources, fitted)
    links = graph.with_reverse(dict(config.edge_types.values())).links
    graph.nodes = fill_features(graph.nodes, links, graph.target, features)
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
) -> Graph:
    """Read the tables into a graph without reverse relations."""
    tables: dict[str, Table] = {}
    nodes: dict[str, Nodes] = {}
    learnt: dict[str, dict[str, Fitted]] = {}
    for kind, spec in config.nodes.items():
        tables[kind] = table = _read_rows(reader, sources[f"nodes.{kind}"], spec)
        known = fitted.features[kind] if fitted else None
        nodes[kind], learnt[kind] = _read_nodes(reader, table, kind, spec, known)
    target = config.nodes[config.target]
    run = (fitted.labels, fitted.multilabel) if fitted else (None, False)
    labels = read_labels(reader, tables[config.target], target, *run)
    graph = Graph(nodes, {}, config.target, labels.y, labels.names, labels.split)
    for name, relation in config.relations.items():
        source, edge_type = sources[f"relations.{name}"], config.edge_types[name][0]
        links, weights, graph.dropped[name] = read_links(reader, source, name, relation, tables)
        graph.links[edge_type] = links
        if weights is not None:
            graph.weights[edge_type] = weights
    graph.digest = _digest(graph, target)
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


def _digest(graph: Graph, target: NodeTable) -> str:
    """Hash the target's ids, labels and split, whatever files they come from."""
    digest = hashlib.sha256(target.shares.model_dump_json().encode())
    ids = graph.targets.ids
    assert isinstance(ids, Texts)
    y = graph.y.numpy().astype(np.uint8 if graph.multilabel else np.int32)
    masks = graph.split.test.numpy(), graph.split.val.numpy()
    for array in (ids.text, ids.offsets.astype(np.int64), y, *masks):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read_rows(reader: Reader, source: ResolvedSource, nodes: NodeTable) -> Table:
    """Read the table of a node type and check that every row has an id of its own."""
    wanted: dict[str, tuple[str, Kind]] = {"id": (nodes.id, "text")}
    if nodes.name is not None:
        wanted["name"] = (nodes.name, "text")
    if nodes.label is not None:
        wanted["label"] = (nodes.label, "list")
    if nodes.split is not None:
        wanted["split"] = (nodes.split, "text")
    for alias, (name, spec) in _feature_columns(nodes).items():
        wanted[alias] = (name, read_as(spec))
    table = reader.read(source, wanted)
    empty = reader.rows(f"SELECT min(rowid) FROM {table.sql} WHERE id IS NULL")[0][0]
    if empty is not None:
        raise HanmeError(f"{table.place(empty, 'id')}: the id is empty")
    twice = reader.rows(
        f"SELECT id, min(rowid), min(rowid, 2)[2] FROM {table.sql} "
        "GROUP BY id HAVING count(*) > 1 ORDER BY 3 LIMIT 1"
    )
    if twice:
        text, first, second = twice[0]
        raise HanmeError(
            f"{table.place(second, 'id')}: the id {text[:60]!r} is already that of "
            f"{table.place(first)}"
        )
    return table


def _feature_columns(nodes: NodeTable) -> dict[str, tuple[str, FeatureSpec]]:
    return {f"feature{i}": pair for i, pair in enumerate(nodes.features.items())}


def _read_nodes(
    reader: Reader, table: Table, kind: str, spec: NodeTable, known: dict[str, Fitted] | None
) -> tuple[Nodes, dict[str, Fitted]]:
    """Return the nodes of a type, and what was learnt of their columns, or was `known` before."""
    learnt, blocks = {}, []
    for alias, (name, feature) in _feature_columns(spec).items():
        learnt[name] = known[name] if known else fit(reader, table, alias, feature)
        blocks.append(encode(reader, table, alias, feature, learnt[name]))
    wide = any(block.shape[1] for block in blocks)  # a column of empty cells has no values
    x = to_torch(side_by_side(blocks)) if wide else None
    ids = _texts(reader, table, "id")
    called = "coalesce(nullif(trim(name), ''), id)"  # a node with an empty name is called by its id
    names = ids if spec.name is None else _texts(reader, table, called)
    return Nodes(kind, table.size, x, names, ids), learnt


def _texts(reader: Reader, table: Table, expression: str) -> Texts:
    found = reader.arrays(f"SELECT coalesce({expression}, '') AS text FROM {table.sql}")
    return Texts.of(found["text"])
