"""What a model receives: a graph or a part of it, and the target nodes to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import Graph, Subgraph
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath, Walk
from hanme.ops.export import ExportedChain


@dataclass(frozen=True)
class Batch:
    """The input of a :class:`~hanme.nn.Model`.

    Args:
        x_dict: Features by node type, ``[N, F]``, dense or sparse CSR.
        edge_index_dict: Links by edge type, ``[2, E]``.
        roots: Numbers of the target nodes to compute, ``[R]``, in any order (default: all of them,
            in order).
        labels: The labels that the model may read, as 0 and 1, ``[N, C]``; zeros for the nodes
            whose labels it may not read. None if it reads no labels.
        original_ids: In a subgraph, the numbers of its nodes in the original graph, by type:
            weights of ids and random draws belong to these.
        sampled_instances: By walk, the instances to attend to, see
            :class:`~hanme.graph.Subgraph` (default: all).
        edge_attr: Features of links by edge type, ``[E, F]``, of those that have some.
    """

    x_dict: Mapping[str, Tensor]
    edge_index_dict: Mapping[EdgeType, Tensor]
    roots: Tensor | None = None
    labels: Tensor | None = None
    original_ids: Mapping[str, Tensor] | None = None
    sampled_instances: Mapping[Walk, Tensor] | None = None
    edge_attr: Mapping[EdgeType, Tensor] | None = None

    @classmethod
    def of(cls, graph: Graph, roots: Tensor | None = None) -> Batch:
        """Return some target nodes of a graph (default: all) as a batch."""
        batch = cls(graph.x_dict, graph.links, roots, graph.training_labels)
        batch = replace(batch, edge_attr=graph.edge_attr or None)
        if not isinstance(graph, Subgraph):
            return batch
        ids, sampled = graph.original_ids, graph.sampled_instances
        return replace(batch, original_ids=ids, sampled_instances=sampled)

    def chain(self, metapath: Metapath) -> Chain:
        """Return the chain of a metapath, computed once for the same links."""
        sizes = {t: self._size(t) for t in metapath.node_types}
        root_ids = None if self.original_ids is None else self.original_ids[metapath.root]
        kind = ExportedChain if torch.compiler.is_exporting() else Chain
        chain = kind.cached(metapath, self.edge_index_dict, sizes, root_ids)
        if not self.edge_attr:
            return chain
        if torch.compiler.is_exporting():
            raise HanmeError("torch.export: layers that read link features cannot be exported")
        return chain.with_features([self._features(chain, hop) for hop in range(len(chain))])

    def _features(self, chain: Chain, hop: int) -> Tensor | None:
        """Return the features of a hop's links in a chain's order, ``[E_j, F]``."""
        steps = chain.metapath.steps[hop:]
        x = (self.edge_attr or {}).get(steps[0])
        if x is None:
            return None
        links = [self.edge_index_dict[step] for step in steps]  # those behind decide what is kept
        if x.shape[:1] != links[0].shape[1:]:
            raise HanmeError(
                f"relation {steps[0]}: expected edge_attr [{links[0].size(1)}, F], but got "
                f"{list(x.shape)}"
            )
        order = _order.get(links, lambda: chain.link_ids(hop, links[0]), steps)
        return (x.flatten(1) if x.dim() > 1 else x[:, None])[order]

    def _size(self, node_type: str) -> int:
        """Return the number of nodes of a type; without features, the highest number in links."""
        if node_type in self.x_dict:
            return self.x_dict[node_type].size(0)
        links = self.edge_index_dict.items()
        ends = [x[i] for e, x in links for i in (0, 1) if e[2 * i] == node_type and x.numel()]
        return max((int(end.max()) + 1 for end in ends), default=0)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; a graph is copied there once."""
        if device.type == "cpu":
            return self

        def moved(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {key: moved(x) for key, x in value.items()}
            if value is None:
                return None
            return _copies.get([value], lambda: value.to(device), key=str(device))

        return Batch(*(moved(getattr(self, part.name)) for part in fields(self)))


_copies: GraphCache[Tensor] = GraphCache()
_order: GraphCache[Tensor] = GraphCache()
