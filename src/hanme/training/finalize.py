"""Fit the base learners, stack them with the network, and fit the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from hanme.common.memory import blocks
from hanme.decision import Decision, calibrate
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.splits import Split, without_fold
from hanme.nn.model import Model
from hanme.training.base_learners import BaseFit, ValidationHalves, fit_base_learners
from hanme.training.batches import logits_of, update_running_means
from hanme.training.config import TrainingConfig
from hanme.training.stacked import Network, Stacked

NETWORK_PRIOR = 0.1
"""Prior mean of the network's slope, and 1 minus that of the base learners'. On the development
data sets these predict better than the network, and their logits are calibrated already."""

NETWORK_PRIOR_WIDTH = 0.1
"""Prior standard deviation of both: about what a hundred stacking nodes can tell."""


@dataclass(frozen=True)
class FinalOutputs:
    """Logits of all target nodes, and the decision that turns them into labels.

    Args:
        held_out: Logits ``[N, C]`` of weights that were fitted to the training nodes only.
        logits: Logits ``[N, C]`` of the final weights.
        decision: Fitted on validation nodes.
    """

    held_out: Tensor
    logits: Tensor
    decision: Decision


@dataclass(frozen=True)
class TrainingResult:
    """A trained model.

    Args:
        model: The model; None for the mean of several folds.
        outputs: Its logits and decision.
        linear: Those of the base learners without the network, if they were fitted.
        slopes: The slopes of base learners and network, if both are stacked.
    """

    model: Stacked | None
    outputs: FinalOutputs
    linear: FinalOutputs | None = None
    slopes: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def finalize(
    network: Model | None, graph: Graph, config: TrainingConfig, *, stack: bool = True
) -> TrainingResult:
    """Complete the training of a model after the epochs of its network.

    Held-out and final logits are those of the same composition: of parts that were fitted to the
    training nodes, and of parts that were fitted to all labelled nodes.

    Args:
        network: The trained network; None for the base learners alone.
        graph: The graph, with all of its validation nodes.
        config: How to train.
        stack: Stack the network with the base learners; else these are a baseline.
    """
    deep = None if network is None else _logits(network, graph, config)
    base = fit_base_learners(graph, config) if config.linear or network is None else None
    after = as_predicted(graph, config)
    alone = None if base is None else _base_outputs(base, graph, after, config)
    if network is None:
        assert base is not None
        assert alone is not None
        return TrainingResult(Stacked({"linear": base.final}), alone, alone)
    part = Network(network, config.batch_size)
    if base is None or alone is None or not stack:
        model = Stacked({"network": part})
        final = deep if after is graph else part.predict(after)
        return TrainingResult(model, _outputs(deep, final, graph, config), alone)
    return _stack(part, deep, base, alone, graph, after, config)


def _stack(
    network: Network,
    deep: Tensor,
    base: BaseFit,
    alone: FinalOutputs,
    graph: Graph,
    after: Graph,
    config: TrainingConfig,
) -> TrainingResult:
    """Stack base learners and network, with slopes fitted to nodes that have selected nothing."""
    nodes = ValidationHalves.of(graph, config.seed).stacking
    (first, second), bias = calibrate(
        [alone.held_out[nodes], deep[nodes]],
        graph.y[nodes],
        [1 - NETWORK_PRIOR, NETWORK_PRIOR],
        NETWORK_PRIOR_WIDTH,
    )
    slopes = {"linear": first, "network": second}
    model = Stacked({"linear": base.final, "network": network}, slopes, bias)
    final = deep if after is graph else network.predict(after)
    outputs = _outputs(
        first * alone.held_out + second * deep + bias,
        first * alone.logits + second * final + bias,
        graph,
        config,
        calibrated=True,
    )
    return TrainingResult(model, outputs, alone, slopes)


def _logits(network: Model, graph: Graph, config: TrainingConfig) -> Tensor:
    """Return the network's logits of all target nodes; predictions keep its attention means."""
    logits = logits_of(network, graph, batch_size=config.batch_size)
    if config.batch_size is None:
        update_running_means(network, 1.0)
    network.to(torch.device("cpu"))
    return logits.cpu()


def _base_outputs(
    base: BaseFit, graph: Graph, after: Graph, config: TrainingConfig
) -> FinalOutputs:
    held_out, final = base.held_out.predict(graph), base.final.predict(after)
    return _outputs(held_out, final, graph, config, calibrated=True)


def as_predicted(graph: Graph, config: TrainingConfig) -> Graph:
    """Return a graph as the final model sees it: refitted, with the labels of validation nodes."""
    if not (config.refit and config.linear):
        return graph
    return replace(graph, visible=graph.split.labelled)


def cross_fitted(
    graph: Graph, config: TrainingConfig, folds: Sequence[Mapping[str, tuple[Tensor, Tensor]]]
) -> tuple[Graph, TrainingResult]:
    """Average the models of all folds, and fit the decision to out-of-fold logits.

    Args:
        graph: The graph.
        config: How the models were trained.
        folds: By fold, held-out and final logits of all target nodes, of ``"model"`` and, if it was
            fitted, of ``"linear"``.

    Returns:
        The graph with all labelled nodes as validation nodes, and the outputs of the mean.
    """
    none = torch.zeros_like(graph.split.train)
    whole = replace(graph, split=Split(none, graph.split.labelled, graph.split.test))
    outputs = {}
    for name in folds[0]:
        held_out = torch.stack([fold[name][0] for fold in folds])
        joined = held_out.mean(0)
        for number, logits in enumerate(held_out, start=1):
            part = without_fold(graph.split, graph.y, number, len(folds), seed=config.seed).val
            joined[part] = logits[part]
        final = torch.stack([fold[name][1] for fold in folds]).mean(0)
        outputs[name] = _outputs(joined, final, whole, config)
    return whole, TrainingResult(None, outputs["model"], outputs.get("linear"))


def _outputs(
    held_out: Tensor,
    logits: Tensor,
    graph: Graph,
    config: TrainingConfig,
    *,
    calibrated: bool = False,
) -> FinalOutputs:
    """Check logits, and fit the decision to validation nodes."""
    for rows in blocks(*logits.shape):
        wrong = (~(held_out[rows].isfinite() & logits[rows].isfinite()).all(1)).nonzero()
        if len(wrong):
            node = graph.targets.identity(rows.start + int(wrong[0]))
            raise HanmeError(
                f"{graph.target} {node}: the logits are NaN or infinite: lower lr, or scale the "
                "features"
            )
    val = graph.split.val
    everyone = held_out[~graph.split.train if graph.multilabel else val]
    decision = Decision.fit(
        config.decide, held_out[val], graph.y[val], everyone, calibrated=calibrated
    )
    return FinalOutputs(held_out, logits, decision)
