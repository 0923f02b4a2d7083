"""The graph that every data set makes and every model, command and run takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.graph import hetero
from hanme.graph.adjacency import Adjacency, Relations
from hanme.graph.cache import GraphCache
from hanme.graph.chain import Chain
from hanme.graph.features import Features, fill_features
from hanme.graph.metapath import EdgeType, Metapath, Walk
from hanme.graph.nodes import Nodes
from hanme.graph.splits import GROUPS, Split

if TYPE_CHECKING:  # importing PyG takes seconds, and a graph from files does without it
    from torch_geometric.data import HeteroData

    from hanme.graph.subgraph import Subgraph

CHUNK = 1 << 22
"""About how many links of a stored graph are read at a time."""


@dataclass(frozen=True)
class Provenance:
    """How a graph was made.

    Args:
        origin: Arguments of :func:`hanme.data.load` that load it again; None for a graph that was
            made from Python objects.
        fitted: What was fitted to the columns of the tables, as JSON values.
        dropped_links: Number of links to unknown ids that were dropped, by relation.
        notes: Remarks for the user on how the tables were read, one sentence each.
        digest: Hash of the target's ids, labels and split; None for a benchmark graph.
        left_out_metapaths: Candidates that are no default metapaths, each with the reason.
        display: Names that the user gave to types and columns; :func:`~hanme.graph.display` reads
            them and has a default for every other.
    """

    origin: dict[str, Any] | None = None
    fitted: dict[str, Any] | None = None
    dropped_links: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    digest: str | None = None
    left_out_metapaths: dict[str, str] = field(default_factory=dict)
    display: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Graph:
    """A heterogeneous graph with a target node type, some of whose nodes are labelled.

    Args:
        nodes: The nodes by type.
        links: Node numbers ``[2, E]`` by edge type ``(source type, relation, target type)``.
        target: The node type to classify.
        y: The labels of its nodes: ``[N]``, -1 if unlabelled, or multi-hot floats ``[N, C]``.
        labels: The names of the C labels.
        split: The target nodes to train, validate and test on.
        metapaths: The default metapaths of models.
        visible: Mask ``[N]`` of the nodes whose labels a model may read (default: training).
        provenance: How the graph was made.
        edge_attr: Features of links, ``[E, F]`` in the order of ``links``, by edge type. Stores do
            not have them.
        derived: What was computed from the graph, by name. Copies share it, so whoever reads it
            checks that it is of the same features and links.
    """

    nodes: dict[str, Nodes]
    links: Mapping[EdgeType, Tensor]
    target: str
    y: Tensor
    labels: list[str]
    split: Split
    metapaths: list[str] = field(default_factory=list)
    visible: Tensor | None = None
    provenance: Provenance = field(default_factory=Provenance)
    edge_attr: dict[EdgeType, Tensor] = field(default_factory=dict)
    derived: dict[str, Any] = field(repr=False, compare=False, default_factory=dict)

    completions: dict[Walk, Tensor] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """The number of ways to walk on from each node of a type, by walk, once it was counted."""

    stored: ClassVar[bool] = False
    """Whether it is mapped from a folder, so that reading all of it reads the disk."""

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

        The target (default: the only type with ``y``) needs ``y``: ``[N]`` with -1 for unlabelled
        nodes, or multi-hot ``[N, C]``, where a row of zeros is an unlabelled node. Optional: ``x``,
        ``name`` and ``id`` of any type; ``label_names``, ``train_mask``, ``val_mask`` and
        ``test_mask`` of the target; ``edge_attr`` of any relation. An ``edge_weight`` is refused:
        no model reads it. Without any mask, 60, 20 and 20 % of the labelled nodes are drawn by the
        seed, stratified. For ``features``, see :meth:`with_features`.
        """
        return hetero.from_hetero(data, target, features, seed)

    @classmethod
    def from_tables(
        cls, path: str | Path, *, features: Features | None = None, seed: int = 0
    ) -> Graph:
        """Read a graph from tables that a ``graph.toml`` describes, given that file or its folder.

        For ``features``, see :meth:`with_features`. The seed draws the split if there is none.
        """
        from hanme.data import load

        return load(str(Path(path).absolute()), features=features, seed=seed)

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
            frames: The tables by name, which the configuration and its queries use.
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
        return hetero.to_hetero(self)

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
    def sizes(self) -> dict[str, int]:
        """The number of nodes by type."""
        return {kind: nodes.num_nodes for kind, nodes in self.nodes.items()}

    @property
    def targets(self) -> Nodes:
        """The nodes to classify."""
        return self.nodes[self.target]

    @property
    def groups(self) -> Tensor | None:
        """Group numbers of the target nodes, ``[N]``: those of a group nearly repeat each other."""
        return self.targets.extra.get(GROUPS)

    @property
    def multilabel(self) -> bool:
        """Whether a node may have several labels."""
        return self.y.dim() == 2

    @property
    def label_matrix(self) -> Tensor:
        """The labels of all target nodes, bool, ``[N, C]``; all False for an unlabelled node."""
        return label_matrix(self.y, len(self.labels))

    def labels_given(self, nodes: Tensor | slice) -> Tensor:
        """Return some rows of :attr:`label_matrix`, at their cost."""
        return label_matrix(self.y[nodes], len(self.labels))

    @cached_property
    def training_labels(self) -> Tensor:
        """The labels that a model may read as 0 and 1, ``[N, C]``; zeros for all other nodes."""
        visible = self.split.train if self.visible is None else self.visible
        return (self.label_matrix & visible[:, None]).float()

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
        """Return the links of an edge type as CSR arrays, computed once for the same links."""
        if isinstance(self.links, Relations):
            return self.links.adjacency[edge_type]
        links, size = self.links[edge_type], self.nodes[edge_type[0]].num_nodes
        x = self.edge_attr.get(edge_type)
        given = [links] if x is None else [links, x]
        return _adjacency.get(given, lambda: Adjacency.of(links, size, x), size)

    def chain(self, metapath: Metapath) -> Chain:
        """Return the chain of a metapath, computed once for the same links."""
        return Chain.cached(metapath, self.links, self.sizes)

    def link_chunks(self, edge_type: EdgeType) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the two ends of all links of an edge type, of a stored graph some at a time."""
        if not isinstance(self.links, Relations):
            yield self.links[edge_type][0], self.links[edge_type][1]
            return
        links = self.links.adjacency[edge_type]
        for begin, end in links.chunks(CHUNK):
            parent, ends = links.links(torch.arange(begin, end))
            yield begin + parent, ends

    def in_memory(self) -> Graph:
        """Return the graph itself; a stored graph is read into memory."""
        return self

    def labels_of(self, numbers: Tensor) -> tuple[Tensor, Split]:
        """Return the labels of some target nodes, and which parts of the split they are in."""
        return self.y[numbers], Split(*(mask[numbers] for mask in self.split))

    def subgraph(
        self,
        roots: Tensor,
        walks: Sequence[Walk],
        samples: Mapping[Walk, int] | None = None,
        seed: int = 0,
    ) -> Subgraph:
        """Extract what walks from some target nodes reach, see :func:`hanme.graph.subgraph`."""
        from hanme.graph.subgraph import subgraph

        return subgraph(self, roots, walks, samples, seed)

    def with_features(self, how: Features) -> Graph:
        """Return a copy in which every node type has features, see :func:`fill_features`."""
        return replace(self, nodes=fill_features(self.nodes, self.links, self.target, how))

    def with_reverse(self, reverse: Mapping[EdgeType, EdgeType]) -> Graph:
        """Return a copy with the reverse of some edge types, each after the one it reverses."""
        links: dict[EdgeType, Tensor] = {}
        for edge_type, edge_index in self.links.items():
            links[edge_type] = edge_index
            if edge_type in reverse:
                links[reverse[edge_type]] = edge_index.flip(0)
        both = {reverse[e]: x for e, x in self.edge_attr.items() if e in reverse}
        return replace(self, links=links, edge_attr=self.edge_attr | both)

    def with_provenance(self, **changes: Any) -> Self:
        """Return a copy with some fields of its provenance changed."""
        graph = copy(self)  # `replace` would read all labels of a stored graph
        graph.provenance = replace(self.provenance, **changes)
        return graph

    def check_trainable(self) -> None:
        """Refuse a graph without two labels, or without labelled nodes to train and validate on."""
        if not self.multilabel and len(self.labels) < 2:
            raise HanmeError(
                f"node type {self.target}: all labelled nodes have the label "
                f"{', '.join(self.labels)}; a model needs two labels or more"
            )
        for part, mask in self.split.parts().items():
            if part != "test" and not mask.any():
                raise HanmeError(f"node type {self.target}: no node is in the {part} part")
            if not self.multilabel and (self.labels_of(mask.nonzero().flatten())[0] < 0).any():
                raise HanmeError(f"node type {self.target}: a node in the {part} part has no label")

    def __repr__(self) -> str:
        nodes = ", ".join(f"{n.num_nodes:,} {kind}" for kind, n in self.nodes.items())
        links = sum(self.num_links.values())
        return f"Graph({nodes}; {links:,} links; {self.target}: {', '.join(self.labels)})"


_adjacency: GraphCache[Adjacency] = GraphCache()


def label_matrix(y: Tensor, labels: int) -> Tensor:
    """Turn labels into a bool matrix ``[N, C]``; the row of an unlabelled node is all False."""
    return y > 0 if y.dim() == 2 else y[:, None] == torch.arange(labels, device=y.device)
