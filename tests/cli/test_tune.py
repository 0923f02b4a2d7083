"""hanme tune as a user meets it: killed half way and started again, and what it writes."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import forked, hanme
from drafts import write_draft
from hanme.common.files import lock, read_json
from hanme.errors import HanmeError
from hanme.experiments import tune
from hanme.experiments.configuration import find_config, override, read_config
from hanme.experiments.tune import Search, best_trial, run_trials, search_space
from hanme.graph import Graph
from hanme.runs import OpenedRun, RunConfig, train

FILMS = Path(__file__).parents[2] / "examples" / "films"
HANME = str(Path(sys.executable).with_name("hanme"))
TRIALS = 13  # the sampler draws at random up to the tenth, and by the scores so far from then on


def search() -> Search:
    values = override(read_config(find_config("han-planted")), {"data.options.movies": 100})
    return Search(values=values, space=search_space("han", "planted", values), seeds=[0], epochs=4)


def completed(study: Path) -> int:
    return len(read_json(study)["trials"]) if study.exists() else 0


@pytest.mark.slow
def test_killed_half_way_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    out, study = tmp_path / "best.toml", tmp_path / "best.json"
    line = [HANME, "tune", "han", "planted", "--out", out, "--json"]
    line += ["--trials", TRIALS, "--epochs", 4, "--set", "data.options.movies=100"]
    first = forked(hanme, *line[1:])
    until = time.monotonic() + 60
    while completed(study) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    first.kill()
    first.join()
    before = completed(study)
    assert 3 <= before < TRIALS
    assert not out.exists()
    again = subprocess.run([*map(str, line)], capture_output=True, text=True, check=True)
    assert again.stderr == ""  # no word of Optuna's
    found = json.loads(again.stdout)
    whole = run_trials(search(), tmp_path / "whole.json", TRIALS)
    assert [(t["changes"], t["score"]) for t in found["trials"]] == [
        (trial.changes, trial.score) for trial in whole
    ]
    assert whole[0].changes["training.lr"] == 0.005  # the packaged configuration is first
    best = best_trial(whole)
    assert best.score == max(trial.score for trial in whole)
    written = read_config(out)
    assert written == override(search().values, best.changes)
    best_run = RunConfig.make(override(written, {"training.epochs": 4, "training.seed": 0}))
    run = train(best_run, tmp_path / "run")
    val = run.result()["selection"]
    assert (val["micro"] + val["macro"]) / 2 == pytest.approx(best.score, abs=1e-3)


def test_one_process_at_a_time_works_on_a_study(tmp_path: Path) -> None:
    with (
        lock(tmp_path / ".study.json.lock", ""),
        pytest.raises(HanmeError, match=r"study\.json: another process is working on it"),
    ):
        run_trials(search(), tmp_path / "study.json", 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_a_trial_that_runs_out_of_memory_is_not_repeated(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_one, tried = tune.train_in_memory, list[dict[str, Any]]()

    def train(config: RunConfig, graph: Graph) -> OpenedRun:
        tried.append(config.model_dump())
        if len(tried) == 2:
            raise error
        return train_one(config, graph)

    monkeypatch.setattr(tune, "train_in_memory", train)
    run_trials(search(), tmp_path / "study.json", 2)
    trials = run_trials(search(), tmp_path / "study.json", 3)  # as if the command was repeated
    assert [trial.score is None for trial in trials] == [False, True, False]
    assert trials[1].why == "out of memory"
    assert len(tried) == 3
    assert tried[2] != tried[1]


@pytest.mark.slow
def test_a_graph_of_one_s_own_tables(tmp_path: Path) -> None:
    folder = shutil.copytree(FILMS, tmp_path / "films")
    write_draft(folder)
    out = tmp_path / "han-films.toml"
    line = ["tune", "han", folder, "--out", out, "--trials", 2, "--epochs", 3]
    assert hanme(*line).returncode == 0
    written = read_config(out)
    assert written["data"]["name"] == str(folder / "graph.toml")
    line = ["train", "--config", out, "--epochs", 2, "--out", tmp_path / "run"]
    assert hanme(*line).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gru", "planted"], "no configuration 'gru-planted'"),
        (["han", "planet"], "unknown data set 'planet'"),
        (["han", "graph.toml"], "graph.toml: target: it is missing"),
        (["han", "planted", "--out", "old.toml"], "old.toml: it exists"),
        (["han", "planted", "--out", "new.json"], "ends with .toml"),
        (["han", "planted", "--out", "text.toml"], "text.json: not a"),
        (["han", "planted", "--out", "begun.toml"], "a study with other epochs"),
        (["han", "planted", "--set", "training.weight_decay=0"], "training.weight_decay: 0"),
        (["han", "planted", "--set", "heads=5"], "heads"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    refused: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.toml").write_text("mine\n" * 300)
    Path("graph.toml").touch()
    Path("text.json").write_text("mine")
    if "begun.toml" in arguments:
        run_trials(search(), Path("begun.json"), 1)
        arguments = [*arguments, "--set", "data.options.movies=100", "--epochs", "3"]
    out = [] if "--out" in arguments else ["--out", "new.toml"]
    assert message in refused("tune", *arguments, "--trials", 1, *out)
    assert Path("old.toml").read_text() == "mine\n" * 300
    assert not Path("new.toml").exists()


def test_it_shows_the_best_trials(tmp_path: Path) -> None:
    line = ["tune", "han", "planted", "--trials", "2", "--epochs", "3"]
    line += ["--set", "data.options.movies=100", "--out", tmp_path / "a.toml"]
    done = hanme(*line)
    assert done.returncode == 0
    assert "Best trials" in done.stdout
    header, first = (
        next(line for line in done.stdout.splitlines() if x in line) for x in ("trial ", "│     0")
    )
    places = [cell.strip() for cell in re.split("[┃│]", header)]
    shown = [cell.strip() for cell in re.split("[┃│]", first)]
    assert shown[places.index("lr")] == "0.005"  # and not 0.01
    assert (tmp_path / "a.toml").read_text().startswith("# Chosen by hanme tune han planted, of 2")
    assert len(read_json(tmp_path / "a.json")["trials"]) == 2
