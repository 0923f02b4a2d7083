"""The code and the commands of the README and of the guides run."""

import re
import shutil
from pathlib import Path

import pytest

from commands import shell
from hanme.data import planted
from hanme.nn import HANME
from hanme.training import Trainer, TrainingConfig, build_seeded

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the README's commands have been run."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (commands,) = blocks("README.md", "sh")
    shell(commands, folder, HANME_CACHE=str(folder / "cache"))
    return folder


@pytest.fixture
def inside(films: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(films)
    monkeypatch.setenv("HANME_CACHE", str(films / "cache"))
    return films


def test_the_commands_of_the_readme_leave_predictions_and_a_picture(films: Path) -> None:
    assert len((films / "predictions.csv").read_text().splitlines()) == 121
    assert "The Borrowed Letter" in (films / "why.svg").read_text()


def test_the_python_of_the_readme_runs(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (inside / "predictions.csv").unlink()
    (inside / "why.svg").unlink()
    (code,) = blocks("README.md", "python")
    exec(code, {})
    said = capsys.readouterr().out
    assert "micro" in said
    assert "The Borrowed Letter" in said
    assert len((inside / "predictions.csv").read_text().splitlines()) == 121
    assert "The Borrowed Letter" in (inside / "why.svg").read_text()


def test_the_python_of_tables_runs(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(blocks("docs/tables.md", "python"))
    names: dict = {}
    exec(code, names)
    assert len(names["unlabelled"]) == 22
    assert "Drama" in capsys.readouterr().out


def test_the_python_of_pyg_runs(hgb_source: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HANME_DATA", str(hgb_source))
    monkeypatch.setenv("HANME_CACHE", str(tmp_path))
    code = "\n".join(blocks("docs/pyg.md", "python"))
    names: dict = {}
    exec(code.replace("TrainingConfig(", "TrainingConfig(epochs=2, "), names)
    assert names["logits"].shape == (4932, 5)
    assert names["some"].shape == (2, 5)
    assert names["vectors"].shape == (4932, 64)
    assert names["data"].metapath_instances["movie-actor-movie"].shape == (111045, 3)


def test_the_python_of_explain_runs(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    graph = planted(movies=100)
    graph.targets.names = ["Inception", *list(graph.targets.names or [])[1:]]
    model, _ = build_seeded(
        lambda: HANME(
            graph.metadata(),
            target="movie",
            out_channels=len(graph.labels),
            metapaths=graph.metapaths,
            hidden_channels=16,
            heads=2,
        ),
        graph,
        seed=1,
    )
    Trainer(model, graph, TrainingConfig(recipe="paper", epochs=5)).run()
    label = graph.labels[0]
    (code,) = blocks("docs/explain.md", "python")
    exec(code.replace('"Drama"', repr(label)), {"model": model.eval(), "graph": graph})
    said = capsys.readouterr().out
    assert said.startswith("Inception: ")
    assert "removing the first reason" in said
    assert label in (tmp_path / "why.html").read_text()
