"""The graph that every data set makes and everything else takes."""

from hanme.graph.graph import Graph
from hanme.graph.nodes import Nodes
from hanme.graph.splits import Split
from hanme.graph.texts import Texts
from hanme.metapath import EdgeType

__all__ = ["EdgeType", "Graph", "Nodes", "Split", "Texts"]
