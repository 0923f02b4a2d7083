"""Let the network attend to instances whose nodes carry labels, and measure what it adds.

    python benchmarks/label_instances.py                      # all data sets, all variants
    python benchmarks/label_instances.py IMDB --folds 3 --variants multihop uniform

Nodes of the target type carry their known label or the probabilities of the base learners; nodes in
between carry the number and the mean of the known labels around them. The network is trained with
the logits of the base learners as offset, so it learns what these leave unexplained. Training is
cross-fitted: the roots of a fold see a graph without the labels of that fold, and predictions of
base learners that were fitted without it. So no root sees its own label, not even through the
predictions of its neighbours.

As in ``benchmarks/ablate.py``, each of the first ``--folds`` of five folds of the labelled nodes
outside the test set is scored; test nodes are never read. The table shows the log loss of the base
learners (linear model, trees, smoothing) and its change when the network is added; a star marks
changes of more than two standard errors over nodes. Validation nodes choose epoch and slope. The
variants are encoders; ``uniform`` is the mean encoder with equal attention weights.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from ablate import graphs, outer_folds
from torch import Tensor

from hanme import Graph
from hanme.decision import calibrate
from hanme.decision.losses import node_losses
from hanme.graph.defaults import instances
from hanme.graph.metapath import Metapath
from hanme.graph.splits import Split, without_fold
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.training import TrainingConfig, ValidationNodes, fit_base
from hanme.training.final import NETWORK_PRIOR_WIDTH

DATA = ("planted", "IMDB", "ACM", "DBLP", "chinook", "movies")
VARIANTS = ("multihop", "direct", "mean", "uniform")
MAX_INSTANCES = 2_000_000
"""Maximum number of instances of a metapath."""
INNER = 3
"""Number of folds for cross-fitting: the base learners are fitted once more for each."""
EPOCHS, LR, WEIGHT_DECAY = 25, 0.01, 0.05
"""Training of the network: 5 to 15 epochs were best on IMDB; the learning rate falls to 0."""


class View(NamedTuple):
    """The graph as some roots see it.

    Args:
        x: Features by node type.
        offset: Logits of the base learners, ``[N, C]``.
        roots: Mask ``[N]`` of the nodes whose labels neither reads.
    """

    x: dict[str, Tensor]
    offset: Tensor
    roots: Tensor


def view(graph: Graph, visible: Tensor, offset: Tensor, roots: Tensor) -> View:
    """Return features that carry visible labels, and predictions of all other nodes."""
    likely = offset.sigmoid() if graph.multilabel else offset.softmax(1)
    labels, known = graph.label_matrix.float(), visible.float()[:, None]
    prior = labels[visible].mean(0)
    soft = torch.where(visible[:, None], labels, likely) - prior
    x = {t: torch.ones(n, 1) for t, n in graph.sizes.items()}
    for (source, _, end), (here, there) in graph.links.items():
        if end == graph.target and source != graph.target and x[source].size(1) == 1:
            count = torch.zeros(graph.sizes[source], 1).index_add_(0, here, known[there])
            total = torch.zeros(graph.sizes[source], soft.size(1))
            total.index_add_(0, here, (known * soft)[there])
            x[source] = torch.cat([2 * total / (count + 1), count.log1p() / 2], 1)
    x[graph.target] = torch.cat([2 * soft, known], 1)
    return View(x, offset, roots)


def views(graph: Graph, config: TrainingConfig) -> tuple[list[View], View]:
    """Return the views to train on, one per fold of the training nodes, and that to predict on."""
    train, none = graph.split.train, torch.zeros_like(graph.split.val)
    unread = graph.split._replace(val=none)
    crossed = []
    for number in range(1, INNER + 1):
        seen, fold, test = without_fold(unread, graph.y, number, INNER, seed=3)
        inner = without_fold(Split(seen, none, test), graph.y, 1, 5, seed=4)
        logits = fit_base(replace(graph, split=inner), config).held_out
        crossed.append(view(graph, seen, logits, fold))
    return crossed, view(graph, train, fit_base(graph, config).held_out, ~train)


def network(graph: Graph, metapaths: list[str], variant: str, x: dict[str, Tensor]) -> HANME:
    """Build the network of a variant; its logits are small at first."""
    torch.manual_seed(0)
    model = HANME(
        graph.metadata(),
        graph.target,
        metapaths,
        len(graph.labels),
        hidden_channels=32,
        heads=4,
        dropout=0.3,
        encoder="mean" if variant == "uniform" else variant,
        in_channels={t: features.size(1) for t, features in x.items()},
    )
    with torch.no_grad():
        model.head.weight.mul_(0.1)
        model.head.bias.zero_()
        for name, weights in model.named_parameters():
            if variant == "uniform" and ".att_" in name:
                weights.zero_().requires_grad_(False)
    return model


def validation(graph: Graph) -> ValidationNodes:
    config = TrainingConfig(recipe="default", seed=0)
    return ValidationNodes.of(graph, config, network=True, stack=True)


def residual_logits(graph: Graph, model: HANME, crossed: list[View], final: View) -> Tensor:
    """Train a network; return its logits of all target nodes in the epoch of the least loss."""
    selection = validation(graph).selection
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    least, best = torch.inf, torch.zeros_like(final.offset)
    for _ in range(EPOCHS):
        model.train()
        for part in crossed:
            logits = part.offset + model(Batch(part.x, graph.links))
            loss = node_losses(logits[part.roots], graph.y[part.roots]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            logits = model(Batch(final.x, graph.links))
        total = final.offset + logits
        loss = node_losses(total[selection], graph.y[selection]).mean()
        if loss < least:
            least, best = float(loss), logits
    return best


def losses(graph: Graph, fold: Tensor, variants: list[str]) -> dict[str, Tensor]:
    """Return the loss of each node of a fold, by variant; of the base learners under ``base``."""
    paths = [Metapath.of(spec, graph.metadata()) for spec in graph.metapaths]
    metapaths = [path.text for path in paths if 0 < instances(path, graph) <= MAX_INSTANCES]
    crossed, final = views(graph, TrainingConfig(recipe="default", seed=0, refit=False))
    stacking = validation(graph).others
    found = {"base": node_losses(final.offset[fold], graph.y[fold])}
    for variant in variants:
        if not metapaths:
            found[variant] = found["base"]
            continue
        model = network(graph, metapaths, variant, final.x)
        logits = residual_logits(graph, model, crossed, final)
        parts = [final.offset[stacking], logits[stacking]]
        (a, b), bias = calibrate(parts, graph.y[stacking], [1.0, 1.0], NETWORK_PRIOR_WIDTH)
        found[variant] = node_losses((bias + a * final.offset + b * logits)[fold], graph.y[fold])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(DATA))
    parser.add_argument("--data", type=Path, default=Path("ablation"))
    parser.add_argument("--folds", type=int, default=2, choices=range(1, 6))
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| data | held out | base | {' | '.join(args.variants)} |")
    print(f"| --- |{' ---: |' * (len(args.variants) + 2)}")
    for name, graph in graphs(args.names, args.data):
        folds = [losses(*each, args.variants) for each in outer_folds(graph, args.folds)]
        total = {key: torch.cat([fold[key] for fold in folds]) for key in folds[0]}
        full, cells = total["base"].mean(), []
        for variant in args.variants:
            difference = total[variant] - total["base"]
            error = difference.std() / len(difference) ** 0.5
            star = " *" if difference.mean().abs() > 2 * error else ""
            cells.append(f"{100 * difference.mean() / full:+.1f} %{star}")
        print(f"| {name} | {len(total['base']):,} | {full:.4f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
