"""The columns of linear model, trees and smoothing that count most for a node."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hanme.explain.explanation import Reason
from hanme.graph import Graph
from hanme.linear.learner import ColumnContributions, Values
from hanme.training.stacked import Stacked


def top_reasons(
    model: Stacked, graph: Graph, node: int, contrast: Values, top: int
) -> tuple[Reason, ...]:
    """Return the ``top`` columns with the largest contributions, largest first.

    Blocks that differ in their scaling alone have the same columns. Their contributions are added
    up before the largest are chosen, so a column has the same contribution whatever ``top`` is.
    ``contrast`` holds the weights of the labels whose logits rank them, ``[C]``.
    """
    merged: dict[str, ColumnContributions] = {}
    for one in model.contributions(graph, node).blocks:
        name = without_scaling(one.block)
        same = merged.get(name)
        merged[name] = replace(one, block=name) if same is None else same + one
    ranked = []
    for one in merged.values():
        size = np.abs(one.values @ contrast)
        ranked += [(size[i], one, i) for i in np.argsort(-size, kind="stable")[:top]]
    reasons = []
    for _, one, i in sorted(ranked, key=lambda item: -item[0])[:top]:
        column, met = int(one.columns[i]), None
        if one.node_type is not None:
            met = one.node_type, graph.nodes[one.node_type].original(column)
        by_label = dict(zip(graph.labels, one.values[i].tolist(), strict=True))
        reasons.append(Reason(one.block, one.phrase(column), by_label, met))
    return tuple(reasons)


def without_scaling(block: str) -> str:
    """Return the name of a block without that of its scaling."""
    return block.removesuffix(":plain").removesuffix(":unit")
