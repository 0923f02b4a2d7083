"""The columns of linear model, trees and smoothing that count most for a node."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from torch import Tensor

from hanme.explain.explanation import Reason
from hanme.graph import Graph
from hanme.linear.learner import ColumnContributions, Values
from hanme.training.stacked import Stacked

T = TypeVar("T", Tensor, Values)


def top_reasons(
    model: Stacked, graph: Graph, node: int, label: int, top: int, against: int | None = None
) -> tuple[Reason, ...]:
    """Return the columns with the largest contributions to a label's logit, largest first.

    Blocks that differ in their scaling alone have the same columns. Their contributions are added
    up before the largest are chosen, so a column has the same contribution whatever ``top`` is.

    Args:
        model: The model; the contributions of its network are those of instances.
        graph: The graph.
        node: The node.
        label: The label.
        top: The maximum number of columns.
        against: Rank by the difference to this label.
    """
    merged: dict[str, ColumnContributions] = {}
    for one in model.contributions(graph, node).blocks:
        name = one.block.removesuffix(":plain").removesuffix(":unit")
        same = merged.get(name)
        merged[name] = replace(one, block=name) if same is None else same + one
    blocks = [one for one in merged.values() if len(one.columns)]
    if not blocks:
        return ()
    block = np.repeat(np.arange(len(blocks)), [len(one.columns) for one in blocks])
    columns = np.concatenate([one.columns for one in blocks])
    values = np.concatenate([one.values for one in blocks])
    size = np.abs(ahead(values, label, against))
    largest = np.sort(np.argpartition(-size, min(top, len(size) - 1))[:top])
    reasons = []
    for i in largest[np.argsort(-size[largest], kind="stable")]:
        one, column = blocks[block[i]], int(columns[i])
        met = None
        if one.node_type is not None:
            met = one.node_type, graph.nodes[one.node_type].original(column)
        by_label = dict(zip(graph.labels, values[i].tolist(), strict=True))
        reasons.append(Reason(one.block, one.phrase(column), by_label, met))
    return tuple(reasons)


def ahead(values: T, label: int, against: int | None) -> T:
    """Return a label's column of ``[n, C]``, or its difference to another label's."""
    return values[:, label] if against is None else values[:, label] - values[:, against]
