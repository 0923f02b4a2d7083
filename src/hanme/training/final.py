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
from hanme.decision.losses import total_loss
from hanme.errors import HanmeError
from hanme.graph import Graph
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

MAX_IN_MEMORY = 20_000_000
"""Maximum number of nodes and links of a stored graph that is read into memory for trees and
aggregates: about 1 GB with its features."""


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
    """The base learners, stacked and smoothed, and their logits."""

    fit: BaseFit
    outputs: FinalOutputs


@torch.no_grad()
def fit_base(graph: Graph, config: TrainingConfig) -> BaseOutputs:
    """Fit the base learners, and their decision; a stored graph is read into memory if it fits."""
    if sum(graph.num_links.values()) + sum(graph.sizes.values()) <= MAX_IN_MEMORY:
        graph = graph.in_memory()
    fit = fit_base_learners(graph, config)
    logits = fit.held_out.predict(graph), fit.final.predict(as_predicted(graph, config))
    return BaseOutputs(fit, _outputs(*logits, graph, config, calibrated=True))


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
    """
    if base is None and (config.linear or network is None):
        base = fit_base(graph, config)
    begin_stage("stacking")
    alone, notes = (base.outputs, base.fit.notes) if base else (None, ())
    if network is None:
        assert base is not None
        model = Stacked({"linear": base.fit.final})
        return TrainingResult(model, base.outputs, alone, notes=notes)
    held_out, final = _network_logits(network, graph, config)
    part = Network(network, config.batch_size)
    if base is None or alone is None or not stack:
        outputs = _outputs(held_out, final, graph, config)
        return TrainingResult(Stacked({"network": part}), outputs, alone, notes=notes)
    nodes = ValidationHalves.of(graph, config.seed).stacking
    parts, prior = [alone.held_out[nodes], held_out[nodes]], [1 - NETWORK_PRIOR, NETWORK_PRIOR]
    (a, b), bias = calibrate(parts, graph.y[nodes], prior, NETWORK_PRIOR_WIDTH)
    slopes = {"linear": a, "network": b}
    held_out, final = bias + a * alone.held_out + b * held_out, bias + a * alone.logits + b * final
    model = Stacked({"linear": base.fit.final, "network": part}, slopes, bias)
    outputs = _outputs(held_out, final, graph, config, calibrated=True)
    return TrainingResult(model, outputs, alone, slopes, notes)


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
    decision = Decision.fit(
        config.decide,
        held_out[val],
        graph.y[val],
        held_out[~graph.split.train],
        costs=Costs.parse(config.cost, graph.labels) if config.cost else None,
        calibrated=calibrated,
    )
    return FinalOutputs(held_out, logits, decision)
