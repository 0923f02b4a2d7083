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
        name: {part: percent(f1) for part, f1 in scores(logits, graph.y, masks, rule).items()}
        for name, rule in rules.items()
    }


def result_of(graph: Graph, trained: TrainingResult) -> dict[str, Any]:
    """Return scores, intervals, baselines and calibration of a trained model."""
    outputs = trained.outputs
    return {
        "scores": _held_out_scores(graph, outputs),
        "expected_f1": _expected_f1(graph, outputs),
        "baselines": _baselines(graph, trained),
        "intervals": _intervals(graph, trained),
        "probabilities": {
            part: _quality(graph, logits, outputs.decision, mask)
            for part, mask, logits in _unseen(graph, outputs)
        },
        "slopes": trained.slopes,
    }


def percent(f1: F1) -> dict[str, float]:
    """Return micro and macro F1 in percent."""
    return {"micro": round(100 * f1.micro, 4), "macro": round(100 * f1.macro, 4)}


def _held_out_scores(graph: Graph, outputs: FinalOutputs) -> dict[str, Any]:
    """Return scores by rule and part; validation nodes by weights that were not fitted to them."""
    by_rule = score_parts(graph, outputs.logits, outputs.decision)
    held_out = score_parts(graph, outputs.held_out, outputs.decision)
    for rule, parts in by_rule.items():
        if "val" in parts:
            parts["val"] = held_out[rule]["val"]
    return by_rule


def _expected_f1(graph: Graph, outputs: FinalOutputs) -> dict[str, Any]:
    """Return the scores under thresholds that maximise the expected macro F1.

    Models with other rules can so be compared with those that use these thresholds.
    """
    decision = outputs.decision
    if decision.rule not in ("micro", "macro"):
        val, held_out = graph.split.val, outputs.held_out
        everyone = held_out[~graph.split.train if graph.multilabel else val]
        decision = Decision.fit("macro", held_out[val], graph.y[val], everyone)
    return {
        part: percent(scores(logits, graph.y, {part: mask}, decision)[part])
        for part, mask, logits in _unseen(graph, outputs)
    }


def _baselines(graph: Graph, trained: TrainingResult) -> dict[str, Any]:
    """Return the scores of the baselines by name and part: majority and, if fitted, linear.

    The linear baseline has a decision of its own, by the same rule.
    """
    parts = [(part, mask) for part, mask, _ in _unseen(graph, trained.outputs)]
    baselines: dict[str, Any] = {"majority": {part: _majority(graph, mask) for part, mask in parts}}
    if trained.linear is not None:
        by_rule = _held_out_scores(graph, trained.linear)
        own = by_rule.get("decided", by_rule["with_fallback"])
        baselines["linear"] = {part: own[part] for part, _ in parts}
    return baselines


def _intervals(graph: Graph, trained: TrainingResult) -> dict[str, Any]:
    """Return 95 % intervals of the scores in percent, by name, part and average."""
    intervals: dict[str, Any] = {"model": {}, "linear": {}, "majority": {}}
    for name, outputs in (("model", trained.outputs), ("linear", trained.linear)):
        if outputs is None:
            continue
        for part, mask, logits in _unseen(graph, outputs):
            predicted = outputs.decision.labels(logits[mask], multilabel=graph.multilabel)
            intervals[name][part] = _interval(predicted, graph.labels_given(mask))
    for part, mask, _ in _unseen(graph, trained.outputs):
        true = graph.labels_given(mask)
        intervals["majority"][part] = _interval(_most_common(graph).expand_as(true), true)
    return intervals


def _interval(predicted: Tensor, true: Tensor) -> dict[str, list[float]]:
    return {
        average: [round(100 * bound, 4) for bound in bounds]
        for average, bounds in f1_interval(predicted, true).items()
    }


def _unseen(graph: Graph, outputs: FinalOutputs) -> list[tuple[str, Tensor, Tensor]]:
    """Return the parts that weights were not fitted to, with the logits to score them by."""
    parts = [("val", graph.split.val, outputs.held_out), ("test", graph.split.test, outputs.logits)]
    return [(part, mask, logits) for part, mask, logits in parts if mask.any()]


def _quality(graph: Graph, logits: Tensor, decision: Decision, part: Tensor) -> dict[str, Any]:
    """Return Brier score, calibration error and reliability bins of some nodes."""
    p = decision.probabilities(logits[part], multilabel=graph.multilabel)
    return quality(p, graph.labels_given(part))._asdict()


def _majority(graph: Graph, part: Tensor) -> dict[str, float]:
    """Return the scores of predicting the most common labels for every node."""
    true = graph.labels_given(part)
    return percent(f1(_most_common(graph).expand_as(true), true))


def _most_common(graph: Graph) -> Tensor:
    """Return the most common labels of training nodes, bool, ``[C]``.

    For multi-label targets, the set of labels with the best micro F1 on training nodes.
    """
    train, labels = graph.split.train, len(graph.labels)
    y = graph.y[train]
    count = (y > 0).sum(0) if graph.multilabel else torch.bincount(y[y >= 0], minlength=labels)
    order = count.argsort(descending=True)
    k = torch.arange(1, labels + 1 if graph.multilabel else 2)
    micro = 2 * count[order].cumsum(0)[: len(k)] / (k * len(y) + count.sum())
    chosen = torch.zeros(labels, dtype=torch.bool)
    chosen[order[: int(micro.argmax()) + 1]] = True
    return chosen
