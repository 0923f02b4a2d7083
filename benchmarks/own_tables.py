"""Compare ``hanme train`` with its defaults to logistic regression by hand, on graphs of any shape.

    python benchmarks/own_tables.py IMDB ACM DBLP planted path/to/graph.toml

By hand: scikit-learn's logistic regression on the target's features and the one-hot ids of its
neighbours, fitted to the same labelled nodes (training and validation), its strength chosen on the
validation nodes; LightGBM on the same columns if it is installed. All are scored on the same test
nodes, with 0.5 as the threshold where nodes have several labels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from hanme import Classifier, Graph
from hanme.datasets import load
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


def by_hand(graph: Graph, make: Callable[[float], object], strengths: list[float]) -> np.ndarray:
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


def ours(graph: Graph, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels that hanme's defaults give, and those of its wide part alone."""
    with tempfile.TemporaryDirectory() as folder:
        found = Classifier(seed=seed).fit(graph, out=Path(folder) / "run")
        labels = found.predict()
        linear = Classifier("linear", seed=seed).fit(graph).predict()
    if graph.multilabel:
        return labels, linear
    names = np.array(graph.labels)
    return labels[:, None] == names, linear[:, None] == names


def score(graph: Graph, predicted: np.ndarray) -> str:
    test = graph.split.test.numpy()
    true = graph.label_matrix.numpy()[test]
    micro, macro = (
        100 * f1_score(true, predicted[test], average=average, zero_division=0)
        for average in ("micro", "macro")
    )
    return f"{micro:.1f} / {macro:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seed", type=int, default=483)
    arguments = parser.parse_args()
    print("| graph | by hand | LightGBM | linear | hanme | seconds of hanme and linear |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in arguments.graphs:
        graph = load(name, features="given", seed=arguments.seed)
        plain = score(graph, by_hand(graph, logistic, [0.1, 1.0, 10.0]))
        try:
            import lightgbm as _  # noqa: F401

            trees = score(graph, by_hand(graph, lightgbm, [100.0]))
        except ImportError:
            trees = "–"
        began = time.perf_counter()
        labels, linear = ours(graph, arguments.seed)
        seconds = time.perf_counter() - began
        title = Path(name).parent.name if name.endswith(".toml") else name
        print(
            f"| {title} | {plain} | {trees} | {score(graph, linear)} | {score(graph, labels)} "
            f"| {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
