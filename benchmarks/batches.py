"""Roots per second: steps on the whole graph, on batches, and on batches that two processes share.

    python benchmarks/batches.py [--movies 20000] [--batch-size 1024] [--seconds 20]
    python benchmarks/batches.py --imdb SEEDS [--batch-size 256]

A planted graph with a given number of movies, HAN-ME with 64 channels and 8 heads over its default
metapaths.
Every process has one thread and a core of its own, so that the next batch is not read on a core
that another process would need. The three take turns, for a fixed number of seconds each. Prints a
line of JSON.

With ``--imdb`` it trains HAN-ME on IMDB, on the whole graph and in batches, by one recipe: up to
200 epochs, ended where macro F1 on validation nodes has not risen for 50. It uses the given
number of seeds and prints F1 on test nodes: means, and the mean and standard error of the
difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import torch

from hanme.common import ranks
from hanme.common.memory import peak_mb
from hanme.data import planted
from hanme.graph import Graph
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig, build_seeded

TURNS = 3


def network(graph: Graph) -> HANME:
    """Build the network of a graph's default metapaths."""
    return HANME(
        graph.metadata(), "movie", graph.metapaths, len(graph.labels), hidden_channels=64, heads=8
    )


def measure(movies: int, batch_size: int | None, seconds: float) -> dict[str, float]:
    """Train for some seconds; return the roots per second over all processes, without scoring."""
    local, cores = int(os.environ.get("LOCAL_RANK", "0")), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[local % len(cores)]})
    torch.set_num_threads(1)
    graph = planted(movies=movies)
    model, random = build_seeded(partial(network, graph), graph, 483)
    config = TrainingConfig(recipe="paper", epochs=10**6, batch_size=batch_size)
    with ranks.joined():
        run = Trainer(model, graph, config, random=random)
        run._epoch(1)  # compiled code is loaded and chains are made
        nodes, began, epoch = 0, time.perf_counter(), 1
        while True:
            epoch += 1
            run._epoch(epoch)
            nodes += int(graph.split.train.sum())
            spent = ranks.from_first(lambda began=began: time.perf_counter() - began)
            if spent > seconds:
                return {"roots_per_second": nodes / spent, "peak_mb": peak_mb()}


def imdb(seeds: int, batch_size: int) -> dict[str, object]:
    """Score training on the whole of IMDB and in batches, seed by seed."""
    from hanme.data import load
    from hanme.decision import Decision
    from hanme.training.metrics import scores

    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float]]] = {"whole": [], "batches": []}
    for seed in range(1, seeds + 1):
        graph = load("IMDB", seed=seed)
        for name, size in (("whole", None), ("batches", batch_size)):
            config = TrainingConfig(recipe="paper", seed=seed, patience=50, batch_size=size)
            model, random = build_seeded(partial(network, graph), graph, seed)
            run = Trainer(model, graph, config, random=random)
            run.run()
            test = scores(run.logits(), graph.y, {"test": graph.split.test}, Decision())["test"]
            found[name].append((100 * test.micro, 100 * test.macro))
            print(seed, name, run.progress.best_epoch, run.progress.epoch, test, flush=True)
    whole, batches = (torch.tensor(values) for values in found.values())
    apart = batches - whole
    return {
        "micro_and_macro": {name: _rounded(torch.tensor(x).mean(0)) for name, x in found.items()},
        "difference": _rounded(apart.mean(0)),
        "standard_error": _rounded(apart.std(0) / seeds**0.5),
    }


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 2) for value in values.tolist()]


def turn(processes: int, arguments: list[str]) -> dict[str, float]:
    """Measure in processes of their own."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launch if processes > 1 else []), __file__, "--one", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(said.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--movies", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--imdb", type=int, metavar="SEEDS")
    given = parser.parse_args()
    if given.imdb:
        print(json.dumps(imdb(given.imdb, given.batch_size)))
        return
    if given.one:
        size = given.batch_size or None
        found = measure(given.movies, size, given.seconds)
        if int(os.environ.get("RANK", "0")) == 0:
            print(json.dumps(found))
        return
    rates: dict[str, list[float]] = {"whole": [], "batches": [], "two": []}
    for _ in range(TURNS):
        for name, processes in (("whole", 1), ("batches", 1), ("two", 2)):
            size = 0 if name == "whole" else given.batch_size
            common = ["--movies", str(given.movies), "--seconds", str(given.seconds / TURNS)]
            found = turn(processes, [*common, "--batch-size", str(size)])
            rates[name].append(found["roots_per_second"])
    best = {name: max(values) for name, values in rates.items()}
    print(
        json.dumps(
            {
                "movies": given.movies,
                "batch_size": given.batch_size,
                "roots_per_second": {name: round(value) for name, value in best.items()},
                "two_processes_against_one": round(best["two"] / best["batches"], 2),
                "batches_against_whole_graph": round(best["batches"] / best["whole"], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
