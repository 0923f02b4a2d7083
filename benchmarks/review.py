"""Measure the review loop: do 30 answers that the page asks for teach more than 30 random ones?

    python benchmarks/review.py examples/films --reviewed 30

Labels of the films are hidden but for six training and four validation nodes. A model is trained,
30 hidden labels are revealed, those of the first nodes under *Review* or random ones, and the model
is trained again. Prints a row per draw of the labels, with macro F1 on the same 30 test nodes; that
of random labels is the mean over two choices.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hanme import Classifier, Graph
from hanme.cli.init import init
from hanme.graph import Split
from hanme.serve.review import to_review
from hanme.serve.table import Table

DRAWS, CHOICES, TRAIN, VAL, TEST = 10, 2, 6, 4, 30


def hidden(graph: Graph, seed: int) -> tuple[Graph, np.ndarray]:
    """Return a graph with few labels, at least two of each in training, and the hidden nodes."""
    rng = np.random.default_rng(seed)
    y = graph.y.numpy()
    order = rng.permutation(np.flatnonzero(y >= 0))
    first = np.concatenate([order[y[order] == label][:2] for label in np.unique(y[y >= 0])])
    order = np.concatenate([first, order[~np.isin(order, first)]])
    parts = np.split(order, np.cumsum([TRAIN, VAL, TEST]))
    masks = [torch.from_numpy(np.isin(np.arange(len(y)), part)) for part in parts[:3]]
    known = torch.stack(masks).any(0)
    split = Split(train=masks[0], val=masks[1], test=masks[2])
    return replace(graph, y=torch.where(known, graph.y, -1), split=split), parts[3]


def revealed(graph: Graph, truth: torch.Tensor, nodes: np.ndarray) -> Graph:
    """Return a graph in which some hidden nodes are labelled training nodes."""
    chosen = torch.from_numpy(np.isin(np.arange(len(truth)), nodes))
    y = torch.where(chosen, truth, graph.y)
    return replace(graph, y=y, split=graph.split._replace(train=graph.split.train | chosen))


def macro(graph: Graph, model: str) -> tuple[float, Classifier]:
    """Train, and return macro F1 on test nodes in percent."""
    fitted = Classifier(model).fit(graph)
    return 100 * fitted.scores()["test"]["macro"], fitted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--model", default="linear")
    parser.add_argument("--reviewed", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables = shutil.copytree(arguments.tables, Path(folder) / "tables")
        init(tables)
        graph = Graph.from_tables(tables)
    print("| draw | 10 labels | + by the page | + random |\n| ---: | ---: | ---: | ---: |")
    rows = []
    for draw in range(DRAWS):
        few, pool = hidden(graph, draw)
        before, fitted = macro(few, arguments.model)
        table = Table(fitted.predictions(), np.zeros(len(graph.y), np.int64))
        order, _ = to_review(few, table, np.zeros(0, np.int64), len(graph.y))
        page = order[np.isin(order, pool)][: arguments.reviewed]
        after, _ = macro(revealed(few, graph.y, page), arguments.model)
        chance = []
        for choice in range(CHOICES):
            rng = np.random.default_rng(100 * choice + draw)
            nodes = rng.choice(pool, arguments.reviewed, replace=False)
            chance.append(macro(revealed(few, graph.y, nodes), arguments.model)[0])
        rows.append([before, after, float(np.mean(chance))])
        print(f"| {draw} | " + " | ".join(f"{value:.1f}" for value in rows[-1]) + " |", flush=True)
    means = np.mean(rows, axis=0)
    print("| mean | " + " | ".join(f"{value:.1f}" for value in means) + " |")


if __name__ == "__main__":
    main()
