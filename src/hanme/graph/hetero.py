"""Convert graphs from and to PyG's :class:`HeteroData`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hanme.errors import HanmeError, check_choice
from hanme.graph.chain import checked_links
from hanme.graph.features import Features
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Nodes, Texts
from hanme.graph.splits import PARTS, Split, stratified

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData
    from torch_geometric.data.storage import NodeStorage

    from hanme.graph.graph import Graph

MASKS = tuple(f"{part}_mask" for part in PARTS)
KNOWN = ("x", "y", "name", "id", "label_names", "num_nodes", *MASKS)


def from_hetero(data: HeteroData, target: str | None, features: Features, seed: int) -> Graph:
    """Make a graph, see :meth:`hanme.graph.Graph.from_hetero`."""
    from hanme.graph.graph import Graph, Provenance, label_matrix

    labelled = [kind for kind in data.node_types if "y" in data[kind]]
    if target is None and len(labelled) != 1:
        raise HanmeError(
            f"Expected one node type with y to classify, but got {len(labelled)}: name the `target`"
        )
    target = labelled[0] if target is None else target
    check_choice("target", target, data.node_types)
    nodes = {kind: _nodes(data[kind], kind) for kind in data.node_types}
    y, labels = _labels(data[target], target, nodes[target].num_nodes)
    split = _split(data[target], target, len(y)) or stratified(y, val=0.2, test=0.2, seed=seed)
    scored = split.test & label_matrix(y, len(labels)).any(1)
    unscored, split = int((split.test & ~scored).sum()), split._replace(test=scored)
    notes = [f"test_mask: {unscored:,} nodes have no label and are not scored"] if unscored else []
    digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in (y, *split)))
    stores = {e: data[e] for e in data.edge_types}
    links = {e: _links(s.get("edge_index", s.get("adj_t")), e, nodes) for e, s in stores.items()}
    for e in (e for e, store in stores.items() if "edge_weight" in store):
        raise HanmeError(
            f"relation {e}: edge_weight is not supported; remove it, or store it as edge_attr, "
            "[E, 1], for encoders that read features of links"
        )
    provenance = Provenance(digest=digest.hexdigest(), notes=notes)
    given = {e: store.edge_attr for e, store in stores.items() if "edge_attr" in store}
    for e, x in given.items():
        if x.shape[:1] != links[e].shape[1:]:
            raise HanmeError(
                f"relation {e}: expected edge_attr of {links[e].size(1)} links, but got "
                f"{list(x.shape)}"
            )
    graph = Graph(nodes, links, target, y, labels, split, provenance=provenance, edge_attr=given)
    return graph.with_features(features)


def to_hetero(graph: Graph) -> HeteroData:
    """Return a graph as :class:`HeteroData`; :func:`from_hetero` reads it back."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for kind, nodes in graph.nodes.items():
        own = {"num_nodes": nodes.num_nodes, "x": nodes.x, "name": nodes.names, "id": nodes.ids}
        data[kind].update({k: v for k, v in (own | nodes.extra).items() if v is not None})
    for edge_type, links in graph.links.items():
        data[edge_type].edge_index = links.contiguous()  # as PyG's transforms want it
    for edge_type, x in graph.edge_attr.items():
        data[edge_type].edge_attr = x
    target = data[graph.target]
    target.y, target.label_names = graph.y, graph.labels
    target.update(dict(zip(MASKS, graph.split, strict=True)))
    return data


def _nodes(store: NodeStorage, kind: str) -> Nodes:
    size, x = store.num_nodes, store.get("x")
    if size is None:
        raise HanmeError(f"node type {kind}: no features and no num_nodes, so no number of nodes")
    if x is not None:
        if x.dim() != 2 or x.size(0) != size or not x.is_floating_point():
            raise HanmeError(
                f"node type {kind}: expected x of floats, [N, F] for N = {size} nodes, but got "
                f"{x.dtype} {list(x.shape)}"
            )
        x = x.float() if x.layout == torch.strided else x.to_sparse_csr().float()
        if not (x if x.layout == torch.strided else x.values()).isfinite().all():
            raise HanmeError(f"node type {kind}: x has a value that is NaN or infinite")
    names, ids = (_texts(store.get(key), f"{kind}: {key}", size) for key in ("name", "id"))
    extra = {
        key: value
        for key, value in store.items()
        if key not in KNOWN and isinstance(value, Tensor) and value.shape[:1] == (size,)
    }
    return Nodes(kind, size, x, names, ids, extra)


def _links(given: object, e: EdgeType, nodes: Mapping[str, Nodes]) -> Tensor:
    """Return the links of an edge type, ``[2, E]``."""
    edge_index = checked_links(given, e)
    for end, kind in zip(edge_index, (e[0], e[2]), strict=True):
        size = nodes[kind].num_nodes if kind in nodes else 0
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < size:
            raise HanmeError(f"relation {e}: edge_index exceeds the {size:,} nodes of {kind!r}")
    return edge_index.long()


def _texts(texts: Any, where: str, size: int) -> Sequence[str] | None:
    if texts is None:
        return None
    texts = texts.tolist() if hasattr(texts, "tolist") else texts
    if len(texts) != size:
        raise HanmeError(f"{where}: expected one for each of {size} nodes, but got {len(texts)}")
    return texts if isinstance(texts, Texts) else [str(text) for text in texts]


def _labels(store: NodeStorage, target: str, size: int) -> tuple[Tensor, list[str]]:
    """Return the labels of the target nodes, and the names of the labels."""
    y, where = store.get("y"), f"node type {target}"
    if y is None or y.dim() not in (1, 2) or y.size(0) != size or 0 in y.shape[1:]:
        raise HanmeError(f"{where}: expected y of shape [N] or [N, C] for N = {size} nodes")
    if y.dim() == 2 and not ((y == 0) | (y == 1)).all():
        raise HanmeError(f"{where}: expected 0 and 1 in y of shape [N, C]")
    if y.dim() == 1 and (y.is_floating_point() or (y < -1).any()):
        raise HanmeError(f"{where}: expected integers in y of shape [N], -1 if unlabelled")
    count = y.size(1) if y.dim() == 2 else int(y.max()) + 1 if size else 0
    names = [str(name) for name in store.get("label_names") or range(count)]
    if len(names) < count or (y.dim() == 2 and len(names) > count):
        raise HanmeError(f"{where}: {len(names)} label_names, but y has {count} labels")
    return y.float() if y.dim() == 2 else y.long(), names


def _split(store: NodeStorage, target: str, size: int) -> Split | None:
    """Return the split that the masks make; None if there is no mask."""
    masks = {key: store[key] for key in MASKS if key in store}
    for key, mask in masks.items():
        if mask.dtype != torch.bool or mask.shape != (size,):
            raise HanmeError(
                f"node type {target}: expected {key} of bool, [N] for N = {size} nodes, but got "
                f"{mask.dtype} {list(mask.shape)}"
            )
    split = Split(*(masks.get(key, torch.zeros(size, dtype=torch.bool)) for key in MASKS))
    if (twice := torch.stack(split).sum(0) > 1).any():
        raise HanmeError(f"node type {target}: node {int(twice.nonzero()[0])} is under two masks")
    return split if masks else None
