"""What the features of a user's own tables are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hanme.graph.graph import Graph


def feature_names(graph: Graph, node_type: str) -> list[str]:
    """Name each feature of a node type by its columns, or by those of which it has the means.

    Without columns there are no names.
    """
    own = _column_names(graph, node_type)
    if own or node_type not in graph.nodes:
        return own
    beside = [t for t in graph.nodes if any(e[0] == t and e[2] == node_type for e in graph.links)]
    means = [f"mean {name} of {t}" for t in beside for name in _column_names(graph, t)]
    return means if len(means) == graph.nodes[node_type].width else []


def _column_names(graph: Graph, node_type: str) -> list[str]:
    columns = (graph.fitted or {}).get("features", {}).get(node_type, {})
    names: list[str] = []
    for column, learnt in columns.items():
        if "values" in learnt or "words" in learnt:
            names += [f"{column}: {value}" for value in learnt.get("values", learnt.get("words"))]
        elif "size" in learnt:
            names += [f"{column}: bucket {i}" for i in range(learnt["size"])]
        elif isinstance(learnt.get("mean"), list):
            names += [f"{column}[{i}]" for i in range(len(learnt["mean"]))]
        else:
            names.append(column)
            names += [f"{column} near {knot:g}" for knot in learnt.get("knots", [])]
            names += [f"{column} empty"] * learnt.get("gaps", False)
    return names
