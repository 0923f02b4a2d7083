"""The graph that every data set makes and everything else takes."""

from hanme.graph.graph import Graph, Provenance
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Nodes, Texts, TypeNames, display
from hanme.graph.splits import Split
from hanme.graph.subgraph import Subgraph

__all__ = [
    "EdgeType",
    "Graph",
    "Nodes",
    "Provenance",
    "Split",
    "Subgraph",
    "Texts",
    "TypeNames",
    "display",
]
