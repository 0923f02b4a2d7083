"""Single nodes of a stored graph are predicted and explained as on the whole graph."""

from pathlib import Path

import pytest

from hanme.data import planted
from hanme.data.store.write import write_store
from hanme.explain import Explainer
from hanme.runs import OpenedRun, RunConfig, train

PATHS = ["movie-actor-movie", "movie-director-movie"]


def test_single_nodes_are_as_on_the_whole_graph(tmp_path: Path) -> None:
    graph = planted(movies=60, seed=1).with_features("given")
    write_store(graph, tmp_path / "store", features="given")
    values = {
        "data": {"name": str(tmp_path / "store")},
        "model": {"options": {"metapaths": PATHS, "hidden_channels": 8, "heads": 2}},
        "training": {"recipe": "paper", "epochs": 2, "linear": True},
    }
    folder = tmp_path / "run"
    train(RunConfig.make(values), folder)
    whole = {row["node"]: row for row in OpenedRun.open(folder).predict().rows()}
    for row in OpenedRun.open(folder).predict([41, 3]).rows():
        for key, value in whole[row["node"]].items():
            assert row[key] == (pytest.approx(value, abs=1e-5) if key[:2] == "p_" else value)
    run = OpenedRun.open(folder)
    assert run.graph.stored
    mine = run.explain(41)
    theirs = Explainer(run.model, graph, run.decision).explain(41)
    assert (mine.number, mine.node, mine.predicted) == (41, theirs.node, theirs.predicted)
    assert mine.logits == pytest.approx(theirs.logits, abs=1e-4)
    numbers = [[i.numbers for i in each.details.instances] for each in (mine, theirs)]
    assert numbers[0] == numbers[1]
