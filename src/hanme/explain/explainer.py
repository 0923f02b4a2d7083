"""From a prediction back to the metapath instances that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.explain.attribution import attribute
from hanme.explain.change import WhatIf
from hanme.explain.evidence import Evidence, Known
from hanme.explain.explanation import Details, Explanation, Instance, Reason, percent
from hanme.explain.removal import OpenModel, Path, Pause, Root, open_at
from hanme.explain.sources import Source, merge
from hanme.graph import Graph
from hanme.linear.learner import Values
from hanme.nn import Model
from hanme.training.stacked import Stacked

TRIED = 12
"""Number of links and columns, the largest contributions, that are really removed."""

LEADING = 0.5
"""Minimum effect of a reason that the sentence may lead with, as a share of the largest one."""

DESCRIBED = 100
"""Number of reasons that are described with evidence."""


def explain(
    model: Model | Stacked,
    graph: Graph,
    node: int | str,
    *,
    decision: Decision | None = None,
    **options: Any,
) -> Explanation:
    """Explain one node, see :class:`Explainer` and :meth:`Explainer.explain`."""
    return Explainer(model, graph, decision).explain(node, **options)


class Explainer:
    """Explains nodes one by one; what they share is computed once.

    Of a stored graph, or with a model that samples instances, a node is explained on the subgraph
    that it reaches.

    Args:
        model: A stacked model, or a network alone: a trained :class:`HANME` or :class:`HAN`, or any
            other model of channels, a fusion that is a weighted sum, and a linear head.
        graph: The graph.
        decision: From logits to labels (default: the paper's rule).
        weights: The fusion's weights of all channels, to hold for each node: all of the graph is
            then not needed, and a node is explained on the subgraph that it reaches, too.
    """

    def __init__(
        self,
        model: Model | Stacked,
        graph: Graph,
        decision: Decision | None = None,
        weights: Sequence[float] | None = None,
    ) -> None:
        self.model, self.graph = Stacked.of(model), graph
        self.decision = decision or Decision()
        self.weights = weights or ()
        self._by_node = weights is not None or self.model.needs_subgraph(graph)
        if not self._by_node:
            _ = self.open  # refuses a model that cannot be explained

    @cached_property
    def open(self) -> OpenModel:
        """The model opened on all of the graph."""
        if self._by_node and self.model.samples():
            raise HanmeError(
                "the model draws instances per root (--per-root), node by node: use hanme explain"
            )
        return OpenModel(self.model, self.graph)

    @cached_property
    def known(self) -> Known:
        """The known labels and the columns of the graph."""
        return Known(self.graph)

    @cached_property
    def _frozen(self) -> Stacked:
        return self.model.frozen(self.graph)

    @torch.no_grad()
    def explain(
        self,
        node: int | str,
        *,
        instances: int = 5,
        label: str | None = None,
        pause: Pause = lambda: None,
    ) -> Explanation:
        """Explain a node.

        Args:
            node: The node of the target type, by number, id or name.
            instances: Maximum number of instances in the details.
            label: The label by whose logit they are ranked (default: the most likely of those
                predicted or, if there are none, of all).
            pause: Called before each block of instances; what it raises ends the work.
        """
        if instances < 1:
            raise HanmeError(f"Expected `instances` to be at least 1, but got {instances}")
        number = self.graph.targets.find(node)
        root = self.root(number, pause)
        opened = root.model
        labels, texts = self.graph.labels, list(opened.paths)
        if label is not None and label not in labels:
            raise HanmeError(f"unknown label {label!r}; there are {', '.join(labels)}")
        index = self._predicted(root) if label is None else labels.index(label)
        places = top_instances(root, index, instances)
        first = tuple(_instance(root.paths[i], texts[i], opened.graph, n) for i, n in places)
        return self._explanation(root, index, self._details(opened, root, first), pause)

    def _details(self, opened: OpenModel, root: Root, instances: tuple[Instance, ...]) -> Details:
        paths = dict(zip(opened.paths, root.paths, strict=True))
        return Details(
            metapaths={text: path.beta for text, path in paths.items()},
            counts={text: len(path) for text, path in paths.items()},
            parts={text: self._by_label(path.logits) for text, path in paths.items()},
            others={name: self._by_label(values) for name, values in root.others.items()},
            instances=instances,
        )

    def _explanation(self, root: Root, index: int, details: Details, pause: Pause) -> Explanation:
        graph, known = root.model.graph, self.known
        targets, number = graph.targets, graph.targets.original(root.node)
        label, shares = graph.labels[index], self._probabilities(root.logits)
        base, sources = self.sources(root, index)
        without = self.without(root, sources[:TRIED], index, pause)
        effects = [abs(float(shares[index]) - p) for p, _ in without]
        order = sorted(range(len(without)), key=lambda i: -effects[i])
        sources = [sources[i] for i in order] + sources[len(without) :]
        reasons, leads = [], []
        for i, source in enumerate(sources):
            p, estimated = without[order[i]] if i < len(order) else (None, False)
            reason, about = self._reason(source, number, index, described=i < DESCRIBED)
            reasons.append(replace(reason, without=p, estimated=estimated))
            if p is not None and p < shares[index]:
                leads.append((float(shares[index]) - p, about))
        main = [about for effect, about in leads if effect >= LEADING * leads[0][0]]
        least = self.decision.threshold(
            index, labels=len(graph.labels), multilabel=graph.multilabel
        )
        why = ""
        if least is not None and least <= shares[index] < 0.5:
            why = f" ({label} is predicted from {percent(least)} on)"
        predicted = self.decision.labels(root.logits[None], multilabel=graph.multilabel)[0]
        return Explanation(
            node=targets.title(root.node),
            id=targets.identity(root.node),
            number=number,
            predicted=self._names(predicted),
            true=self._names(graph.label_matrix[root.node]),
            probabilities=self._by_label(shares),
            logits=self._by_label(root.logits),
            label=label,
            sentence=known.sentence(number, index, float(shares[index]), main, why),
            reasons=tuple(reasons),
            base=self._by_label(torch.from_numpy(base)),
            base_rate=self._by_label(known.base_rate),
            steps=self._steps(base, sources, index),
            details=details,
        )

    def _predicted(self, root: Root) -> int:
        """Return the label to explain: the most likely of those predicted or, else, of all."""
        logits = root.model.logits[root.row]
        chosen = self.decision.labels(logits[None], multilabel=self.graph.multilabel)[0].bool()
        scores = self.decision.calibrated(logits)
        return int((scores.masked_fill(~chosen, -torch.inf) if chosen.any() else scores).argmax())

    def sources(self, root: Root, label: int) -> tuple[Values, list[Source]]:
        """Return what is added for every node, ``[C]``, and what links and columns add.

        Those that add most to a label's logit, or subtract most from it, come first.
        """
        graph, columns = root.model.graph, self.known.columns
        found = attribute(root, [range(f.start, f.start + f.width) for f in columns.own])
        sources = merge(found, graph, columns, graph.targets.original(root.node))
        return found.bias, sorted(sources, key=lambda one: -abs(one.values[label]))

    def root(self, number: int, pause: Pause = lambda: None) -> Root:
        """Return a node with its instances; ``pause`` is called before each block of them."""
        if not self._by_node:
            return self.open.root(number, pause)
        return open_at(self._frozen, self.graph, number, self.weights).root(number, pause)

    def _reason(
        self, source: Source, node: int, label: int, *, described: bool
    ) -> tuple[Reason, Evidence]:
        """Describe a source; only the first ones are described in full."""
        graph = self.graph
        neighbour, column = None, source.channel or None
        if source.own and not source.kind:
            column = source.own.name
        if source.kind and len(source.numbers) == 1:
            (number,), nodes = source.numbers, graph.nodes[source.kind]
            neighbour = source.kind, number, nodes.identity(number)
        elif source.aggregates:
            column = source.aggregates[0].phrase
        if described or not neighbour:
            about = self.known.of(source, node, label)
        else:
            about = Evidence(graph.nodes[source.kind].title(neighbour[1]))
        reason = Reason(
            kind="link" if source.kind else "column",
            text=about.text,
            evidence=about.evidence,
            contributions=self._by_label(torch.from_numpy(source.values)),
            node=neighbour,
            column=column,
            counts=about.counts,
            sharing=about.sharing,
        )
        return reason, about

    def without(
        self, root: Root, sources: Sequence[Source], label: int, pause: Pause = lambda: None
    ) -> list[tuple[float, bool]]:
        """Return the probability of a label without each source, and whether it is estimated."""
        found, what_if = [], WhatIf(root.model, self.graph, self.known.reverse)
        node = root.model.graph.targets.original(root.node)
        for source in sources:
            pause()
            try:
                logits, estimated = what_if.without(node, source), False
            except HanmeError:
                logits, estimated = root.logits - torch.from_numpy(source.values), True
            found.append((float(self._probabilities(logits)[label]), estimated))
        return found

    def _steps(self, base: Values, sources: Sequence[Source], label: int) -> tuple[float, ...]:
        """Return the probability of a label after the base, and after each source is added."""
        logits = np.cumsum([base, *(source.values for source in sources)], axis=0)
        multilabel = self.graph.multilabel
        shares = self.decision.probabilities(torch.from_numpy(logits), multilabel=multilabel)
        return tuple(shares[:, label].tolist())

    def _probabilities(self, logits: Tensor) -> Tensor:
        return self.decision.probabilities(logits[None], multilabel=self.graph.multilabel)[0]

    def _by_label(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.graph.labels, values.tolist(), strict=True))

    def _names(self, chosen: Tensor) -> tuple[str, ...]:
        return tuple(self.graph.labels[i] for i in chosen.nonzero().flatten().tolist())


def _instance(path: Path, text: str, graph: Graph, number: int) -> Instance:
    """Return a root's instance of a metapath by its number."""
    chain = path.problem.chain
    some = path.at(torch.tensor([number], device=chain.device))
    types, places = chain.metapath.node_types, chain.nodes_of(some.instances)[0].tolist()
    nodes = [(graph.nodes[kind], place) for kind, place in zip(types, places, strict=True)]
    return Instance(
        metapath=text,
        types=types,
        nodes=tuple(each.title(i) for each, i in nodes),
        ids=tuple(each.identity(i) for each, i in nodes),
        numbers=tuple(each.original(i) for each, i in nodes),
        attention=float(path.attention(some)[0]),
        hops=tuple(path.shares(some)[0].tolist()),
        parts=dict(zip(graph.labels, path.parts(some)[0].tolist(), strict=True)),
        moves=dict(zip(graph.labels, path.moves(some)[0].tolist(), strict=True)),
    )


def top_instances(root: Root, label: int, top: int) -> list[tuple[int, int]]:
    """Return the ``top`` instances with the largest parts of a label's logit.

    Each is returned as the number of its metapath and its own number.
    """
    best = torch.empty(0, dtype=torch.double)
    place = torch.empty(0, 2, dtype=torch.long)
    for i, path in enumerate(root.paths):
        for some in path.blocks():
            number = some.instances.number.cpu()
            best = torch.cat([best, path.parts(some)[:, label].cpu()])
            place = torch.cat([place, torch.stack([torch.full_like(number, i), number], 1)])
            first = best.argsort(descending=True, stable=True)[:top]
            best, place = best[first], place[first]
    return [(path, number) for path, number in place.tolist()]
