"""The graph that every data set makes and everything else takes."""

from hanme.graph.graph import EdgeType, Graph, Metadata
from hanme.graph.nodes import Nodes
from hanme.graph.splits import Split
from hanme.graph.texts import Texts

__all__ = ["EdgeType", "Graph", "Metadata", "Nodes", "Split", "Texts"]
