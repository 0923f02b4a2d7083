"""Scores of a trained model and of its baselines, as ``result.json`` holds them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hanme.decision import Decision, quality
from hanme.graph import Graph
from hanme.training import FinalOutputs, TrainingResult
from hanme.training.metrics import F1, f1, f1_interval, scores

RULES = {"fallback": "with_fallback", "half": "without_fallback"}
"""The name of each rule without thresholds in ``result.json``."""


def rule_name(decision: Decision) -> str:
    """Return the name under which ``result.json`` holds the scores of a run's own decision."""
    return RULES.get(decision.rule, "decided")


def score_parts(graph: Graph, logits: Tensor, decision: Decision) -> dict[str, Any]:
    """Return micro and macro F1 in percent by decision rule and part of the split.

    The scores of the run's own decision come first; empty parts have none.
    """
    masks = {part: mask for part, mask in graph.split.parts().items() if mask.any()}
    rules = {rule_name(decision): decision}
    rules |= {name: Decision(rule=rule) for rule, name in RULES.items()}  # type: ignore[arg-type]
    return {
        name: {part: _percent(f1) for part, f1 in scores(logits, graph.y, masks, rule).items()}
        for name, rule in rules.items()
    }


def result_of(graph: Graph, trained: TrainingResult) -> dict[str, Any]:
    """Return scores, 95 % intervals, baselines and calibration of a trained model.

    Validation nodes are scored by weights that were not fitted to them. ``expected_f1`` is the
    score under thresholds that maximise the expected macro F1, so that models with other rules can
    be compared.
    """
    outputs, linear = trained.outputs, trained.linear
    models = {"model": outputs} | ({"linear": linear} if linear else {})
    predicted = {name: _predicted(graph, each, each.decision) for name, each in models.items()}
    common = _most_common(graph)
    predicted["majority"] = {
        part: (common.expand_as(true), true) for part, (_, true) in predicted["model"].items()
    }
    by_rule = score_parts(graph, outputs.logits, outputs.decision)
    for rule, parts in score_parts(graph, outputs.held_out, outputs.decision).items():
        by_rule[rule] |= {"val": parts["val"]} if "val" in parts else {}
    return {
        "scores": by_rule,
        "expected_f1": _score(_predicted(graph, outputs, _thresholds(graph, outputs))),
        "baselines": {name: _score(parts) for name, parts in predicted.items() if name != "model"},
        "intervals": {
            name: {part: _interval(*both) for part, both in parts.items()}
            for name, parts in predicted.items()
        },
        "probabilities": {
            part: quality(
                outputs.decision.probabilities(logits, multilabel=graph.multilabel), true
            )._asdict()
            for part, (logits, true) in _unseen(graph, outputs).items()
        },
        "slopes": trained.slopes,
    }


Parts = dict[str, tuple[Tensor, Tensor]]
"""By part of the split, logits or predicted labels, and the known labels."""


def _unseen(graph: Graph, outputs: FinalOutputs) -> Parts:
    """Return the logits of nodes that the weights were not fitted to, and their labels."""
    parts = {
        "val": (graph.split.val, outputs.held_out),
        "test": (graph.split.test, outputs.logits),
    }
    return {
        part: (logits[mask], graph.labels_given(mask))
        for part, (mask, logits) in parts.items()
        if mask.any()
    }


def _predicted(graph: Graph, outputs: FinalOutputs, decision: Decision) -> Parts:
    return {
        part: (decision.labels(logits, multilabel=graph.multilabel), true)
        for part, (logits, true) in _unseen(graph, outputs).items()
    }


def _thresholds(graph: Graph, outputs: FinalOutputs) -> Decision:
    """Return thresholds for the expected macro F1: the model's own, if it has some."""
    if outputs.decision.rule in ("micro", "macro"):
        return outputs.decision
    val, held_out = graph.split.val, outputs.held_out
    everyone = held_out[~graph.split.train if graph.multilabel else val]
    return Decision.fit("macro", held_out[val], graph.y[val], everyone)


def _score(parts: Parts) -> dict[str, dict[str, float]]:
    return {part: _percent(f1(*both)) for part, both in parts.items()}


def _percent(f1: F1) -> dict[str, float]:
    return {"micro": round(100 * f1.micro, 4), "macro": round(100 * f1.macro, 4)}


def _interval(predicted: Tensor, true: Tensor) -> dict[str, list[float]]:
    return {
        average: [round(100 * bound, 4) for bound in bounds]
        for average, bounds in f1_interval(predicted, true).items()
    }


def _most_common(graph: Graph) -> Tensor:
    """Return the most common labels of training nodes, bool, ``[C]``.

    For multi-label targets, the set of labels with the best micro F1 on training nodes.
    """
    y, labels = graph.y[graph.split.train], len(graph.labels)
    count = (y > 0).sum(0) if graph.multilabel else torch.bincount(y[y >= 0], minlength=labels)
    order = count.argsort(descending=True)
    k = torch.arange(1, labels + 1 if graph.multilabel else 2)
    micro = 2 * count[order].cumsum(0)[: len(k)] / (k * len(y) + count.sum())
    chosen = torch.zeros(labels, dtype=torch.bool)
    chosen[order[: int(micro.argmax()) + 1]] = True
    return chosen
