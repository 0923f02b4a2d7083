"""The first reason is the one whose removal changes a prediction most."""

import json

import pytest

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.explain import Explainer, fidelity
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig, build_seeded


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    graph = planted(movies=300)
    config = TrainingConfig(recipe="paper", epochs=100, select="last")
    net, random = build_seeded(
        lambda: HANME(graph.metadata(), "movie", graph.metapaths, 5, heads=4, hidden_channels=32),
        graph,
        1,
    )
    Trainer(net, graph, config, random=random).run()
    return Explainer(net, graph)


def test_the_first_reason_changes_the_probability_most(explainer: Explainer) -> None:
    found = fidelity(explainer, nodes=10)
    assert found.nodes == 10
    assert found.share >= 0.9
    assert found.largest >= found.first > 3 * found.others > 0
    assert "For 10 of 10 nodes" in str(found) or "For 9 of 10 nodes" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["share"] == found.share


def test_another_order_is_found_out(explainer: Explainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure can fail: with the least reason first, it does."""
    explain = explainer.explain

    def turned(node: int):
        found = explain(node)
        tried = [one for one in found.reasons if one.without is not None]
        object.__setattr__(found, "reasons", tuple(tried[::-1]))
        return found

    monkeypatch.setattr(explainer, "explain", turned)
    assert fidelity(explainer, nodes=5).faithful == 0


def test_mistakes(explainer: Explainer) -> None:
    with pytest.raises(HanmeError, match="cannot draw 0 of"):
        fidelity(explainer, nodes=0)
    with pytest.raises(HanmeError, match="split"):
        fidelity(explainer, split="all")
