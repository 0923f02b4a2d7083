"""A graph as arrays: what a parser makes and the cache keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch_geometric.data import HeteroData

from hanme.datasets.features import to_torch

EdgeType = tuple[str, str, str]


@dataclass
class Graph:
    """One graph as arrays, node ids local to their type.

    Attributes:
        names: Per node type the nodes' names; its keys are the node types.
        features: Per node type that has features, given or filled in, one row per node.
        links: Per relation (start type, relation, end type) the links, ``[2, num_links]``.
        target: The labelled node type.
        label_names: What the labels mean.
        multilabel: Whether a node may have several labels.
        y: Multi-hot ``[num_nodes, num_labels]`` if multi-label, else ``[num_nodes]`` with -1 for
            none.
        labelled: Which target nodes have a label outside the test set.
        test: Which target nodes are in the test set.
        val: Which of the labelled ones are to validate on, where that is given.
        ids: Per node type what the user's own tables call the nodes.
        weights: Per relation that has some, a number per link.
        info: What else is known about it, as JSON would have it.
    """

    names: Mapping[str, Sequence[str]]
    features: dict[str, csr_array]
    links: dict[EdgeType, NDArray[np.integer]]
    target: str
    label_names: list[str]
    multilabel: bool
    y: NDArray[np.integer]
    labelled: NDArray[np.bool_]
    test: NDArray[np.bool_]
    val: NDArray[np.bool_] | None = None
    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    weights: dict[EdgeType, NDArray[np.float32]] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)


def to_hetero_data(graph: Graph, reverse: Mapping[EdgeType, EdgeType]) -> HeteroData:
    """The graph for PyG, with the reverse of some relations; who trains and who validates is for
    the caller to say."""
    data = HeteroData()
    for kind, names in graph.names.items():
        if kind in graph.features:
            data[kind].x = to_torch(graph.features[kind])
        data[kind].num_nodes = len(names)
        data[kind].name = names
        if kind in graph.ids:
            data[kind].id = graph.ids[kind]
    for relation, links in graph.links.items():
        edge_index = torch.from_numpy(links.astype(np.int64))
        data[relation].edge_index = edge_index
        if relation in graph.weights:
            data[relation].edge_weight = torch.from_numpy(graph.weights[relation])
        if relation in reverse:
            data[reverse[relation]].edge_index = edge_index.flip(0)
            if relation in graph.weights:
                data[reverse[relation]].edge_weight = data[relation].edge_weight
    data.target = graph.target
    data.multilabel = graph.multilabel
    target = data[graph.target]
    target.y = torch.from_numpy(graph.y).to(torch.float32 if graph.multilabel else torch.int64)
    target.label_names = graph.label_names
    target.test_mask = torch.from_numpy(graph.test)
    return data
