"""Compare the mixtures of the wide part with their sum, on nodes that no weight has seen.

    python benchmarks/mixtures.py planted IMDB ACM DBLP --seeds 3

prints a row per graph: the mean loss of a validation node, over the seeds, which draw the split.
"""

from __future__ import annotations

import argparse
import math
import statistics

from hanme.decision.losses import node_losses
from hanme.experiments.configuration import resolve
from hanme.nn.channels import Task, WideChannels
from hanme.runs import load_graph
from hanme.training import choose_wide
from hanme.training.beliefs import cross_fit
from hanme.training.fit import fit_wide, wide_logits


def losses(name: str, seed: int) -> list[float]:
    """Return the loss of a validation node: of each mixture, nan for one not taken, and of all."""
    config, made = resolve(
        {
            "data": {"name": name, "seed": seed},
            "model": {"name": "linear"},
            "training": {"recipe": "paper", "seed": seed},
        }
    )
    graph = made or load_graph(config)
    wide = choose_wide(graph, seed)
    part = WideChannels(Task(graph.metadata(), graph.target, len(graph.labels)), blocks=wide.blocks)
    weights = fit_wide(part, graph, wide, [graph.split.train])[0]
    both = cross_fit(part, graph, wide, seed).first.logits
    val = graph.split.val
    found = [*wide_logits(part, graph, weights), both]
    *alone, together = [float(node_losses(z[val], graph.y[val]).mean()) for z in found]
    return [*alone, *[math.nan] * (3 - len(alone)), together]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print("| graph | by relevance | by hand | naive Bayes | sum |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in given.graphs:
        rows = [losses(name, seed) for seed in range(1, given.seeds + 1)]
        means = [f"{statistics.fmean(column):.4f}" for column in zip(*rows, strict=True)]
        print(f"| {name} | {' | '.join(means)} |", flush=True)


if __name__ == "__main__":
    main()
