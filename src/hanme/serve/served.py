"""A run that is served: all that requests need, loaded and computed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
import torch

from hanme.common.text import unused_name
from hanme.errors import HanmeError
from hanme.explain import By, Explainer, Explanation
from hanme.explain.change import Link, Walk, WhatIf, reverses
from hanme.graph import Graph
from hanme.nn.channels import MetapathChannels
from hanme.runs import OpenedRun, Run
from hanme.runs.opened import load_like
from hanme.serve import schemas
from hanme.serve.search import Search
from hanme.serve.table import Ints, Table

MOST_EPOCHS = 1000
"""Maximum number of points of a training curve: more than a screen can show."""


class NotFound(HanmeError):
    """Raised for a run, node, label or type that does not exist."""


class NotSupported(HanmeError):
    """Raised for what this model, or these runs, cannot do."""


class GraphIndex:
    """A graph with an index of names, links and degrees; runs on the same graph share it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.search = Search(graph.nodes)
        self.reverse = reverses(graph)
        for e in graph.links:
            graph.adjacency(e)  # sorts the links now, not while a request waits
        self.relations = {"-".join(e): e for e in graph.links}

    @cached_property
    def degree(self) -> Ints:
        """The number of links of each target node."""
        own = [self.graph.adjacency(e) for e in self.graph.links if e[0] == self.graph.target]
        total = np.zeros(self.graph.targets.num_nodes, np.int64)
        return sum((links.indptr.diff().numpy() for links in own), start=total)

    def node(self, kind: str, number: int) -> schemas.NodeRef:
        """Return a node by type and number."""
        nodes = self.graph.nodes[kind]
        return schemas.NodeRef(
            type=kind, number=number, id=nodes.identity(number), name=nodes.title(number)
        )

    def checked(self, kind: str, number: int | str) -> int:
        """Return the number of an existing node, by its number, id or name."""
        _require("node type", kind, self.graph.nodes)
        try:
            return self.graph.nodes[kind].find(number)
        except HanmeError as error:
            raise NotFound(str(error)) from None

    def hits(self, text: str, kind: str | None, limit: int) -> schemas.Hits:
        """Search for nodes."""
        if kind is not None:
            _require("node type", kind, self.graph.nodes)
        kinds = self.graph.node_types if kind is None else [kind]
        return schemas.Hits(
            nodes=[
                schemas.Hit(**dict(self.node(hit.type, hit.number)), match=hit.match)
                for hit in self.search.find(text, kinds, limit)
            ]
        )

    def neighbours(self, kind: str, number: int) -> dict[str, tuple[str, list[int]]]:
        """Return the type and the numbers of the nodes that each relation leads to."""
        return {
            relation: (e[2], torch.unique(self.graph.adjacency(e).of_node(number)).tolist())
            for relation, e in self.relations.items()
            if e[0] == kind
        }

    def link(self, given: schemas.LinkRef) -> Link:
        """Return a link as the explainer takes it."""
        if given.relation not in self.relations:
            known = ", ".join(self.relations)
            raise HanmeError(f"no relation {given.relation!r}; there are {known}")
        return Link(self.relations[given.relation], given.source, given.target)

    def info(self) -> list[schemas.Relation]:
        """Describe the relations."""
        counts = self.graph.num_links.values()
        reverse = {e: "-".join(back) for e, back in self.reverse.items()}
        return [
            schemas.Relation(
                relation=text, source=e[0], target=e[2], links=count, reverse=reverse.get(e)
            )
            for (text, e), count in zip(self.relations.items(), counts, strict=True)
        ]


class ServedRun:
    """An opened run under the name by which the API calls it."""

    def __init__(self, name: str, run: OpenedRun, index: GraphIndex) -> None:
        self.name, self.run, self.index, self.graph = name, run, index, run.graph
        if not bool(torch.isfinite(run.logits()).all()):
            raise HanmeError(f"{run.folder}: the logits of its model are NaN or infinite")
        self.table = Table(run.predict(), index.degree)
        self.explainer: Explainer | None = None
        self.why_not = ""
        try:
            self.explainer = run.explainer
            self._what_if = WhatIf(run.explainer.open, run.graph, index.reverse)
        except HanmeError as error:
            self.why_not = str(error)
        self.metapaths = self._metapaths()

    def _metapaths(self) -> list[schemas.MetapathInfo]:
        """Describe the metapaths of the model."""
        networks = [self.run.model.network] if self.run.model.network else []
        parts = [
            part for n in networks for part in n.modules() if isinstance(part, MetapathChannels)
        ]
        counts = {m.text: self.graph.chain(m).count() for part in parts for m in part.metapaths}
        opened = None if self.explainer is None else self.explainer.open
        weights = {} if opened is None else dict(zip(opened.paths, opened.beta, strict=True))
        return [
            schemas.MetapathInfo(
                metapath=text,
                instances=int(count.sum()),
                roots=int((count > 0).sum()),
                weight=weights.get(text),
            )
            for text, count in counts.items()
        ]

    def info(self) -> schemas.RunInfo:
        """Describe model, graph and labels."""
        run, graph = self.run, self.graph
        counts = self.table.true.sum(0).tolist()
        half = [0.5 if graph.multilabel else None] * len(counts)
        thresholds = run.decision.thresholds or half
        return schemas.RunInfo(
            name=self.name,
            model=run.config.model.name,
            graph=run.config.data.name,
            target=graph.target,
            nodes=graph.targets.num_nodes,
            multilabel=graph.multilabel,
            differs_from_training=run.differs_from_training,
            explains=self.explainer is not None,
            why_not=self.why_not,
            labels=[
                schemas.Label(name=label, threshold=threshold, given=count)
                for label, threshold, count in zip(graph.labels, thresholds, counts, strict=True)
            ],
            rule=run.decision.rule,
            epochs=run.result["epochs"],
            best_epoch=run.result["best_epoch"],
        )

    def metrics(self) -> schemas.Metrics:
        """Return the training curves."""
        rows = self.run.metrics
        step = -(-len(rows) // MOST_EPOCHS) or 1
        return schemas.Metrics(best_epoch=self.run.result["best_epoch"], epochs=rows[::step])

    def graph_info(self) -> schemas.GraphInfo:
        """Describe node types, relations and metapaths."""
        graph = self.graph
        return schemas.GraphInfo(
            target=graph.target,
            types=[
                schemas.NodeType(type=t, nodes=n.num_nodes, features=graph.widths.get(t, 0))
                for t, n in graph.nodes.items()
            ],
            relations=self.index.info(),
            metapaths=self.metapaths,
            split={part: int(mask.sum()) for part, mask in graph.split.parts().items()},
            labelled=int(self.table.labelled.sum()),
            notes=graph.provenance.notes,
        )

    def node_info(self, kind: str, number: int, limit: int) -> schemas.NodeInfo:
        """Describe a node of any type, with the first ``limit`` links of each relation."""
        number = self.index.checked(kind, number)
        links = [
            schemas.Neighbours(
                relation=relation,
                type=end,
                count=len(nodes),
                nodes=[self._neighbour(end, node) for node in nodes[:limit]],
            )
            for relation, (end, nodes) in self.index.neighbours(kind, number).items()
        ]
        row = self.table.row(number) if kind == self.graph.target else None
        node = dict(self.index.node(kind, number))
        return schemas.NodeInfo(**node, links=links, prediction=row)

    def _neighbour(self, kind: str, number: int) -> schemas.Neighbour:
        node = dict(self.index.node(kind, number))
        if kind != self.graph.target:
            return schemas.Neighbour(**node, predicted=None, wrong=None)
        row = self.table.row(number)
        return schemas.Neighbour(**node, predicted=row.predicted, wrong=row.wrong)

    def label(self, text: str | None) -> int | None:
        """Return the number of a label; None for no label."""
        if not text:
            return None
        _require("label", text, self.graph.labels)
        return self.graph.labels.index(text)

    def target(self, node: int | str) -> int:
        """Return the number of an existing target node."""
        return self.index.checked(self.graph.target, node)

    def runner_up(self, node: int) -> str | None:
        """Return the second most likely label; None for multi-label targets."""
        order = np.argsort(-self.table.p[node], kind="stable")
        return None if self.graph.multilabel or len(order) < 2 else self.graph.labels[order[1]]

    def explain(
        self,
        node: int,
        *,
        label: str | None = None,
        against: str | None = None,
        metapath: str | None = None,
        **options: object,
    ) -> schemas.ExplanationInfo:
        """Explain a node, see :meth:`hanme.explain.Explainer.explain`."""
        if self.explainer is None:
            raise NotSupported(self.why_not)
        if metapath:
            _require("metapath", metapath, self.explainer.open.paths)
        for name in (label, against):
            self.label(name)
        found = self.run.explain(
            self.target(node),
            label=label or None,
            against=against or None,
            metapath=metapath or None,
            **options,
        )
        return self._explanation(found, against or None)

    def _explanation(self, found: Explanation, against: str | None) -> schemas.ExplanationInfo:
        """Return an explanation of one label, or of its difference to another one."""
        node = self.index.node

        def value(by_label: Mapping[str, float]) -> float:
            return by_label[found.label] - (by_label[against] if against else 0.0)

        return schemas.ExplanationInfo(
            node=found.number,
            id=found.id,
            name=found.node,
            label=found.label,
            against=against,
            by=cast("By", found.by),
            logit=value(found.logits),
            probability=found.probabilities[found.label],
            predicted=list(found.predicted),
            metapaths=[
                schemas.MetapathPart(
                    metapath=text,
                    weight=weight,
                    instances=found.counts[text],
                    part=value(found.parts[text]),
                )
                for text, weight in found.metapaths.items()
            ],
            instances=[
                schemas.InstanceInfo(
                    metapath=one.metapath,
                    nodes=[node(t, n) for t, n in zip(one.types, one.numbers, strict=True)],
                    attention=one.attention,
                    hops=list(one.hops),
                    part=value(one.parts),
                    move=value(one.moves),
                )
                for one in found.instances
            ],
            others={name: value(parts) for name, parts in found.others.items()},
            reasons=[
                schemas.ReasonInfo(
                    block=one.block,
                    what=one.what,
                    node=node(*one.node) if one.node else None,
                    part=value(one.parts),
                )
                for one in found.reasons
            ],
        )

    def change(
        self, node: int, changes: schemas.Changes, pause: Callable[[], None]
    ) -> schemas.Changed:
        """Predict a node on a changed graph."""
        if self.explainer is None:
            raise NotSupported(self.why_not)
        node = self.target(node)
        after, left = self._what_if.logits(
            node,
            remove=[self.index.link(link) for link in changes.remove],
            add=[self.index.link(link) for link in changes.add],
            instances=[Walk(i.metapath, tuple(i.nodes)) for i in changes.instances],
            pause=pause,
        )
        paths = self.explainer.open.paths.values()
        count = sum(int(path.problem.chain.count()[node]) for path in paths)
        return schemas.Changed(
            before=self._outcome(self.run.logits()[node], count),
            after=self._outcome(after.float(), left),
        )

    def _outcome(self, logits: torch.Tensor, instances: int) -> schemas.Outcome:
        decision, several, rows = self.run.decision, self.graph.multilabel, logits[None].cpu()
        return schemas.Outcome(
            logits=rows[0].tolist(),
            instances=instances,
            probabilities=decision.probabilities(rows, multilabel=several)[0].tolist(),
            predicted=self.table.names(decision.labels(rows, multilabel=several)[0].numpy()),
        )


def load_runs(
    folders: Sequence[Path],
    source: Path | None = None,
    on_skip: Callable[[str], None] = lambda message: None,
) -> dict[str, ServedRun]:
    """Open finished runs by the names of their folders; load a graph that several share once.

    Args:
        folders: The run folders.
        source: Another place to load their graphs from.
        on_skip: Called with the reason for each run that cannot be opened, such as an unfinished
            one; if no run can be opened, the first reason is raised.
    """
    served: dict[str, ServedRun] = {}
    indexes: dict[str, GraphIndex] = {}
    errors: list[HanmeError] = []
    for folder in folders:
        try:
            run = Run.open(folder)
            run.result()  # refuses an unfinished run before its graph is loaded
            key = _graph_key(run)
            if key not in indexes:
                indexes[key] = GraphIndex(load_like(run.config, run.fitted(), source=source))
            opened = OpenedRun.open(folder, graph=indexes[key].graph)
            name = unused_name(folder.resolve().name or "run", served, "-")
            served[name] = ServedRun(name, opened, indexes[key])
        except HanmeError as error:
            errors.append(error)
    if not served:
        raise errors[0]
    for reason in errors:
        on_skip(f"skipped: {reason}")
    return served


def _graph_key(run: Run) -> str:
    """Return a text that is the same for runs on the same graph."""
    schema, seed = run.fitted(), run.config.training.seed
    known = schema.model_dump(mode="json") if schema else None
    return json.dumps([run.config.data.model_dump(), seed, known], sort_keys=True)


def _require(what: str, name: str, known: Mapping[str, object] | Sequence[str]) -> None:
    if name not in known:
        raise NotFound(f"no {what} {name!r}; there are {', '.join(known)}")
