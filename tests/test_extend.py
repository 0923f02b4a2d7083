"""The examples of docs/extend run as they stand and learn what a broken part would not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from hanme import Classifier
from hanme.data import planted
from hanme.decision import RULES
from hanme.errors import HanmeError
from hanme.linear import BLOCKS
from hanme.nn import CHANNELS, ENCODERS, FUSIONS, MODELS
from hanme.nn.batch import Batch
from hanme.runs import OpenedRun, RunConfig, build_network
from hanme.training import CALLBACKS

PAGES = Path(__file__).parents[1] / "docs" / "extend"


def run(page: str) -> dict[str, Any]:
    """Run the one example of a page and return the names it leaves."""
    (code,) = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    assert len(code.splitlines()) < 60
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def same_rows(classifier: Classifier) -> bool:
    """Return whether some roots get the logits that they get beside all others."""
    model = classifier.run_.model.network.eval()
    graph, roots = classifier.run_.graph, torch.tensor([7, 3])
    with torch.no_grad():
        every = model(Batch.of(graph))
        some = model(Batch.of(graph, roots))
    return torch.allclose(some, every[roots], atol=1e-5)


def test_every_page_has_a_test() -> None:
    tested = {"model.md", "channel.md", "fusion.md", "encoder.md", "plugins.md", "callbacks.md"}
    tested |= {"path_encoder.md", "block.md"}
    assert {page.name for page in PAGES.iterdir()} == tested


def test_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODELS, "relational", MODELS.base)  # taken out again after the test
    run("model.md")
    folder = Path("runs/relational")
    scores = json.loads((folder / "result.json").read_text())["scores"]
    assert scores["with_fallback"]["test"]["macro"] > 75  # 84, and 44 for all genres at once
    assert OpenedRun.open(folder).evaluate() == scores
    for value in ({"hidden_channels": 0}, {"dropout": 1.5}, {"layers": "two"}, {"depth": 1}):
        model = {"name": "relational", "options": value}
        with pytest.raises(HanmeError, match=next(iter(value))):
            build_network(
                RunConfig.make({"data": {"name": "planted"}, "model": model}).model,
                planted(movies=40),
            )


def test_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHANNELS, "shared", CHANNELS.base)
    classifier = run("channel.md")["classifier"]
    assert classifier.score() > 0.9  # 0.99, and 0.62 with zeros from the channel
    shared = {"shared actor", "shared director", "shared keyword"}
    assert set(classifier.explain(7).details.others) == {"bias"} | shared


def test_a_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUSIONS, "learnt", FUSIONS.base)
    names = run("fusion.md")
    assert names["classifier"].score() > 0.9  # 0.97, and 0.43 with zeros
    beta = names["explanation"].details.metapaths
    assert sum(beta.values()) == pytest.approx(1)
    assert beta["movie-actor-movie"] > beta["movie-director-movie"]  # the stronger signal
    assert same_rows(names["classifier"])


def test_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "positions", ENCODERS.base)
    names = run("encoder.md")
    assert names["classifier"].score() > 0.9  # 1.0, and 0.58 with zeros
    found = names["explanation"]
    assert found.details.instances[0].parts[found.label] > 0.5


def test_a_path_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "recurrent", ENCODERS.base)
    names = run("path_encoder.md")
    assert names["classifier"].score() > 0.8  # 0.44 without an epoch
    found = names["explanation"]
    assert any(reason.contributions[found.label] > 0.1 for reason in found.reasons)


def test_a_feature_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BLOCKS, "degrees", BLOCKS.base)
    names = run("block.md")
    (stored,) = names["classifier"].run_.config.training.blocks
    assert stored == {"name": "degrees", "log": False}


def test_a_decision_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "one", RULES.base)
    names = run("plugins.md")
    assert names["graph"].multilabel
    assert (names["predicted"].sum(1) == 1).all()
    assert names["classifier"].run_.decision.rule == "one"


def test_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CALLBACKS, "polite", CALLBACKS.base)
    names = run("callbacks.md")
    assert names["stopped_at"] == len(names["rates"]) == 30
    assert names["rates"][:3] == pytest.approx([0.002, 0.004, 0.006])  # warming up
    assert names["rates"][5:] == pytest.approx([0.01] * 25)
    assert names["classifier"].score() > 0.9  # 0.43 without an epoch
