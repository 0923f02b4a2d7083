"""Listing runs: finished, unfinished and damaged ones side by side."""

import json
from pathlib import Path

from hanme.runs import Run, RunConfig, train
from hanme.runs.listing import list_runs


def test_every_state_is_listed(tmp_path: Path) -> None:
    options = {"metapaths": ["movie-actor-movie"], "hidden_channels": 8, "heads": 2}
    values = {
        "data": {"name": "planted", "options": {"movies": 60}},
        "model": {"options": options},
        "training": {"epochs": 2, "decide": "macro"},
    }
    config = RunConfig.make(values)
    finished = train(config, tmp_path / "finished")
    Run.create(tmp_path / "unfinished", config)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    (tmp_path / "no run").mkdir()
    listed = {run.folder.name: run for run in list_runs(tmp_path)}
    assert {name: run.state for name, run in listed.items()} == {
        name: name for name in ("finished", "unfinished", "damaged")
    }
    assert listed["finished"].scores == finished.result()["scores"]["decided"]
    assert listed["finished"].epochs == 2
    assert listed["unfinished"].config == config
    assert "config.json" in listed["damaged"].message
    json.dumps([run.to_dict() for run in listed.values()])
    assert list_runs(tmp_path / "none") == []
