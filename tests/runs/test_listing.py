"""Listing runs: finished, unfinished and damaged ones side by side."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hanme.common.progress import listening
from hanme.runs import Run, RunConfig, train
from hanme.runs.listing import list_runs
from hanme.serve.overview import listed as described


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


def test_a_run_in_training_says_what_it_does(tmp_path: Path) -> None:
    values = {"data": {"name": "planted", "options": {"movies": 60}}, "model": {"name": "han"}}
    options = {"metapaths": ["movie-actor-movie"], "hidden_channels": 8, "heads": 2}
    values["model"]["options"] = options
    config = RunConfig.make(values | {"training": {"epochs": 4, "every": 1, "linear": False}})
    seen = []
    with listening(lambda stage: seen.append((stage.name, list_runs(tmp_path)))):
        train(config, tmp_path / "run")
    stages = {stage: runs[0] for stage, runs in seen if runs}
    assert list(dict.fromkeys(stage for stage, _ in seen)) == [
        "loading", "network", "stacking", "scoring", "writing",
    ]  # fmt: skip
    assert {run.state for run in stages.values()} == {"training"}
    assert stages["stacking"].stage == "network"  # others hear it before it is written
    assert 0 <= (stages["stacking"].percent or 0) < 100
    assert stages["writing"].stage == "scoring"
    assert stages["writing"].percent is None
    (finished,) = list_runs(tmp_path)
    assert (finished.state, finished.stage) == ("finished", "")
    assert not (tmp_path / "run" / "progress.json").exists()


def test_a_dangling_link_and_a_file_that_vanishes_do_not_stop_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"name": "han", "options": {"metapaths": ["movie-actor-movie"]}}
    config = RunConfig.make({"data": {"name": "planted"}, "model": model})
    for name in ("linked", "vanishing", "removed"):
        Run.create(tmp_path / name, config)
    (tmp_path / "linked" / "latest").symlink_to(tmp_path / "nowhere")
    (tmp_path / "vanishing" / "checkpoint").touch()
    (tmp_path / "removed" / "checkpoint").touch()
    iterdir = Path.iterdir

    def vanish(folder: Path) -> Iterator[Path]:
        for path in list(iterdir(folder)):
            if folder.name == "removed":
                shutil.rmtree(folder, ignore_errors=True)
            if path.name == "checkpoint":
                path.unlink(missing_ok=True)
            yield path

    monkeypatch.setattr(Path, "iterdir", vanish)
    listed = {run.folder.name: run.state for run in list_runs(tmp_path)}
    states = {"linked": "unfinished", "vanishing": "unfinished", "removed": "damaged"}
    assert listed == states
    (gone,) = [run for run in list_runs(tmp_path) if run.folder.name == "linked"]
    shutil.rmtree(gone.folder)
    assert described(gone, {}, None)["curve"] == []
