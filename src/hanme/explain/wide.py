"""What the wide part of a model adds to a node's logits: exact, since it is a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hanme.explain.explanation import Reason
from hanme.graph import Graph
from hanme.graph.names import feature_names
from hanme.nn import Model
from hanme.nn.channels import Inputs
from hanme.nn.channels.blocks import Block
from hanme.training import wide_part


@torch.no_grad()
def wide_reasons(
    models: Sequence[Model],
    graph: Graph,
    node: int,
    label: int,
    top: int,
    against: int | None = None,
) -> tuple[Reason, ...]:
    """Return what adds most to, or takes most from, a label's logit.

    A reason is a node that was met, or a feature: its number in the row times its weight. Each
    block's reasons, all of them, add up to what the block gives the logit.

    Args:
        models: The model, or several whose mean is explained.
        graph: The graph.
        node: The node.
        label: The label.
        top: How many.
        against: Rank by the difference to this label.
    """
    found: dict[Block, list[tuple[Tensor, Tensor]]] = {}
    inputs = Inputs(graph.x_dict, graph.edge_index_dict, None, graph.training_labels, graph.taken)
    for part in filter(None, map(wide_part, models)):
        weights = part.weights(graph.taken)
        for block, rows, weight in zip(part.active, part.rows(inputs), weights, strict=True):
            row = rows(np.array([node]))
            known = row.indices < len(weight)
            columns = torch.from_numpy(row.indices[known]).long()
            values = torch.from_numpy(row.data[known])
            parts = values[:, None] * weight[columns] / len(models)
            found.setdefault(block, []).append((columns, parts))
    ranked: list[tuple[float, Block, int, Tensor]] = []
    for block, given in found.items():
        columns, place = torch.unique(torch.cat([c for c, _ in given]), return_inverse=True)
        parts = torch.cat([p for _, p in given])
        total = parts.new_zeros(len(columns), parts.size(1)).index_add_(0, place, parts)
        size = ahead(total, label, against).abs()
        for i in size.argsort(descending=True, stable=True)[:top].tolist():
            ranked.append((float(size[i]), block, int(columns[i]), total[i]))
    ranked.sort(key=lambda reason: -reason[0])
    ends = {block.path.node_types[-1] if block.path else graph.target for block in found}
    names = {end: feature_names(graph, end) for end in ends}
    return tuple(_reason(graph, names, *reason[1:]) for reason in ranked[:top])


def ahead(values: Tensor, label: int, against: int | None) -> Tensor:
    """Return a label's column of ``[P, C]``, or how far it is ahead of another's."""
    return values[:, label] if against is None else values[:, label] - values[:, against]


def _reason(
    graph: Graph, names: Mapping[str, Sequence[str]], block: Block, column: int, parts: Tensor
) -> Reason:
    end = block.path.node_types[-1] if block.path else graph.target
    what, met = f"feature {column}", None
    if block.read == "ids":
        nodes = graph.nodes[end]
        what, met = nodes.title(column), (end, nodes.original(column))
    elif block.read in ("labels", "beliefs"):
        what = f"label {graph.labels[column]}"
    elif column < len(names[end]):
        what = names[end][column]
    return Reason(str(block), what, _by_label(graph, parts), met)


def _by_label(graph: Graph, values: Tensor) -> dict[str, float]:
    return dict(zip(graph.labels, values.tolist(), strict=True))
