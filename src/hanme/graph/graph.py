"""The graph that every data set makes and every model, command and run takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from hanme.common.html import html_table
from hanme.errors import HanmeError, check_choice
from hanme.graph import hetero, piece
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.draw import Walk
from hanme.graph.features import Features, fill_features
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Nodes
from hanme.graph.splits import Split, stratified

if TYPE_CHECKING:  # importing PyG takes seconds, and a graph from files does without it
    from torch_geometric.data import HeteroData

CHUNK = 1 << 22
"""About how many links of a stored graph are read at a time."""


@dataclass
class Graph:
    """A heterogeneous graph, some of whose target nodes have labels.

    Args:
        nodes: The nodes by type.
        links: By edge type ``(source type, relation, target type)``, node numbers ``[2, E]``.
        target: The node type to classify.
        y: The labels of its nodes: ``[N]`` with -1 for unlabelled nodes, or, where nodes have
            several labels, 0 and 1 as floats, ``[N, C]``.
        labels: What the C labels are called.
        split: Which target nodes to train, validate and test on.
        weights: A number per link, for the edge types that have weights; no model uses them so far.
        metapaths: The metapaths that models are given by default.
        left_out: The metapaths that would be, but for the reason given.
        origin: How to load the graph again, the arguments of :func:`hanme.data.load`; None for
            a graph that came from Python objects.
        fitted: What was learnt from the columns of the user's tables, as JSON holds it.
        dropped: How many links to unknown ids each relation lost.
        notes: What else a user should know of how the tables were read, a sentence each.
        digest: A hash of the target's ids, labels and split; None for a benchmark's graph.
        seen: The target nodes whose labels a model may see (default: the training nodes).
        drawn: Of a piece cut out of a graph, the instances that were drawn, by walk: node numbers
            ``[P, L + 1]``, by root.
    """

    nodes: dict[str, Nodes]
    links: Mapping[EdgeType, Tensor]
    target: str
    y: Tensor
    labels: list[str]
    split: Split
    weights: Mapping[EdgeType, Tensor] = field(default_factory=dict)
    metapaths: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    origin: dict[str, Any] | None = None
    fitted: dict[str, Any] | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    digest: str | None = None
    seen: Tensor | None = None
    drawn: dict[Walk, Tensor] | None = None

    _adjacency: dict[EdgeType, Adjacency] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    ways: dict[Walk, Tensor] = field(init=False, repr=False, compare=False, default_factory=dict)
    """How many ways there are to go on from each node along a walk, where that was counted."""

    stored: ClassVar[bool] = False
    """Whether it is mapped from a folder: what is whole of it is then read from the disk."""

    @classmethod
    def from_hetero(
        cls,
        data: HeteroData,
        target: str | None = None,
        *,
        features: Features = "given",
        seed: int = 0,
    ) -> Graph:
        """Make a graph from PyG's :class:`HeteroData`, which is left as it is.

        The target needs ``y``: ``[N]`` with -1 for unlabelled nodes, or multi-hot ``[N, C]``, where
        a row of zeros is an unlabelled node. Also used, where they are there: ``x``, ``name`` and
        ``id`` of any type; ``label_names``, ``train_mask``, ``val_mask`` and ``test_mask`` of the
        target; ``edge_weight`` of any edge type. Without any mask, 60, 20 and 20 % of the labelled
        nodes are drawn, stratified.

        Args:
            data: The graph.
            target: The node type to classify (default: the only one with ``y``).
            features: What node types without features get, see :meth:`with_features`.
            seed: Draws the split where there is none.
        """
        target = hetero.target_of(data) if target is None else target
        check_choice("target", target, data.node_types)
        nodes = {kind: hetero.nodes_of(data[kind], kind) for kind in data.node_types}
        y, labels = hetero.labels_of(data[target], target, nodes[target].num_nodes)
        split = hetero.split_of(data[target], target, y.size(0))
        split = split or stratified(y, val=0.2, test=0.2, seed=seed)
        digest = hashlib.sha256()
        for tensor in (y, *split):
            digest.update(tensor.numpy().tobytes())
        graph = cls(
            nodes=nodes,
            links={e: hetero.links_of(data[e], e, nodes) for e in data.edge_types},
            weights={e: data[e].edge_weight for e in data.edge_types if "edge_weight" in data[e]},
            target=target,
            y=y,
            labels=labels,
            split=split,
            digest=digest.hexdigest(),
        )
        return graph.with_features(features)

    @classmethod
    def from_tables(
        cls, path: str | Path, *, features: Features | None = None, seed: int = 0
    ) -> Graph:
        """Read a graph from your own tables, described by a ``graph.toml`` (see docs/tables.md).

        Args:
            path: The file, or its folder.
            features: What node types without features get, see :meth:`with_features`.
            seed: Draws the split where the tables have none.
        """
        from hanme.data import load, tables_name

        return load(tables_name(path), features=features, seed=seed)

    @classmethod
    def from_frames(
        cls,
        frames: Mapping[str, Any],
        config: Mapping[str, Any] | str | Path | None = None,
        *,
        label: str | None = None,
        features: Features = "given",
        seed: int = 0,
    ) -> Graph:
        """Make a graph from tables in memory: of pandas, polars or Arrow.

        Args:
            frames: The tables by name; ``table = "films"`` in the configuration is the one of that
                name, and a query can name it.
            config: What a ``graph.toml`` says, as a dictionary, or the path of such a file
                (default: a guess, as by ``hanme init``).
            label: The column of labels, for the guess.
            features: What node types without features get, see :meth:`with_features`.
            seed: Draws the split where the tables have none.
        """
        from hanme.data import load_frames

        return load_frames(frames, config, label=label, features=features, seed=seed)

    def to_hetero(self) -> HeteroData:
        """Return the graph as PyG's :class:`HeteroData`; :meth:`from_hetero` reads it back."""
        from torch_geometric.data import HeteroData

        data = HeteroData()
        for kind, nodes in self.nodes.items():
            store = data[kind]
            store.num_nodes = nodes.num_nodes
            own = {"x": nodes.x, "name": nodes.names, "id": nodes.ids}
            for key, value in (own | nodes.extra).items():
                if value is not None:
                    store[key] = value
        for edge_type, links in self.links.items():
            data[edge_type].edge_index = links.contiguous()  # as PyG's transforms want it
            if edge_type in self.weights:
                data[edge_type].edge_weight = self.weights[edge_type]
        target = data[self.target]
        target.y, target.label_names = self.y, self.labels
        for part, mask in self.split.parts().items():
            target[f"{part}_mask"] = mask
        return data

    @property
    def node_types(self) -> list[str]:
        """The node types, in order."""
        return list(self.nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types, in order."""
        return list(self.links)

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Return node types and edge types, as :meth:`HeteroData.metadata` does."""
        return self.node_types, self.edge_types

    @property
    def x_dict(self) -> dict[str, Tensor]:
        """Features by node type, of the types that have some."""
        return {kind: nodes.x for kind, nodes in self.nodes.items() if nodes.x is not None}

    @property
    def edge_index_dict(self) -> Mapping[EdgeType, Tensor]:
        """The links by edge type, under the name they have in PyG."""
        return self.links

    @property
    def taken(self) -> dict[str, Tensor] | None:
        """The numbers that its nodes have in the graph it was cut out of, by type."""
        found = {kind: n.numbers for kind, n in self.nodes.items() if n.numbers is not None}
        return found or None

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes by type."""
        return {kind: nodes.num_nodes for kind, nodes in self.nodes.items()}

    @property
    def targets(self) -> Nodes:
        """The nodes to classify."""
        return self.nodes[self.target]

    @property
    def multilabel(self) -> bool:
        """Whether a node may have several labels."""
        return self.y.dim() == 2

    @property
    def label_matrix(self) -> Tensor:
        """The labels of all target nodes, bool, ``[N, C]``; all False for an unlabelled node."""
        return label_matrix(self.y, len(self.labels))

    def labels_given(self, nodes: Tensor | slice) -> Tensor:
        """Return the labels of some target nodes as :attr:`label_matrix` does, at their cost."""
        return label_matrix(self.y[nodes], len(self.labels))

    @cached_property
    def training_labels(self) -> Tensor:
        """The labels that a model may see as 0 and 1, ``[N, C]``; zeros for all other nodes."""
        seen = self.split.train if self.seen is None else self.seen
        return (self.label_matrix & seen[:, None]).float()

    @property
    def widths(self) -> dict[str, int]:
        """The number of features by node type."""
        return {kind: n.width for kind, n in self.nodes.items() if n.width is not None}

    @property
    def num_links(self) -> dict[EdgeType, int]:
        """The number of links by edge type."""
        if isinstance(self.links, Relations):
            return {e: len(links) for e, links in self.links.adjacency.items()}
        return {e: links.size(1) for e, links in self.links.items()}

    def adjacency(self, edge_type: EdgeType) -> Adjacency:
        """Return the links of an edge type as CSR arrays, made when they are first asked for."""
        if isinstance(self.links, Relations):
            return self.links.adjacency[edge_type]
        if edge_type not in self._adjacency:
            size = self.nodes[edge_type[0]].num_nodes
            self._adjacency[edge_type] = Adjacency.of(self.links[edge_type], size)
        return self._adjacency[edge_type]

    def link_chunks(self, edge_type: EdgeType) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the two ends of all links of an edge type, of a stored graph some at a time."""
        if not isinstance(self.links, Relations):
            yield self.links[edge_type][0], self.links[edge_type][1]
            return
        links = self.links.adjacency[edge_type]
        for begin, end in links.chunks(CHUNK):
            parent, ends = links.links(torch.arange(begin, end))
            yield begin + parent, ends

    def labels_of(self, numbers: Tensor) -> tuple[Tensor, Split]:
        """Return the labels of some target nodes, and which parts of the split they are in."""
        return self.y[numbers], Split(*(mask[numbers] for mask in self.split))

    cut = piece.cut

    def of(
        self, nodes: dict[str, Nodes], links: Mapping[EdgeType, Tensor], numbers: dict[str, Tensor]
    ) -> Graph:
        """Return a graph of some nodes, given by number, and some links."""
        y, split = self.labels_of(numbers[self.target])
        return Graph(
            nodes,
            links,
            self.target,
            y,
            self.labels,
            split,
            metapaths=self.metapaths,
            fitted=self.fitted,
            seen=None if self.seen is None else self.seen[numbers[self.target]],
        )

    def with_features(self, how: Features) -> Graph:
        """Return a copy in which every node type has features, see :func:`fill_features`."""
        return replace(self, nodes=fill_features(self.nodes, self.links, self.target, how))

    def with_reverse(self, reverse: Mapping[EdgeType, EdgeType]) -> Graph:
        """Return a copy with the reverse of some edge types, each after the one it reverses."""
        links, weights = dict[EdgeType, Tensor](), dict(self.weights)
        for edge_type, edge_index in self.links.items():
            links[edge_type] = edge_index
            if edge_type in reverse:
                links[reverse[edge_type]] = edge_index.flip(0)
                if edge_type in weights:
                    weights[reverse[edge_type]] = weights[edge_type]
        return replace(self, links=links, weights=weights)

    def check_trainable(self) -> None:
        """Refuse a graph without labelled nodes to train and to validate on."""
        for part, mask in self.split.parts().items():
            if part == "test":
                continue
            if not mask.any():
                raise HanmeError(f"node type {self.target}: no node is in the {part} part")
            if not self.multilabel and (self.labels_of(mask.nonzero().flatten())[0] < 0).any():
                raise HanmeError(f"node type {self.target}: a node in the {part} part has no label")

    def __repr__(self) -> str:
        nodes = ", ".join(f"{n.num_nodes:,} {kind}" for kind, n in self.nodes.items())
        links = sum(self.num_links.values())
        return f"Graph({nodes}; {links:,} links; {self.target}: {', '.join(self.labels)})"

    def _repr_html_(self) -> str:
        """Return node types and relations as a table, for notebooks."""
        rows: list[list[object]] = [["nodes", t, n.num_nodes] for t, n in self.nodes.items()]
        rows += [["links", "-".join(e), links] for e, links in self.num_links.items()]
        labels = ", ".join(self.labels)
        return html_table(["", "type", "number"], rows, f"labels of {self.target}: {labels}")


def label_matrix(y: Tensor, labels: int) -> Tensor:
    """Turn labels into a bool matrix ``[N, C]``; the row of an unlabelled node is all False."""
    return y > 0 if y.dim() == 2 else y[:, None] == torch.arange(labels, device=y.device)
