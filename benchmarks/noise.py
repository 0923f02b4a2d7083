"""Train on tables of noise: the log loss on fresh rows must be that of the base rate.

    python benchmarks/noise.py                     # all shapes, ten seeds
    python benchmarks/noise.py numbers many_ids --seeds 3

Labels are independent of everything else. Each shape is trained by ``Classifier()``, nothing
edited, and scored on 20,000 fresh rows. The table has the excess of the mean log loss over that of
a constant (the shares of the labels among training rows) in percent, and the worst seed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from hanme import Classifier, Graph

FRESH = 20_000
"""Number of rows to score on."""

Random = np.random.Generator


class Noise:
    """Tables of noise: ``rows`` labelled rows (a fifth of them to validate on), and fresh ones."""

    def __init__(self, random: Random, rows: int) -> None:
        self.random, self.size = random, rows + FRESH
        part = np.full(self.size, "test", object)
        part[:rows] = random.permutation(np.where(np.arange(rows) < rows // 5, "val", "train"))
        self.rows = pd.DataFrame({"id": [f"r{i}" for i in range(self.size)], "split": part})
        self.target: dict[str, Any] = {"table": "rows", "id": "id", "label": "label"}
        self.target |= {"split": "split", "features": {}}
        self.frames, self.nodes = {"rows": self.rows}, {"row": self.target}
        self.relations: dict[str, Any] = {}

    def labels(self, *shares: float) -> Noise:
        names = [f"l{i}" for i in range(len(shares))]
        p = np.array(shares) / sum(shares)
        # Every label is in training: a label that is not cannot be scored.
        drawn = self.random.choice(names, self.size, p=p)
        train = np.flatnonzero(self.rows["split"] == "train")
        drawn[train[: len(names)]] = names
        self.rows["label"] = drawn
        return self

    def several(self, *shares: float) -> Noise:
        has = self.random.random((self.size, len(shares))) < np.array(shares)
        train = np.flatnonzero(self.rows["split"] == "train")
        has[train[: len(shares)]] |= np.eye(len(shares), dtype=bool)
        has[~has.any(1), 0] = True
        self.rows["label"] = ["|".join(f"l{i}" for i in np.flatnonzero(row)) for row in has]
        self.target["label_separator"] = "|"
        return self

    def columns(self, count: int, make: Callable[[int], Any], kind: str, name: str) -> Noise:
        made = {f"{name}{i}": make(i) for i in range(count)}
        self.frames["rows"] = self.rows = pd.concat([self.rows, pd.DataFrame(made)], axis=1)
        self.target["features"] |= dict.fromkeys(made, kind)
        return self

    def numbers(self, count: int) -> Noise:
        return self.columns(count, lambda _: self.random.normal(size=self.size), "number", "n")

    def categories(self, count: int, levels: int) -> Noise:
        values = np.array([f"v{i}" for i in range(levels)])
        make = lambda _: values[self.random.integers(0, levels, self.size)]  # noqa: E731
        return self.columns(count, make, "category", "c")

    def words(self, length: int, vocabulary: int) -> Noise:
        drawn = self.random.zipf(1.3, (self.size, length)) % vocabulary
        texts = [" ".join(f"w{i}" for i in row) for row in drawn]
        return self.columns(1, lambda _: texts, "text", "t")

    def ids(self, count: int, links: int) -> Noise:
        drawn = self.random.integers(0, count, (self.size, links))
        self.frames["rows"]["tags"] = self.rows["tags"] = ["|".join(map(str, row)) for row in drawn]
        self.relations["has"] = {"columns": ["tags"], "separator": "|", "type": "tag"}
        return self

    def visits(self, mean: int, numbers: int) -> Noise:
        size = self.size * mean
        of = self.random.integers(0, self.size, size)
        visits = pd.DataFrame({"of": self.rows["id"].to_numpy()[of]})
        visits["kind"] = self.random.choice(["a", "b", "c"], size)
        for i in range(numbers):
            visits[f"n{i}"] = self.random.normal(size=size).astype(np.float32)
        self.frames["visits"] = visits
        features = {f"n{i}": "number" for i in range(numbers)} | {"kind": "category"}
        self.nodes["visit"] = {"table": "visits", "features": features}
        self.relations["of"] = {"columns": ["of"], "source": "visit", "type": "row"}
        return self

    def graph(self) -> Graph:
        config = {"target": "row", "nodes": self.nodes, "relations": self.relations}
        return Graph.from_frames(self.frames, config)


SHAPES: dict[str, Callable[[Random], Noise]] = {
    "numbers": lambda r: Noise(r, 375).numbers(60).labels(1, 1),
    "many numbers": lambda r: Noise(r, 375).numbers(1000).labels(1, 1),
    "few rows": lambda r: Noise(r, 100).numbers(20).labels(1, 1),
    "more rows": lambda r: Noise(r, 2000).numbers(60).labels(1, 1),
    "many rows": lambda r: Noise(r, 6000).numbers(40).labels(1, 1),
    "one in twenty": lambda r: Noise(r, 1500).numbers(40).labels(19, 1),
    "one in fifty": lambda r: Noise(r, 4000).numbers(30).categories(5, 8).labels(49, 1),
    "three labels": lambda r: Noise(r, 400).numbers(60).labels(3, 2, 1),
    "ten labels": lambda r: Noise(r, 700).numbers(40).labels(*[1] * 10),
    "many labels": lambda r: Noise(r, 1500).numbers(20).labels(*[1] * 25),
    "words": lambda r: Noise(r, 400).words(20, 3000).labels(1, 1),
    "many words": lambda r: Noise(r, 2500).words(40, 20000).labels(2, 1),
    "categories": lambda r: Noise(r, 500).categories(15, 20).labels(1, 1),
    "ids": lambda r: Noise(r, 400).ids(400, 5).labels(1, 1),
    "many ids": lambda r: Noise(r, 2000).ids(5000, 8).labels(1, 1),
    "visits": lambda r: Noise(r, 375).numbers(60).visits(8, 4).labels(1, 1),
    "more visits": lambda r: Noise(r, 1500).numbers(10).visits(8, 6).labels(3, 1),
    "several labels": lambda r: Noise(r, 375).numbers(40).several(0.5, 0.3, 0.2, 0.1, 0.1),
    "several of words": lambda r: Noise(r, 1000).words(15, 2000).several(*[0.2] * 8),
    "a bit of all": lambda r: (
        Noise(r, 800).numbers(30).categories(5, 10).words(10, 2000).ids(500, 3).labels(1, 1)
    ),
}


def excess(name: str, seed: int) -> float:
    """Return by how many percent the log loss on fresh rows is above that of the base rate."""
    graph = SHAPES[name](np.random.default_rng([seed, list(SHAPES).index(name)])).graph()
    result = Classifier(seed=seed).fit(graph).run_.result
    loss = result["probabilities"]["test"]["log_loss"]
    return 100 * (loss / result["baselines"]["majority"]["test"]["log_loss"] - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(SHAPES))
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    print(f"| shape | mean excess (%) | worst of {args.seeds} |\n| --- | ---: | ---: |")
    for name in args.names:
        found = [excess(name.replace("_", " "), seed) for seed in range(args.seeds)]
        print(f"| {name} | {statistics.mean(found):+.2f} | {max(found):+.2f} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
