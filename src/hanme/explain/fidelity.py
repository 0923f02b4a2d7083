"""Measure explanations: does a prediction depend most on the reason that they name first?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from statistics import fmean
from typing import Any

import torch

from hanme.errors import HanmeError, check_choice
from hanme.explain.explainer import Explainer

MAX_REMOVED = 200
"""Maximum number of links and columns of a node to remove; those that contribute most."""

ROUNDING = 1e-6
"""Probabilities that differ by less are equal."""


@dataclass(frozen=True)
class Fidelity:
    """How far the probability of the most likely label changes without a link or column.

    Args:
        nodes: Number of nodes that were explained.
        faithful: Number of nodes whose first reason changes it at least as much as any other.
        first: Mean change without the first reason.
        largest: Mean change without the link or column that changes it most.
        others: Mean change without one of the others.
        removed: Mean number of links and columns that were removed, one at a time.
    """

    nodes: int
    faithful: int
    first: float
    largest: float
    others: float
    removed: float

    @property
    def share(self) -> float:
        """The share of faithful explanations."""
        return self.faithful / self.nodes

    def __str__(self) -> str:
        return (
            f"For {self.faithful} of {self.nodes} nodes ({self.share:.1%}), removing the first "
            "reason changes the probability at least as much as removing any other link or "
            f"column.\nMean change of the probability: first reason {self.first:.3f}, largest "
            f"{self.largest:.3f}, others {self.others:.3f}, with {self.removed:.1f} links and "
            "columns per node."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self) | {"share": self.share}


@torch.no_grad()
def fidelity(
    explainer: Explainer,
    *,
    nodes: int = 200,
    seed: int = 0,
    split: str = "test",
    on_node: Callable[[], None] = lambda: None,
) -> Fidelity:
    """Remove every link and every column of some nodes, one at a time.

    Args:
        explainer: The explainer.
        nodes: Number of nodes to draw; all if there are fewer.
        seed: Seed of the draw.
        split: The nodes to draw from: train, val or test.
        on_node: Called after each node.
    """
    graph = explainer.graph
    check_choice("split", split, graph.split.parts())
    known: list[int] = graph.split.parts()[split].nonzero().flatten().tolist()
    if not known or nodes < 1:
        raise HanmeError(f"cannot draw {nodes} of {len(known)} {split} nodes")
    rows = []
    for node in Random(seed).sample(known, min(nodes, len(known))):
        found = explainer.explain(node)
        p = found.probabilities[found.label]
        label = graph.labels.index(found.label)
        root = explainer.root(node)
        tried = [one.without for one in found.reasons if one.without is not None]
        sources = explainer.sources(root, label)[1][len(tried) : MAX_REMOVED]
        rest = [without for without, _ in explainer.without(root, sources, label)]
        first = abs(p - tried[0]) if tried else 0.0
        changes = sorted((abs(p - without) for without in tried + rest), reverse=True) or [0.0]
        rows.append((first, changes[0], fmean(changes[1:] or [0.0]), len(changes)))
        on_node()
    first, largest, others, removed = map(fmean, zip(*rows, strict=True))
    faithful = sum(row[0] >= row[1] - ROUNDING for row in rows)
    return Fidelity(len(rows), faithful, first, largest, others, removed)
