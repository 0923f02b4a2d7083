"""Explanations measured: is what they name what the prediction rests on?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean

import torch
from torch import Tensor

from hanme.errors import HanmeError
from hanme.explain.explainer import By, Explainer, top_instances
from hanme.explain.explanation import ENOUGH, Fidelity, Step
from hanme.explain.removal import Root
from hanme.graph import Graph
from hanme.nn import Model
from hanme.training.stacked import Stacked

SIZES = (1, 2, 5, 10, 20)
"""How many instances are removed."""


@torch.no_grad()
def fidelity(
    model: Model | Stacked,
    graph: Graph,
    *,
    nodes: int = 200,
    by: By = "part",
    seed: int = 1,
    draws: int = 10,
    split: str = "test",
    on_node: Callable[[], None] = lambda: None,
) -> Fidelity:
    """Remove top instances and, against it, random ones, and measure how far logits move.

    For each of some nodes the top k instances for its most likely label are removed together;
    against it, as many random instances of the same node; and, harder to beat, random ones that are
    spread over the metapaths as the top ones are. Nodes with at most k instances would lose all of
    them each way: they are counted apart, and nodes are drawn until enough have more than 5.

    Args:
        model: See :func:`explain`.
        graph: The graph.
        nodes: How many nodes with more than ``ENOUGH`` instances to draw from the split; all of it
            if there are fewer.
        by: What instances are ranked by.
        seed: Draws the nodes and the random instances.
        draws: Over how many random sets to take the mean.
        split: The nodes to draw from: train, val or test.
        on_node: Called after each of these nodes.
    """
    if nodes < 1 or draws < 1:
        raise HanmeError(f"Expected at least 1 node and 1 draw, but got {nodes} and {draws}")
    explainer = Explainer(model, graph)
    counts = [way.problem.chain.count().cpu() for way in explainer.open.paths.values()]
    enough = torch.stack(counts).sum(0) > ENOUGH
    drawn = _draw(graph, split, nodes, enough, Random(seed))
    generator, other = Random(seed + 1), Random(seed + 2)
    found: dict[int, list[tuple[float, float, float]]] = {k: [] for k in SIZES}
    fewer: dict[int, list[float]] = {k: [] for k in SIZES}
    for node in drawn:
        root = explainer.open.root(node)
        label = int(root.logits.argmax())
        best = top_instances(root, label, SIZES[-1], by)
        random = [_random(root, SIZES[-1], generator) for _ in range(draws)]
        for k in SIZES:
            if len(root) <= k:
                fewer[k].append(_moved(root, label, best))
                continue
            alike = [_alike(root, best[:k], other) for _ in range(draws)]
            found[k].append(
                (
                    _moved(root, label, best[:k]),
                    fmean(_moved(root, label, places[:k]) for places in random),
                    fmean(_moved(root, label, places) for places in alike),
                )
            )
        if enough[node]:
            on_node()
    steps = [_step(k, moved, fewer[k]) for k, moved in found.items() if moved]
    if not steps:
        raise HanmeError(f"none of {len(drawn)} {split} nodes has two instances: nothing to remove")
    measured = int(enough[drawn].sum())
    return Fidelity(by, measured, len(drawn) - measured, draws, seed, tuple(steps))


def _step(k: int, moved: list[tuple[float, float, float]], fewer: list[float]) -> Step:
    top, random, alike = (fmean(column) for column in zip(*moved, strict=True))
    return Step(k, len(moved), top, random, alike, len(fewer), fmean(fewer) if fewer else 0.0)


def _draw(graph: Graph, split: str, count: int, enough: Tensor, generator: Random) -> list[int]:
    """Draw nodes of a split in random order until ``count`` of them have ``enough``.

    Where these are rare, not more than ten times as many are drawn.
    """
    parts = graph.split.parts()
    if split not in parts or not parts[split].any():
        raise HanmeError(f"Expected `split` to name a part with nodes, but got {split!r}")
    nodes: list[int] = parts[split].nonzero().flatten().tolist()
    order = generator.sample(nodes, min(len(nodes), 10 * count))
    found = enough[order].cumsum(0).tolist()
    return order[: found.index(count) + 1] if count in found else order


def _random(root: Root, count: int, generator: Random) -> list[tuple[int, int]]:
    """Draw some distinct instances of a root, each as likely."""
    places: list[tuple[int, int]] = []
    for number in generator.sample(range(len(root)), min(count, len(root))):
        path = 0
        while number >= len(root.paths[path]):
            number -= len(root.paths[path])
            path += 1
        places.append((path, number))
    return places


def _alike(
    root: Root, places: Sequence[tuple[int, int]], generator: Random
) -> list[tuple[int, int]]:
    """Draw instances of a root, as many along each metapath as there are in ``places``."""
    wanted = Counter(path for path, _ in places)
    return [
        (path, number)
        for path, count in wanted.items()
        for number in generator.sample(range(len(root.paths[path])), count)
    ]


def _moved(root: Root, label: int, places: Sequence[tuple[int, int]]) -> float:
    """Return how far a label's logit moves without some instances."""
    numbers = [
        torch.tensor([n for path, n in places if path == i], dtype=torch.long)
        for i in range(len(root.paths))
    ]
    return abs(float(root.logits_without(numbers)[label] - root.logits[label]))
