"""A run that is served: everything a request needs, loaded and computed once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from hanme.common.numbers import untaken
from hanme.errors import HanmeError
from hanme.explain import By, Explainer
from hanme.explain.change import Link, Walk, WhatIf, reverses
from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.graph.metapath import EdgeType, Metapath
from hanme.nn import ChannelModel
from hanme.nn.channels import MetapathChannels
from hanme.runs import OpenedRun, Run
from hanme.runs.opened import load_like
from hanme.serve import schemas
from hanme.serve.search import Search
from hanme.serve.table import Ints, Table

MOST_EPOCHS = 1000
"""How many rows of the curves are given; of more, every second, third, ... one."""


class Missing(HanmeError):
    """Raised for a run, node, label or type that is not there."""


class Unable(HanmeError):
    """Raised for what this model, or these runs, cannot do."""


class Known:
    """A graph, indexed: names, links, degrees. Runs on the same graph share it."""

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

    def checked(self, kind: str, number: int) -> int:
        """Return the number of a node that is there."""
        if kind not in self.graph.nodes:
            raise Missing(f"no node type {kind!r}; there are {', '.join(self.graph.nodes)}")
        try:
            return self.graph.nodes[kind].find(number)
        except HanmeError as error:
            raise Missing(str(error)) from None

    def hits(self, text: str, kind: str | None, limit: int) -> schemas.Hits:
        """Search for nodes."""
        if kind is not None and kind not in self.graph.nodes:
            raise Missing(f"no node type {kind!r}; there are {', '.join(self.graph.nodes)}")
        kinds = self.graph.node_types if kind is None else [kind]
        return schemas.Hits(
            nodes=[
                schemas.Hit(**self.node(hit.type, hit.number).model_dump(), match=hit.match)
                for hit in self.search.find(text, kinds, limit)
            ]
        )

    def relation(self, text: str) -> EdgeType:
        """Return the edge type that is written so."""
        if text not in self.relations:
            raise HanmeError(f"no relation {text!r}; there are {', '.join(self.relations)}")
        return self.relations[text]


class Served:
    """A run in memory, under the name by which the API calls it."""

    def __init__(self, name: str, run: OpenedRun, known: Known) -> None:
        self.name, self.run, self.known, self.graph = name, run, known, run.graph
        self.result, self.decision = run.result, run.decision
        self.grown, model = run.differs_from_training, run.model
        self.explainer: Explainer | None = None
        self.what_if: WhatIf | None = None
        self.why_not = ""
        try:
            self.explainer = run.explainer
        except HanmeError as error:
            self.why_not = str(error)
        logits = run.logits()
        if not bool(torch.isfinite(logits).all()):
            raise HanmeError(f"{run.folder}: its model gives logits that are not finite")
        if self.explainer is not None:
            self.what_if = WhatIf(self.explainer.open, self.graph, known.reverse)
        self.logits = logits
        self.table = Table(run.predict(), known.degree)
        self.metrics = self._metrics()
        network = next(iter(model.networks), None)  # folds have the same metapaths
        paths = network.parts if isinstance(network, ChannelModel) else []
        self.metapaths = _counts(
            self.graph, (m for p in paths if isinstance(p, MetapathChannels) for m in p.metapaths)
        )

    def info(self) -> schemas.RunInfo:
        """Return what was trained on what."""
        graph, config, thresholds = self.graph, self.run.config, self.decision.thresholds
        given = graph.label_matrix.sum(0).tolist()
        half = 0.5 if graph.multilabel else None
        return schemas.RunInfo(
            name=self.name,
            model=config.model.name,
            graph=config.data.name,
            target=graph.target,
            nodes=graph.targets.num_nodes,
            multilabel=graph.multilabel,
            grown=self.grown,
            explains=self.explainer is not None,
            why_not=self.why_not,
            labels=[
                schemas.Label(
                    name=label, threshold=thresholds[i] if thresholds else half, given=given[i]
                )
                for i, label in enumerate(graph.labels)
            ],
            rule=self.decision.rule,
            epochs=self.result["epochs"],
            best_epoch=self.result["best_epoch"],
        )

    def _metrics(self) -> schemas.Metrics:
        """Return the curves of training."""
        rows = self.run.metrics
        step = -(-len(rows) // MOST_EPOCHS) or 1
        return schemas.Metrics(best_epoch=self.result["best_epoch"], epochs=rows[::step])

    def graph_info(self) -> schemas.GraphInfo:
        """Return what is in the graph."""
        graph, reverse = self.graph, self.known.reverse
        return schemas.GraphInfo(
            target=graph.target,
            types=[
                schemas.NodeType(type=t, nodes=n.num_nodes, features=graph.widths.get(t, 0))
                for t, n in graph.nodes.items()
            ],
            relations=[
                schemas.Relation(
                    relation=text,
                    source=e[0],
                    target=e[2],
                    links=graph.links[e].size(1),
                    reverse="-".join(reverse[e]) if e in reverse else None,
                )
                for text, e in self.known.relations.items()
            ],
            metapaths=self.metapaths,
            split={part: int(mask.sum()) for part, mask in graph.split.parts().items()},
            labelled=int(self.table.labelled.sum()),
            notes=graph.provenance.notes,
        )

    def node_info(self, kind: str, number: int, limit: int) -> schemas.NodeInfo:
        """Return a node of any type with its links, so many of each relation."""
        known, target = self.known, self.graph.target
        number = known.checked(kind, number)
        found = []
        for relation, e in known.relations.items():
            if e[0] == kind:
                ends = torch.unique(self.graph.adjacency(e).of_node(number))
                nodes = [self._neighbour(e[2], end) for end in ends[:limit].tolist()]
                found.append(
                    schemas.Neighbours(relation=relation, type=e[2], count=len(ends), nodes=nodes)
                )
        return schemas.NodeInfo(
            **known.node(kind, number).model_dump(),
            links=found,
            prediction=self.table.row(number) if kind == target else None,
        )

    def _neighbour(self, kind: str, number: int) -> schemas.Neighbour:
        node = self.known.node(kind, number).model_dump()
        if kind != self.graph.target:
            return schemas.Neighbour(**node, predicted=None, wrong=None)
        row = self.table.row(number)
        return schemas.Neighbour(**node, predicted=row.predicted, wrong=row.wrong)

    def label(self, text: str | None) -> int | None:
        """Return the number of a label; None for none."""
        if not text:
            return None
        if text not in self.graph.labels:
            raise Missing(f"no label {text!r}; there are {', '.join(self.graph.labels)}")
        return self.graph.labels.index(text)

    def target(self, node: int) -> int:
        """Return the number of a target node that is there."""
        return self.known.checked(self.graph.target, node)

    def rival(self, node: int) -> str | None:
        """Return the label that the likeliest one is compared with, where a node has one label."""
        order = np.argsort(-self.table.p[node], kind="stable")
        return None if self.graph.multilabel or len(order) < 2 else self.graph.labels[order[1]]

    def explain(
        self,
        node: int,
        *,
        label: str | None = None,
        against: str | None = None,
        top: int,
        by: By = "part",
        metapath: str | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> schemas.ExplanationInfo:
        """Explain a node."""
        if self.explainer is None:
            raise Unable(self.why_not)
        if metapath and metapath not in self.explainer.open.paths:
            names = ", ".join(self.explainer.open.paths)
            raise Missing(f"no metapath {metapath!r}; there are {names}")
        for name in (label, against):
            self.label(name)
        found = self.explainer.explain(
            self.target(node),
            label=label or None,
            against=against or None,
            top=top,
            by=by,
            metapath=metapath or None,
            pause=pause,
        )

        def value(by_label: Mapping[str, float]) -> float:
            return by_label[found.label] - (by_label[against] if against else 0.0)

        ref = self.known.node
        return schemas.ExplanationInfo(
            node=found.number,
            id=found.id,
            name=found.node,
            label=found.label,
            against=against or None,
            by=by,
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
                    nodes=[ref(t, n) for t, n in zip(one.types, one.numbers, strict=True)],
                    attention=one.attention,
                    hops=list(one.hops),
                    part=value(one.parts),
                    move=value(one.moves),
                )
                for one in found.instances
            ],
            others=[schemas.Other(name=k, part=value(v)) for k, v in found.others.items()],
            reasons=[
                schemas.ReasonInfo(
                    block=reason.block,
                    what=reason.what,
                    node=ref(*reason.node) if reason.node else None,
                    part=value(reason.parts),
                )
                for reason in found.reasons
            ],
        )

    def change(
        self, node: int, changes: schemas.Changes, pause: Callable[[], None]
    ) -> schemas.Changed:
        """Return what the model would say of a node after changes."""
        if self.what_if is None or self.explainer is None:
            raise Unable(self.why_not)
        node = self.target(node)
        after, left = self.what_if.logits(
            node,
            remove=self._links(changes.remove),
            add=self._links(changes.add),
            instances=[Walk(i.metapath, tuple(i.nodes)) for i in changes.instances],
            pause=pause,
        )
        counts = [int(way.problem.chain.count()[node]) for way in self.what_if.open.paths.values()]
        return schemas.Changed(
            before=self._outcome(self.logits[node]),
            after=self._outcome(after.float()),
            instances=schemas.BeforeAfter(before=sum(counts), after=left),
        )

    def _links(self, given: Sequence[schemas.LinkRef]) -> list[Link]:
        return [Link(self.known.relation(g.relation), g.source, g.target) for g in given]

    def _outcome(self, logits: torch.Tensor) -> schemas.Outcome:
        several, rows = self.graph.multilabel, logits[None].cpu()
        return schemas.Outcome(
            logits=rows[0].tolist(),
            probabilities=self.decision.probabilities(rows, multilabel=several)[0].tolist(),
            predicted=self.table.names(self.decision.labels(rows, multilabel=several)[0].numpy()),
        )


def load_runs(folders: Sequence[Path], source: Path | None = None) -> dict[str, Served]:
    """Load finished runs, each graph once, by the names of their folders."""
    served: dict[str, Served] = {}
    graphs: dict[str, Known] = {}
    for folder in folders:
        run = Run.open(folder)
        fitted, seed = run.fitted(), run.config.training.seed
        learnt = fitted.model_dump(mode="json") if fitted else None
        key = json.dumps([run.config.data.model_dump(), seed, learnt], sort_keys=True)
        if key not in graphs:
            graphs[key] = Known(load_like(run.config, fitted, source=source))
        name = untaken(run.folder.resolve().name or "run", served, "-")
        opened = OpenedRun.open(folder, graph=graphs[key].graph)
        served[name] = Served(name, opened, graphs[key])
    return served


def _counts(graph: Graph, metapaths: Iterable[Metapath]) -> list[schemas.MetapathCount]:
    found = []
    for metapath in metapaths:
        count = Chain.build(metapath, graph.links, graph.sizes).count()
        found.append(
            schemas.MetapathCount(
                metapath=metapath.text, instances=int(count.sum()), roots=int((count > 0).sum())
            )
        )
    return found
