"""Score finished runs under several protocols: which nodes weights were fitted to, and the rule."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.files import load_tensors
from hanme.common.toml import read_toml
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.experiments.benchmark import HERE, Entry
from hanme.experiments.figures import AVERAGES
from hanme.experiments.paired import bootstrap_f1, interval, paired_tests
from hanme.graph import Graph
from hanme.runs import Run, load_graph
from hanme.runs.build import is_stacked
from hanme.runs.config import LINEAR
from hanme.training.metrics import F1, label_counts

RULES = {
    "without_fallback": "HGB's rule",
    "with_fallback": "paper's fallback",
    "expected_f1": "expected F1",
    "oracle_count": "oracle label count",
}
"""The decision rules, by their names in tables. ``oracle_count`` reads the test labels."""

WEIGHTS = {"held_out": "80 %", "final": "all"}
"""Which labelled nodes the weights were fitted to, by the name of their logits in a run folder."""

Labels = NDArray[np.bool_]


def decide(
    logits: Mapping[str, Tensor], graph: Graph, decision: Decision
) -> dict[tuple[str, str], Tensor]:
    """Return the labels of test nodes, bool ``[n, C]``, by weights and rule.

    Thresholds are fitted to held-out logits, also where the final weights are scored; those of the
    expected macro F1 are the run's own if it has some.

    Args:
        logits: Logits of all target nodes, ``[N, C]``, by weights.
        graph: The graph.
        decision: The decision of the run.
    """
    split, held_out = graph.split, logits["held_out"]
    val = held_out[split.val], graph.y[split.val]
    rules = {
        "without_fallback": Decision(rule="half"),
        "with_fallback": Decision(rule="fallback"),
        "expected_f1": decision if decision.rule == "macro" else Decision.fit("macro", *val),
    }
    number = graph.labels_given(split.test).sum(1, keepdim=True)
    labels = {}
    for weights in WEIGHTS:
        scored = logits[weights][split.test]
        for name, rule in rules.items():
            labels[weights, name] = rule.labels(scored, multilabel=graph.multilabel)
        place = scored.argsort(dim=1, descending=True).argsort(dim=1)
        labels[weights, "oracle_count"] = place < number
    return labels


@dataclass
class Tested:
    """Predicted and true labels of one entry, all seeds, by weights and rule."""

    entry: Entry
    names: tuple[str, ...]  # of the labels
    masks: list[Tensor] = field(default_factory=list)  # the test nodes, per seed
    true: list[Tensor] = field(default_factory=list)  # ``[n, C]`` per seed
    predicted: list[dict[tuple[str, str], Tensor]] = field(default_factory=list)

    @classmethod
    def read(cls, entry: Entry, runs: Path, seeds: Sequence[int]) -> Tested:
        """Read the logits of the finished runs of an entry, and decide."""
        tested = cls(entry, ())
        for seed in seeds:
            run = Run.open(runs / entry.folder / str(seed))
            run.result()  # refuses an unfinished run and files of another
            path = run.folder / "logits.safetensors"
            if not path.exists():
                raise HanmeError(
                    f"{path}: missing, as in runs of earlier versions; train into another folder"
                )
            logits, _ = load_tensors(path)
            graph = load_graph(run.config, schema=run.fitted())
            tested.names = tuple(graph.labels)
            tested.masks.append(graph.split.test)
            tested.true.append(graph.labels_given(graph.split.test))
            tested.predicted.append(decide(logits, graph, run.decision()))
        return tested

    @property
    def weights(self) -> list[str]:
        """The weights to report: the final ones only if they were refitted."""
        config = self.entry.config
        refitted = is_stacked(config) or config.model.name == LINEAR
        return list(WEIGHTS) if config.training.refit and refitted else ["held_out"]

    def stacked(self, weights: str, rule: str) -> tuple[Labels, Labels]:
        """Return predicted and true labels, ``[S, n, C]``, of nodes that any seed tests."""
        used = torch.stack(self.masks).any(0)
        both = []
        for labels in ([one[weights, rule] for one in self.predicted], self.true):
            table = torch.zeros(len(labels), len(used), len(self.names), dtype=torch.bool)
            for place, (mask, one) in enumerate(zip(self.masks, labels, strict=True)):
                table[place, mask] = one
            both.append(table[:, used].numpy())
        return both[0], both[1]


def score(tested: Sequence[Tested]) -> dict[str, Any]:
    """Return rows, one per entry and weights, and comparisons of all pairs of rows of a graph."""
    rows: list[dict[str, Any]] = []
    drawn: list[dict[str, dict[str, NDArray[np.float64]]]] = []
    for one in tested:
        for weights in one.weights:
            row = {"graph": one.entry.graph, "model": one.entry.name, "weights": WEIGHTS[weights]}
            draws = {rule: bootstrap_f1(*one.stacked(weights, rule)) for rule in RULES}
            rules = {rule: _cell(one, weights, rule, draws[rule]) for rule in RULES}
            rows.append(row | {"rules": rules})
            drawn.append(draws)
    pairs = []
    for a, b in combinations(range(len(rows)), 2):
        if rows[a]["graph"] != rows[b]["graph"]:
            continue
        for rule in RULES:
            cells = rows[a]["rules"][rule], rows[b]["rules"][rule]
            for average in AVERAGES:
                bounds = interval(drawn[a][rule][average] - drawn[b][rule][average])
                names = {"first": row_name(rows[a]), "second": row_name(rows[b])}
                about = {"graph": rows[a]["graph"], "rule": rule, "average": average, **names}
                tests = paired_tests(*(cell[average]["values"] for cell in cells))
                pairs.append(about | tests | {"interval": bounds})
    figures = read_toml(HERE / "published.toml")["figure"]
    graphs = {row["graph"] for row in rows}
    return {
        "rows": rows,
        "pairs": pairs,
        "published": [figure for figure in figures if figure["graph"] in graphs],
    }


def row_name(row: Mapping[str, Any]) -> str:
    """Return the name of a row in a comparison."""
    return f"{row['model']}, {row['weights']}"


def _cell(
    tested: Tested, weights: str, rule: str, drawn: Mapping[str, NDArray[np.float64]]
) -> dict[str, Any]:
    """Return micro, macro and per-label F1 in percent over the seeds, with intervals over nodes."""
    counts = [
        label_counts(one[weights, rule], true)
        for one, true in zip(tested.predicted, tested.true, strict=True)
    ]
    f1 = [F1.of(count) for count in counts]
    cell: dict[str, Any] = {
        average: _summary([round(100 * getattr(one, average), 4) for one in f1])
        | {"interval": interval(drawn[average])}
        for average in AVERAGES
    }
    each = torch.stack([200 * hits / total.clamp(min=1) for hits, total in counts])
    values = zip(tested.names, each.t().tolist(), strict=True)
    return cell | {"labels": {name: _summary([round(x, 4) for x in one]) for name, one in values}}


def _summary(values: Sequence[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "std": spread, "values": list(values)}
