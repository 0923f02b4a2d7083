"""The examples run, and leave files that they did not create alone."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def existing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with somebody's file in it."""
    folder = tmp_path / "mine"
    for name in ("thesis.txt", "run/thesis.txt", "tables/thesis.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("years of work")
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    return folder


def run(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Run an example that is told to write to a folder; return what it leaves there."""
    monkeypatch.setattr(sys, "argv", [script, str(folder)])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_demo_creates_its_own_folder(existing: Path) -> None:
    new_folder = runpy.run_path(str(EXAMPLES / "demo.py"), run_name="demo")["new_folder"]
    before = sorted(existing.rglob("*"))
    assert [new_folder(existing).name for _ in range(2)] == ["mine-2", "mine-3"]
    assert sorted(existing.rglob("*")) == before
    assert new_folder(existing.parent / "a" / "b").is_dir()


@pytest.mark.slow
def test_the_demo(existing: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    before = sorted(path for path in existing.rglob("*") if path.is_file())
    assert run("demo.py", existing, monkeypatch) == before
    said = capsys.readouterr().out
    scores = [float(line.split()[0]) for line in said.splitlines() if "▁" in line]
    assert scores[0] + 8 < scores[1] < scores[2]
    path = existing.with_name("mine-2") / "why.svg"
    assert path.stat().st_size > 0
    assert str(path) in said


@pytest.mark.slow
def test_films(existing: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    before = sorted(path for path in existing.rglob("*") if path.is_file())
    assert run("films.py", existing, monkeypatch) == before
    assert "22 films have no genre" in capsys.readouterr().out
    for name in ("predictions.csv", "why.svg", "run/result.json"):
        assert (existing.with_name("mine-2") / name).stat().st_size > 0
