"""What the features of a user's own tables are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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


def words_among(graph: Graph, node_type: str) -> list[bool]:
    """Return of each feature of a node type whether it is a word of a text, as far as is known."""
    columns = (graph.provenance.fitted or {}).get("features", {}).get(node_type, {})
    return [
        "words" in learnt or "size" in learnt
        for column, learnt in columns.items()
        for _ in _names_of(column, learnt)
    ]


def _column_names(graph: Graph, node_type: str) -> list[str]:
    columns = (graph.provenance.fitted or {}).get("features", {}).get(node_type, {})
    return [name for column, learnt in columns.items() for name in _names_of(column, learnt)]


def _names_of(column: str, learnt: Mapping[str, Any]) -> list[str]:
    if "values" in learnt or "words" in learnt:
        return [f"{column}: {value}" for value in learnt.get("values", learnt.get("words"))]
    if "size" in learnt:
        return [f"{column}: bucket {i}" for i in range(learnt["size"])]
    if isinstance(learnt.get("mean"), list):
        return [f"{column}[{i}]" for i in range(len(learnt["mean"]))]
    near = [f"{column} near {knot:g}" for knot in learnt.get("knots", [])]
    return [column, *near, *[f"{column} empty"] * learnt.get("gaps", False)]
