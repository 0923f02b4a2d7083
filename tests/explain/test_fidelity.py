"""Removing top instances moves logits further than removing others."""

import json
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest
import torch

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import Explainer, fidelity
from hanme.explain.fidelity import ENOUGH, _alike, _random
from hanme.graph import Split
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig, draw_weights


@pytest.fixture(scope="module")
def trained():
    graph = planted(movies=300)
    net = HANME(graph.metadata(), "movie", graph.metapaths, 5, heads=4, hidden_channels=32)
    config = TrainingConfig(recipe="paper", epochs=100, select="last")
    Trainer(net, graph, config, random=draw_weights(net, graph, 1)).run()
    return net, graph


def test_top_instances_carry_a_prediction_that_random_ones_do_not(trained) -> None:
    """Planted: genres show only where the actor in between is a specialist."""
    found = fidelity(*trained, nodes=30)
    assert [step.k for step in found.steps] == [1, 2, 5, 10, 20]
    for step in found.steps:
        assert 0 < step.nodes <= 30
        assert step.ratio == step.top / step.random
        assert step.top > 2 * step.random
        assert step.top > 1.5 * step.alike
    assert found == fidelity(*trained, nodes=30)
    assert found != fidelity(*trained, nodes=30, seed=2)
    assert "ratio" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["steps"][0]["ratio"] == found.steps[0].ratio


def test_one_instance_removed_is_its_move(trained) -> None:
    net, graph = trained
    found = fidelity(net, graph, nodes=10**6)
    explainer = Explainer(net, graph)
    moved = []
    for node in graph.split.test.nonzero().flatten().tolist():
        one = explainer.explain(node, top=1)
        if sum(one.counts.values()) > ENOUGH:
            moved.append(abs(one.instances[0].moves[one.label]))
    assert found.nodes == found.steps[0].nodes == len(moved)
    assert found.steps[0].top == pytest.approx(fmean(moved), rel=1e-6)


def test_a_ranking_by_nothing_is_no_better_than_random(trained) -> None:
    """The measure can fail: with β and weights that say nothing, top and random come close."""
    _, graph = trained
    blank = HANME(graph.metadata(), "movie", ["movie-actor-movie"], 5, heads=1, encoder="mean")
    draw_weights(blank, graph, 0)
    along = blank.channels[0]
    with torch.no_grad():
        for parameter in [*along.att_root, *along.att_instance]:
            parameter.zero_()
    found = fidelity(blank, graph, nodes=30, by="attention")
    assert all(0.5 < step.ratio < 2 for step in found.steps)


def test_random_instances_do_not_depend_on_the_ranking(trained) -> None:
    part, attention = (fidelity(*trained, nodes=5, by=by) for by in ("part", "attention"))
    assert [step.random for step in part.steps] == [step.random for step in attention.steps]


def test_only_nodes_with_enough_instances_are_drawn(trained) -> None:
    net, graph = trained
    none = torch.zeros_like(graph.split.test)
    test = none.index_fill(0, torch.tensor([7, 8]), True)
    cast = graph.links["movie", "to", "actor"]
    films = graph.links["director", "to", "movie"]
    links = {("movie", "to", "actor"): cast[:, cast[0] != 7], ("director", "to", "movie"): films}
    links["director", "to", "movie"] = films[:, films[1] == 7]  # movie 7 keeps one instance
    graph = replace(graph, links=graph.links | links, split=Split(none, none, test))
    assert sum(Explainer(net, graph).explain(7).counts.values()) == 1
    found = fidelity(net, graph)
    assert found.nodes == 1
    assert [step.nodes for step in found.steps] == [1] * len(found.steps)
    with pytest.raises(HanmeError, match="0 val nodes with more than 5 instances"):
        fidelity(net, graph, split="val")


class Many:
    """A root with more instances than anyone could list."""

    paths = (range(3), range(10**15))

    def __len__(self) -> int:
        return 3 + 10**15


def test_random_instances_are_drawn_without_listing_the_others() -> None:
    drawn = [_random(Many(), 5, Random(seed)) for seed in range(20)]
    assert all(len(set(places)) == 5 for places in drawn)
    assert all(number in Many.paths[path] for places in drawn for path, number in places)
    assert len({tuple(places) for places in drawn}) == 20
    alike = _alike(Many(), [(1, 5), (0, 2), (1, 7)], Random(1))
    assert sorted(path for path, _ in alike) == [0, 1, 1]


def test_mistakes(trained) -> None:
    net, graph = trained
    with pytest.raises(HanmeError, match="0 of "):
        fidelity(net, graph, nodes=0)
    with pytest.raises(HanmeError, match="but got 'summer'"):
        fidelity(net, graph, split="summer")
