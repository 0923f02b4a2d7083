"""The command line and Python train the same configuration on the same graph."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from commands import hanme
from drafts import csv_text, write_draft
from hanme import Classifier, Graph, estimator, runs
from hanme.data import load, store_graph
from hanme.data.tables.build import load as tables_load
from hanme.errors import HanmeError
from hanme.runs import RunConfig
from hanme.runs.build import digest_of
from hgb_layout import write_imdb

FILMS = Path(__file__).parents[2] / "examples" / "films"
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "defaults": ("", {}),
    "seed": ("--seed 5", {"seed": 5}),
    "paper": ("--recipe paper", {"training": {"recipe": "paper"}}),
    "model": ("--model gat --epochs 3", {"model": "gat", "training": {"epochs": 3}}),
    "linear": ("--model linear --seed 2", {"model": "linear", "seed": 2}),
    "metapath": ("-m {m} --hidden 8", {"metapaths": ["{m}"], "options": {"hidden_channels": 8}}),
    "schedule": (
        "--epochs 8 --lts root --batch-size 16",
        {"training": {"epochs": 8, "lts": {"pace": "root"}, "batch_size": 16}},
    ),
}


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunConfig, Graph]]:
    """What would be trained: nothing is."""
    seen: list[tuple[RunConfig, Graph]] = []

    def stop(config: RunConfig, *_: Any, graph: Graph | None = None, **__: Any) -> None:
        seen.append((config, runs.load_graph(config) if graph is None else graph))
        raise HanmeError("stopped")

    monkeypatch.setattr(runs, "train", stop)
    monkeypatch.setattr(estimator, "train", stop)
    return seen


def data_set(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Make a data set; return its name and a metapath."""
    monkeypatch.setenv("HANME_CACHE", str(folder / "cache"))
    if name == "one table":
        rows = csv_text("id,size,kind", 60, lambda i: f"r{i},{i % 7},{'ab'[i % 2]}")
        (folder / "rows.csv").write_text(rows)
        write_draft(folder / "rows.csv", label="kind")
        return str(next(folder.glob("**/*.toml"))), "rows-to-rows"
    if name == "IMDB":
        monkeypatch.setenv("HANME_DATA", str(folder))
        write_imdb(load("planted", options={"movies": 60}), folder / "IMDB")
        return "IMDB", "movie-actor-movie"
    if name == "planted":
        return "planted", "movie-actor-movie"
    write_draft(Path(shutil.copytree(FILMS, folder / "films")))
    metapath = load(str(folder / "films")).metapaths[0]
    if name == "large films":
        monkeypatch.setattr(tables_load, "LARGE", 1000)
    if name == "stored films":
        store_graph(str(folder / "films"), folder / "stored")
        return str(folder / "stored"), metapath
    return str(folder / "films"), metapath


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("planted", list(OPTIONS)),
        ("IMDB", list(OPTIONS)),
        ("films", ["defaults", "seed", "model", "schedule"]),
        ("large films", ["seed", "metapath"]),
        ("stored films", ["defaults", "metapath"]),
        ("one table", ["defaults", "model"]),
    ],
)
def test_the_command_and_the_classifier_make_equal_configurations(
    name: str,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: list[tuple[RunConfig, Graph]],
) -> None:
    data, metapath = data_set(name, tmp_path, monkeypatch)
    for option in options:
        line, arguments = OPTIONS[option]
        chosen = {k: [metapath] if k == "metapaths" else v for k, v in arguments.items()}
        hanme("train", data, "--out", tmp_path / "run", *line.format(m=metapath).split())
        graph = configured[-1][1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metapaths that are left out
            for given in (data, graph):
                with pytest.raises(HanmeError, match="stopped"):
                    Classifier(**chosen).fit(given, out=tmp_path / "run")
        (command, ours), (named, theirs), (passed, _) = configured
        configured.clear()
        assert command == named, option
        assert digest_of(ours) == digest_of(theirs), option
        assert ours.stored == theirs.stored == (name in ("large films", "stored films"))
        # A graph that was loaded before has a split already; all else is the same.
        split = command.data.model_copy(update={"seed": passed.data.seed})
        assert command.model_copy(update={"data": split}) == passed, option
    if name == "large films":
        assert command.training.batch_size == 1024
        assert not command.training.linear


def test_the_seed_of_the_classifier_draws_the_split(
    configured: list[tuple[RunConfig, Graph]], tmp_path: Path
) -> None:
    for seed in (0, 5):
        with pytest.raises(HanmeError, match="stopped"):
            Classifier(seed=seed).fit("planted", out=tmp_path)
    (_, first), (_, second) = configured
    assert second.split.val.equal(load("planted", seed=5).split.val)
    assert not second.split.val.equal(first.split.val)
