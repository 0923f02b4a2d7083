"""Store metapath instances on a graph, as a transform of PyG."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from hanme.graph import Graph, Nodes, Split
from hanme.graph.metapath import EdgeType, Metapath
from hanme.graph.subgraph import sample_instances


@functional_transform("add_metapath_instances")
class AddMetaPathInstances(BaseTransform):  # type: ignore[misc]  # PyG has no types
    r"""Store the instances of metapaths on a graph, with the nodes in between.

    For each metapath, by its text, ``data.metapath_instances`` gets the node ids ``[P, L + 1]``
    (column 0 is the root) and ``data.metapath_node_types`` the L + 1 types they belong to.
    Applied again with other metapaths, it adds theirs (functional name:
    :obj:`add_metapath_instances`).

    Args:
        metapaths: Texts such as ``"movie-actor-movie"``, or lists of edge types.
        max_per_root: Maximum number of instances to sample per root (default: all instances).
        seed: The seed of the sample.
    """

    def __init__(
        self,
        metapaths: Sequence[str | Sequence[EdgeType]],
        max_per_root: int | None = None,
        seed: int = 0,
    ) -> None:
        self.metapaths = list(metapaths)
        self.max_per_root = max_per_root
        self.seed = seed

    def forward(self, data: HeteroData) -> HeteroData:
        """Add the instances to a graph."""
        instances = dict(data.metapath_instances) if "metapath_instances" in data else {}
        node_types = dict(data.metapath_node_types) if "metapath_node_types" in data else {}
        for spec in self.metapaths:
            metapath = Metapath.of(spec, data.metadata())
            instances[metapath.text] = self._instances(_graph(data, metapath.root), metapath)
            node_types[metapath.text] = metapath.node_types
        data.metapath_instances = instances
        data.metapath_node_types = node_types
        return data

    def _instances(self, graph: Graph, metapath: Metapath) -> Tensor:
        if self.max_per_root is None:
            return graph.chain(metapath).instances().nodes
        roots = torch.arange(graph.targets.num_nodes)
        return sample_instances(graph, metapath.steps, roots, self.max_per_root, self.seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metapaths}, max_per_root={self.max_per_root})"


def _graph(data: HeteroData, target: str) -> Graph:
    """Return the nodes and links alone: a transform needs no labels."""
    nodes = {t: Nodes(t, data[t].num_nodes) for t in data.node_types}
    unlabelled = torch.full((nodes[target].num_nodes,), -1)
    return Graph(nodes, data.edge_index_dict, target, unlabelled, [], Split.of(unlabelled))
