"""Measure explanations: does a prediction depend on the instances that they name?"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import Any

import torch
from torch.nn.functional import one_hot

from hanme.errors import HanmeError, check_choice
from hanme.explain.explainer import By, Explainer, top_instances
from hanme.explain.removal import Root
from hanme.graph import Graph
from hanme.nn import Model
from hanme.training.stacked import Stacked

SIZES = (1, 2, 5, 10, 20)
"""How many instances are removed."""

DRAWS = 10
"""Number of random sets to take the mean over."""

ENOUGH = 5
"""Nodes have more instances than this: of fewer, the top ones would soon be all of them."""

Places = Sequence[tuple[int, int]]  # instances of a root, as metapath and number


@dataclass(frozen=True)
class Step:
    """How far the most likely label's logit moves without ``k`` instances, mean over nodes."""

    k: int
    nodes: int  # the number of nodes with more than k instances
    top: float  # without the top ones
    random: float  # without random ones
    alike: float  # without random ones that are spread over the metapaths as the top ones are
    ratio: float | None  # of top to random


@dataclass(frozen=True)
class Fidelity:
    """How faithful explanations are, measured on ``nodes`` nodes."""

    by: str
    nodes: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        head = (
            f"How far the most likely label's logit moves without k instances, top by {self.by}, "
            f"{self.nodes} nodes with more than {ENOUGH} instances:"
        )
        lines = [
            f"  k {step.k:2}, {step.nodes} nodes: top {step.top:.4f}, random {step.random:.4f}, "
            f"ratio {step.ratio or float('nan'):.2f}; of the same metapaths {step.alike:.4f}"
            for step in self.steps
        ]
        return "\n".join([head, *lines])

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)


@torch.no_grad()
def fidelity(
    model: Model | Stacked,
    graph: Graph,
    *,
    nodes: int = 200,
    by: By = "part",
    seed: int = 0,
    split: str = "test",
    on_node: Callable[[], None] = lambda: None,
) -> Fidelity:
    """Remove top instances and, for comparison, random ones, and measure how far logits move.

    Args:
        model: See :class:`Explainer`.
        graph: The graph.
        nodes: Number of nodes with more than ``ENOUGH`` instances to draw; all if there are fewer.
        by: What instances are ranked by.
        seed: Draws the nodes and the random instances.
        split: The nodes to draw from: train, val or test.
        on_node: Called after each node.
    """
    check_choice("split", split, graph.split.parts())
    opened = Explainer(model, graph).open
    counts = [path.problem.chain.count().cpu() for path in opened.paths.values()]
    enough = sum(counts, torch.zeros(())) > ENOUGH
    known: list[int] = (graph.split.parts()[split] & enough).nonzero().flatten().tolist()
    if not known or nodes < 1:
        raise HanmeError(f"{nodes} of {len(known)} {split} nodes with more than {ENOUGH} instances")
    generator, other = Random(seed), Random(seed + 1)
    moved: dict[int, list[list[float]]] = {k: [] for k in SIZES}
    drawn = Random(seed).sample(known, min(nodes, len(known)))
    for node in drawn:
        root = opened.root(node)
        label = root.logits.argmax()
        best = top_instances(root, one_hot(label, len(graph.labels)).double(), SIZES[-1], by)
        for k in (k for k in SIZES if k < len(root)):
            random = [_random(root, k, generator) for _ in range(DRAWS)]
            spread = [_alike(root, best[:k], other) for _ in range(DRAWS)]
            moved[k].append([_moved(root, int(label), s) for s in ([best[:k]], random, spread)])
        on_node()
    steps = []
    for k, rows in moved.items():
        if rows:
            top, chance, alike = map(fmean, zip(*rows, strict=True))
            steps.append(Step(k, len(rows), top, chance, alike, top / chance if chance else None))
    return Fidelity(by, len(drawn), tuple(steps))


def _random(root: Root, count: int, generator: Random) -> Places:
    """Draw distinct instances of a root, each as likely."""
    ends = list(accumulate(map(len, root.paths)))
    numbers = generator.sample(range(ends[-1]), count)
    paths = [bisect_right(ends, number) for number in numbers]
    return [(i, n - ends[i] + len(root.paths[i])) for i, n in zip(paths, numbers, strict=True)]


def _alike(root: Root, places: Places, generator: Random) -> Places:
    """Draw instances of a root, as many along each metapath as there are in ``places``."""
    return [
        (path, number)
        for path, count in Counter(path for path, _ in places).items()
        for number in generator.sample(range(len(root.paths[path])), count)
    ]


def _moved(root: Root, label: int, sets: Sequence[Places]) -> float:
    """Return how far a label's logit moves without the instances of a set, mean over sets."""
    moves = []
    for places in sets:
        by_path = [[n for at, n in places if at == i] for i in range(len(root.paths))]
        numbers = [torch.tensor(some, dtype=torch.long) for some in by_path]
        moves.append(abs(float(root.logits_without(numbers)[label] - root.logits[label])))
    return fmean(moves)
