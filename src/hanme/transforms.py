"""Store metapath instances on a graph, as a transform of PyG."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from hanme.errors import HanmeError
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


class CheckMetaPathInstances(BaseTransform):  # type: ignore[misc]  # PyG has no types
    r"""Refuse batches of a loader that lack metapath instances of their seed nodes.

    :class:`NeighborLoader` and :class:`HGTLoader` sample links that lead towards the seeds, while
    instances follow links that lead away from them. Pass it as the ``transform`` of the loader.

    Args:
        data: The whole graph, which the loader samples from.
        metapaths: Texts such as ``"movie-actor-movie"``, or lists of edge types.
        least: The share of the seeds' instances that a batch must hold, from 0 to 1.
    """

    def __init__(
        self, data: HeteroData, metapaths: Sequence[str | Sequence[EdgeType]], least: float = 1.0
    ) -> None:
        self.metapaths = [Metapath.of(spec, data.metadata()) for spec in metapaths]
        self.counts = [_count(data, metapath) for metapath in self.metapaths]
        self.least = least

    def forward(self, data: HeteroData) -> HeteroData:
        """Return the batch as it is, unless it lacks instances."""
        for metapath, count in zip(self.metapaths, self.counts, strict=True):
            seeds = data[metapath.root]
            if "n_id" not in seeds or "batch_size" not in seeds:
                raise HanmeError(
                    f"metapath {metapath}: expected the batch to have n_id and batch_size of "
                    f"{metapath.root}, as loaders set them for their seed nodes"
                )
            whole = int(count[seeds.n_id[: seeds.batch_size]].sum())
            kept = int(_count(data, metapath)[: seeds.batch_size].sum())
            if kept < self.least * whole:
                raise HanmeError(
                    f"metapath {metapath}: the batch holds {kept:,} of the {whole:,} instances of "
                    f"its {seeds.batch_size:,} seed nodes; sample {len(metapath) + 1} hops with "
                    "num_neighbors -1 and both directions of each relation, or use Graph.subgraph"
                )
        return data


def _count(data: HeteroData, metapath: Metapath) -> Tensor:
    return _graph(data, metapath.root).chain(metapath).count()


def _graph(data: HeteroData, target: str) -> Graph:
    """Return the nodes and links alone: a transform needs no labels."""
    nodes = {t: Nodes(t, data[t].num_nodes) for t in data.node_types}
    unlabelled = torch.full((nodes[target].num_nodes,), -1)
    return Graph(nodes, data.edge_index_dict, target, unlabelled, [], Split.of(unlabelled))
