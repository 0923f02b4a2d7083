"""What follows the epochs: fit the wide part, weigh it against the rest, fix the decision."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hanme.decision import Decision, calibrate
from hanme.graph import Graph
from hanme.nn.channels import Inputs, Task, WideChannels
from hanme.nn.model import ChannelModel, Model
from hanme.training.batches import follow_means, logits_of
from hanme.training.config import TrainingConfig
from hanme.training.wide import Wide, fit_wide


@dataclass(frozen=True)
class Answer:
    """Logits and the decision that goes with them.

    Args:
        held_out: The logits of all target nodes, of weights that saw training nodes alone.
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
    With `config.refit` the wide part is fitted again, to all labelled nodes.

    Args:
        model: The model; if it has wide channels, they are of the blocks of ``wide``.
        graph: The graph.
        config: How it was trained.
        wide: The wide part that was chosen, for the model or as a baseline.
    """
    model.train(False)
    inputs = Inputs(graph.x_dict, graph.edge_index_dict, labels=graph.training_labels)
    part = wide_part(model)
    deep = logits_of(model, graph, batch_size=config.batch_size)
    if config.batch_size is None:
        follow_means(model, 1.0)  # predictions weigh channels as all target nodes together do
    if wide is None:
        return Settled(_answer(deep, deep, graph, config))
    own = part or WideChannels(
        Task(graph.metadata(), graph.target, len(graph.labels)), blocks=wide.blocks
    )
    fit_wide(own, graph, wide, graph.split.train)
    last = seen = _total(own(inputs))
    if config.refit:
        fit_wide(own, graph, wide, graph.split.labelled)
        last = _total(own(inputs))
    alone = _answer(seen, last, graph, config)
    if part is None:
        return Settled(_answer(deep, deep, graph, config), alone)
    assert isinstance(model, ChannelModel)
    val, y = graph.split.val, graph.y[graph.split.val]
    if model.head is None:
        (slope,), bias = calibrate([seen[val]], y)
        part.scale(slope, bias)
        found = _answer(slope * seen + bias, slope * last + bias, graph, config, calibrated=True)
        return Settled(found, alone)
    slopes, bias = calibrate([seen[val], deep[val]], y)
    part.scale(slopes[0], bias)
    assert isinstance(model.head, nn.Linear)
    model.head.weight.mul_(slopes[1])
    model.head.bias.mul_(slopes[1])
    rest = slopes[1] * deep + bias
    held_out, logits = slopes[0] * seen + rest, slopes[0] * last + rest
    found = _answer(held_out, logits, graph, config, calibrated=True)
    return Settled(found, alone, {"wide": slopes[0], "deep": slopes[1]})


def wide_part(model: Model) -> WideChannels | None:
    """Return the wide channels of a model that are fitted by themselves, if it has some."""
    parts = model.parts if isinstance(model, ChannelModel) else []
    return next((part for part in parts if isinstance(part, WideChannels)), None)


def _total(logits: list[Tensor]) -> Tensor:
    return torch.stack(logits).sum(0)


def _answer(
    held_out: Tensor,
    logits: Tensor,
    graph: Graph,
    config: TrainingConfig,
    *,
    calibrated: bool = False,
) -> Answer:
    val, unseen = graph.split.val, ~graph.split.train
    decision = Decision.fit(
        config.decide, held_out[val], graph.y[val], held_out[unseen], calibrated=calibrated
    )
    return Answer(held_out, logits, decision)
