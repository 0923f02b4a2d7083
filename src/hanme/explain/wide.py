"""What the wide part of a model adds to a node's logits: exact, since it is a sum."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from hanme.explain.explanation import Reason
from hanme.graph import Graph
from hanme.graph.names import feature_names
from hanme.nn.channels import Inputs, WideChannels


@torch.no_grad()
def wide_reasons(
    part: WideChannels, graph: Graph, node: int, label: int, top: int
) -> tuple[Reason, ...]:
    """Return what adds most to, or takes most from, a label's logit.

    A reason is a node that was met, or a feature: its number in the row times its weight. Each
    block's reasons, all of them, add up to what the block gives the logit.

    Args:
        part: The wide channels.
        graph: The graph.
        node: The node.
        label: The label.
        top: How many.
    """
    found: list[Reason] = []
    inputs = Inputs(graph.x_dict, graph.edge_index_dict, None, graph.training_labels, graph.taken)
    made = part.rows(inputs)
    for block, rows, weight in zip(part.blocks, made, part.weights(graph.taken), strict=True):
        row = rows(np.array([node]))
        known = row.indices < len(weight)
        columns, values = row.indices[known], torch.from_numpy(row.data[known])
        parts = values[:, None] * weight[torch.from_numpy(columns).long()]
        first = parts[:, label].abs().argsort(descending=True)[:top]
        end = block.path.node_types[-1] if block.path else graph.target
        names = dict(enumerate(feature_names(graph.fitted, end)))
        for i in first.tolist():
            column = int(columns[i])
            what, met = names.get(column, f"feature {column}"), None
            if block.read == "ids":
                what, met = graph.nodes[end].title(column), (end, column)
            elif block.read == "labels":
                what = f"label {graph.labels[column]}"
            found.append(Reason(str(block), what, _by_label(graph, parts[i]), met))
    found.sort(key=lambda reason: -abs(reason.parts[graph.labels[label]]))
    return tuple(found[:top])


def _by_label(graph: Graph, values: Tensor) -> dict[str, float]:
    return dict(zip(graph.labels, values.tolist(), strict=True))
