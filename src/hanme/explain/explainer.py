"""From a prediction back to the metapath instances that made it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from hanme.decision import Decision
from hanme.errors import HanmeError, check_choice
from hanme.explain.explanation import Explanation, Instance, Reason
from hanme.explain.reasons import top_reasons
from hanme.explain.removal import Encoded, OpenModel, Path, Pause, Root, open_at
from hanme.graph import Graph
from hanme.nn import Model
from hanme.training.stacked import Stacked

By = Literal["part", "move", "attention"]
"""What instances are ranked by: their part of the label's logit, largest first; how far they
move it, up or down; or attention."""


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
    """

    def __init__(
        self, model: Model | Stacked, graph: Graph, decision: Decision | None = None
    ) -> None:
        self.model, self.graph = Stacked.of(model), graph
        self.decision = decision or Decision()
        self._by_node = self.model.needs_subgraph(graph)
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
    def _frozen(self) -> Stacked:
        return self.model.frozen(self.graph)

    @torch.no_grad()
    def explain(
        self,
        node: int | str,
        *,
        top: int = 5,
        label: str | None = None,
        against: str | None = None,
        by: By = "part",
        metapath: str | None = None,
        pause: Pause = lambda: None,
    ) -> Explanation:
        """Explain a node.

        Args:
            node: The node of the target type, by number, id or name.
            top: Maximum number of instances, and of columns of the linear model.
            label: The label by whose logit they are ranked (default: the most likely one).
            against: Rank by how far that logit is ahead of the logit of this label, instead.
            by: What instances are ranked by, see :data:`By`.
            metapath: Show instances of this metapath alone (default: of all).
            pause: Called before each block of instances; what it raises ends the work.
        """
        if top < 1:
            raise HanmeError(f"Expected `top` to be at least 1, but got {top}")
        check_choice("by", by, get_args(By))
        number = self.graph.targets.find(node)
        opened = open_at(self._frozen, self.graph, number) if self._by_node else self.open
        root = opened.root(number, pause)
        labels, texts = self.graph.labels, list(opened.paths)
        for what, name, known in (
            ("label", label, labels),
            ("label", against, labels),
            ("metapath", metapath, texts),
        ):
            if name is not None and name not in known:
                raise HanmeError(f"unknown {what} {name!r}; there are {', '.join(known)}")
        likeliest = self.decision.calibrated(opened.logits[root.row]).argmax()
        label = label or labels[int(likeliest)]
        contrast = torch.tensor([float(name == label) - (name == against) for name in labels])
        shown = range(len(texts)) if metapath is None else [texts.index(metapath)]
        places = top_instances(root, contrast.double(), top, by, shown)
        instances = tuple(_instance(root.paths[i], texts[i], opened.graph, n) for i, n in places)
        reasons = top_reasons(opened.model, opened.graph, root.node, contrast.numpy(), top)
        return self._explanation(opened, root, label, by, instances, reasons)

    def _explanation(
        self,
        opened: OpenModel,
        root: Root,
        label: str,
        by: str,
        instances: tuple[Instance, ...],
        reasons: tuple[Reason, ...],
    ) -> Explanation:
        graph, number, logits = opened.graph, root.node, opened.logits[root.row]
        predicted = self.decision.labels(logits[None], multilabel=graph.multilabel)[0]
        shares = self.decision.probabilities(logits[None], multilabel=graph.multilabel)[0]
        paths = dict(zip(opened.paths, root.paths, strict=True))

        def by_label(values: Tensor) -> dict[str, float]:
            return dict(zip(graph.labels, values.tolist(), strict=True))

        def names(chosen: Tensor) -> tuple[str, ...]:
            return tuple(graph.labels[i] for i in chosen.nonzero().flatten().tolist())

        return Explanation(
            node=graph.targets.title(number),
            id=graph.targets.identity(number),
            number=graph.targets.original(number),
            predicted=names(predicted),
            given=names(graph.label_matrix[number]),
            probabilities=by_label(shares),
            logits=by_label(logits),
            label=label,
            by=by,
            metapaths={text: path.beta for text, path in paths.items()},
            counts={text: len(path) for text, path in paths.items()},
            instances=instances,
            others={name: by_label(values) for name, values in root.others.items()},
            reasons=reasons,
            parts={text: by_label(path.logits) for text, path in paths.items()},
        )


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


def top_instances(
    root: Root, contrast: Tensor, top: int, by: By, paths: Sequence[int] | None = None
) -> list[tuple[int, int]]:
    """Return a root's first ``top`` instances along some metapaths, as metapath and number.

    ``contrast`` holds the weights of the labels whose logits rank them, ``[C]``.
    """
    rank: dict[By, Callable[[Path, Encoded], Tensor]] = {
        "part": lambda path, some: path.parts(some) @ contrast,
        "move": lambda path, some: (path.moves(some) @ contrast).abs(),
        "attention": Path.attention,
    }
    best = torch.empty(0, dtype=torch.double)
    place = torch.empty(0, 2, dtype=torch.long)
    for i in range(len(root.paths)) if paths is None else paths:
        for some in root.paths[i].blocks():
            number = some.instances.number.cpu()
            best = torch.cat([best, rank[by](root.paths[i], some).cpu()])
            place = torch.cat([place, torch.stack([torch.full_like(number, i), number], 1)])
            first = best.argsort(descending=True, stable=True)[:top]
            best, place = best[first], place[first]
    return [(path, number) for path, number in place.tolist()]
