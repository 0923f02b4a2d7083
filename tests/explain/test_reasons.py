"""Reasons of the linear model add up to its logits, for one model and for a mean of several."""

import pytest
import torch

from hanme.data import planted
from hanme.explain import explain
from hanme.graph import Graph
from hanme.linear import LinearModel, parse_block
from hanme.linear.matrices import GraphMatrices
from hanme.training import Stacked

SCALES = ("plain", "unit")


def random_model(graph: Graph, texts: list[str], seed: int) -> LinearModel:
    """A model of some blocks with random weights."""
    matrices, blocks = GraphMatrices(graph), [parse_block(text, graph.metadata()) for text in texts]
    width = sum(block.on(matrices).width for block in blocks)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(width + 1, len(graph.labels), generator=generator)
    return LinearModel.on(matrices, blocks, weights)


def linear(graph: Graph, seed: int) -> Stacked:
    model = random_model(graph, ["movie-actor:ids:plain", "features:unit"], seed)
    return Stacked({"linear": model}, {"linear": 0.5}, torch.ones(len(graph.labels)))


def test_reasons_of_a_mean_add_up_and_come_largest_first() -> None:
    graph = planted(movies=60).with_features("given-onehot")
    models = {str(seed): linear(graph, seed) for seed in (1, 2)}
    mean = Stacked(models, dict.fromkeys(models, 0.5))
    found = explain(mean, graph, 7, top=10**6)
    logits = [explain(model, graph, 7).logits[found.label] for model in models.values()]
    parts = [reason.parts[found.label] for reason in found.reasons]
    total = sum(parts) + found.others["bias"][found.label]
    assert total == pytest.approx(sum(logits) / 2, abs=1e-4)
    assert found.logits[found.label] == pytest.approx(sum(logits) / 2, abs=1e-4)
    assert len({(r.block, r.what) for r in found.reasons}) == len(parts)
    assert sorted(parts, key=abs, reverse=True) == parts
    ids = [reason for reason in found.reasons if reason.block == "movie-actor:ids"]
    assert ids
    for reason in ids:
        kind, number = reason.node
        assert reason.what == f"actor: {graph.nodes[kind].title(number)}"
    assert [r.what for r in explain(mean, graph, 7, top=2).reasons] == [
        r.what for r in found.reasons[:2]
    ]


def test_a_contribution_does_not_depend_on_how_many_are_shown() -> None:
    """Blocks of the same columns, scaled otherwise, are added up before the largest are chosen."""
    graph = planted(movies=60).with_features("given-onehot")
    blocks = [f"{kind}:{scaling}" for kind in ("movie-actor:ids", "features") for scaling in SCALES]
    stacked = Stacked({"linear": random_model(graph, blocks, 1)})
    every = explain(stacked, graph, 7, top=10**6).reasons
    assert len({(reason.block, reason.what) for reason in every}) == len(every)
    for top in (1, 2, 5):
        assert explain(stacked, graph, 7, top=top).reasons == every[:top]
