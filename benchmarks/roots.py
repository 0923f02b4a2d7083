"""Time of a training step on some roots while the graph grows and what the roots touch does not.

    python benchmarks/roots.py

64 movies in graphs of 20,000, 100,000 and 400,000 movies and as many people. A node has 2.5 links
on average, so these movies have about 400 instances of movie-person-movie in every case. The sizes
take turns, so that whatever else the machine does disturbs them alike. Prints a line of JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import numpy as np
import torch

from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.nn import HANME, Batch

SIZES, ROOTS, FEATURES, LABELS = (20_000, 100_000, 400_000), 64, 64, 3
REPEAT, WARM = 100, 5
STEPS = [("movie", "to", "person"), ("person", "to", "movie")]
METADATA = (["movie", "person"], STEPS)


def step(nodes: int) -> tuple[Callable[[], None], int]:
    """Return a step on a graph of this size, and the number of instances it is about."""
    rng = np.random.default_rng(483)
    links = 5 * nodes // 2
    pairs = np.stack([np.arange(links) % nodes, rng.permutation(links) * 2 // 5])
    edge_index = torch.from_numpy(pairs)
    edges = {STEPS[0]: edge_index, STEPS[1]: edge_index.flip(0)}
    generator = torch.Generator().manual_seed(1)
    x = {t: torch.randn(nodes, FEATURES, generator=generator) for t in METADATA[0]}
    roots = torch.randperm(nodes, generator=generator)[:ROOTS]
    labels = torch.randint(LABELS, (ROOTS,), generator=generator)
    model = HANME(
        METADATA, "movie", ["movie-person-movie"], LABELS, hidden_channels=128, heads=8, dropout=0.6
    )

    def run() -> None:
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(Batch(x, edges, roots)), labels).backward()

    chain = Chain.build(Metapath.of(STEPS, METADATA), edges, dict.fromkeys(METADATA[0], nodes))
    return run, int(chain.count()[roots].sum())


def main() -> None:
    steps = [step(nodes) for nodes in SIZES]
    seconds: list[list[float]] = [[] for _ in SIZES]
    for _ in range(WARM + REPEAT):  # first, compiled code is loaded and chains are made
        for of_size, (run, _) in zip(seconds, steps, strict=True):
            began = time.perf_counter()
            run()
            of_size.append(time.perf_counter() - began)
    rows = [
        {"nodes": nodes, "instances": instances, "seconds": min(of_size[WARM:])}
        for nodes, (_, instances), of_size in zip(SIZES, steps, seconds, strict=True)
    ]
    print(json.dumps({"roots": ROOTS, "repeat": REPEAT, "sizes": rows}))


if __name__ == "__main__":
    main()
