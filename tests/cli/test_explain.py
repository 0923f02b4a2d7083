"""hanme explain as a user meets it."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from hanme.cli import main

QUICK = ["--epochs", "3", "--set", "data.options.movies=100"]
KEPT = "hanme.training.trainer.GAIN"  # the network stays, however little it adds


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KEPT, -1.0)
        hanme("train", "planted", "--out", folder, *QUICK)
    return folder


def test_a_sentence_and_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hanme("explain", run, 7, "--reasons", 3)
    out = capsys.readouterr().out
    first, _, head, *rows = out.splitlines()
    assert re.fullmatch(r".+: \w+, \d.* %\. .+\(?base rate \d+ %\)?\.", first)
    assert head.split()[0] == "Reasons"
    assert len(rows) == 3 + 3  # those left out, the base rate, and how to see details
    assert "movie-director-movie" not in out
    assert "\x1b" not in out
    hanme("explain", run, 7, "--reasons", 3, "--instances", 3, "--details")
    details = capsys.readouterr().out
    assert details.startswith("\n".join(out.splitlines()[:-1]))
    assert details.count(" <- ") == 6
    assert "movie-director-movie" in details
    assert "Logit of" in details


def test_json_and_a_picture(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hanme("explain", run, 7, "--json", "--out", tmp_path / "p.svg")
    found = json.loads(capsys.readouterr().out)
    assert found["number"] == 7
    for label, logit in found["logits"].items():
        added = sum(reason["contributions"][label] for reason in found["reasons"])
        assert found["base"][label] + added == pytest.approx(logit, abs=1e-5)
    assert found["node"] in " ".join(ET.parse(tmp_path / "p.svg").getroot().itertext())
    label = min(found["logits"], key=found["logits"].get)
    hanme("explain", run, found["node"], "--json", "--label", label)
    assert json.loads(capsys.readouterr().out)["label"] == label


def test_fidelity(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", run, "--fidelity", "--nodes", 3]
    hanme(*arguments, "--json")
    assert json.loads(capsys.readouterr().out)["nodes"] == 3
    hanme(*arguments)
    assert "of 3 nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name either a node to explain or --fidelity"),
        (["7", "--fidelity"], "either"),
        (["--fidelity", "--out", "f.svg"], "--out draws the explanation of a node"),
        (["Nobody"], "movie 'Nobody': no node has that id or name"),
        (["100"], "movie 100: there are 100, numbered from 0"),
        (["7", "--label", "Opera"], "unknown label 'Opera'; there are"),
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
