"""A run that is served: all that requests need, loaded and computed once."""

from __future__ import annotations

import json
import shlex
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from hanme.common.text import unused_name
from hanme.data.tables.build.features import Fitted
from hanme.errors import HanmeError
from hanme.explain import Explainer
from hanme.explain.change import WhatIf
from hanme.graph import EdgeType
from hanme.runs import OpenedRun, Run
from hanme.runs.opened import load_like
from hanme.runs.reviewed import find_node
from hanme.serve import review, schemas
from hanme.serve.rows import MOST_VALUES, TableRows
from hanme.serve.search import GraphIndex
from hanme.serve.table import Table

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON object."""

MOST_RECENT = 256
"""Number of explanations and tried changes to keep per run: some 20 kB each."""


class NotFound(HanmeError):
    """Raised for a run, node, label or type that does not exist."""


class NotSupported(HanmeError):
    """Raised for what this model, or these runs, cannot do."""


def require(what: str, name: str, known: Iterable[str]) -> None:
    """Refuse a name that does not exist."""
    if name not in known:
        raise NotFound(f"no {what} {name!r}; there are {', '.join(known)}")


class Recent:
    """The results of the last jobs, each computed once; those used longest ago are dropped."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result for a key; if it is not kept, ``make`` computes it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]  # type: ignore[no-any-return]
        made = make()  # without the lock: others need not wait
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


class ServedRun:
    """An opened run under the name by which the API calls it."""

    def __init__(self, name: str, run: OpenedRun, index: GraphIndex) -> None:
        self.name, self.run, self.index, self.graph = name, run, index, run.graph
        if not bool(torch.isfinite(run.logits()).all()):
            raise HanmeError(f"{run.folder}: the logits of its model are NaN or infinite")
        self.table = Table(run.predict(), index.degree, index.facets)
        self.reviews: review.Reviews | None = None
        if run.folder is not None:
            self.reviews = review.Reviews(run.folder / review.FILE, run.config.data.reviewed)
        self.recent = Recent(MOST_RECENT)
        self.explainer: Explainer | None = None
        self.why_not = ""
        try:
            self.what_if = WhatIf(run.explainer.open, run.graph, index.reverse)
            self.explainer = run.explainer
        except HanmeError as error:
            self.why_not = str(error)

    @property
    def fitted(self) -> Mapping[str, Fitted]:
        """How the model reads the columns of the target."""
        return self.run.schema.features[self.graph.target] if self.run.schema else {}

    def info(self) -> Json:
        """Describe model, graph and labels.

        A node gets a label from its ``threshold`` on; without one, where it is the most likely.
        """
        run, graph = self.run, self.graph
        find, size = run.decision.threshold, len(graph.labels)
        thresholds = [find(i, labels=size, multilabel=graph.multilabel) for i in range(size)]
        return {
            "name": self.name,
            "model": run.config.model.name,
            "graph": run.config.data.name,
            "target": graph.target,
            "nouns": {k: [names.singular, names.plural] for k, names in self.index.names.items()},
            "nodes": graph.targets.num_nodes,
            "multilabel": graph.multilabel,
            "differs_from_training": run.differs_from_training,
            "explains": self.explainer is not None,
            "why_not": self.why_not,
            "labels": [
                {"name": name, "threshold": threshold}
                for name, threshold in zip(graph.labels, thresholds, strict=True)
            ],
        }

    def graph_info(self) -> Json:
        """Describe node types, the columns of the target that the model reads, and relations."""
        counts = self.graph.num_links
        return {
            "types": {kind: nodes.num_nodes for kind, nodes in self.graph.nodes.items()},
            "columns": [
                {
                    "column": column,
                    "title": self.index.names[self.graph.target].title(column),
                    "kind": one.kind,
                    "values": getattr(one, "values", [])[:MOST_VALUES],
                }
                for column, one in self.fitted.items()
            ],
            "relations": [
                {"relation": text, "source": e[0], "target": e[2], "links": counts[e]}
                for text, e in self.index.relations.items()
            ],
        }

    def find(self, kind: str, node: int | str) -> int:
        """Return the number of an existing node, by its number, id or name."""
        require("node type", kind, self.graph.nodes)
        try:
            return self.graph.nodes[kind].find(node)
        except HanmeError as error:
            raise NotFound(str(error)) from None

    def target(self, node: int | str) -> int:
        """Return the number of an existing target node."""
        return self.find(self.graph.target, node)

    def search(self, query: str, kind: str, limit: int) -> list[schemas.NodeRef]:
        """Search for nodes of a type, or of all types."""
        if kind:
            require("node type", kind, self.graph.nodes)
        kinds = [kind] if kind else self.graph.node_types
        return [self.node(*hit) for hit in self.index.search.find(query, kinds, limit)]

    def node(self, kind: str, number: int) -> schemas.NodeRef:
        """Return a node of any type; of a target node, also its prediction."""
        nodes = self.graph.nodes[kind]
        row = self.table.row(number) if kind == self.graph.target else None
        return schemas.NodeRef(
            type=kind,
            number=number,
            id=nodes.identity(number),
            name=nodes.title(number),
            labels=row.labels if row else None,
            predicted=row.predicted if row else None,
            wrong=row.wrong if row else None,
        )

    def node_info(self, kind: str, number: int, limit: int) -> schemas.NodeInfo:
        """Describe a node of any type, with its row and the first ``limit`` links per relation."""
        number = self.find(kind, number)
        fitted = self.run.schema.features.get(kind, {}) if self.run.schema else {}
        names = self.index.names[kind]
        columns = [
            schemas.Cell(
                column=column,
                title=names.title(column),
                unit=names.unit(column),
                value=value,
                kind=fitted[column].kind if column in fitted else None,
            )
            for column, value in self.index.rows.row(kind, number).items()
        ]
        links = []
        for relation, e in self.index.relations.items():
            if e[0] == kind:
                ends = torch.unique(self.graph.adjacency(e).of_node(number)).tolist()
                nodes = [self._neighbour(e, end, number) for end in ends[:limit]]
                links.append(
                    schemas.Neighbours(relation=relation, type=e[2], count=len(ends), nodes=nodes)
                )
        row = self.table.row(number) if kind == self.graph.target else None
        own = dict(self.node(kind, number))
        return schemas.NodeInfo(**own, columns=columns, links=links, prediction=row)

    def _neighbour(self, step: EdgeType, number: int, of: int) -> schemas.Neighbour:
        """Describe the node that ``of`` is linked to by a relation.

        With the known labels of the others that it links to; those linked by the same relation, if
        it begins at the target.
        """
        source, kind, known = step[0], step[2], dict[str, int]()
        relations = [e for e in self.graph.links if (e[0], e[2]) == (kind, self.graph.target)]
        if source == self.graph.target and step in self.index.reverse:
            relations = [self.index.reverse[step]]
        if kind != self.graph.target and relations:
            ends = [self.graph.adjacency(e).of_node(number) for e in relations]
            nodes = torch.unique(torch.cat(ends)).numpy()
            counts = self.table.true[nodes[nodes != of] if source == self.graph.target else nodes]
            order = np.argsort(-counts.sum(0), kind="stable")
            known = {self.graph.labels[i]: int(counts[:, i].sum()) for i in order}
        own = dict(self.node(kind, number))
        return schemas.Neighbour(**own, known={label: n for label, n in known.items() if n})

    def review_info(self, limit: int) -> schemas.ReviewInfo:
        """Return the state of the review, with the next ``limit`` nodes to ask about."""
        if self.reviews is None:
            raise NotSupported(f"{self.name}: it has no folder to keep reviews in")
        actions, file = dict(self.reviews.actions), str(self.reviews.path)
        answered = np.array([n for n in map(self._number, actions) if n is not None], np.int64)
        nodes, left = review.to_review(self.graph, self.table, answered, limit)
        return schemas.ReviewInfo(
            file=file,
            command=shlex.join(["hanme", "train", self.run.config.data.name, "--with", file]),
            answered=dict(Counter(actions.values())),
            left=left,
            rows=[self.table.row(node) for node in nodes.tolist()],
        )

    def _number(self, node: str) -> int | None:
        """Return the number of a target node, None if the tables do not have it any more."""
        try:
            return find_node(self.graph.targets, node)
        except HanmeError:
            return None

    def answer(self, answer: schemas.Answer) -> None:
        """Keep what a person says of a prediction."""
        node, labels = self.target(answer.node), answer.labels
        if self.reviews is None:
            raise NotSupported(f"{self.name}: it has no folder to keep reviews in")
        for label in labels:
            require("label", label, self.graph.labels)
        if answer.action == "confirm":
            labels = self.table.row(node).predicted
        elif answer.action == "skip":
            labels = []
        elif not labels or (len(labels) > 1 and not self.graph.multilabel):
            raise HanmeError(
                f"labels: expected {'some labels' if self.graph.multilabel else 'one'}"
            )
        self.reviews.add(
            self.graph.targets.identity(node), list(dict.fromkeys(labels)), answer.action
        )

    def explain(
        self, node: int, asked: schemas.Question, pause: Callable[[], None] = lambda: None
    ) -> schemas.ExplanationInfo:
        """Explain one label of a node."""
        if self.explainer is None:
            raise NotSupported(self.why_not)
        if asked.label:
            require("label", asked.label, self.graph.labels)
        key = self.target(node), asked.label, asked.instances
        return self.recent.get(key, lambda: self._explain(*key, pause))

    def _explain(
        self, node: int, asked: str, instances: int, pause: Callable[[], None]
    ) -> schemas.ExplanationInfo:
        assert self.explainer is not None
        found = self.explainer.explain(node, label=asked or None, instances=instances, pause=pause)
        label, details = found.label, found.details
        return schemas.ExplanationInfo(
            node=found.number,
            label=label,
            sentence=found.sentence,
            probability=found.probabilities[label],
            base=found.base[label],
            base_rate=found.base_rate[label],
            start=found.steps[0],
            reasons=[
                schemas.ReasonInfo(
                    kind=one.kind,
                    text=one.text,
                    evidence=one.evidence,
                    contribution=one.contributions[label],
                    without=one.without,
                    estimated=one.estimated,
                    step=step,
                    node=self.node(*one.node[:2]) if one.node else None,
                    column=one.column,
                )
                for one, step in zip(found.reasons, found.steps[1:], strict=True)
            ],
            details={
                "logit": found.logits[label],
                "metapaths": [
                    {
                        "metapath": text,
                        "weight": weight,
                        "instances": details.counts[text],
                        "part": details.parts[text][label],
                    }
                    for text, weight in details.metapaths.items()
                ],
                "instances": [
                    {
                        "metapath": one.metapath,
                        "nodes": [
                            self.node(*end) for end in zip(one.types, one.numbers, strict=True)
                        ],
                        "attention": one.attention,
                        "part": one.parts[label],
                        "move": one.moves[label],
                    }
                    for one in details.instances
                ],
                "others": {name: parts[label] for name, parts in details.others.items()},
            },
        )


def load_runs(
    folders: Sequence[Path],
    source: Path | None = None,
    log: Callable[[str], None] = lambda message: None,
) -> dict[str, ServedRun]:
    """Open finished runs by the names of their folders; load a graph that several share once.

    ``log`` gets the reason for each run that cannot be opened, such as an unfinished one; if no run
    can be opened, the first reason is raised.
    """
    served: dict[str, ServedRun] = {}
    indexes: dict[str, GraphIndex] = {}
    errors: list[HanmeError] = []
    for folder in folders:
        try:
            run = Run.open(folder)
            run.result()  # refuses an unfinished run before its graph is loaded
            schema, config = run.fitted(), run.config
            fitted = schema.model_dump(mode="json") if schema else None
            key = json.dumps([config.data.model_dump(), config.training.seed, fitted])
            if key not in indexes:
                rows = TableRows.of(source or config.data.source or config.data.name)
                indexes[key] = GraphIndex(load_like(config, schema, source=source), rows)
            opened = OpenedRun.open(folder, graph=indexes[key].graph)
            name = unused_name(folder.resolve().name or "run", served, "-")
            served[name] = ServedRun(name, opened, indexes[key])
        except HanmeError as error:
            errors.append(error)
    if not served:
        raise errors[0]
    for reason in errors:
        log(f"skipped: {reason}")
    return served
