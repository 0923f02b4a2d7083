"""Compare ``hanme train`` with its defaults to logistic regression, on graphs of any shape.

    python benchmarks/own_tables.py IMDB ACM DBLP planted path/to/graph.toml
    python benchmarks/own_tables.py --linear --seeds 1 2 3 -- tables/*/graph.toml

Figures are means over the seeds, which draw the split. Baselines: scikit-learn logistic regression
on the target's features and the one-hot ids of its neighbours, fitted to the same labelled nodes
(training and validation), its strength chosen on the validation nodes; LightGBM on the same
columns. All are scored on the same test nodes, with 0.5 as the threshold where nodes have several
labels. With ``--linear`` the base learners are trained without the network.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from hanme import Classifier, Graph
from hanme.data import load
from hanme.graph.features import to_scipy


def columns(graph: Graph) -> csr_array:
    """Return what a person would join: own features and the ids of all neighbours."""
    x = graph.targets.x
    blocks = [] if x is None else [to_scipy(x)]
    for (source, _, end), pairs in graph.links.items():
        if source == graph.target and end != graph.target:
            row, column = pairs.numpy()
            shape = graph.sizes[source], graph.sizes[end]
            blocks.append(csr_array((np.ones(len(row), np.float32), (row, column)), shape=shape))
    return csr_array(hstack(blocks, format="csr"))


def plain(graph: Graph, make: Callable[[float], object], strengths: list[float]) -> np.ndarray:
    """Return the labels that a plain classifier gives to all nodes."""
    x, y = columns(graph), graph.label_matrix.numpy()
    several = graph.multilabel

    def fit(mask: np.ndarray, strength: float) -> np.ndarray:
        model = OneVsRestClassifier(make(strength)) if several else make(strength)
        model.fit(x[mask], y[mask] if several else graph.y.numpy()[mask])
        found = model.predict(x)
        return found if several else np.eye(y.shape[1], dtype=bool)[found]

    train, val = graph.split.train.numpy(), graph.split.val.numpy()
    scores = [f1_score(y[val], fit(train, c)[val], average="micro") for c in strengths]
    return fit(train | val, strengths[int(np.argmax(scores))])


def logistic(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=300)


def lightgbm(strength: float) -> object:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=int(strength), verbose=-1, n_jobs=2)


def ours(graph: Graph, model: str, seed: int) -> np.ndarray:
    """Return the labels that a model of hanme's gives by default."""
    labels = Classifier(model, seed=seed).fit(graph).predict()
    return labels if graph.multilabel else labels[:, None] == np.array(graph.labels)


def score(graph: Graph, predicted: np.ndarray) -> tuple[float, float]:
    """Return micro and macro F1 of test nodes."""
    test = graph.split.test.numpy()
    true = graph.label_matrix.numpy()[test]
    micro, macro = (
        100 * f1_score(true, predicted[test], average=average, zero_division=0)
        for average in ("micro", "macro")
    )
    return micro, macro


def compared(name: str, models: list[str], seed: int) -> list[tuple[float, float]]:
    """Return the scores of all columns, and the CPU time of the last in place of a score."""
    graph = load(name, features="given", seed=seed)
    found = [
        score(graph, plain(graph, logistic, [0.1, 1.0, 10.0])),
        score(graph, plain(graph, lightgbm, [100.0])),
    ]
    seconds = 0.0
    for model in models:
        began = time.process_time()
        found.append(score(graph, ours(graph, model, seed)))
        seconds = time.process_time() - began
    return [*found, (seconds, 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[483])
    parser.add_argument("--linear", action="store_true")
    given = parser.parse_args()
    models = ["linear"] if given.linear else ["linear", "hanme"]
    columns = ["graph", "logistic regression", "LightGBM", *models, f"CPU seconds of {models[-1]}"]
    print(f"| {' | '.join(columns)} |\n| --- |{' ---: |' * (len(columns) - 1)}")
    for name in given.graphs:
        rows = [compared(name, models, seed) for seed in given.seeds]
        *means, (seconds, _) = np.mean(rows, axis=0)
        title = Path(name).parent.name if name.endswith(".toml") else name
        cells = [f"{micro:.1f} / {macro:.1f}" for micro, macro in means]
        print(f"| {title} | {' | '.join(cells)} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
