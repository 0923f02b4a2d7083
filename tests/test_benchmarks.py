"""The measurements of ``make bench`` still run, and measure what they say."""

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hanme.data import planted
from hanme.graph import Graph
from hanme.training import Trainer, TrainingConfig

pytestmark = pytest.mark.slow
METAPATHS = ["movie-director-movie", "movie-actor-movie"]


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return __import__(name)


def small() -> Graph:
    return planted(movies=60)


@pytest.mark.parametrize("backend", ["streaming", "chunked", "eager", "paper", "pyg"])
def test_every_backend_takes_a_step(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small()
    model = module("measure", monkeypatch).build(backend, graph, METAPATHS, 16, 8)
    trainer = Trainer(model, graph, TrainingConfig(recipe="paper"))
    assert trainer._epoch(1)[0] > 0
    assert trainer.logits().shape == (60, len(graph.labels))


def test_the_paper_s_way_gives_what_the_layer_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = small()
    theirs = module("measure", monkeypatch).build("paper", graph, METAPATHS, 16, 8).conv.eval()
    with torch.no_grad():
        for node_type, lin in theirs.conv.channels.proj.items():
            theirs.proj[node_type].load_state_dict(lin.state_dict())
        expected = theirs.conv(graph.x_dict, graph.edge_index_dict)["movie"]
        torch.testing.assert_close(theirs(graph.x_dict), expected)


def test_a_step_on_some_roots_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = module("roots", monkeypatch)
    monkeypatch.setattr(roots, "SIZES", (1_000, 2_000))
    monkeypatch.setattr(roots, "REPEAT", 2)
    roots.main()
    found = json.loads(capsys.readouterr().out)["sizes"]
    assert [row["nodes"] for row in found] == [1_000, 2_000]
    assert all(250 < row["instances"] < 600 for row in found)
    text = "\n".join(module("run", monkeypatch).roots_table({"sizes": found}))
    assert "| 2,000 |" in text
