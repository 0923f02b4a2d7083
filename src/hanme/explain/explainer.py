"""From a prediction back to the metapath instances that made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor

from hanme.decision import Decision
from hanme.errors import HanmeError, check_choice
from hanme.explain.explanation import Explanation, Instance
from hanme.explain.reasons import ahead, top_reasons
from hanme.explain.removal import Encoded, OpenModel, Root
from hanme.graph import Graph, Subgraph
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
    top: int = 5,
    label: str | None = None,
    by: By = "part",
    decision: Decision | None = None,
) -> Explanation:
    """Return the instances that made a model's prediction for a node.

    For many nodes, make an :class:`Explainer` once and ask it.

    Args:
        model: A stacked model, or a network alone: a trained :class:`HANME` or :class:`HAN`, or any
            other model of channels, a fusion that is a weighted sum, and a linear head.
        graph: The graph.
        node: The node of the target type, by number, id or name.
        top: How many instances.
        label: The label by whose logit instances are ranked (default: the most likely one).
        by: What they are ranked by, see :data:`By`.
        decision: See :class:`Explainer`.
    """
    return Explainer(model, graph, decision).explain(node, top=top, label=label, by=by)


class Explainer:
    """Explains nodes one by one; what they share is computed once.

    Of a stored graph, or with a model that draws instances, a node is explained on what it touches.

    Args:
        model: See :func:`explain`.
        graph: The graph.
        decision: From logits to labels (default: the paper's rule).
    """

    def __init__(
        self, model: Model | Stacked, graph: Graph, decision: Decision | None = None
    ) -> None:
        self.model, self.graph = Stacked.of(model), graph
        self.decision = decision or Decision()
        sampled = isinstance(graph, Subgraph) and graph.sampled_instances is not None
        self._by_node = not sampled and self.model.needs_subgraph(graph)
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
    def _predicted(self) -> Tensor:
        return self.decision.labels(self.open.logits, multilabel=self.graph.multilabel)

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
        pause: Callable[[], None] = lambda: None,
    ) -> Explanation:
        """Explain a node, see :func:`explain`.

        Args:
            node: The node.
            top: How many instances.
            label: The label by whose logit they are ranked.
            against: Rank by how far that logit is ahead of the logit of this label, instead.
            by: What they are ranked by.
            metapath: Show instances of this metapath alone (default: of all).
            pause: Called before each block of instances; what it raises ends the work.
        """
        if top < 1:
            raise HanmeError(f"Expected `top` to be at least 1, but got {top}")
        number = self.graph.targets.find(node)
        if self._by_node:
            subgraph = self._frozen.subgraph(self.graph, torch.tensor([number]))
            explainer = Explainer(self._frozen, subgraph, self.decision)
            return explainer.explain(
                int(subgraph.roots),
                top=top,
                label=label,
                against=against,
                by=by,
                metapath=metapath,
                pause=pause,
            )
        chosen = self._label(number, label)
        other = None if against is None else self._label(number, against)
        texts = list(self.open.paths)
        if metapath is not None and metapath not in texts:
            raise HanmeError(f"unknown metapath {metapath!r}; there are {', '.join(texts)}")
        shown = range(len(texts)) if metapath is None else [texts.index(metapath)]
        root = self.open.root(number, pause)
        logits = self.open.logits[number]
        several = self.graph.multilabel
        probabilities = self.decision.probabilities(logits[None], multilabel=several)[0]
        top_ones = top_instances(root, chosen, top, by, shown, other)
        return Explanation(
            self.graph.targets.title(number),
            self.graph.targets.identity(number),
            self.graph.targets.original(number),
            self._names(self._predicted[number]),
            self._names(self.graph.label_matrix[number]),
            self._by_label(probabilities),
            self._by_label(logits),
            self.graph.labels[chosen],
            by,
            dict(zip(texts, self.open.beta, strict=True)),
            {text: len(path) for text, path in zip(texts, root.paths, strict=True)},
            self._instances(root, top_ones),
            {name: self._by_label(logits) for name, logits in root.others.items()},
            top_reasons(self.open.model, self.graph, number, chosen, top, other),
            {text: self._by_label(x) for text, x in zip(texts, root.by_path(), strict=True)},
        )

    def _label(self, node: int, label: str | None) -> int:
        if label is None:
            return int(self.decision.calibrated(self.open.logits[node]).argmax())
        if label not in self.graph.labels:
            raise HanmeError(f"unknown label {label!r}; there are {', '.join(self.graph.labels)}")
        return self.graph.labels.index(label)

    def _names(self, chosen: Tensor) -> tuple[str, ...]:
        return tuple(self.graph.labels[i] for i in chosen.nonzero().flatten().tolist())

    def _by_label(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.graph.labels, values.tolist(), strict=True))

    def _instances(self, root: Root, places: Sequence[tuple[int, int]]) -> tuple[Instance, ...]:
        """Return instances, given as metapath and number, in their order."""
        found: dict[tuple[int, int], Instance] = {}
        for path in {path for path, _ in places}:
            numbers = [number for at, number in places if at == path]
            made = self._along(root, path, numbers)
            found |= {(path, number): one for number, one in zip(numbers, made, strict=True)}
        return tuple(found[place] for place in places)

    def _along(self, root: Root, path: int, numbers: list[int]) -> Iterator[Instance]:
        """Yield a root's instances of a metapath with these numbers."""
        problem = root.paths[path].problem
        some = root.paths[path].at(torch.tensor(numbers, device=problem.attention.device))
        types = problem.chain.metapath.node_types
        nodes = [self.graph.nodes[t] for t in types]
        share = root.paths[path].shares(some)
        for places, attention, hops, parts, moves in zip(
            problem.chain.nodes_of(some.instances).tolist(),
            (self.open.beta[path] * some.weight.mean(1)).tolist(),
            (share / share.sum(1, keepdim=True).clamp(min=1e-12)).tolist(),
            root.parts(path, some),
            root.moves(path, some),
            strict=True,
        ):
            pairs = list(zip(nodes, places, strict=True))
            yield Instance(
                list(self.open.paths)[path],
                types,
                tuple(nodes.title(i) for nodes, i in pairs),
                tuple(nodes.identity(i) for nodes, i in pairs),
                tuple(nodes.original(i) for nodes, i in pairs),
                attention,
                tuple(hops),
                self._by_label(parts),
                self._by_label(moves),
            )


def top_instances(
    root: Root,
    label: int,
    top: int,
    by: By,
    paths: Sequence[int] | None = None,
    against: int | None = None,
) -> list[tuple[int, int]]:
    """Return a root's first ``top`` instances in a ranking, as metapath and number.

    Ranked are those of some metapaths (default: all), perhaps by the difference to another label.
    """
    rank: dict[str, Callable[[int, Encoded], Tensor]] = {
        "part": lambda path, some: ahead(root.parts(path, some), label, against),
        "move": lambda path, some: ahead(root.moves(path, some), label, against).abs(),
        "attention": lambda path, some: root.model.beta[path] * some.weight.mean(1),
    }
    check_choice("by", by, get_args(By))
    best = torch.empty(0, dtype=torch.double)
    place = torch.empty(0, 2, dtype=torch.long)
    for path in range(len(root.paths)) if paths is None else paths:
        for some in root.paths[path].blocks():
            number = some.instances.number.cpu()
            best = torch.cat([best, rank[by](path, some).cpu()])
            place = torch.cat([place, torch.stack([torch.full_like(number, path), number], 1)])
            first = best.argsort(descending=True, stable=True)[:top]
            best, place = best[first], place[first]
    return [(path, number) for path, number in place.tolist()]
