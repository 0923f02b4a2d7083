from statistics import fmean

import pytest
import torch

from hanme.datasets import METAPATHS, planted
from hanme.errors import HanmeError
from hanme.explain import Explainer, fidelity
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig


@pytest.fixture(scope="module")
def trained():
    data = planted(movies=300)
    net = HANME(data.metadata(), "movie", METAPATHS["planted"], 5, heads=4, hidden_channels=32)
    Trainer(net, data, TrainingConfig(epochs=100, seed=1, select="last")).run()
    return net, data


def test_top_instances_carry_a_prediction_that_random_ones_do_not(trained) -> None:
    """Planted: genres show only where the actor in between is a specialist."""
    found = fidelity(*trained, nodes=30)
    assert [step.k for step in found.steps] == [1, 2, 5, 10, 20]
    for step in found.steps:
        assert 0 < step.nodes == 30 - step.fewer
        assert 1 < step.ratio_of_every < step.ratio + 1e-9
        assert step.top > 2 * step.random
        assert step.top > 1.5 * step.alike
    assert found.steps[-1].fewer > 0
    assert found == fidelity(*trained, nodes=30)
    assert found != fidelity(*trained, nodes=30, seed=2)
    assert "ratio" in str(found)


def test_one_instance_removed_is_its_move(trained) -> None:
    net, data = trained
    found = fidelity(net, data, nodes=10**6)
    explainer = Explainer(net, data)
    moved = []
    for node in data["movie"].test_mask.nonzero().flatten().tolist():
        one = explainer.explain(node, top=1)
        if sum(one.counts.values()) > 1:
            moved.append(abs(one.instances[0].moves[one.label]))
    assert found.nodes == int(data["movie"].test_mask.sum())
    assert found.steps[0].nodes == len(moved)
    assert found.steps[0].top == pytest.approx(fmean(moved), rel=1e-6)


def test_a_ranking_by_nothing_is_no_better_than_random(trained) -> None:
    """The measure can fail: with β and weights that say nothing, top and random come close."""
    _, data = trained
    torch.manual_seed(0)
    blank = HANME(data.metadata(), "movie", ["movie-actor-movie"], 5, heads=1, encoder="mean")
    with torch.no_grad():
        blank(data)
        for parameter in [*blank.conv.att_root, *blank.conv.att_instance]:
            parameter.zero_()
    found = fidelity(blank, data, nodes=30, by="attention")
    assert all(0.5 < step.ratio < 2 for step in found.steps)


def test_mistakes(trained) -> None:
    net, data = trained
    with pytest.raises(HanmeError, match="at least 1 node"):
        fidelity(net, data, nodes=0)
    with pytest.raises(HanmeError, match="no node under summer_mask"):
        fidelity(net, data, split="summer")
