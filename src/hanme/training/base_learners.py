"""Fit the base learners beside the network: linear model and trees, stacked, then smoothed.

Slopes are fitted to out-of-fold logits or, with many labelled nodes, to validation nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hanme.common.progress import begin_stage, update_stage
from hanme.decision import calibrate
from hanme.decision.calibration import STACKING_WIDTH
from hanme.graph import Graph
from hanme.graph.splits import Split, without_fold
from hanme.linear import Learner, LinearModel, select_blocks
from hanme.linear.aggregates import Column
from hanme.linear.fit import MAX_GRAM_NODES
from hanme.linear.matrices import GraphMatrices
from hanme.linear.naive_bayes import fit_naive_bayes
from hanme.linear.smoothing import fit_smoothing, smoothing_paths
from hanme.linear.trees import TreesFit, screen_columns
from hanme.training.config import TrainingConfig
from hanme.training.stacked import Stacked

FOLDS = 5
"""Number of folds for out-of-fold logits."""


class ValidationHalves(NamedTuple):
    """Validation nodes, divided: a node that selects something fits no slope.

    Args:
        selection: Mask ``[N]`` of the nodes that select the epoch and, with many labelled nodes,
            the number of trees.
        stacking: Mask ``[N]`` of the nodes that the slopes of the stack are fitted to.
    """

    selection: Tensor
    stacking: Tensor

    @classmethod
    def of(cls, graph: Graph, seed: int) -> ValidationHalves:
        """Divide the validation nodes of a graph, those of each label evenly."""
        val, none = graph.split.val, torch.zeros_like(graph.split.val)
        if int(val.sum()) < 2:
            return cls(val, none)
        halves = without_fold(Split(none, val, none), graph.y, 1, 2, seed=seed)
        return cls(halves.val, halves.train)


class BaseFit(NamedTuple):
    """The base learners, stacked and smoothed.

    Args:
        held_out: Fitted to training nodes.
        final: Fitted to all labelled nodes.
        notes: What the user should know, a line each.
    """

    held_out: Learner
    final: Learner
    notes: Sequence[str] = ()


class FitSets(NamedTuple):
    """Sets of nodes to fit to, and nodes to fit slopes to that each leaves out.

    Args:
        graphs: The graph, with a split for each set.
        held_out: A mask ``[N]`` for each set.
        selection: Masks ``[N]`` of the nodes that select the number of trees, for each set.
    """

    graphs: list[Graph]
    held_out: list[Tensor]
    selection: list[Tensor]

    @classmethod
    def of(cls, graph: Graph, seed: int) -> FitSets:
        """Return folds of the labelled nodes, or the training nodes if many are labelled.

        Folds leave out training nodes: what validation nodes decide, they have not seen. A fold
        of validation nodes only would leave out none.
        """
        if not FOLDS <= int(graph.split.labelled.sum()) <= MAX_GRAM_NODES:
            selection, stacking = ValidationHalves.of(graph, seed)
            return cls([graph], [stacking], [selection])
        splits = [
            without_fold(graph.split, graph.y, number, FOLDS, seed=seed)
            for number in range(1, FOLDS + 1)
        ]
        splits = [split for split in splits if (split.val & graph.split.train).any()]
        held_out = [split.val & graph.split.train for split in splits]
        return cls([replace(graph, split=split) for split in splits], held_out, held_out)

    @property
    def are_folds(self) -> bool:
        """Whether these are folds."""
        return len(self.graphs) > 1

    @property
    def masks(self) -> list[Tensor]:
        """The sets of nodes to fit to, as masks ``[N]``."""
        return [graph.split.train for graph in self.graphs]

    @property
    def y(self) -> Tensor:
        """The labels of the held-out nodes, set by set."""
        return torch.cat([g.y[mask] for g, mask in zip(self.graphs, self.held_out, strict=True)])


@dataclass(frozen=True)
class Component:
    """A part of the stack.

    Args:
        models: The model fitted to each set and, last, to the training nodes and to all labelled
            nodes.
        logits: Logits of the nodes that each set leaves out, set by set, ``[n, C]``.
        prior: Prior mean of its slope, relative to that of other components.
        size: The slope is fitted to logits divided by this.
    """

    models: Sequence[Learner]
    logits: Tensor
    prior: float = 1.0
    size: float = 1.0


def fit_base_learners(graph: Graph, config: TrainingConfig) -> BaseFit:
    """Fit, stack and smooth the linear model and trees.

    Trees and aggregates need the graph in memory; smoothing also predicts all of it at once.
    """
    whole = config.batch_size is None and not graph.stored
    sets, matrices = FitSets.of(graph, config.seed), GraphMatrices(graph)
    begin_stage("aggregates")
    columns, notes = list[Column](), list[str]()
    if graph.stored:
        notes.append("Trees and aggregates are left out: the stored graph is too large for them.")
    else:
        screened = screen_columns(graph, config.seed)
        columns, notes = screened.columns, [screened.note] if screened.note else []
    begin_stage("linear model")
    linear = _fit_linear(graph, sets, matrices, columns, config)
    notes += [matrices.note] if matrices.note else []
    begin_stage("trees")
    trees = _fit_trees(graph, sets, columns, config) if columns and config.trees else []
    stacks = _stack(linear, trees, sets.y)
    begin_stage("smoothing")
    paths = smoothing_paths(graph, matrices) if whole and config.smoothing else []
    *by_set, held_out, final = stacks
    if not paths:
        return BaseFit(held_out, final, notes)

    def logits() -> Iterator[Tensor]:
        for number, stack in enumerate(by_set):
            update_stage(number / len(stacks))
            yield stack.predict(graph)

    unseen = zip(sets.graphs, logits(), sets.held_out, strict=True)
    smoothed = fit_smoothing(held_out, graph, matrices, paths, unseen)
    return BaseFit(smoothed, smoothed.over(final), notes)


def _stack(linear: Sequence[Component], trees: Sequence[Component], y: Tensor) -> list[Stacked]:
    """Stack components with slopes that minimise the loss of the held-out nodes.

    The weights of linear components are added up: their sum is one linear model.
    """
    components = [*linear, *trees]
    total = sum(each.prior for each in components)
    fitted, bias = calibrate(
        [each.logits / each.size for each in components],
        y,
        [each.prior / total for each in components],
        STACKING_WIDTH,
    )
    slopes = [slope / each.size for slope, each in zip(fitted, components, strict=True)]
    kept = [i for i in range(len(linear)) if slopes[i] > 0] or [0]
    stacks = []
    for k in range(len(linear[0].models)):
        models = [cast("LinearModel", linear[i].models[k]) for i in kept]
        parts: dict[str, Learner] = {
            "linear": LinearModel.weighted_sum(models, [slopes[i] for i in kept])
        }
        if trees and slopes[-1] > 0:
            parts["trees"] = trees[0].models[k]
        by_name = {"linear": 1.0, "trees": slopes[-1]}
        stacks.append(Stacked(parts, {name: by_name[name] for name in parts}, bias))
    return stacks


def _fit_linear(
    graph: Graph,
    sets: FitSets,
    matrices: GraphMatrices,
    columns: Sequence[Column],
    config: TrainingConfig,
) -> list[Component]:
    """Fit the linear model and, to few nodes, naive Bayes on each block."""
    spec = select_blocks(graph, config.seed, matrices, columns, config.blocks)
    last = graph.split.labelled if config.refit else graph.split.train
    masks = [*sets.masks, graph.split.train, last]
    models = LinearModel.fit_each(graph, spec, masks, matrices)
    components = [Component(models, _held_out_logits(models, graph, sets))]
    for models in fit_naive_bayes(graph, masks, matrices) if sets.are_folds else ():
        logits = _held_out_logits(models, graph, sets)
        size = float((logits - logits.mean(0)).square().mean().sqrt())
        if size > 0:
            components.append(Component(models, logits, 0.0, size))
    return components


def _held_out_logits(models: Sequence[LinearModel], graph: Graph, sets: FitSets) -> Tensor:
    """Return the logits of the nodes that each set leaves out, set by set."""
    pairs = zip(models, sets.held_out, strict=False)  # the last models are of no set
    return torch.cat([model.predict(graph, _nodes(mask)) for model, mask in pairs])


def _fit_trees(
    graph: Graph, sets: FitSets, columns: Sequence[Column], config: TrainingConfig
) -> list[Component]:
    fit = TreesFit(graph, columns, sets.masks, sets.selection, config.seed)
    if not fit.rounds():
        return []
    by_set = [fit.trees(i) for i in range(len(sets.graphs))]
    first = fit.refit(graph.split.train) if sets.are_folds else by_set[0]
    final = fit.refit(graph.split.labelled) if config.refit else first
    logits = [fit.logits(i, _nodes(mask)) for i, mask in enumerate(sets.held_out)]
    return [Component([*by_set, first, final], torch.cat(logits))]


def _nodes(mask: Tensor) -> Tensor:
    return mask.nonzero().flatten()
