"""A graph from a user's own tables, described by a ``graph.toml``."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from torch_geometric.data import HeteroData

from hanme.datasets.features import check_choice, fill_features, to_scipy
from hanme.datasets.graph import EdgeType, Graph, to_hetero_data
from hanme.datasets.splits import stratified_split
from hanme.datasets.store import DamagedCache, load_graph, save_graph
from hanme.datasets.strings import Strings
from hanme.datasets.tables_config import Nodes, Shares, TableConfig, Text, config_path, read_config
from hanme.datasets.tables_features import Fitted, encode, fit, numbers, read_as, side_by_side
from hanme.datasets.tables_labels import Labels, read_labels
from hanme.datasets.tables_origin import Origin, fingerprint
from hanme.datasets.tables_read import Kind, Reader, Table, column
from hanme.errors import HanmeError


class FittedGraph(BaseModel):
    """What a run has learnt of its tables besides its weights: ``features.json``.

    Args:
        target: The node type it classifies.
        labels: The labels, in the order of the model's outputs.
        multilabel: Whether a node may have several.
        relations: The edge types, in the order of the graph.
        features: What each feature column of each node type needs to become features.
        trained_on: The digest of the target's ids, labels and split.
        widths: How many features each node type had in the end, those filled in included.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: str
    labels: list[str]
    multilabel: bool
    relations: list[EdgeType]
    features: dict[str, dict[str, Fitted]]
    trained_on: str
    widths: dict[str, int] = {}

    @classmethod
    def make(cls, values: Any, where: str) -> FittedGraph:
        try:
            return cls.model_validate(values)
        except ValidationError:
            raise HanmeError(f"{where}: not the features of a run") from None


def load_tables(
    name: str | Path,
    *,
    features: str = "given",
    seed: int = 483,
    fitted: FittedGraph | None = None,
    cache: Path | None = None,
) -> HeteroData:
    r"""The graph of a ``graph.toml``.

    Beside what every data set of :mod:`hanme.datasets` has there are ``data[type].id``, the
    user's own ids; ``data[relation].edge_weight`` where a weight column is given;
    ``data.dropped``, how many links to unknown ids each relation lost; ``data.fitted``, see
    :class:`FittedGraph`, as JSON; and ``data.digest``, see its ``trained_on``.

    Args:
        name: The file, or a folder with one of that name.
        features: What node types other than the target get, see
            :func:`~hanme.datasets.features.fill_features`.
        seed: Draws the split where the tables have none.
        fitted: What a run has learnt; the features are then made in its way, and labels that it
            does not know count as none.
        cache: A folder for what was read, for the next time.
    """
    check_choice(features)
    path = config_path(name)
    config = read_config(path)
    graph = _open(path, config, features, fitted, cache)
    data = to_hetero_data(graph, dict(config.edge_types.values()))
    target = data[graph.target]
    if graph.val is not None:
        target.val_mask = torch.from_numpy(graph.val)
        target.train_mask = torch.from_numpy(graph.labelled & ~graph.val)
    else:
        shares = config.nodes[config.target].shares
        target.train_mask, target.val_mask, target.test_mask = stratified_split(
            _strata(graph), val_share=shares.val, test_share=shares.test, seed=seed
        )
        if fitted is None and not target.val_mask.any():
            raise HanmeError(
                f"{path}: {int(graph.labelled.sum())} labelled nodes are too few to train and to "
                "validate on"
            )
    data.dropped = graph.info["dropped"]
    data.fitted = graph.info["fitted"]
    data.digest = graph.info["digest"]
    return data


def _strata(graph: Graph) -> NDArray[np.integer]:
    """A node's label; of several its rarest one."""
    if not graph.multilabel:
        return graph.y
    frequency = graph.y.sum(axis=0, dtype=np.int64)
    rarity = np.where(graph.y > 0, frequency, np.iinfo(np.int64).max)
    return np.where(graph.y.any(axis=1), rarity.argmin(axis=1), -1)


def _open(
    path: Path,
    config: TableConfig,
    features: str,
    fitted: FittedGraph | None,
    cache: Path | None,
) -> Graph:
    """Reads the tables and fills in features, or takes what was kept while they stay the same."""
    folder = path.parent
    origins = {
        where: Origin.find(source, folder, where)
        for where, source in [
            *((f"nodes.{kind}", nodes) for kind, nodes in config.nodes.items()),
            *((f"relations.{kind}", relation) for kind, relation in config.relations.items()),
        ]
    }
    if fitted is not None:
        _check_schema(config, fitted, path)
        config = _in_order_of(fitted, config)
    mark = fingerprint(origins.values(), config.model_dump_json())
    key = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:24]
    plain = cache / "tables" / f"{key}-{features}.safetensors" if cache else None
    graph = _kept(plain, mark)
    learnt = fitted.model_dump(mode="json", exclude={"widths"}) if fitted else None
    if graph is not None and learnt in (None, graph.info["fitted"]):
        return graph
    kept = plain
    if fitted is not None and plain is not None:
        mark += hashlib.sha256(str(learnt).encode()).hexdigest()
        kept = plain.with_name(f"{key}-{features}-run.safetensors")
        if (graph := _kept(kept, mark)) is not None:
            return graph
    with Reader(origins.values(), folder) as reader:
        graph = _build(reader, config, origins, fitted)
    data = fill_features(
        to_hetero_data(graph, dict(config.edge_types.values())), graph.target, features
    )
    graph.features = {kind: to_scipy(data[kind].x) for kind in data.node_types}
    if kept is not None:
        try:
            save_graph(graph, kept, mark)
        except (OSError, SafetensorError) as error:
            warnings.warn(
                f"{kept} cannot be written, so the next start is slow: {error}", stacklevel=3
            )
    return graph


def _kept(path: Path | None, mark: str) -> Graph | None:
    try:
        return load_graph(path, mark) if path else None
    except DamagedCache:  # reading the tables again mends it
        return None


def _in_order_of(fitted: FittedGraph, config: TableConfig) -> TableConfig:
    """The same graph with types, columns and relations in the run's order, as its weights are."""
    nodes = {
        kind: config.nodes[kind].model_copy(
            update={"features": {c: config.nodes[kind].features[c] for c in columns}}
        )
        for kind, columns in fitted.features.items()
    }
    names = sorted(
        config.relations, key=lambda name: fitted.relations.index(config.edge_types[name][0])
    )
    relations = {name: config.relations[name] for name in names}
    return config.model_copy(update={"nodes": nodes, "relations": relations})


def _check_schema(config: TableConfig, fitted: FittedGraph, path: Path) -> None:
    """Refuses a graph that the run's weights do not fit."""
    target = config.nodes[config.target]
    mine: dict[str, Any] = {
        "target": config.target,
        "relations": sorted("-".join(e) for pair in config.edge_types.values() for e in pair),
        "node types": sorted(config.nodes),
    }
    run: dict[str, Any] = {
        "target": fitted.target,
        "relations": sorted("-".join(e) for e in fitted.relations),
        "node types": sorted(fitted.features),
    }
    if target.label is not None:
        mine["several labels per node"] = target.label_separator is not None
        run["several labels per node"] = fitted.multilabel
    for kind in set(config.nodes) & set(fitted.features):
        mine[f"features of {kind}"] = {
            c: spec.method if isinstance(spec, Text) else spec.kind
            for c, spec in config.nodes[kind].features.items()
        }
        run[f"features of {kind}"] = {c: f.kind for c, f in fitted.features[kind].items()}
    for key, value in mine.items():
        if value != run[key]:
            raise HanmeError(
                f"{path}: its schema is not that of the run: {key}: {value}, but the run was "
                f"trained with {run[key]}"
            )


def _build(
    reader: Reader, config: TableConfig, origins: dict[str, Origin], fitted: FittedGraph | None
) -> Graph:
    names, ids, features = {}, {}, {}
    learnt: dict[str, dict[str, Fitted]] = {}
    tables: dict[str, Table] = {}
    labels: Labels | None = None
    for kind, nodes in config.nodes.items():
        origin = origins[f"nodes.{kind}"]
        known = fitted.features[kind] if fitted else None
        table = tables[kind] = _read_nodes(reader, origin, nodes)
        ids[kind] = _strings(reader, table, "id")
        called = "coalesce(nullif(trim(name), ''), id)"  # an empty name is none
        names[kind] = ids[kind] if nodes.name is None else _strings(reader, table, called)
        learnt[kind], x = _features(reader, origin, table, nodes, known)
        if x is not None:
            features[kind] = x
        if kind == config.target:
            run = (fitted.labels, fitted.multilabel) if fitted else (None, False)
            labels = read_labels(reader, table, nodes, *run)
    assert labels is not None
    links, weights, dropped = _links(reader, config, origins, tables)
    part = labels.part
    test = np.zeros(len(labels.y), bool) if part is None else part == 2
    graph = Graph(
        names=names,
        ids=ids,
        features=features,
        links=links,
        weights=weights,
        target=config.target,
        label_names=labels.names,
        multilabel=fitted.multilabel if fitted else labels.multilabel,
        y=labels.y,
        labelled=labels.labelled & ~test if part is None else (part == 0) | (part == 1),
        test=test,
        val=None if part is None else part == 1,
    )
    digest = _digest(graph, config.nodes[config.target].shares)
    graph.info = {
        "dropped": dropped,
        "fitted": (
            fitted
            or FittedGraph(
                target=config.target,
                labels=labels.names,
                multilabel=labels.multilabel,
                relations=[e for pair in config.edge_types.values() for e in pair],
                features=learnt,
                trained_on=digest,
            )
        ).model_dump(mode="json", exclude={"widths"}),
        "digest": digest,
    }
    return graph


def _digest(graph: Graph, shares: Shares) -> str:
    """Tells the target's ids, labels and split from others, whatever files they come from."""
    digest = hashlib.sha256(shares.model_dump_json().encode())
    ids = graph.ids[graph.target]
    assert isinstance(ids, Strings)
    val = graph.test if graph.val is None else graph.val
    for array in (ids.text, ids.offsets.astype(np.int64), graph.y, graph.test, val):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _read_nodes(reader: Reader, origin: Origin, nodes: Nodes) -> Table:
    """The rows of a node type, each with an id of its own."""
    wanted: dict[str, tuple[str, Kind]] = {"id": (nodes.id, "text")}
    if nodes.name is not None:
        wanted["name"] = (nodes.name, "text")
    if nodes.label is not None:
        wanted["label"] = (nodes.label, "list")
    if nodes.split is not None:
        wanted["split"] = (nodes.split, "text")
    for alias, (name, spec) in _feature_columns(nodes).items():
        wanted[alias] = (name, read_as(spec))
    table = reader.read(origin, wanted)
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


def _feature_columns(nodes: Nodes) -> dict[str, tuple[str, Any]]:
    return {f"feature{i}": pair for i, pair in enumerate(nodes.features.items())}


def _features(
    reader: Reader, origin: Origin, table: Table, nodes: Nodes, known: dict[str, Fitted] | None
) -> tuple[dict[str, Fitted], Any]:
    """What is learnt of a type's columns, and its features; None where they come to nothing."""

    def original(row: int, alias: str) -> str:
        return reader.original(origin, table, row, alias)

    learnt, blocks = {}, []
    for alias, (name, spec) in _feature_columns(nodes).items():
        learnt[name] = known[name] if known else fit(reader, table, alias, spec, original)
        blocks.append(encode(reader, table, alias, spec, learnt[name], original))
    wide = any(block.shape[1] for block in blocks)  # columns of empty cells have no values
    return learnt, side_by_side(blocks) if wide else None


def _strings(reader: Reader, table: Table, alias: str) -> Strings:
    values = reader.arrays(f"SELECT coalesce({alias}, '') AS text FROM {table.sql}")["text"]
    return Strings.of(values)


def _links(
    reader: Reader, config: TableConfig, origins: dict[str, Origin], tables: dict[str, Table]
) -> tuple[dict[EdgeType, Any], dict[EdgeType, Any], dict[str, int]]:
    links, weights, dropped = {}, {}, {}
    for kind, relation in config.relations.items():
        origin = origins[f"relations.{kind}"]
        wanted: dict[str, tuple[str, Kind]] = {
            "source": (relation.source.column, "text"),
            "target": (relation.target.column, "text"),
        }
        if relation.weight is not None:
            wanted["weight"] = (relation.weight, "number")
        table = reader.read(origin, wanted)
        found = reader.arrays(
            f"SELECT s.rowid AS source, t.rowid AS target FROM {table.sql} AS link "
            f"LEFT JOIN {tables[relation.source.type].sql} AS s ON link.source = s.id "
            f"LEFT JOIN {tables[relation.target.type].sql} AS t ON link.target = t.id "
            "ORDER BY link.rowid"
        )
        ends = np.stack([column(found, end, -1) for end in ("source", "target")]).astype(np.int32)
        known = (ends >= 0).all(axis=0)
        if not known.all() and relation.unknown == "refuse":
            _refuse_link(reader, table, config, kind, ends, int(np.flatnonzero(~known)[0]))
        dropped[kind] = int((~known).sum())
        edge_type = config.edge_types[kind][0]
        if relation.weight is not None:
            weight = _weights(reader, origin, table)
            known &= weight > 0
            weights[edge_type] = weight[known].astype(np.float32)
        links[edge_type] = ends if known.all() else ends[:, known]
        reader.connection.execute(f"DROP TABLE {table.sql}")
    return links, weights, dropped


def _refuse_link(
    reader: Reader, table: Table, config: TableConfig, kind: str, ends: Any, row: int
) -> None:
    end = "source" if ends[0, row] < 0 else "target"
    side = getattr(config.relations[kind], end)
    value = reader.rows(f"SELECT {end} FROM {table.sql} WHERE rowid = ?", row)[0][0]
    what = "the id is empty" if value is None else f"no {side.type} has the id {value[:60]!r}"
    raise HanmeError(
        f"{table.place(row, end)}: {what}; "
        f'unknown = "drop" in relations.{kind} leaves such links out'
    )


def _weights(reader: Reader, origin: Origin, table: Table) -> NDArray[np.float64]:
    values = numbers(
        reader, table, "weight", lambda row, alias: reader.original(origin, table, row, alias)
    )
    wrong = np.flatnonzero(~(values >= 0) | (values > np.finfo(np.float32).max))
    if wrong.size:
        row = int(wrong[0])
        what = "empty" if np.isnan(values[row]) else f"{values[row]:g}"
        raise HanmeError(
            f"{table.place(row, 'weight')}: the weight is {what}; expected a number from 0 on"
        )
    return values
