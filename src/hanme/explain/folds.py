"""The mean of several models opened at once: what instances do to it is the mean of what they do.

The models are those of cross-fitting: they walk the same metapaths, so an instance has the same
number in all of them. Logits are means, hence parts and moves are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from hanme.explain.removal import Encoded, OpenModel, Path, Root
from hanme.graph import Graph
from hanme.nn import Model
from hanme.training.stacked import Stacked


def open_model(model: Model | Stacked, graph: Graph) -> OpenModel:
    """Open a model, or all those whose mean it is."""
    if isinstance(model, Stacked) and model.folds:
        return OpenFolds(model, graph)
    return OpenModel(model, graph)


class OpenFolds(OpenModel):
    """The models of a mean, opened on a graph."""

    def __init__(self, model: Stacked, graph: Graph) -> None:
        self.folds = [OpenModel(each, graph) for each in model.folds]
        self.model = model
        self.logits = _mean([each.logits for each in self.folds])
        self.paths = self.folds[0].paths
        self.beta = _mean([torch.tensor(each.beta) for each in self.folds]).tolist()
        self.others = _by_name([each.others for each in self.folds])

    @torch.no_grad()
    def root(self, node: int, pause: Callable[[], None] = lambda: None) -> Root:
        """Return one node with its instances."""
        return RootOfFolds(self, node, pause)


class RootOfFolds(Root):
    """One node in all models of a mean."""

    def __init__(self, model: OpenFolds, node: int, pause: Callable[[], None]) -> None:
        self.model, self.node = model, node
        self.folds = [each.root(node, pause) for each in model.folds]
        self.paths = [
            PathOfFolds([each.paths[i] for each in self.folds], [m.beta[i] for m in model.folds])
            for i in range(len(model.paths))
        ]
        self.others = _by_name([each.others for each in self.folds])
        self.logits = _mean([each.logits for each in self.folds])

    def moves(self, path: int, some: Encoded) -> Tensor:
        """Return how far each instance alone moved the logits."""
        return _mean([root.moves(path, each) for root, each in self._each(some)])

    def parts(self, path: int, some: Encoded) -> Tensor:
        """Return each instance's part of the logits."""
        return _mean([root.parts(path, each) for root, each in self._each(some)])

    def by_path(self) -> list[Tensor]:
        """Return the part of the logits that comes from each metapath."""
        return [_mean(given) for given in zip(*(f.by_path() for f in self.folds), strict=True)]

    def logits_without(self, numbers: Sequence[Tensor]) -> Tensor:
        """Return the logits without some instances."""
        return _mean([each.logits_without(numbers) for each in self.folds])

    def _each(self, some: Encoded) -> Iterator[tuple[Root, Encoded]]:
        return zip(self.folds, cast("EncodedOfFolds", some).folds, strict=True)


@dataclass(frozen=True)
class EncodedOfFolds(Encoded):
    """Some instances of a root in all models of a mean, whose weights are ``[P, 1]``."""

    folds: tuple[Encoded, ...] = ()


class PathOfFolds(Path):
    """A root's instances along one metapath in all models of a mean; β is its weight in each."""

    def __init__(self, folds: Sequence[Path], beta: Sequence[float]) -> None:
        self.folds, self.problem, self.root = folds, folds[0].problem, folds[0].root
        self.beta = torch.tensor(beta, dtype=torch.double)

    def blocks(self) -> Iterator[Encoded]:
        """Yield all instances, in the order of their numbers."""
        for given in zip(*(path.blocks() for path in self.folds), strict=True):
            yield self._joined(given)

    def at(self, number: Tensor) -> Encoded:
        """Return the instances with these numbers."""
        return self._joined([path.at(number) for path in self.folds])

    def shares(self, some: Encoded) -> Tensor:
        """Return how much of an instance's vector comes from each of its nodes."""
        given = zip(self.folds, cast("EncodedOfFolds", some).folds, strict=True)
        return _mean([path.shares(each) for path, each in given])

    def _joined(self, given: Sequence[Encoded]) -> Encoded:
        weight = _mean([b * each.weight.mean(1) for b, each in zip(self.beta, given, strict=True)])
        weight = weight / self.beta.mean().clamp(min=1e-300)
        return EncodedOfFolds(given[0].instances, given[0].vector, weight[:, None], tuple(given))


def _mean(given: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(given)).mean(0)


def _by_name(given: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Average by name; what a model does not have is 0 there."""
    names = dict.fromkeys(name for each in given for name in each)
    return {
        name: torch.stack([each[name] for each in given if name in each]).sum(0) / len(given)
        for name in names
    }
