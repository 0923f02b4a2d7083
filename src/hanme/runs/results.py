"""Scores of a trained model and of its baselines, as ``result.json`` holds them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from hanme.decision import Decision, quality
from hanme.graph import Graph
from hanme.training import FinalOutputs, Judged, TrainingResult
from hanme.training.metrics import F1, f1, f1_interval, probability_scores, scores, wilson_interval

RULES = {"fallback": "with_fallback", "half": "without_fallback"}
"""The name of each rule without thresholds in ``result.json``."""


def rule_name(decision: Decision) -> str:
    """Return the name under which ``result.json`` holds the scores of a run's own decision."""
    return RULES.get(decision.rule, "decided")


def score_parts(
    graph: Graph, logits: Tensor, decision: Decision, judged: Judged | None = None
) -> dict[str, Any]:
    """Return micro and macro F1 in percent by decision rule and part of the split.

    The scores of the run's own decision come first; empty parts have none. Validation nodes have
    none but those of ``judged``: weights or decision were fitted to them.
    """
    masks = {"train": graph.split.train, "test": graph.split.test}
    masks = {part: mask for part, mask in masks.items() if mask.any()}
    rules = {rule_name(decision): decision}
    rules |= {name: Decision(rule=rule) for rule, name in RULES.items()}
    found = {
        name: {part: _percent(f1) for part, f1 in scores(logits, graph.y, masks, rule).items()}
        for name, rule in rules.items()
    }
    if judged is not None:
        true, several = graph.labels_given(judged.nodes), graph.multilabel
        for name, rule in rules.items():
            own = rule is decision
            labels = judged.labels if own else rule.labels(judged.logits, multilabel=several)
            found[name][judged.part] = _percent(f1(labels, true))
    return found


class Scored(NamedTuple):
    """Predictions for a part of the split: labels, bool ``[n, C]``, probabilities and truth."""

    predicted: Tensor
    p: Tensor
    true: Tensor

    def scores(self, *, multilabel: bool) -> dict[str, float]:
        """Return F1 in percent, and the scores of the probabilities."""
        ranks = probability_scores(self.p, self.true, multilabel=multilabel)
        return _percent(f1(self.predicted, self.true)) | ranks

    def counts(self) -> dict[str, int]:
        """Return the number of nodes, and of those whose labels are all correct."""
        correct = (self.predicted == self.true).all(1)
        return {"correct": int(correct.sum()), "nodes": len(correct)}

    def intervals(self, *, multilabel: bool) -> dict[str, list[float]]:
        """Return 95 % intervals of micro and macro F1 in percent.

        With one label per node, micro F1 is the share of correct nodes: Wilson's interval holds
        for few nodes, too, where the bootstrap is too narrow.
        """
        bounds = f1_interval(self.predicted, self.true)
        if not multilabel:
            bounds["micro"] = wilson_interval(**self.counts())
        return {name: [round(100 * bound, 4) for bound in both] for name, both in bounds.items()}


def result_of(graph: Graph, trained: TrainingResult) -> dict[str, Any]:
    """Return scores, 95 % intervals, baselines and calibration of a trained model.

    ``val`` are validation nodes that selected nothing, each scored by what was fitted to others;
    ``oof``, in their place where they are few, training nodes by base learners that were fitted to
    others. ``expected_f1`` is the score under thresholds that maximise the expected macro F1, so
    that models with other rules can be compared. ``selection`` is the F1 of all validation nodes,
    by which settings may be chosen: it is optimistic.
    """
    outputs, linear, several = trained.outputs, trained.linear, graph.multilabel
    models = {"model": _unseen(graph, outputs, outputs.decision)}
    if linear is not None:
        models["linear"] = _unseen(graph, linear, linear.decision)
    common, rates = _most_common(graph)
    models["majority"] = {
        part: Scored(common.expand_as(x.true), rates.expand_as(x.p), x.true)
        for each in (models.get("linear", {}), models["model"])
        for part, x in each.items()
    }
    val, decision = graph.split.val, outputs.decision
    chosen = scores(outputs.held_out, graph.y, {"val": val}, decision)["val"]
    by_rule = score_parts(graph, outputs.logits, decision, outputs.judged)
    best = _unseen(graph, outputs, _thresholds(graph, outputs))
    return {
        "scores": by_rule,
        "selection": _percent(chosen),
        "expected_f1": {
            part: _percent(f1(x.predicted, x.true)) for part, x in best.items() if part == "test"
        },
        "baselines": {
            name: {part: x.scores(multilabel=several) for part, x in parts.items()}
            for name, parts in models.items()
            if name != "model"
        },
        "intervals": {
            name: {part: x.intervals(multilabel=several) for part, x in parts.items()}
            for name, parts in models.items()
        },
        "counts": {
            name: {part: x.counts() for part, x in parts.items()} for name, parts in models.items()
        },
        "label_nodes": {
            part: dict(zip(graph.labels, x.true.sum(0).tolist(), strict=True))
            for part, x in models["model"].items()
        },
        "probabilities": {
            part: quality(x.p, x.true)._asdict()
            | probability_scores(x.p, x.true, multilabel=several)
            for part, x in models["model"].items()
        },
        "slopes": trained.slopes,
    }


def _unseen(graph: Graph, outputs: FinalOutputs, decision: Decision) -> dict[str, Scored]:
    """Return the predictions for nodes that nothing was fitted to, by part."""
    test, several, judged = graph.split.test, graph.multilabel, outputs.judged
    found = dict[str, Scored]()
    if judged is not None:
        true = graph.labels_given(judged.nodes)
        found[judged.part] = Scored(judged.labels, judged.p, true)
    if test.any():
        logits = outputs.logits[test]
        labels = decision.labels(logits, multilabel=several)
        p = decision.probabilities(logits, multilabel=several)
        found["test"] = Scored(labels, p, graph.labels_given(test))
    return found


def _thresholds(graph: Graph, outputs: FinalOutputs) -> Decision:
    """Return thresholds for the expected macro F1: the model's own, if it has some."""
    if outputs.decision.rule in ("micro", "macro"):
        return outputs.decision
    val = graph.split.val
    return Decision.fit("macro", outputs.held_out[val], graph.y[val])


def _percent(f1: F1) -> dict[str, float]:
    return {"micro": round(100 * f1.micro, 4), "macro": round(100 * f1.macro, 4)}


def _most_common(graph: Graph) -> tuple[Tensor, Tensor]:
    """Return the most common labels of training nodes, bool, ``[C]``, and the share of each label.

    For multi-label targets, the set of labels with the best micro F1 on training nodes.
    """
    y, labels = graph.y[graph.split.train], len(graph.labels)
    count = (y > 0).sum(0) if graph.multilabel else torch.bincount(y[y >= 0], minlength=labels)
    order = count.argsort(descending=True)
    k = torch.arange(1, labels + 1 if graph.multilabel else 2)
    micro = 2 * count[order].cumsum(0)[: len(k)] / (k * len(y) + count.sum())
    chosen = torch.zeros(labels, dtype=torch.bool)
    chosen[order[: int(micro.argmax()) + 1]] = True
    return chosen, (count / len(y)).clamp(1e-6, 1 - 1e-6)
