"""Labels that a person has reviewed: ``hanme train --with reviewed.csv``."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from commands import hanme
from drafts import write_draft
from hanme.common.files import read_json
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.runs import OpenedRun
from hanme.runs.reviewed import ReviewedLabel, read_reviewed, with_reviewed

FILMS = Path(__file__).parents[2] / "examples" / "films"
HEAD = "id,label,action,time\n"


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    shutil.copytree(FILMS, "films")
    write_draft(Path("films"), label="genre")
    return tmp_path


def test_reviewed_rows_are_training_rows_of_the_run(films: Path) -> None:
    rows = "f011,Comedy,correct,1\nf013,,skip,2\nf001,Comedy,correct,3\nf011,Drama,confirm,4\n"
    (films / "reviewed.csv").write_text(HEAD + rows)
    train = ["train", "films", "--model", "linear", "--with", "reviewed.csv"]
    done = hanme(*train)
    assert done.returncode == 0, done.stderr
    run = OpenedRun.open("runs/films")
    assert run.config.data.reviewed == {
        "f001": ReviewedLabel(label="Comedy", row=4),
        "f011": ReviewedLabel(label="Drama", row=5),
    }
    by_id = {row["id"]: row for row in run.predict().rows()}
    assert (by_id["f011"]["split"], by_id["f011"]["labels"]) == ("train", ["Drama"])
    assert (by_id["f013"]["split"], by_id["f013"]["labels"]) == ("unlabelled", [])
    assert by_id["f001"]["labels"] == ["Comedy"]
    assert not run.differs_from_training
    assert hanme("evaluate").returncode == 0
    assert hanme(*train, "--resume", "--json").stdout == json.dumps(run.result) + "\n"
    (films / "reviewed.csv").unlink()  # the run holds the labels itself
    assert OpenedRun.open("runs/films").predict(["f011"]).rows()[0]["labels"] == ["Drama"]
    assert read_json(Path("runs/films/config.json"))["data"]["reviewed"]["f011"]["row"] == 5


@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ("id,genre\n", "row 1: expected a column label"),
        ("", "row 1: expected a column id"),
        (HEAD + "f011,Drama\n", "row 2: expected 4 cells, but got 2"),
        (HEAD + "f011,Drama,delete,1\n", "row 2, column action"),
        (HEAD + "f011,Drama,confirm,1\n,Drama,confirm,1\n", "row 3, column id: it is empty"),
        (HEAD + "f999,Drama,confirm,1\n", "row 2, column id: film 'f999'"),
        (HEAD + "f011,Drama,confirm,1\nf013,Opera,correct,1\n", "row 3, column label: no label"),
        ("id,label\n\xff\n", "not a CSV file in UTF-8"),
    ],
)
def test_mistakes_name_row_and_column(
    films: Path, refused: Callable[..., str], rows: str, place: str
) -> None:
    Path("reviewed.csv").write_bytes(rows.encode("latin-1"))
    assert place in refused("train", "films", "--model", "linear", "--with", "reviewed.csv")
    assert not list(Path().glob("runs/*"))


def test_several_labels_and_the_split() -> None:
    graph = planted(movies=100, seed=0)
    free = int(graph.split.train.nonzero()[0])
    graph.split.train[free] = False
    assert graph.multilabel
    val, test = (int(mask.nonzero()[0]) for mask in (graph.split.val, graph.split.test))
    first, second = graph.labels[:2]
    answers = {
        str(node): ReviewedLabel(label=f"{first}|{second}", row=2) for node in (val, test, free)
    }
    changed = with_reviewed(graph, answers)
    expected = [label in (first, second) for label in graph.labels]
    assert changed.label_matrix[[val, test, free]].tolist() == [expected] * 3
    assert changed.split.train.sum() == graph.split.train.sum() + 1
    assert changed.split.train[free]
    for part in ("val", "test"):  # scores stay comparable
        assert torch.equal(getattr(changed.split, part), getattr(graph.split, part))
    unknown = {"nobody": ReviewedLabel(label=first, row=2)}
    assert torch.equal(with_reviewed(graph, unknown, skip_unknown=True).y, graph.y)
    with pytest.raises(HanmeError, match="row 2, column id"):
        with_reviewed(graph, unknown)


def test_columns_of_other_names_and_formulas(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("note,label,id\nx,'=Drama,'-f1\n,,f2\n")
    assert read_reviewed(path) == {"-f1": ReviewedLabel(label="=Drama", row=2)}
