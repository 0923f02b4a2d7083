"""From a prediction back to the metapath instances that made it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets import nodes
from hanme.errors import HanmeError
from hanme.explain.explanation import Explanation, Instance
from hanme.explain.removal import Encoded, OpenModel, Root
from hanme.ops.eager import coefficient
from hanme.training.metrics import decide

By = Literal["part", "move", "attention"]
"""What instances are ranked by: their part of the label's logit, largest first; how far they
move it, up or down; or attention."""


def explain(
    model: Any,
    data: HeteroData,
    node: int | str,
    *,
    top: int = 5,
    label: str | None = None,
    by: By = "part",
    fallback: bool = True,
) -> Explanation:
    """The instances that made a model's prediction for a node.

    For many nodes, make an :class:`Explainer` once and ask it.

    Args:
        model: A trained :class:`HANME` or :class:`HAN`, or any other model that is a
            :class:`HANMEConv` ``conv`` and a linear layer ``lin``.
        data: The graph.
        node: The node of the target type, by number, id or name.
        top: How many instances.
        label: The label by whose logit instances are ranked (default: the most likely one).
        by: What they are ranked by, see :data:`By`.
        fallback: See :class:`Explainer`.
    """
    return Explainer(model, data, fallback=fallback).explain(node, top=top, label=label, by=by)


class Explainer:
    """Explains nodes one by one; what they share is computed when it is made.

    Args:
        model: See :func:`explain`.
        data: The graph.
        fallback: Whether a node with no label over 0.5 is predicted its most likely one, see
            :func:`~hanme.training.metrics.decide`.
    """

    def __init__(self, model: Any, data: HeteroData, *, fallback: bool = True) -> None:
        self.open = OpenModel(model, data)
        self.data = data
        self.labels = nodes.labels(data, self.open.target, self.open.logits.size(1))
        y = data[self.open.target].get("y")
        self._several: bool = data.get("multilabel", y is not None and y.dim() == 2)
        self._predicted = decide(self.open.logits, multilabel=self._several, fallback=fallback)

    @torch.no_grad()
    def explain(
        self, node: int | str, *, top: int = 5, label: str | None = None, by: By = "part"
    ) -> Explanation:
        """See :func:`explain`."""
        if top < 1:
            raise HanmeError(f"Expected `top` to be at least 1, but got {top}")
        number = nodes.find(self.data, self.open.target, node)
        chosen = self._label(number, label)
        root = self.open.root(number)
        logits = self.open.logits[number]
        probabilities = torch.sigmoid(logits) if self._several else torch.softmax(logits, 0)
        predicted = self._predicted[number].tolist()
        texts = list(self.open.problems)
        return Explanation(
            nodes.name(self.data, self.open.target, number),
            nodes.identity(self.data, self.open.target, number),
            number,
            tuple(name for name, given in zip(self.labels, predicted, strict=True) if given),
            self._by_label(probabilities),
            self._by_label(logits),
            self.labels[chosen],
            by,
            dict(zip(texts, self.open.beta, strict=True)),
            {text: len(path) for text, path in zip(texts, root.paths, strict=True)},
            tuple(self._instance(root, *place) for place in top_instances(root, chosen, top, by)),
        )

    def _label(self, node: int, label: str | None) -> int:
        if label is None:
            return int(self.open.logits[node].argmax())
        if label not in self.labels:
            raise HanmeError(f"unknown label {label!r}; there are {', '.join(self.labels)}")
        return self.labels.index(label)

    def _by_label(self, values: Tensor) -> dict[str, float]:
        return dict(zip(self.labels, values.tolist(), strict=True))

    def _instance(self, root: Root, path: int, number: int) -> Instance:
        problem = root.paths[path].problem
        found = root.paths[path].at(torch.tensor([number], device=problem.attention.device))
        types = problem.chain.metapath.node_types
        ids = found.instances.nodes[0].tolist()
        share = torch.zeros(len(ids))
        for position in problem.positions:
            share[position] = coefficient(problem, found.instances, position).mean()
        return Instance(
            list(self.open.problems)[path],
            types,
            tuple(nodes.name(self.data, t, i) for t, i in zip(types, ids, strict=True)),
            tuple(nodes.identity(self.data, t, i) for t, i in zip(types, ids, strict=True)),
            self.open.beta[path] * float(found.weight.mean()),
            tuple((share / share.sum().clamp(min=1e-12)).tolist()),
            self._by_label(root.parts(path, found)[0]),
            self._by_label(root.moves(path, found)[0]),
        )


def top_instances(root: Root, label: int, top: int, by: By) -> list[tuple[int, int]]:
    """A root's first instances in a ranking, as metapath and number; at most ``top`` are kept."""
    rank: dict[str, Callable[[int, Encoded], Tensor]] = {
        "part": lambda path, some: root.parts(path, some)[:, label],
        "move": lambda path, some: root.moves(path, some)[:, label].abs(),
        "attention": lambda path, some: root.model.beta[path] * some.weight.mean(1),
    }
    if by not in rank:
        options = ", ".join(get_args(By))
        raise HanmeError(f"Expected `by` to be one of {options}, but got {by!r}")
    best = torch.empty(0, dtype=torch.double)
    place = torch.empty(0, 2, dtype=torch.long)
    for path, instances in enumerate(root.paths):
        for some in instances.blocks():
            number = some.instances.number.cpu()
            best = torch.cat([best, rank[by](path, some).cpu()])
            place = torch.cat([place, torch.stack([torch.full_like(number, path), number], 1)])
            first = best.argsort(descending=True, stable=True)[:top]
            best, place = best[first], place[first]
    return [(path, number) for path, number in place.tolist()]
