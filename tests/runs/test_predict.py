"""Predictions of runs on a user's own tables, on tables that have grown, and on other graphs."""

import csv
import json
import math
import re
import shutil
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest
import torch
from scipy.stats import entropy

from hanme.cli import main
from hanme.common.files import read_json
from hanme.data import load
from hanme.errors import HanmeError
from hanme.graph import defaults
from hanme.nn.batch import Batch
from hanme.runs import OpenedRun, Run, RunConfig, train

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "tables.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
GRAPH = next(block for block in BLOCKS if "roles.csv" in block)
MODEL = {"hidden_channels": 16, "heads": 2}


def tables(folder: Path, graph: str = GRAPH) -> Path:
    shutil.copytree(ROOT / "examples" / "films", folder)
    (folder / "graph.toml").write_text(graph)
    return folder


def config(name: Path | str, metapaths: list[str], epochs: int = 4, **data) -> RunConfig:
    return RunConfig.make(
        {
            "data": {"name": str(name), **data},
            "model": {"options": {"metapaths": metapaths, **MODEL}},
            "training": {"recipe": "paper", "epochs": epochs},
        }
    )


PATHS = ["film-directed:person-directed_by:film", "film-played:person-rev_played:film"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the graph.toml of the documentation, and the tables it was trained on."""
    folder = tmp_path_factory.mktemp("predict")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANME_CACHE", str(folder / "cache"))
        films = tables(folder / "films") / "graph.toml"
        train(config(films, PATHS, epochs=30), folder / "run")
    return folder / "run"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))


def grown(run: Path, folder: Path) -> Path:
    """The same tables with two more films, and a person between one of them and an old one."""
    shutil.copytree(run.parent / "films", folder)
    with (folder / "films.csv").open("a") as file:
        file.write("f900,The New One,2030,Japan,detective ransom alibi witness midnight,\n")
        file.write("f901,Nobody's,,,,\n")
    with (folder / "people.csv").open("a") as file:
        file.write("p900,New Person,2000\n")
    with (folder / "roles.csv").open("a") as file:
        file.write("f900,p900,actor\nf001,p900,actor\nf900,p05,director\n")
    return folder


def test_the_run_folder_and_its_scores(run: Path) -> None:
    assert (run / "features.json").exists()
    assert OpenedRun.open(run).evaluate() == Run.open(run).result()["scores"]
    assert train(Run.open(run).config, run, resume=True).finished


def test_predictions_are_those_of_training(run: Path) -> None:
    found = OpenedRun.open(run).predict()
    assert not found.differs_from_training
    stored = duckdb.sql(f"SELECT * FROM '{run / 'predictions.parquet'}'")
    assert stored.columns[:8] == [
        "node", "id", "name", "split", "labels", "predicted", "uncertainty", "surprise"
    ]  # fmt: skip
    for mine, theirs in zip(found.rows(), stored.fetchall(), strict=True):
        assert list(mine) == stored.columns
        assert tuple(mine.values())[:6] == theirs[:6]
        numbers = [list(values)[6:] for values in (mine.values(), theirs)]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)
    with (run.parent / "films" / "films.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in found.rows()] == [row["film_id"] for row in rows]
    assert [row["name"] for row in found.rows()] == [row["title"] for row in rows]
    assert [row["labels"] for row in found.rows()] == [
        [g] if (g := r["genre"]) else [] for r in rows
    ]
    for row in found.rows():
        assert sum(value for key, value in row.items() if key.startswith("p_")) == pytest.approx(1)


def test_which_nodes_to_look_at_first(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    found, every = OpenedRun.open(run).predict(), OpenedRun.open(run).predict().rows()
    for row in every:
        p = {key[2:]: value for key, value in row.items() if key.startswith("p_")}
        assert row["uncertainty"] == pytest.approx(entropy(list(p.values()), base=2), abs=1e-5)
        wanted = -math.log2(p[row["labels"][0]]) if row["labels"] else None
        assert row["surprise"] == (wanted and pytest.approx(wanted, abs=1e-5))
    first = found.only("unlabelled").ranked("uncertain", top=3).rows()
    unlabelled = [row for row in every if row["split"] == "unlabelled"]
    assert first == sorted(unlabelled, key=lambda row: -row["uncertainty"])[:3]
    first = found.ranked("surprising").rows()
    assert first == sorted((r for r in every if r["labels"]), key=lambda row: -row["surprise"])
    few = found.ranked(top=2)
    assert few.rows() == every[:2]
    assert [
        row["id"] for row in OpenedRun.open(run).predict(["f009", "f002"]).ranked(top=1).rows()
    ] == ["f009"]
    with pytest.raises(HanmeError):
        found.ranked("odd")
    with pytest.raises(HanmeError):
        found.only("odd")
    other = OpenedRun.open(run, graph=grown(run, tmp_path / "grown")).predict()
    assert "f900" in {row["id"] for row in other.only("unlabelled").rows()}
    with pytest.raises(HanmeError):
        other.only("test")

    shutil.copytree(run, tmp_path / "runs" / "films")
    monkeypatch.chdir(tmp_path)
    options = ["--order", "surprising", "--top", "5"]
    assert shell(["predict", *options, "--out", "first.csv"], monkeypatch) == 0
    with open("first.csv", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [row["id"] for row in first[:5]]
    assert shell(["predict", *options], monkeypatch) == 0
    said = capsys.readouterr()
    assert "Latest run: runs/films" in said.err
    assert re.search(r"surprise ┃ +most likely +┃ +second +┃ +third", said.out)


def test_a_prediction_does_not_depend_on_who_else_is_asked_for(run: Path, tmp_path: Path) -> None:
    for graph in (None, grown(run, tmp_path / "grown")):
        everything = {row["id"]: row for row in OpenedRun.open(run, graph=graph).predict().rows()}
        some = OpenedRun.open(run, graph=graph).predict(["f007", "Amber Voyage", "f001"]).rows()
        assert [row["id"] for row in some] == ["f007", "f003", "f001"]
        assert [everything[row["id"]] for row in some] == some


def test_a_graph_that_has_grown(run: Path, tmp_path: Path) -> None:
    folder = grown(run, tmp_path / "grown")
    found = OpenedRun.open(run, graph=folder).predict()
    assert found.differs_from_training
    assert len(found) == 122
    rows = {row["id"]: row for row in found.rows()}
    assert "split" not in rows["f900"]
    assert rows["f900"]["labels"] == []
    assert torch.isfinite(found.logits).all()
    again = OpenedRun.open(run, graph=folder).predict()  # from the cache
    assert torch.equal(again.logits, found.logits)
    for attempt in (
        lambda: OpenedRun.open(run, source=folder).evaluate(),
        lambda: train(config(folder / "graph.toml", PATHS), _unfinished(run, folder), resume=True),
    ):
        with pytest.raises(HanmeError):
            attempt()


def _unfinished(run: Path, folder: Path) -> Path:
    """The run as if it had been trained on `folder` and killed."""
    copy = folder.parent / "killed"
    shutil.copytree(run, copy)
    (copy / "result.json").unlink()
    settings = read_json(copy / "config.json")
    settings["data"]["name"] = str(folder / "graph.toml")
    settings["training"]["epochs"] = 4
    (copy / "config.json").write_text(json.dumps(settings))
    return copy


def test_far_from_new_nodes_nothing_but_the_metapaths_weights_changes(
    run: Path, tmp_path: Path
) -> None:
    """Per metapath, an old film that no new link touches has the vector it had."""
    folder = grown(run, tmp_path / "grown")
    vectors = []
    for source in (None, folder):
        opened = OpenedRun.open(run, source=source)
        graph, model = opened.graph, opened.model.network
        batch = Batch.of(graph)
        films = [graph.targets.find(node) for node in ("f050", "f051")]
        with torch.no_grad():
            vectors.append(model.eval().channels[0](batch)[1][films])
    # People have the mean of their films' features, so that only those far away stay the same.
    torch.testing.assert_close(*vectors, rtol=0, atol=1e-5)


def test_the_order_in_a_graph_toml_changes_nothing(run: Path, tmp_path: Path) -> None:
    year, country = 'year = "number"\n', 'country = "category"\n'
    film = GRAPH[GRAPH.index("[nodes.film]") : GRAPH.index("[nodes.person]")]
    played = GRAPH[GRAPH.index("[relations.played]") :]
    other = GRAPH.replace(played, "").replace(film, "").replace("[relations.", f"{film}[relations.")
    other = other.replace(year + country, country + year)
    other = other.replace("[relations.directed]", f"{played}\n[relations.directed]")
    assert tomllib.loads(other) == tomllib.loads(GRAPH)
    folder = tables(tmp_path / "other", other)
    torch.testing.assert_close(
        OpenedRun.open(run, graph=folder).predict().logits, OpenedRun.open(run).predict().logits
    )


def test_a_file_that_cannot_be_written_is_one_line(run: Path) -> None:
    with pytest.raises((HanmeError, OSError), match="/proc"):
        OpenedRun.open(run).predict().write("/proc/x.csv")


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_files(run: Path, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"out.{form}"
    found = OpenedRun.open(run).predict(["f002", "f001"])
    found.write(path)
    rows = duckdb.sql(f"SELECT * FROM '{path}'").fetchall()
    expected = [list(row.values()) for row in found.rows()]
    if form == "csv":
        expected = [[*r[:4], "|".join(r[4]) or None, "|".join(r[5]), *r[6:]] for r in expected]
    for row, wanted in zip(rows, expected, strict=True):
        assert list(row[:6]) == wanted[:6]
        assert list(row[6:]) == pytest.approx(wanted[6:], abs=1e-6)


def test_several_labels_and_awkward_names(tmp_path: Path) -> None:
    graph = GRAPH.replace('label = "genre"', 'label = "genre"\nlabel_separator = "+"')
    films = tables(tmp_path / "films", graph)
    text = (films / "films.csv").read_text().replace(",Drama\n", ',Drama + it\'s ""; DROP\n')
    text = re.sub(r",(Drama \+ .*)\n", r',"\1"' + "\n", text)
    (films / "films.csv").write_text(text.replace("The Slow Staircase", "[bold]\x1b[31mred"))
    train(config(films / "graph.toml", PATHS[:1]), tmp_path / "run")
    rows = OpenedRun.open(tmp_path / "run").predict(["f001", "f002"]).rows()
    assert rows[0]["labels"] == ["Drama", "it's \"; DROP"]
    assert "p_it's \"; DROP" in rows[0]
    assert rows[1]["name"] == "[bold]\x1b[31mred"
    OpenedRun.open(tmp_path / "run").predict().write(tmp_path / "out.csv")
    for gone in ('label = "genre"\nlabel_separator = "+"\n', 'label = "genre"\n'):  # no labels
        (films / "graph.toml").write_text(graph.replace(gone, ""))
        bare = OpenedRun.open(tmp_path / "run", graph=films).predict().rows(1)[0]
        assert bare["labels"] == []
        assert bare["predicted"] == rows[0]["predicted"]


def test_labels_that_differ_in_case_alone(tmp_path: Path, monkeypatch, capsys) -> None:
    films = tables(tmp_path / "films")
    text = (films / "films.csv").read_text()
    (films / "films.csv").write_text(text.replace(",Thriller\n", ",drama\n"))
    train(config(films / "graph.toml", PATHS[:1]), tmp_path / "run")
    found = OpenedRun.open(tmp_path / "run").predict()
    assert found.graph.labels == ["Comedy", "Drama", "drama"]
    wanted = ["p_Comedy", "p_Drama", "p_drama_2"]
    assert list(found.rows(1)[0])[-3:] == wanted
    for form in ("csv", "parquet", "json"):
        found.write(tmp_path / f"out.{form}")
        assert duckdb.sql(f"FROM '{tmp_path / 'out'}.{form}'").columns[-3:] == wanted
    assert shell(["predict", tmp_path / "run", "--node", "f001"], monkeypatch) == 0
    assert "drama" in capsys.readouterr().out


def test_other_graphs(tmp_path: Path) -> None:
    metapaths = ["movie-director-movie", "movie-actor-movie"]
    train(config("planted", metapaths, options={"movies": 100}), tmp_path / "run")
    found = OpenedRun.open(tmp_path / "run").predict()
    assert len(found) == 100
    name = found.rows()[3]["name"]
    assert OpenedRun.open(tmp_path / "run").predict([name, "3"]).rows() == [found.rows()[3]] * 2
    with pytest.raises(HanmeError):
        OpenedRun.open(tmp_path / "run").predict(["100"])
    with pytest.raises(HanmeError):
        OpenedRun.open(tmp_path / "run", graph=tmp_path).predict()


def test_a_type_that_is_its_ids_cannot_grow(run: Path, tmp_path: Path) -> None:
    graph = re.sub(r"\[nodes\.film\.features\].*?\n\n", "", GRAPH, flags=re.DOTALL)
    films = tables(tmp_path / "films", graph)
    train(config(films / "graph.toml", PATHS[:1]), tmp_path / "run")
    assert len(OpenedRun.open(tmp_path / "run").predict()) == 120
    folder = grown(run, tmp_path / "grown")
    (folder / "graph.toml").write_text(graph)
    with pytest.raises(HanmeError):
        OpenedRun.open(tmp_path / "run", graph=folder).predict()


def test_explaining_on_a_graph_that_has_grown(run: Path, tmp_path: Path, monkeypatch, capsys):
    folder = grown(run, tmp_path / "grown")
    assert shell(["explain", run, "f900", "--graph", folder, "--json"], monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    row = OpenedRun.open(run, graph=folder).predict(["f900"]).rows()[0]
    assert (found["node"], list(found["predicted"])) == ("The New One", row["predicted"])
    for label, p in found["probabilities"].items():
        assert p == pytest.approx(row[f"p_{label}"], abs=1e-5)
    assert shell(["explain", run, "f900"], monkeypatch) == 2
    assert "no node has that id or name" in capsys.readouterr().err
    assert shell(["explain", run, "--fidelity", "--graph", folder], monkeypatch) == 2
    assert "have changed since it was trained" in capsys.readouterr().err


def shell(arguments: list[object], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["hanme", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_command(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert shell(["predict", run], monkeypatch) == 0
    said = capsys.readouterr().out
    assert "The Silver Voyage" in said
    assert "20 of 120 nodes" in said
    out = tmp_path / "new" / "p.csv"
    assert shell(["predict", run, "--node", "f003", "--out", out], monkeypatch) == 0
    assert f"1 predictions are in {out}" in " ".join(capsys.readouterr().out.split())
    assert out.read_text().startswith("node,id,name,split,labels,predicted,uncertainty,surprise,p_")
    assert shell(["predict", run, "--node", "f003", "--json"], monkeypatch) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == "Amber Voyage"
    assert shell(["inspect", run.parent / "films"], monkeypatch) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "22 without a label" in said
    assert PATHS[0] in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "f999"], "film 'f999': no node has that id or name"),
        (["--node", "Amber Lantren"], "no node has that id or name; similar: The Amber Lantern ("),
        (["--out", "p.xlsx"], "p.xlsx: expected a file name that ends in"),
        (["--graph", "nowhere"], "nowhere: no such file"),
        (["--graph", "nowhere.toml"], "nowhere.toml: no such file"),
    ],
)
def test_mistakes(run: Path, arguments: list[str], message: str, monkeypatch, capsys) -> None:
    assert shell(["predict", run, *arguments], monkeypatch) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_dropped_links_are_said(tmp_path: Path, monkeypatch, capsys) -> None:
    films = tables(tmp_path / "films", GRAPH + 'unknown = "drop"\n')
    with (films / "roles.csv").open("a") as file:
        file.write("f001,p999,actor\n,p05,actor\n")
    arguments = ["train", films, "--out", tmp_path / "run", "--epochs", "1", "--hidden", "8"]
    assert shell(arguments, monkeypatch) == 0
    assert "played: 2 links to unknown ids dropped" in capsys.readouterr().err
    assert shell(["inspect", films, "--hops", "2"], monkeypatch) == 0
    assert "dropped" in capsys.readouterr().out


@pytest.mark.slow
def test_metapaths_with_too_many_instances_are_left_out_by_default(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    films, (few, many) = tables(tmp_path / "films"), PATHS
    assert load(str(films)).metapaths == PATHS
    monkeypatch.setattr(defaults, "BUDGET", 1)
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "budget"))  # a cached graph keeps its defaults
    quick = ["--epochs", "1", "--hidden", "8"]
    assert shell(["train", films, "--out", tmp_path / "run", *quick], monkeypatch) == 0
    said = capsys.readouterr().err
    assert re.search(rf"^{few}: [\d,]+ instances, backend", said, re.MULTILINE)
    assert re.search(rf"^{many}: left out, [\d,]+ instances; -m names", said, re.MULTILINE)
    assert Run.open(tmp_path / "run").config.model.options["metapaths"] == [few]

    assert shell(["inspect", films, "--hops", "2"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert re.search(r"film-played:person-rev_played:film +│ left out", said)
    assert f"{many}: not a default metapath, " in said

    named = ["--out", tmp_path / "named", "-m", many, *quick]
    assert shell(["train", films, *named], monkeypatch) == 0
    assert "left out" not in capsys.readouterr().err
    assert Run.open(tmp_path / "named").config.model.options["metapaths"] == [many]

    monkeypatch.setattr(defaults, "LIMIT", 1)
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "limit"))
    assert shell(["train", films, "--out", tmp_path / "none", *quick], monkeypatch) == 0
    said = capsys.readouterr().err
    assert "no default metapath is useful and small enough" in said
    assert "--per-root 32 some of its instances: training linear instead" in said
    assert Run.open(tmp_path / "none").config.model.name == "linear"
    han = ["--model", "han", "--out", tmp_path / "han"]
    assert shell(["train", films, *han], monkeypatch) == 2
    assert "model han: no default metapath is" in capsys.readouterr().err
    (films / "graph.toml").write_text(f"metapaths = {PATHS}\n{GRAPH}")
    assert load(str(films)).metapaths == PATHS


def test_inspect_lists_useful_metapaths_first(tmp_path: Path, monkeypatch, capsys) -> None:
    films = tables(tmp_path / "films", GRAPH + '[relations.title]\ncolumns = "film_id"\n')
    assert shell(["inspect", films, "--hops", "2", "--json"], monkeypatch) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [row for row in found["metapaths"] if row["instances"]]
    uses = [row["use"] for row in rows]
    assert uses[:2] == ["default", "default"]
    assert uses[2:-1] == [""] * len(uses[2:-1])
    assert (rows[-1]["metapath"], uses[-1]) == ("film-title-film", "leads back only")
    assert list(found["left_out"]) == ["film-title:title-rev_title:film"]
    assert found["more_metapaths"] == 0
    assert shell(["inspect", films, "--limit", "3"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert said.count(" │ default ") == 2
    assert re.search(r"^[\d,]+ more metapaths are not counted", said, re.MULTILINE)
    assert shell(["inspect", films, "--hops", "4"], monkeypatch) == 0
    said = capsys.readouterr().out
    assert re.search(r"film-title-film-title-film +│ leads back only", said)
    assert "not a default metapath, it leads from every film back to the same" in said
