"""What follows the epochs: fit the wide part, weigh it against the rest, fix the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from hanme.common.memory import blocks
from hanme.decision import Decision, calibrate
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.splits import Split, without_fold
from hanme.nn.channels import Task, WideChannels
from hanme.nn.model import ChannelModel, Model
from hanme.training.batches import logits_of, update_running_means
from hanme.training.beliefs import believed, cross_fit, refit, weigh_beliefs, with_beliefs
from hanme.training.config import TrainingConfig
from hanme.training.fit import fill_wide, wide_logits
from hanme.training.wide import Wide

KNOWN = 0.1
"""How far from 0 biases are expected where folds have fitted those of the wide part."""

SHARES = {1: [(1.0, 0.1)], 2: [(0.9, 0.05), (0.1, 0.05)]}
"""Where the slopes of the wide part, and of the rest if there is some, are then expected."""


@dataclass(frozen=True)
class Answer:
    """Logits and the decision that goes with them.

    Args:
        held_out: The logits of all target nodes, of weights that saw training nodes alone; slopes
            and biases were fitted to validation nodes too, which also chose the size of trees.
        logits: The logits of all target nodes, of the final weights.
        decision: From these to labels; fitted on validation nodes.
    """

    held_out: Tensor
    logits: Tensor
    decision: Decision


@dataclass(frozen=True)
class Settled:
    """What a trained model came to.

    Args:
        model: The model's answer.
        linear: That of the wide part alone, where one was chosen.
        slopes: How much the wide part and the rest count, where the model has both.
    """

    model: Answer
    linear: Answer | None = None
    slopes: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def settle(model: Model, graph: Graph, config: TrainingConfig, wide: Wide | None) -> Settled:
    """Complete a model whose epochs are over; its weights are changed to the final ones.

    The wide part is fitted to the training nodes. Validation nodes, which no weight has seen, then
    say how much it and the rest count (:func:`~hanme.decision.calibrate`) and fix the decision.
    With `config.refit` the wide part is then fitted to all labelled nodes: it is the mean of the
    folds that it was fitted without, or fitted again.

    Args:
        model: The model; if it has wide channels, they are of the blocks of ``wide``.
        graph: The graph.
        config: How it was trained.
        wide: The wide part that was chosen, for the model or as a baseline.
    """
    model.train(False)
    after = as_predicted(graph, config)
    part = wide_part(model)
    deep = logits_of(model, graph, batch_size=config.batch_size)
    if config.batch_size is None:
        update_running_means(
            model, 1.0
        )  # predictions weigh channels as all target nodes together do
    model.to(torch.device("cpu"))  # what follows is a convex fit on sparse rows
    if wide is None:
        return Settled(_answer(deep, deep, graph, config))
    own = part or WideChannels(
        Task(graph.metadata(), graph.target, len(graph.labels)), blocks=wide.channels
    )
    found = cross_fit(own, graph, wide, config.seed)
    first, folds = found.first, found.folds
    trust = weigh_beliefs(own, first, folds)
    weights = first.weights
    if config.refit and folds:  # all labelled nodes count, each in most of the fits
        weights = torch.stack([fold.weights for fold in folds]).mean(0)
    elif config.refit:
        weights = refit(own, after, wide, found, config.seed)
    (bare,) = wide_logits(own, after, weights[None])
    seen = with_beliefs(own, graph, first.logits, trust)
    last = with_beliefs(own, after, bare, trust)
    fill_wide(own, after, weights)
    own.scale(trust.slope, trust.bias)
    if trust.slopes:
        own.believe(believed(after, bare), trust.slopes)
    alone = _answer(seen, last, graph, config, calibrated=bool(folds))
    if part is None:
        final = logits_of(model, after, batch_size=config.batch_size) if config.refit else deep
        return Settled(_answer(deep, final, graph, config), alone)
    assert isinstance(model, ChannelModel)
    val, y = graph.split.val, graph.y[graph.split.val]
    parts = [seen] if model.head is None else [seen, deep]
    held = [logits[val] for logits in parts]
    if folds:
        slopes, bias = calibrate(held, y, SHARES[len(parts)], KNOWN)
    else:
        slopes, bias = calibrate(held, y)
    part.scale(slopes[0], bias)
    if isinstance(model.head, nn.Linear):
        model.head.weight.mul_(slopes[1])
        model.head.bias.mul_(slopes[1])
    held_out = bias + sum(slope * x for slope, x in zip(slopes, parts, strict=True))
    logits = logits_of(model, after, batch_size=config.batch_size)
    answer = _answer(held_out, logits, graph, config, calibrated=True)
    names = ("wide", "deep") if len(parts) > 1 else ()
    return Settled(answer, alone, dict(zip(names, slopes, strict=False)))


def as_predicted(graph: Graph, config: TrainingConfig) -> Graph:
    """Return a graph as the final weights see it: refitted, with the labels of validation nodes."""
    return replace(graph, visible=graph.split.labelled) if config.refit and config.wide else graph


def cross_fitted(
    graph: Graph, config: TrainingConfig, folds: Sequence[Mapping[str, tuple[Tensor, Tensor]]]
) -> tuple[Graph, Settled]:
    """Put the models of all folds together: their mean, decided by out-of-fold logits.

    Args:
        graph: The graph.
        config: How the models were trained.
        folds: Per fold the logits of all target nodes, held out and final, by ``"model"`` and,
            where a wide part was chosen, ``"linear"``.

    Returns:
        The graph with all labelled nodes to validate on, and what the mean came to.
    """
    none = torch.zeros_like(graph.split.train)
    whole = replace(graph, split=Split(none, graph.split.labelled, graph.split.test))
    answers = {}
    for name in folds[0]:
        held_out = torch.stack([fold[name][0] for fold in folds])
        joined = held_out.mean(0)
        for number, logits in enumerate(held_out, start=1):
            part = without_fold(graph.split, graph.y, number, len(folds), seed=config.seed).val
            joined[part] = logits[part]
        last = torch.stack([fold[name][1] for fold in folds]).mean(0)
        answers[name] = _answer(joined, last, whole, config)
    return whole, Settled(answers["model"], answers.get("linear"))


def wide_part(model: Model) -> WideChannels | None:
    """Return the wide channels of a model that are fitted by themselves, if it has some."""
    parts = model.parts if isinstance(model, ChannelModel) else []
    return next((part for part in parts if isinstance(part, WideChannels)), None)


def _answer(
    held_out: Tensor,
    logits: Tensor,
    graph: Graph,
    config: TrainingConfig,
    *,
    calibrated: bool = False,
) -> Answer:
    for rows in blocks(*logits.shape):
        wrong = (~(held_out[rows].isfinite() & logits[rows].isfinite()).all(1)).nonzero()
        if len(wrong):
            node = graph.targets.identity(rows.start + int(wrong[0]))
            raise HanmeError(
                f"{graph.target} {node}: the model gives logits that are no numbers; try a smaller "
                "lr, and features nearer to 0"
            )
    val = graph.split.val
    everyone = held_out[~graph.split.train if graph.multilabel else val]
    decision = Decision.fit(
        config.decide, held_out[val], graph.y[val], everyone, calibrated=calibrated
    )
    return Answer(held_out, logits, decision)
