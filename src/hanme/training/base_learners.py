"""Fit the base learners beside the network: linear model and trees, stacked, then smoothed.

They read the labels of training nodes only. Columns, blocks, strength and number of trees are
chosen within each fold, so that out-of-fold logits tell how well the whole recipe predicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor

from hanme.common.progress import begin_stage, update_stage
from hanme.decision.calibration import STACKING_WIDTH, cross_calibrate, shrinkage
from hanme.decision.losses import base_rate_logits
from hanme.graph import Graph
from hanme.graph.splits import Split, without_fold
from hanme.linear import Learner, LinearModel, select_blocks
from hanme.linear.aggregates import Column
from hanme.linear.fit import MAX_GRAM_NODES
from hanme.linear.matrices import GraphMatrices
from hanme.linear.naive_bayes import fit_naive_bayes
from hanme.linear.smoothing import Smoothing, fit_smoothing, smoothing_paths
from hanme.linear.trees import Trees, TreesFit, screen_columns
from hanme.training.config import TrainingConfig
from hanme.training.stacked import Stacked
from hanme.training.validation import MIN_SCORED

FOLDS = 5
"""Number of folds for out-of-fold logits; of more than ``MAX_GRAM_NODES`` training nodes, one of
them is enough to fit slopes to, as long as validation nodes can be scored."""


class OutOfFold(NamedTuple):
    """Training nodes with logits of base learners that were not fitted to them.

    Args:
        nodes: Their numbers, ``[n]``.
        group: The group of each, ``[n]``: slopes of its logits were fitted to the other groups.
        logits: ``[n, C]``.
    """

    nodes: Tensor
    group: Tensor
    logits: Tensor


class BaseFit(NamedTuple):
    """The base learners, stacked and smoothed.

    Args:
        held_out: Fitted to training nodes.
        final: Fitted to all labelled nodes.
        out_of_fold: Logits of training nodes by the same recipe.
        notes: What the user should know, a line each.
    """

    held_out: Learner
    final: Learner
    out_of_fold: OutOfFold
    notes: Sequence[str] = ()


class FitSets(NamedTuple):
    """Sets of training nodes to fit to, and the training nodes that each leaves out.

    Args:
        graphs: The graph, with a split for each set; the nodes that it leaves out are ``val``.
        group: The group of each node left out, set by set: its fold or, if there is one set only,
            one of two halves.
    """

    graphs: list[Graph]
    group: Tensor

    @classmethod
    def of(cls, graph: Graph, seed: int) -> FitSets:
        """Return folds of the training nodes; of many, only the first; of fewer than that, none."""
        none, train = torch.zeros_like(graph.split.train), graph.split.train
        only = Split(train, none, none)
        if int(train.sum()) < FOLDS:
            return cls([replace(graph, split=only)], torch.zeros(0, dtype=torch.long))
        scored = int(graph.split.val.sum()) >= 2 * MIN_SCORED  # else these nodes are
        many = int(train.sum()) > MAX_GRAM_NODES and scored
        fold, y, groups = range(1, 2 if many else FOLDS + 1), graph.y, graph.groups
        splits = [without_fold(only, y, k, FOLDS, seed=seed, groups=groups) for k in fold]
        splits = [split for split in splits if split.val.any() and int(split.train.sum()) > 1]
        if not splits:
            return cls([replace(graph, split=only)], torch.zeros(0, dtype=torch.long))
        if len(splits) == 1:
            held = Split(splits[0].val, none, none)
            enough = int(held.train.sum()) > 1
            half = without_fold(held, y, 1, 2, seed=seed, groups=groups).val if enough else none
            group = half[held.train].long()
        else:
            group = torch.cat([torch.full((int(s.val.sum()),), i) for i, s in enumerate(splits)])
        return cls([replace(graph, split=split) for split in splits], group)

    @property
    def are_folds(self) -> bool:
        """Whether these are folds."""
        return len(self.graphs) > 1

    @property
    def masks(self) -> list[Tensor]:
        """The sets of nodes to fit to, as masks ``[N]``."""
        return [graph.split.train for graph in self.graphs]

    @property
    def held_out(self) -> list[Tensor]:
        """The numbers of the nodes that each set leaves out."""
        return [graph.split.val.nonzero().flatten() for graph in self.graphs]

    @property
    def nodes(self) -> Tensor:
        """The numbers of these nodes, set by set, ``[n]``."""
        return torch.cat(self.held_out)


class Fit(NamedTuple):
    """What is fitted, by set and then to the training nodes and to all labelled nodes.

    Args:
        sets: The sets.
        choices: The training nodes that columns and blocks are chosen on: those of each set and,
            if there are folds, all of them.
        last: The sets of nodes of the last two fits, both with the last choice.
    """

    sets: FitSets
    choices: list[Tensor]
    last: list[Tensor]

    @classmethod
    def of(cls, graph: Graph, config: TrainingConfig) -> Fit:
        """Return the fits for a graph."""
        sets, train = FitSets.of(graph, config.seed), graph.split.train
        choices = [*sets.masks, train] if sets.are_folds else sets.masks
        return cls(sets, choices, [train, graph.split.labelled if config.refit else train])


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


class Stacks(NamedTuple):
    """The stack of each set and, last, of the training nodes and of all labelled nodes.

    The slopes of a fold's stack are fitted to the other folds.
    """

    models: list[Stacked]
    logits: Tensor  # of the nodes that each set leaves out, with slopes of the other groups


def fit_base_learners(graph: Graph, config: TrainingConfig) -> BaseFit:
    """Fit, stack and smooth the linear model and trees.

    Trees and aggregates need the graph in memory; smoothing also predicts all of it at once.
    """
    whole = config.batch_size is None and not graph.stored
    fit, matrices = Fit.of(graph, config), GraphMatrices(graph)
    sets = fit.sets
    begin_stage("aggregates")
    columns, notes = list[list[Column]](), list[str]()
    if graph.stored:
        notes.append("Trees and aggregates are left out: the stored graph is too large for them.")
    else:
        screened = screen_columns(graph, fit.choices, config.seed)
        columns, last = [each.columns for each in screened], screened[-1]
        notes = [last.note] if last.note else []
    begin_stage("linear model")
    linear = _fit_linear(graph, fit, matrices, columns, config)
    notes += [matrices.note] if matrices.note else []
    begin_stage("trees")
    trees = _fit_trees(graph, fit, columns, config) if columns and config.trees else []
    stacks = _stack(linear, trees, graph.y[sets.nodes], sets)
    begin_stage("smoothing")
    paths = smoothing_paths(graph, matrices) if whole and config.smoothing else []
    *by_set, held_out, final = stacks.models
    rates = base_rate_logits(graph.y[graph.split.train], len(graph.labels)).float()

    def shrunk(logits: Tensor, *learners: Stacked | Smoothing) -> BaseFit:
        y, group = graph.y[sets.nodes], sets.group
        own = logits.clone()
        for number in set(group.tolist()):
            mine, rest = group == number, group != number
            factor = shrinkage(logits[rest], y[rest], rates)
            own[mine] = factor * logits[mine] + (1 - factor) * rates
        seen = OutOfFold(sets.nodes, group, own)
        factor = shrinkage(logits, y, rates)
        shift = (1 - factor) * rates
        held_out, final = (learner.scaled(factor, shift) for learner in learners)
        return BaseFit(held_out, final, seen, notes)

    if not paths:
        return shrunk(stacks.logits, held_out, final)

    def logits() -> Iterator[Tensor]:
        for number, stack in enumerate(by_set):
            update_stage(number / len(stacks.models))
            yield stack.predict(graph)

    unseen = zip(sets.graphs, logits(), sets.held_out, strict=True)
    smoothed = fit_smoothing(held_out, graph, matrices, paths, unseen, sets.group)
    return shrunk(smoothed.logits, smoothed.learner, smoothed.learner.over(final))


def _stack(
    linear: Sequence[Component], trees: Sequence[Component], y: Tensor, sets: FitSets
) -> Stacks:
    """Stack components with slopes that minimise the loss of the nodes that sets leave out.

    The weights of linear components are added up: their sum is one linear model.
    """
    components = [*linear, *trees]
    total = sum(each.prior for each in components)
    prior = [each.prior / total for each in components]
    parts = [each.logits / each.size for each in components]
    fit = cross_calibrate(parts, y, sets.group, prior, STACKING_WIDTH)
    found = fit.others if sets.are_folds else [(fit.slopes, fit.bias)]
    stacks = []
    for k, (fitted, bias) in enumerate([*found, *[(fit.slopes, fit.bias)] * 2]):
        slopes = [slope / each.size for slope, each in zip(fitted, components, strict=True)]
        kept = [i for i in range(len(linear)) if slopes[i] > 0] or [0]
        models = [cast("LinearModel", linear[i].models[k]) for i in kept]
        learners: dict[str, Learner] = {
            "linear": LinearModel.weighted_sum(models, [slopes[i] for i in kept])
        }
        if trees and slopes[-1] > 0:
            learners["trees"] = trees[0].models[k]
        by_name = {"linear": 1.0, "trees": slopes[-1]}
        stacks.append(Stacked(learners, {name: by_name[name] for name in learners}, bias))
    return Stacks(stacks, fit.logits)


def _fit_linear(
    graph: Graph,
    fit: Fit,
    matrices: GraphMatrices,
    columns: Sequence[Sequence[Column]],
    config: TrainingConfig,
) -> list[Component]:
    """Fit the linear model and, to few nodes, naive Bayes on each block."""
    specs = select_blocks(graph, fit.choices, config.seed, matrices, columns, config.blocks)
    models = list[LinearModel]()
    for spec, mask in zip(specs[:-1], fit.choices[:-1], strict=True):
        models += LinearModel.fit_each(graph, spec, [mask], matrices)
    own = fit.last if fit.sets.are_folds else [*fit.sets.masks, *fit.last]
    models += LinearModel.fit_each(graph, specs[-1], own, matrices)
    components = [Component(models, _held_out_logits(models, graph, fit.sets))]
    masks = [*fit.sets.masks, *fit.last]
    for models in fit_naive_bayes(graph, masks, matrices) if fit.sets.are_folds else ():
        logits = _held_out_logits(models, graph, fit.sets)
        size = float((logits - logits.mean(0)).square().mean().sqrt())
        if size > 0:
            components.append(Component(models, logits, 0.0, size))
    return components


def _held_out_logits(models: Sequence[Learner], graph: Graph, sets: FitSets) -> Tensor:
    """Return the logits of the nodes that each set leaves out, set by set."""
    pairs = zip(models, sets.held_out, strict=False)  # the last models are of no set
    return torch.cat([model.predict(graph, nodes) for model, nodes in pairs])


def _fit_trees(
    graph: Graph, fit: Fit, columns: Sequence[Sequence[Column]], config: TrainingConfig
) -> list[Component]:
    sets = fit.sets
    held_out = [one.split.val for one in sets.graphs]
    some = columns[: len(sets.graphs)]
    trees = TreesFit(graph, some, sets.masks, held_out, config.seed)
    if not trees.rounds():
        return []
    models: list[Trees] = [trees.trees(i) for i in range(len(sets.graphs))]
    logits = _held_out_logits(models, graph, sets)
    for i, mask in enumerate(fit.last):
        same = i > 0 and torch.equal(mask, fit.last[0])
        models.append(models[-1] if same else trees.refit(mask, columns[-1]))
    return [Component(models, logits)]
