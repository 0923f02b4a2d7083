"""What a model is given where the user says nothing."""

import pytest

from hanme.data.planted import planted
from hanme.runs import build, with_metapaths


def test_many_roots_have_fewer_channels_by_the_default_recipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = planted(movies=60)
    monkeypatch.setattr(build, "MANY_ROOTS", len(graph.metapaths) * 60)
    assert "hidden_channels" not in with_metapaths("hanme", {}, graph, recipe="default")[1]
    monkeypatch.setattr(build, "MANY_ROOTS", len(graph.metapaths) * 60 - 1)
    assert with_metapaths("hanme", {}, graph, recipe="default")[1]["hidden_channels"] == 64
    for model, recipe, given in (
        ("hanme", "paper", {}),
        ("han", "default", {}),
        ("hanme", "default", {"hidden_channels": 32}),
        ("hanme", "default", {"heads": 3}),
    ):
        found = with_metapaths(model, dict(given), graph, recipe=recipe)[1]
        assert found == {"metapaths": graph.metapaths, **given}
