"""hanme explain as a user meets it."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hanme.cli import main

QUICK = ["--epochs", "3", "--set", "data.options.movies=100"]


def hanme(*arguments: object) -> None:
    """In this process: starting one each time would take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hanme", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
    assert not left.value.code, left.value.code


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    hanme("train", "planted", "--out", folder, *QUICK)
    return folder


def test_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hanme("explain", run, 7, "--top", 3)
    out = capsys.readouterr().out
    assert out.count(" <- ") == 6
    assert "movie-director-movie" in out
    assert "predicted" in out
    assert "(given: " in out
    assert "Logit of" in out
    assert "\x1b" not in out


def test_json_and_a_picture(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hanme("explain", run, 7, "--json", "--out", tmp_path / "p.svg", "--by", "move")
    found = json.loads(capsys.readouterr().out)
    assert (found["number"], found["by"], len(found["instances"])) == (7, "move", 5)
    assert set(found["instances"][0]["moves"]) == set(found["logits"])
    assert found["node"] in " ".join(ET.parse(tmp_path / "p.svg").getroot().itertext())
    label = min(found["logits"], key=found["logits"].get)
    hanme("explain", run, found["node"], "--json", "--label", label)
    assert json.loads(capsys.readouterr().out)["label"] == label


def test_fidelity(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", run, "--fidelity", "--nodes", 5]
    hanme(*arguments, "--json")
    found = json.loads(capsys.readouterr().out)
    assert [step["k"] for step in found["steps"]] == [1, 2, 5, 10, 20]
    assert found["nodes"] == 5
    hanme(*arguments)
    assert "ratio" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name either a node to explain or --fidelity"),
        (["7", "--fidelity"], "either"),
        (["--fidelity", "--out", "f.svg"], "--out draws the explanation of a node"),
        (["Nobody"], "movie 'Nobody': no node has that id or name"),
        (["100"], "movie 100: there are 100, numbered from 0"),
        (["7", "--label", "Opera"], "unknown label 'Opera'; there are"),
        (["7", "--by", "size"], "'size' is not one of 'part', 'move', 'attention'"),
        (["7", "--out", "p.png"], "p.png: a picture's name ends with .svg or .html"),
        (["7", "--out", "/dev/null/p.svg"], "/dev/null"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    run: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["hanme", "explain", str(run), *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 2
    assert message in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert not said.out


def test_a_model_without_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hanme("train", "planted", "--model", "gat", "--out", tmp_path / "run", *QUICK)
    assert "Next: hanme predict or evaluate." in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["hanme", "explain", str(tmp_path / "run"), "7"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert (
        "model GAT cannot be explained: it attends to no metapath instances"
        in capsys.readouterr().err
    )
