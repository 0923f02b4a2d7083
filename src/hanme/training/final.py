"""Fit the base learners, stack them with the network, and fit the decision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hanme.common.memory import blocks
from hanme.common.progress import begin_stage
from hanme.decision import Costs, Decision, calibrate
from hanme.decision.calibration import weighted_sum
from hanme.decision.losses import total_loss
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.linear import Learner
from hanme.nn.model import Model
from hanme.training.base_learners import BaseFit, OutOfFold, fit_base_learners
from hanme.training.batches import logits_of, update_running_means
from hanme.training.config import TrainingConfig
from hanme.training.stacked import Network, Stacked
from hanme.training.validation import (
    MIN_SCORED,
    Compose,
    Composed,
    Judged,
    ValidationNodes,
    judge,
)

NETWORK_PRIOR = 0.1
"""Prior mean of the network's slope, and 1 minus that of the base learners'. On the development
data sets these predict better than the network, and their logits are calibrated already."""

NETWORK_PRIOR_WIDTH = 0.1
"""Prior standard deviation of both: about what a hundred stacking nodes can tell."""

MAX_IN_MEMORY = 20_000_000
"""Maximum number of nodes and links of a stored graph that is read into memory for trees and
aggregates: about 1 GB with its features."""


@dataclass(frozen=True)
class FinalOutputs:
    """Logits of all target nodes, and the decision that turns them into labels.

    Args:
        held_out: Logits ``[N, C]`` of weights that were fitted to the training nodes only.
        logits: Logits ``[N, C]`` of the final weights.
        decision: Fitted to validation nodes that selected nothing.
        judged: Predictions of nodes that selected nothing, by what was fitted to others; None if
            there are too few.
    """

    held_out: Tensor
    logits: Tensor
    decision: Decision
    judged: Judged | None = None


@dataclass(frozen=True)
class TrainingResult:
    """A trained model.

    Args:
        model: The model.
        outputs: Its logits and decision.
        linear: Those of the base learners without the network, if they were fitted.
        slopes: The slopes of base learners and network, if both are stacked.
        notes: What the user should know of the base learners, a line each.
    """

    model: Stacked
    outputs: FinalOutputs
    linear: FinalOutputs | None = None
    slopes: dict[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()


class BaseOutputs(NamedTuple):
    """The base learners, stacked and smoothed, and their logits, ``[N, C]``.

    Args:
        fit: The base learners.
        held_out: Logits of those that were fitted to the training nodes only.
        logits: Logits of those that were fitted to all labelled nodes.
    """

    fit: BaseFit
    held_out: Tensor
    logits: Tensor


@torch.no_grad()
def fit_base(graph: Graph, config: TrainingConfig) -> BaseOutputs:
    """Fit the base learners; a stored graph is read into memory if it fits."""
    if sum(graph.num_links.values()) + sum(graph.sizes.values()) <= MAX_IN_MEMORY:
        graph = graph.in_memory()
    fit = fit_base_learners(graph, config)
    held_out, logits = fit.held_out.predict(graph), fit.final.predict(as_predicted(graph, config))
    _check_finite(graph, held_out, logits)
    return BaseOutputs(fit, held_out, logits)


def stacking_gain(base: Tensor, network: Tensor, y: Tensor) -> float:
    """Return how much the network reduces the loss of the base learners on some nodes, in nats.

    Args:
        base: Logits of the base learners, ``[n, C]``.
        network: Logits of the network, ``[n, C]``.
        y: The labels, ``[n]`` or ``[n, C]``.
    """
    y, network = y.cpu(), network.detach().cpu()
    targets = (y if y.dim() == 2 else F.one_hot(y, base.size(1))).double()

    def loss(parts: list[Tensor], prior: list[float]) -> float:
        slopes, bias = calibrate(parts, y, prior, NETWORK_PRIOR_WIDTH)
        logits = bias + sum(s * part for s, part in zip(slopes, parts, strict=True))
        return float(total_loss(logits.double(), targets, multilabel=y.dim() == 2)[0])

    return loss([base], [1.0]) - loss([base, network], [1 - NETWORK_PRIOR, NETWORK_PRIOR])


@torch.no_grad()
def finalize(
    network: Model | None,
    graph: Graph,
    config: TrainingConfig,
    *,
    base: BaseOutputs | None = None,
    stack: bool = True,
    nodes: ValidationNodes | None = None,
) -> TrainingResult:
    """Complete the training of a model after the epochs of its network.

    Held-out and final logits are those of the same composition: of parts that were fitted to the
    training nodes, and of parts that were fitted to all labelled nodes.

    Args:
        network: The trained network; None for the base learners alone.
        graph: The graph, with all of its validation nodes.
        config: How to train.
        base: The base learners, if they are fitted already.
        stack: Stack the network with the base learners; else these are a baseline.
        nodes: What the validation nodes decide (default: as for this network).
    """
    if base is None and (config.linear or network is None):
        base = fit_base(graph, config)
    begin_stage("stacking")
    if nodes is None:
        trained = network is not None
        nodes = ValidationNodes.of(graph, config, network=trained, stack=stack and trained)
    alone, notes = (
        (_base_outputs(base, nodes, graph, config), base.fit.notes) if base else (None, ())
    )
    if network is None:
        assert base is not None
        assert alone is not None
        model = Stacked({"linear": base.fit.final})
        return TrainingResult(model, alone, alone, notes=notes)
    held_out, final = _network_logits(network, graph, config)
    _check_finite(graph, held_out, final)
    part, y = Network(network, config.batch_size), graph.y[nodes.others]
    if base is None or not stack:
        parts, compose = [held_out], _composer(graph, config, calibrated=False)
        learners: dict[str, Learner | Network] = {"network": part}
    else:
        parts, compose = [base.held_out, held_out], _composer(graph, config, base.fit.out_of_fold)
        learners = {"linear": base.fit.final, "network": part}
    seen = [each[nodes.others] for each in parts]
    fitted = compose(seen, y)
    judged = judge("val", nodes.others, nodes.half, seen, y, compose) if nodes.scored else None
    slopes = dict(zip(learners, fitted.slopes, strict=True))
    last = [final] if len(parts) == 1 or base is None else [base.logits, final]
    outputs = FinalOutputs(fitted.logits(parts), fitted.logits(last), fitted.decision, judged)
    model = Stacked(learners, slopes, fitted.bias)
    return TrainingResult(model, outputs, alone, slopes if len(parts) > 1 else {}, notes)


def _base_outputs(
    base: BaseOutputs, nodes: ValidationNodes, graph: Graph, config: TrainingConfig
) -> FinalOutputs:
    """Fit the decision of the base learners, and judge them; their logits are calibrated."""
    seen = base.fit.out_of_fold
    compose = _composer(graph, config, seen)
    others, y = [base.held_out[nodes.others]], graph.y[nodes.others]
    if nodes.scored:
        judged = judge("val", nodes.others, nodes.half, others, y, compose)
    else:
        alone = _composer(graph, config)
        judged = judge("oof", seen.nodes, seen.group, [seen.logits], graph.y[seen.nodes], alone)
    decision = compose(others, y).decision
    return FinalOutputs(base.held_out, base.logits, decision, judged)


def _composer(
    graph: Graph,
    config: TrainingConfig,
    seen: OutOfFold | None = None,
    *,
    calibrated: bool = True,
) -> Compose:
    """Return what fits slopes and decision to some nodes.

    Args:
        graph: The graph.
        config: How to train.
        seen: Out-of-fold logits of the base learners, which thresholds are fitted to as well where
            there are few other nodes.
        calibrated: Whether logits are calibrated once they have their slopes.
    """
    costs = Costs.parse(config.cost, graph.labels) if config.cost else None

    def compose(parts: Sequence[Tensor], y: Tensor) -> Composed:
        slopes, bias = [1.0], torch.zeros(len(graph.labels))
        if len(parts) > 1:
            prior = [1 - NETWORK_PRIOR, NETWORK_PRIOR]
            slopes, bias = calibrate(parts, y, prior, NETWORK_PRIOR_WIDTH)
        logits = weighted_sum(parts, slopes, bias)
        if seen is not None and len(y) < MIN_SCORED:
            logits, y = torch.cat([logits, seen.logits]), torch.cat([y, graph.y[seen.nodes]])
        decision = Decision.fit(config.decide, logits, y, costs=costs, calibrated=calibrated)
        return Composed(slopes, bias, decision)

    return compose


def _network_logits(network: Model, graph: Graph, config: TrainingConfig) -> tuple[Tensor, Tensor]:
    """Return held-out and final logits; predictions keep the attention means of the whole graph."""
    after = as_predicted(graph, config)
    held_out = final = logits_of(network, graph, batch_size=config.batch_size)
    if config.batch_size is None:
        update_running_means(network, 1.0)
    if after is not graph:
        final = logits_of(network, after, batch_size=config.batch_size)
    network.to(torch.device("cpu"))
    return held_out.cpu(), final.cpu()


def as_predicted(graph: Graph, config: TrainingConfig) -> Graph:
    """Return a graph as the final model sees it: refitted, with the labels of validation nodes."""
    if not (config.refit and config.linear):
        return graph
    return replace(graph, visible=graph.split.labelled)


def _check_finite(graph: Graph, *logits: Tensor) -> None:
    for each in logits:
        for rows in blocks(*each.shape):
            wrong = (~each[rows].isfinite().all(1)).nonzero()
            if len(wrong):
                node = graph.targets.identity(rows.start + int(wrong[0]))
                raise HanmeError(
                    f"{graph.target} {node}: the logits are NaN or infinite: lower lr, or scale "
                    "the features"
                )
