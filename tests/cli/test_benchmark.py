"""hanme benchmark as a user meets it: killed half way and started again, and when a run fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import hanme
from drafts import write_draft
from hanme.experiments.configuration import CONFIGS, models

FILMS = Path(__file__).parents[2] / "examples" / "films"
HANME = str(Path(sys.executable).with_name("hanme"))
QUICK = ["--graph", "planted", "--set", "training.epochs=3", "--set", "data.options.movies=100"]


def command(*arguments: object) -> list[str]:
    return [HANME, "benchmark", *QUICK, *map(str, arguments), "--processes", "1"]


def workers(folder: Path) -> list[int]:
    """The processes that still have a file in a folder open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(name.startswith(str(folder)) for name in opened):
            found.append(int(process.name))
    return found


def wait_until(true: Callable[[], bool], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)
    assert true()


@pytest.mark.slow
def test_killed_half_way_it_repeats_no_finished_run(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    line = command("--model", "han", "--seeds", 2, "--lts", "both", "--out", out, "--runs", runs)
    first = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(list(runs.rglob("result.json"))) >= 1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_until(lambda: not workers(runs))  # nobody goes on behind its back
    finished = {path: path.stat() for path in runs.rglob("result.json")}
    assert 1 <= len(finished) < 4
    assert not (out / "benchmark.md").exists()
    early = hanme(*line[1:], "--collect")
    assert early.returncode == 0
    assert "not trained yet" in early.stdout
    assert set(runs.rglob("result.json")) == set(finished)
    assert hanme(*line[1:]).returncode == 0
    assert len(list(runs.rglob("result.json"))) == 4
    for path, before in finished.items():
        after = path.stat()
        assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    table = json.loads((out / "benchmark.json").read_text())
    assert table["seeds"] == [483, 1]
    assert [row["name"] for row in table["rows"]] == ["han", "han + LTS linear"]
    for row in table["rows"]:
        folder = runs / ("planted-" + row["name"].replace(" + ", "-").replace(" ", "-").lower())
        values = [
            json.loads((folder / str(seed) / "result.json").read_text())["scores"]
            for seed in table["seeds"]
        ]
        micro = [scores["without_fallback"]["test"]["micro"] for scores in values]
        assert row["without_fallback.test.micro"]["values"] == micro
        assert row["without_fallback.test.micro"]["mean"] == pytest.approx(sum(micro) / 2)
    text = (out / "benchmark.md").read_text()
    assert "| han + LTS linear |" in text
    assert "--set training.epochs=3" in text
    for name in ("benchmark-planted", "benchmark-planted-curves"):
        assert (out / f"{name}.svg").exists()


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    text = '[data]\nname="planted"\n[model]\nname="han"\n[model.options]\nmetapaths=["movie-x"]\n'
    (tmp_path / "han-wrong-planted.toml").write_text(text)
    line = ["--model", "han-wrong", "--model", "han", "--config-folder", tmp_path, "--seeds", 1]
    line += ["--data", tmp_path]  # of no use to a graph made on the spot
    done = hanme(*command(*line, "--out", tmp_path / "out", "--json")[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("hanme: 1 of 2 runs failed, first ")
    assert "han-wrong/483: " in done.stderr
    table = json.loads(done.stdout)
    assert [row["name"] for row in table["rows"]] == ["han"]
    assert list(table["failed"]) == ["planted-han-wrong/483"]
    assert "- planted-han-wrong, seeds 483: " in (tmp_path / "out" / "benchmark.md").read_text()


@pytest.mark.slow
def test_tables_of_one_s_own_have_rows_as_train_would_train_or_as_a_file_says(
    tmp_path: Path,
) -> None:
    films = shutil.copytree(FILMS, tmp_path / "my films")
    write_draft(films)
    (tmp_path / "configs").mkdir()
    text = (
        f'[data]\nname = "{films}"\n[model]\nname = "han"\n'
        '[model.options]\nmetapaths = ["film-person-film"]\nheads = 2\nhidden_channels = 8\n'
        '[training]\nlts = {pace = "root"}\n'
    )
    (tmp_path / "configs" / "han-small-my-films.toml").write_text(text)
    arguments = ["--graph", films, "--model", "gat", "--model", "han-small", "--seeds", 1, "--json"]
    arguments += ["--config-folder", tmp_path / "configs", "--set", "training.epochs=4"]
    done = hanme("benchmark", *arguments, "--out", tmp_path / "out", "--processes", 1)
    assert done.returncode == 0
    table = json.loads(done.stdout)
    assert [row["name"] for row in table["rows"]] == ["gat", "han-small + LTS root"]
    assert {row["graph"] for row in table["rows"]} == {"my-films"}
    assert (tmp_path / "out" / "benchmark-my-films.svg").exists()
    gat, han = (
        json.loads((tmp_path / "out" / "runs" / name / "483" / "config.json").read_text())
        for name in ("my-films-gat", "my-films-han-small-lts-root")
    )
    assert gat["model"]["options"]["hidden_channels"] == 512  # GAT's own default
    assert han["model"]["options"]["hidden_channels"] == 8
    assert han["training"]["lts"] == {"pace": "root", "start": 0.1, "until": 2}


OWN = """
title = "Two widths"
about = "{count} seed: {seeds}."
rule = "without_fallback"
[base]
data = { name = "planted", options = { movies = 100 } }
model.options.heads = 2
[[row]]
name = "HAN, narrow"
set = { "model.name" = "han", "model.options.hidden_channels" = 8 }
[[row]]
name = "HAN, wide"
set = { "model.name" = "han", "model.options.hidden_channels" = 16, "training.epochs" = 3 }
"""


@pytest.mark.slow
def test_an_experiment_of_one_s_own(tmp_path: Path) -> None:
    (tmp_path / "widths.toml").write_text(f"seeds = [7]\n{OWN}")
    line = ["benchmark", "--config", tmp_path / "widths.toml", "--json"]
    line += ["--set", "training.epochs=2", "--processes", 1, "--out", tmp_path / "out"]
    done = hanme(*line)
    assert done.returncode == 0
    rows = json.loads(done.stdout)["rows"]
    assert [row["name"] for row in rows] == ["HAN, narrow", "HAN, wide"]
    configs = [
        json.loads((tmp_path / "out" / "runs" / name / "7" / "config.json").read_text())
        for name in ("han-narrow", "han-wide")
    ]
    assert [config["model"]["options"]["hidden_channels"] for config in configs] == [8, 16]
    assert [config["training"]["epochs"] for config in configs] == [
        2,
        3,
    ]  # the row's own goes first
    text = (tmp_path / "out" / "widths.md").read_text()
    assert "# Two widths\n" in text
    assert "1 seed: 7." in text
    assert (tmp_path / "out" / "widths-planted-curves.svg").exists()


def test_a_mistake_in_an_experiment_names_file_and_field(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "widths.toml"
    path.write_text(OWN.replace('rule = "without_fallback"', 'rule = "best"'))
    line = ["benchmark", "--config", path, "--out", tmp_path / "out"]
    assert f"{path}: rule: Input should be 'with_fallback' or" in refused(*line)
    path.write_text(OWN.replace("heads = 2", "heads = true"))
    assert "widths.toml, HAN, narrow: model han: heads" in refused(*line)
    path.write_text(OWN)
    assert "--set data.name: it cannot be changed" in refused(*line, "--set", "data.name=IMDB")
    assert not (tmp_path / "out").exists()


def test_a_model_of_one_s_own_folder_has_a_row_without_being_named(tmp_path: Path) -> None:
    assert "han-mine" not in models("planted", tmp_path)
    (tmp_path / "han-mine-planted.toml").write_text("")
    assert models("planted", tmp_path) == sorted([*models("planted"), "han-mine"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "gru"], "no configuration 'gru-planted'; there are"),
        (["--lts", "slow"], "'slow' is not one of 'none', 'linear'"),
        (["--model", "han", "--set", "training.lr=no"], "han-planted.toml: training.lr: "),
        (["--model", "han", "--set", "depth=3"], "model han has no option 'depth'"),
        (["--model", "han", "--set", "in_channels=3"], "model han has no option 'in_channels'"),
        (
            ["--model", "han", "--set", "model.name=gat"],
            "--set model.name: it cannot be changed here",
        ),
        (["--model", "han", "--set", "training.seed=3"], "han-planted and --seeds set it"),
        (["--model", "han", "--set", "data.seed=3"], "--set data.seed: it cannot be changed here"),
        (["--config", "papers"], "no experiment 'papers'; expected benchmark, paper, questions or"),
        (["--config", "paper"], "the rows of paper are fixed"),
        (["--config", "no/such.toml"], "no/such.toml: it cannot be read"),
        (["--config-folder", "/no/such/folder"], "'/no/such/folder' does not exist"),
        (["--config-folder", __file__], "is a file"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], message: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    assert message in refused(*command(*arguments, "--out", tmp_path / "out")[1:])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("source", "field"), [("gat-planted", "model.name"), ("han-IMDB", "data")])
def test_a_file_that_is_not_what_it_is_called_is_refused(
    source: str, field: str, refused: Callable[..., str], tmp_path: Path
) -> None:
    text = (CONFIGS / f"{source}.toml").read_text()
    (tmp_path / "han-planted.toml").write_text(text)
    line = ["benchmark", "--graph", "planted", "--model", "han", "--config-folder", tmp_path]
    assert f"han-planted.toml: {field}" in refused(*line, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
