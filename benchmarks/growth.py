"""Time and memory of the streaming operator while instances grow and the graph does not.

    python benchmarks/growth.py DEGREE

20,000 movies and 20,000 people, 100,000 links each way, in every case; but the links are spread
over 100,000 / DEGREE of the people, so that movie-person-movie has about 100,000 * DEGREE
instances. Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import numpy as np
import torch
from torch import Tensor

from hanme.common.memory import peak_mb
from hanme.graph.chain import Chain
from hanme.graph.metapath import Metapath
from hanme.ops import LinkProduct, metapath_attention
from hanme.ops.cost import memory

NODES, LINKS, HEADS, CHANNELS = 20_000, 100_000, 8, 16
REPEAT = 2
STEPS = [("movie", "to", "person"), ("person", "to", "movie")]


def graph(degree: int) -> Chain:
    rng = np.random.default_rng(483)
    links = np.stack([np.arange(LINKS) % NODES, rng.permutation(LINKS) // degree])
    edge_index = torch.from_numpy(links)
    edges = {STEPS[0]: edge_index, STEPS[1]: edge_index.flip(0)}
    metapath = Metapath.of(STEPS, (["movie", "person"], STEPS))
    return Chain.build(metapath, edges, {"movie": NODES, "person": NODES})


def main() -> None:
    chain = graph(int(sys.argv[1]))
    generator = torch.Generator().manual_seed(1)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    movie, person = leaf(NODES, HEADS, CHANNELS), leaf(NODES, HEADS, CHANNELS)
    links = tuple(leaf(indices.numel(), HEADS) for indices in chain.indices)
    c = LinkProduct(leaf(NODES, HEADS), links)
    arguments = ([movie, person, movie], c, leaf(NODES, HEADS), leaf(HEADS, CHANNELS))

    def run(roots: Tensor | None = None) -> None:
        z = metapath_attention(
            chain, *arguments, roots=roots, dropout=0.6, seed=1, backend="streaming"
        )
        z.sum().backward()

    run(torch.tensor([0]))  # compiled code is loaded, gradients have their place
    start = peak_mb()
    seconds = []
    for _ in range(REPEAT):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    print(
        json.dumps(
            {
                "degree": int(sys.argv[1]),
                "instances": int(chain.count().sum()),
                "seconds": min(seconds),
                "grown_mb": peak_mb() - start,
                "stated_mb": memory("streaming", chain, HEADS, CHANNELS) / 1e6,
            }
        )
    )


if __name__ == "__main__":
    main()
