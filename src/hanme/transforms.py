"""Store metapath instances on a graph, as a transform of PyG."""

from __future__ import annotations

from collections.abc import Sequence

from torch_geometric.data import HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath


@functional_transform("add_metapath_instances")
class AddMetaPathInstances(BaseTransform):  # type: ignore[misc]  # PyG has no types
    r"""Store the instances of metapaths on a graph, with the nodes in between.

    For each metapath, by its text, ``data.metapath_instances`` gets the node ids ``[P, L + 1]``
    (column 0 is the root) and ``data.metapath_node_types`` the L + 1 types they belong to.
    Applied again with other metapaths, it adds theirs (functional name:
    :obj:`add_metapath_instances`).

    Args:
        metapaths: Texts such as ``"movie-actor-movie"``, or lists of edge types.
        max_per_root: The most instances to sample of each root (default: all instances).
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
        num_nodes = {t: data[t].num_nodes for t in data.node_types}
        for spec in self.metapaths:
            metapath = Metapath.of(spec, data.metadata())
            chain = Chain.build(metapath, data.edge_index_dict, num_nodes)
            found = (
                chain.instances()
                if self.max_per_root is None
                else chain.sample(self.max_per_root, seed=self.seed)
            )
            instances[metapath.text] = found.nodes
            node_types[metapath.text] = metapath.node_types
        data.metapath_instances = instances
        data.metapath_node_types = node_types
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metapaths}, max_per_root={self.max_per_root})"
