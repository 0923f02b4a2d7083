"""Reasons of the wide part add up to its logits, for one model and for the mean of several."""

import re
from dataclasses import replace

import pytest
import torch

from hanme.data import planted
from hanme.explain import explain
from hanme.nn import Linear
from hanme.nn.model import MeanModel


def linear(made, seed: int) -> Linear:
    """A model of three blocks with random weights."""
    blocks = ["movie-actor:ids:plain", "features:unit", "pairs:plain"]
    model = Linear(made.metadata(), "movie", 5, blocks=blocks)
    generator = torch.Generator().manual_seed(seed)
    part, own = model.parts[0], made.widths["movie"]
    for i, width in enumerate((made.sizes["actor"], own, own * (own - 1) // 2)):
        part.weight[i] = torch.nn.Parameter(torch.randn(width, 5, generator=generator))
    return model


def test_reasons_of_a_mean_add_up_and_come_largest_first() -> None:
    made = planted(movies=60).with_features("given-onehot")
    models = [linear(made, seed) for seed in (1, 2)]
    found = explain(MeanModel(models), made, 7, top=10**6)
    logits = [explain(model, made, 7).logits[found.label] for model in models]
    parts = [reason.parts[found.label] for reason in found.reasons]
    assert sum(parts) == pytest.approx(sum(logits) / 2, abs=1e-4)
    assert len({(r.block, r.what) for r in found.reasons}) == len(parts)
    assert sorted(parts, key=abs, reverse=True) == parts
    both = [reason.what for reason in found.reasons if reason.block == "pairs"]
    assert both
    assert all(re.fullmatch(r"feature \d+ and feature \d+", what) for what in both)
    assert [r.what for r in explain(MeanModel(models), made, 7, top=2).reasons] == [
        r.what for r in found.reasons[:2]
    ]


def test_a_part_does_not_depend_on_how_many_are_shown() -> None:
    """Blocks of the same columns, scaled otherwise, are added up before the largest are chosen."""
    made = planted(movies=60).with_features("given-onehot")
    blocks = [f"movie-actor:ids:{scaling}" for scaling in ("plain", "unit")]
    model = Linear(made.metadata(), "movie", 5, blocks=[*blocks, "features:unit", "features:plain"])
    generator, part = torch.Generator().manual_seed(1), model.parts[0]
    for i, width in enumerate(
        (made.sizes["actor"], made.sizes["actor"], *[made.widths["movie"]] * 2)
    ):
        part.weight[i] = torch.nn.Parameter(torch.randn(width, 5, generator=generator))
    every = explain(model, made, 7, top=10**6).reasons
    assert len({(r.block, r.what) for r in every}) == len(every)
    for top in (1, 2, 5):
        assert explain(model, made, 7, top=top).reasons == every[:top]


def test_a_node_that_meets_nothing_has_no_reasons() -> None:
    made = planted(movies=60).with_features("given-onehot")
    nodes = replace(made.targets, x=torch.zeros(60, made.widths["movie"]).to_sparse_csr())
    links = {e: torch.empty(2, 0, dtype=torch.long) for e in made.links}
    alone = replace(made, nodes=made.nodes | {"movie": nodes}, links=links)
    assert explain(linear(alone, 1), alone, 7).reasons == ()
