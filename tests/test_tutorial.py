"""The tutorials and their scripts do what they say: every command, in the order of the document."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from commands import shell

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
TEXT, DECIDE = ((ROOT / "docs" / name).read_text() for name in ("tutorial.md", "decide.md"))
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a newcomer is who has followed the document to its end."""
    folder = tmp_path_factory.mktemp("tutorial")
    shutil.copytree(ROOT / "examples" / "wide", folder / "films")
    return follow(TEXT, folder, "films")


def follow(text: str, folder: Path, graph: str) -> Path:
    """Run the commands of a document; what its toml says is the end of a graph.toml."""
    said = ""
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if kind == "sh":
            said += shell(block, folder, HANME_CACHE=str(folder / "cache"))
        elif kind == "toml":  # it takes the place of the end of the file
            path = folder / graph / "graph.toml"
            kept = path.read_text().partition(f"\n{block.splitlines()[0]}")[0]
            path.write_text(f"{kept}\n{block}")
    (folder / "said").write_text(said)
    return folder


def test_four_commands_lead_to_predictions_and_a_picture(folder: Path) -> None:
    commands = re.findall(r"^hanme (\w+)", "".join(b for k, b in BLOCKS if k == "sh"), re.M)
    assert commands[:4] == ["init", "train", "predict", "explain"]
    for name in ("predictions.csv", "why.svg", "better.svg"):
        assert (folder / name).stat().st_size > 0
    rows = (folder / "predictions.csv").read_text().splitlines()
    assert len(rows) == 121
    assert sum(",unlabelled," in row for row in rows) == 22
    assert "The Borrowed Letter" in (folder / "why.svg").read_text()


def test_what_the_document_shows_is_what_the_commands_say(folder: Path) -> None:
    said = (folder / "said").read_text()
    first = [block for kind, block in BLOCKS if kind == "text"][1]
    assert said.startswith(first)  # hanme init; scores may differ in the last digits elsewhere
    for line in (
        "120 predictions are in predictions.csv.",
        "The picture is in why.svg.",
        "director: Nadia Okafor",
        "Paper Harbour",
    ):
        assert line in said
        assert line in TEXT


def test_its_python_is_ten_lines_and_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HANME_CACHE", str(folder / "cache"))
    (code,) = (block for kind, block in BLOCKS if kind == "python")
    assert len([line for line in code.splitlines() if line]) <= 10
    exec(code, {})
    assert "The Borrowed Letter" in capsys.readouterr().out
    assert len((folder / "python.csv").read_text().splitlines()) == 121
    assert (folder / "python.svg").exists()


def test_which_rows_to_look_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    follow(DECIDE, tmp_path, "flights")
    found = {}
    for name in ("uncertain", "surprising"):
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            found[name] = list(csv.DictReader(file))
    assert len(found["uncertain"]) == 100
    assert {row["split"] for row in found["uncertain"]} == {"unlabelled"}
    assert len(found["surprising"]) == 100
    wrong = set((tmp_path / "flights-wrong.txt").read_text().split())
    right = sum(row["id"] in wrong for row in found["surprising"])
    assert right > 0
    assert f"\n{right}\n" in (tmp_path / "said").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    (code,) = re.findall(r"```python\n(.*?)```", DECIDE, re.DOTALL)
    exec(code, {})
    assert "'f0" in capsys.readouterr().out
