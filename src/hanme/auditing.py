"""Try to show that the scores on a graph are too good: ``hanme audit``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from hanme.common.progress import begin_stage
from hanme.data import load
from hanme.errors import HanmeError
from hanme.graph import Graph, Split
from hanme.graph.features import to_scipy
from hanme.linear.alone import best_alone, column_alone, roc_auc
from hanme.linear.rows import Field, Rows
from hanme.runs.results import result_of
from hanme.runs.suspicion import suspicion, suspicion_lines
from hanme.training import TrainingConfig, TrainingResult, finalize
from hanme.training.final import MAX_IN_MEMORY

if TYPE_CHECKING:  # importing PyG takes seconds
    from torch_geometric.data import HeteroData

    AnyGraph: TypeAlias = Graph | HeteroData | str | Path

__all__ = ["Audit", "Check", "audit"]

Finding = Literal["fine", "ask", "wrong"]

SIGMAS = 3.0
"""Standard errors by which the loss with shuffled labels differs from the base rate's by more than
chance: once in 370 audits."""

MARGIN = 0.02
"""Share of the base rate's loss by which it may differ all the same: weights cost a little."""

REPEATED = 0.01
"""Share of validation and test rows that repeat training rows from which on it is no accident."""

DISTINCT = 0.4
"""Share of different values that a column or relation needs to tell rows apart."""

DIGITS = 3
"""Digits to which the columns of two rows, in standard deviations, are compared."""

EXPLAINED = 0.5
"""Share of the model's ROC-AUC above chance from which on that of a row's position or date
deserves a question."""

BETTER_THAN_CHANCE = 0.6
"""ROC-AUC from which on the number of a row, or its date, and the model are better than chance."""

LATER = 0.9
"""Share of test rows that are later than all but a tenth of the training rows if the split is by
time."""

DRAWS = 200
"""Number of bootstrap draws for the interval of a ROC-AUC."""


@dataclass(frozen=True)
class Check:
    """What one check of an audit has found.

    Args:
        name: What was checked.
        found: What was found, in words and numbers.
        finding: ``"fine"``; ``"wrong"``: it shows that the scores are too good; ``"ask"``: it may
            be, which only somebody who knows the data can tell.
    """

    name: str
    found: str
    finding: Finding = "fine"


@dataclass(frozen=True)
class Audit:
    """The checks of an audit, and what they cost.

    Args:
        checks: What each check has found.
        fits: The number of times that linear model and trees were fitted.
        seconds: How long it took.
    """

    checks: tuple[Check, ...]
    fits: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return all(check.finding != "wrong" for check in self.checks)

    @property
    def verdict(self) -> str:
        """What all checks together say, in a sentence."""
        if not self.passed:
            wrong = [check.name for check in self.checks if check.finding == "wrong"]
            return f"The scores are too good, or do not hold: see {', '.join(wrong)}."
        if asked := [check.name for check in self.checks if check.finding == "ask"]:
            return f"Nothing shows that the scores are too good, but see {', '.join(asked)}."
        return "Nothing shows that the scores are too good."

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return asdict(self) | {"passed": self.passed, "verdict": self.verdict}

    def __str__(self) -> str:
        lines = [f"{check.name}: {check.found} ({check.finding})" for check in self.checks]
        return "\n".join([*lines, self.verdict])


def audit(
    graph: AnyGraph,
    *,
    shuffles: int = 3,
    seed: int = 0,
    training: TrainingConfig | None = None,
) -> Audit:
    """Try to show that the scores on a graph are too good.

    Linear model and trees, without a network, are fitted with shuffled labels, without sources
    that give the label away, and to earlier rows only.

    Args:
        graph: A graph, or the name or path of a data set, see :func:`hanme.data.load`.
        shuffles: The number of times to shuffle the labels.
        seed: Draws the shuffles and, where the tables have none, the split.
        training: How to fit (default: as ``hanme train``, with this seed).
    """
    began = time.monotonic()
    if isinstance(graph, str | Path):
        graph = load(str(graph), seed=seed)
    elif not isinstance(graph, Graph):
        graph = Graph.from_hetero(graph, seed=seed)
    graph.check_trainable()
    if sum(graph.num_links.values()) + sum(graph.sizes.values()) > MAX_IN_MEMORY:
        raise HanmeError(
            f"the graph has more than {MAX_IN_MEMORY:,} nodes and links: audit a sample of its "
            "tables"
        )
    auditor = Auditor(graph.in_memory(), training or TrainingConfig(seed=seed), shuffles)
    checks = tuple(auditor.checks())
    return Audit(checks, auditor.fits, time.monotonic() - began)


class Measured(NamedTuple):
    """The rows of the test part, or of the validation part where there is none.

    Args:
        losses: The log loss of each row, ``[n]``.
        base: The same of the share of each label among training rows.
        p: Probabilities ``[n, C]``.
        true: Labels, bool, ``[n, C]``.
    """

    losses: Tensor
    base: Tensor
    p: Tensor
    true: Tensor

    @property
    def roc_auc(self) -> float:
        """The ROC-AUC."""
        return roc_auc(self.p.double().numpy(), self.true.numpy())

    def interval(self, seed: int) -> tuple[float, float]:
        """Return the 95 % interval of the ROC-AUC by the bootstrap over rows."""
        random, p, true = np.random.default_rng(seed), self.p.double().numpy(), self.true.numpy()
        drawn = (random.integers(len(p), size=len(p)) for _ in range(DRAWS))
        low, high = np.quantile([roc_auc(p[some], true[some]) for some in drawn], [0.025, 0.975])
        return float(low), float(high)


class Auditor:
    """The checks of one graph; ``fits`` counts how often linear model and trees were fitted."""

    def __init__(self, graph: Graph, config: TrainingConfig, shuffles: int) -> None:
        self.graph, self.config, self.shuffles, self.fits = graph, config, shuffles, 0
        self.part: Literal["val", "test"] = "test" if bool(graph.split.test.any()) else "val"

    def checks(self) -> Iterator[Check]:
        """Yield what each check has found."""
        trained = self._fit(self.graph, "linear model and trees")
        own = self._measured(self.graph, trained)
        yield self._shuffled()
        yield self._sources(result_of(self.graph, trained), own)
        yield self._duplicates()
        rows = Rows(self.graph, self.graph.target)
        position = np.arange(self.graph.targets.num_nodes, dtype=np.float32)
        yield self._alone("row position", position, own)
        if rows.time >= 0:
            dates = rows.values(rows.time)
            yield self._alone(f"date ({rows.names[rows.time]})", dates, own)
            yield self._by_time(dates, own)
        else:
            yield Check("split by time", "no column of the target is a date")

    def _fit(self, graph: Graph, stage: str) -> TrainingResult:
        begin_stage(stage)
        self.fits += 1
        return finalize(None, graph, self.config)

    def _measured(self, graph: Graph, trained: TrainingResult) -> Measured:
        split, outputs = graph.split, trained.outputs
        mask = split.test if self.part == "test" else split.val
        nodes = (mask & graph.label_matrix.any(1)).nonzero().flatten()
        logits = outputs.logits if self.part == "test" else outputs.held_out
        p = outputs.decision.probabilities(logits[nodes], multilabel=graph.multilabel)
        true = graph.labels_given(nodes)
        rates = graph.labels_given(split.train).double().mean(0).expand_as(p)
        several = graph.multilabel
        losses, base = (_losses(some, true, several=several) for some in (p, rates))
        return Measured(losses, base, p, true)

    def _shuffled(self) -> Check:
        """Fit to labels that have nothing to do with their rows: nothing can be learnt."""
        random, found = np.random.default_rng(self.config.seed), list[Measured]()
        for number in range(self.shuffles):
            graph = _with_shuffled_labels(self.graph, random)
            trained = self._fit(graph, f"shuffled labels, {number + 1} of {self.shuffles}")
            found.append(self._measured(graph, trained))
        gain = torch.cat([one.base - one.losses for one in found])
        base = float(torch.cat([one.base for one in found]).mean())
        mean, error = float(gain.mean()), float(gain.std() / len(gain) ** 0.5)
        low, high = ((base - mean + side * 1.96 * error) for side in (-1, 1))
        text = f"log loss {base - mean:.3f} ({low:.3f} to {high:.3f}); base rate {base:.3f}"
        off = abs(mean) > max(SIGMAS * error, MARGIN * base)
        if off:
            text += ": better than possible" if mean > 0 else ": it learns from noise"
        return Check("shuffled labels", text, "wrong" if off else "fine")

    def _sources(self, result: dict[str, Any], own: Measured) -> Check:
        """Look for a column or relation that is as good as an almost perfect model."""
        name = "sources that give the label away"
        found = suspicion(self.graph, self.config, result)
        if found:
            self.fits += 1
            return Check(name, " ".join(suspicion_lines(found)), "wrong")
        best = best_alone(self.graph, self.config.seed)
        text = f"none: the model reaches ROC AUC {own.roc_auc:.3f}"
        return Check(name, f"{text}, {best.name} alone {best.roc_auc:.3f}" if best else text)

    def _duplicates(self) -> Check:
        """Count validation and test rows that nearly repeat a training row."""
        name, split = "near-duplicates across the split", self.graph.split
        keys = row_keys(self.graph)
        if keys is None:
            return Check(name, "no column and no relation tells rows apart")
        held_out = (split.val | split.test).numpy()
        there = np.isin(keys[held_out], keys[split.train.numpy()])
        text = f"{int(there.sum()):,} of {len(there):,} validation and test rows"
        text += f" ({there.mean():.1%}) nearly repeat a training row"
        wrong = there.sum() > 1 and there.mean() >= REPEATED
        return Check(name, text, "wrong" if wrong else "fine")

    def _alone(self, name: str, values: NDArray[np.float32], own: Measured) -> Check:
        """Measure how much of the score a number of the rows explains."""
        reached = column_alone(self.graph, values, self.config.seed)
        share = max(0.0, reached - 0.5) / max(own.roc_auc - 0.5, 1e-9)
        text = f"alone reaches ROC AUC {reached:.3f}, the model {own.roc_auc:.3f}"
        asks = min(reached, own.roc_auc) > BETTER_THAN_CHANCE and share >= EXPLAINED
        return Check(name, text, "ask" if asks else "fine")

    def _by_time(self, dates: NDArray[np.float32], own: Measured) -> Check:
        """Compare the score with that of a model that is fitted to earlier rows only."""
        name, split = "split by time", self.graph.split
        train, test = (dates[mask.numpy()] for mask in (split.train, split.parts()[self.part]))
        if np.isnan(train).all():
            return Check(name, "no training row has a date")
        if (test >= np.nanquantile(train, 0.9)).mean() >= LATER:
            return Check(name, "the test rows are later than the training rows already")
        known = (split.labelled | split.test) & self.graph.label_matrix.any(1)
        nodes = np.flatnonzero(known.numpy() & ~np.isnan(dates))
        counts, part = np.cumsum([int(mask.sum()) for mask in split]), np.full(len(dates), -1)
        ends = counts / counts[-1] * len(nodes)  # parts of the same shares
        ordered = nodes[np.argsort(dates[nodes], kind="stable")]
        part[ordered] = np.searchsorted(ends, np.arange(len(nodes)), "right")
        graph = replace(self.graph, split=Split.of(torch.from_numpy(part)), visible=None)
        try:
            later = self._measured(graph, self._fit(graph, "split by time"))
        except HanmeError as error:
            return Check(name, f"not possible: {error}")
        (low, high), (least, most) = own.interval(0), later.interval(0)
        text = (
            f"ROC AUC {later.roc_auc:.3f} ({least:.3f} to {most:.3f}) on the latest rows, "
            f"{own.roc_auc:.3f} ({low:.3f} to {high:.3f}) as split"
        )
        return Check(name, text, "wrong" if most < low else "fine")


def row_keys(graph: Graph) -> NDArray[np.void] | None:
    """Return a key per target node, ``[N]``, the same for rows that nearly repeat each other.

    Rows are alike if their columns are the same to three digits, texts if they have the same
    words. A column must tell rows apart by itself; else rows must have the same links as well, and
    a relation must. None if none does: equal rows are then no accident.
    """
    x, size, random = graph.targets.x, graph.targets.num_nodes, np.random.default_rng(0)
    rows = csr_array((size, 0)) if x is None else csr_array(to_scipy(x).astype(np.float64))
    rows = csr_array((np.round(rows.data, DIGITS), rows.indices, rows.indptr), shape=rows.shape)
    weights = random.random((rows.shape[1], 2))  # for a random projection of each row
    fields = Rows(graph, graph.target).fields or [Field("", "", 0, rows.shape[1], {})]
    labelled = (graph.split.labelled | graph.split.test).numpy()

    def tells_apart(keys: NDArray[np.float64]) -> bool:
        return len(np.unique(_as_keys(keys[labelled]))) >= DISTINCT * int(labelled.sum())

    columns, keys = rows.tocsc(), rows @ weights
    for each in fields:
        some = slice(each.start, each.start + each.width)
        if tells_apart(columns[:, some] @ weights[some]):
            return _as_keys(keys)
    found = False
    for edge_type in (e for e in graph.edge_types if e[0] == graph.target):
        source, end = graph.links[edge_type].numpy()
        own = np.zeros_like(keys)
        np.add.at(own, source, random.random((graph.sizes[edge_type[2]], 2))[end])
        keys, found = keys + own, found or tells_apart(own)
    return _as_keys(keys) if found else None


def _as_keys(projections: NDArray[np.float64]) -> NDArray[np.void]:
    return np.ascontiguousarray(np.round(projections, 6)).view("V16").reshape(-1)


def _with_shuffled_labels(graph: Graph, random: np.random.Generator) -> Graph:
    """Return a graph in which the labelled rows of each part have exchanged their labels."""
    y, labelled = graph.y.clone(), graph.label_matrix.any(1)
    for mask in graph.split:
        nodes = (mask & labelled).nonzero().flatten()
        y[nodes] = graph.y[nodes[torch.from_numpy(random.permutation(len(nodes)))]]
    return replace(graph, y=y)


def _losses(p: Tensor, true: Tensor, *, several: bool) -> Tensor:
    """Return the log loss of each row, of several labels their mean, ``[n]``."""
    p = p.double().clamp(1e-6, 1 - 1e-6)
    if several:
        return -torch.where(true, p.log(), (-p).log1p()).mean(1)
    return -(p / p.sum(1, keepdim=True))[true].log()
