"""What the wide part of a model adds to a node's logits: exact, since it is a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.explain.explanation import Reason
from hanme.graph import Graph
from hanme.nn import Model
from hanme.nn.batch import Batch
from hanme.nn.channels.blocks import Block, pair
from hanme.training import wide_part

Ints = NDArray[np.integer[Any]]
Parts = NDArray[np.float64]
Values = TypeVar("Values", Tensor, Parts)


@torch.no_grad()
def wide_reasons(
    models: Sequence[Model],
    graph: Graph,
    names: Mapping[str, Sequence[str]],
    node: int,
    label: int,
    top: int,
    against: int | None = None,
) -> tuple[Reason, ...]:
    """Return what adds most to, or takes most from, a label's logit.

    A reason is a node that was met, or a feature: its number in the row times its weight. Blocks
    that differ in their scaling alone read the same columns: their parts are added up before the
    largest are chosen, so that a reason has the same part whatever ``top`` is.

    Args:
        models: The model, or several whose mean is explained.
        graph: The graph.
        names: What features are called, by node type.
        node: The node.
        label: The label.
        top: How many.
        against: Rank by the difference to this label.
    """
    found: dict[str, tuple[Ints, Parts]] = {}
    blocks: dict[str, Block] = {}
    batch = Batch.of(graph)
    for part in filter(None, map(wide_part, models)):
        weights = part.weights(batch.original_ids)
        for block, rows, weight in zip(part.active, part.rows(batch), weights, strict=True):
            columns, parts = rows.shares(node, weight.detach().cpu().numpy())
            parts, name = parts / len(models), str(block).rpartition(":")[0]
            blocks.setdefault(name, block)
            found[name] = _sum(*found[name], columns, parts) if name in found else (columns, parts)
    if not any(len(columns) for columns, _ in found.values()):
        return ()
    names_of = np.repeat(list(found), [len(columns) for columns, _ in found.values()])
    columns = np.concatenate([columns for columns, _ in found.values()])
    parts = np.concatenate([parts for _, parts in found.values()])
    size = np.abs(ahead(parts, label, against))
    largest = np.sort(np.argpartition(-size, min(top, len(size) - 1))[:top])
    ranked = largest[np.argsort(-size[largest], kind="stable")]
    return tuple(
        _reason(graph, names, names_of[i], blocks[names_of[i]], int(columns[i]), parts[i])
        for i in ranked
    )


def _sum(some: Ints, parts: Parts, others: Ints, more: Parts) -> tuple[Ints, Parts]:
    """Add up two rows' parts by column."""
    columns, place = np.unique(np.concatenate([some, others]), return_inverse=True)
    total = np.zeros((len(columns), parts.shape[1]))
    np.add.at(total, place, np.concatenate([parts, more]))
    return columns, total


def ahead(values: Values, label: int, against: int | None) -> Values:
    """Return a label's column of ``[P, C]``, or how far it is ahead of another's."""
    return values[:, label] if against is None else values[:, label] - values[:, against]


def _reason(
    graph: Graph,
    names: Mapping[str, Sequence[str]],
    name: str,
    block: Block,
    column: int,
    parts: Parts,
) -> Reason:
    end = block.path.node_types[-1] if block.path else graph.target
    what, met = "", None
    if block.read == "ids":
        nodes = graph.nodes[end]
        what, met = nodes.title(column), (end, nodes.original(column))
    elif block.read in ("labels", "beliefs"):
        what = f"label {graph.labels[column]}"
    elif block.read == "pairs":
        what = " and ".join(_named(names[end], i) for i in pair(column))
    elif block.read == "trees" and column == graph.targets.width:
        what = "any node"
    else:
        what = _named(names[end], column)
    by_label = dict(zip(graph.labels, parts.tolist(), strict=True))
    return Reason(str(name), what, by_label, met)


def _named(names: Sequence[str], column: int) -> str:
    return names[column] if column < len(names) else f"feature {column}"
