"""Build a graph from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from hanme.data.tables.build.builders import MemoryBuilder, StoreBuilder
from hanme.data.tables.build.features import Fitted
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.labels import read_labels
from hanme.data.tables.build.links import LinkRows, open_links
from hanme.data.tables.build.nodes import NodeIds, NodeRows, fit_features, read_rows
from hanme.data.tables.build.split import (
    GROUP,
    check_split_column,
    evaluate_conditions,
    group_numbers,
    read_split,
)
from hanme.data.tables.read.reader import Reader
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.config import GraphConfig
from hanme.graph import Graph, Nodes, Texts


def build_graph(
    reader: Reader,
    config: GraphConfig,
    sources: Mapping[str, ResolvedSource],
    run: FittedGraph | None,
    builder: MemoryBuilder | StoreBuilder,
) -> Graph:
    """Read the tables into a graph.

    Args:
        reader: Reads the sources.
        config: The configuration, in which no relation has ``each``.
        sources: Its tables, by section such as ``nodes.film``.
        run: What a trained run has fitted; features and labels are then those of the run.
        builder: Holds or stores nodes and links.
    """
    types = config.node_types
    rows = {
        kind: read_rows(reader, sources[f"nodes.{kind}"], config, kind)
        for kind, spec in types.items()
        if not spec.implied
    }
    ids = {
        kind: NodeIds(reader, kind, rows[kind].table if kind in rows else None) for kind in types
    }
    relations: list[LinkRows] = []
    for name in config.relations:
        source = sources.get(f"relations.{name}")
        relations.append(open_links(reader, config, name, source, rows, relations))
        relations[-1].add_ids(ids, set(types) - set(rows))
        relations[-1].note_if_empty()

    nodes: dict[str, Nodes] = {}
    features: dict[str, dict[str, Fitted]] = {kind: {} for kind in types}
    for kind, spec in types.items():
        if kind in rows:
            features[kind] = run.features[kind] if run else fit_features(rows[kind].table, spec)
        nodes[kind] = builder.add_nodes(ids[kind], rows.get(kind), spec, features[kind])

    spec, targets, size = config.nodes[config.target], rows[config.target], ids[config.target].size
    part = evaluate_conditions(config, targets.table, size)
    known = (run.labels, run.multilabel) if run else None
    labels = read_labels(targets, spec, size, known, part > 0)
    split = read_split(config, targets.table, labels, part)
    if run is None and spec.split is not None:
        check_split_column(labels, split, targets.table)

    dropped = {}
    for relation in relations:
        links = relation.number(ids)
        builder.add_links(links)
        reader.rows(f"DROP TABLE {links.sql}")
        dropped[relation.name] = links.dropped
    graph = Graph(nodes, builder.links, config.target, labels.y, labels.names, split)
    group = group_numbers(config, targets, graph)
    if group is not None:
        graph.targets.extra[GROUP] = group
    digest = _digest(graph, config)
    run = run or FittedGraph(
        target=config.target,
        labels=labels.names,
        multilabel=labels.multilabel,
        relations=[e for pair in config.edge_types.values() for e in pair],
        features=features,
        trained_on=digest,
    )
    return graph.with_provenance(
        fitted=run.learnt(), dropped_links=dropped, notes=reader.notes, digest=digest
    )


def _open_relations(
    reader: Reader,
    config: GraphConfig,
    sources: Mapping[str, ResolvedSource],
    rows: Mapping[str, NodeRows],
    ids: Mapping[str, NodeIds],
) -> list[LinkRows]:
    """Open all relations, and add the ids that only they name."""
    relations: list[LinkRows] = []
    for name in config.relations:
        source = sources.get(f"relations.{name}")
        relations.append(open_links(reader, config, name, source, rows, relations))
        relations[-1].add_ids(ids, set(ids) - set(rows))
        relations[-1].note_if_empty()
    return relations


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
