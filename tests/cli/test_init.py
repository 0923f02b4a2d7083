"""From tables as people have them to an explanation, nothing edited by hand."""

import random
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from drafts import csv_text as rows
from hanme.cli import main
from hanme.data.tables.schema.config import GraphConfig

ROOT = Path(__file__).parents[2]
Command = Callable[..., str]


@pytest.fixture
def hanme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command in this process and returns what it says."""
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["hanme", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert left.value.code == 0, said.err
        return said.out + said.err

    return run


def follow(hanme: Command, folder: Path, node: str, *options: str) -> tuple[dict, str, str]:
    """Run init, train and explain; return the graph.toml, what init and what train said."""
    first = hanme("init", folder, *options)
    small = ("--hidden", "8", "--heads", "2", "--epochs", "3")
    trained = hanme("train", folder, "--out", folder / "run", *small)
    assert "base rate" in hanme("explain", folder / "run", node)
    return tomllib.loads((folder / "graph.toml").read_text()), first, trained


def test_one_wide_csv(hanme: Command, tmp_path: Path) -> None:
    draw = random.Random(1)

    def film(i: int) -> str:
        people = [f"Zoë {draw.randrange(25)}" if draw.random() < 0.9 else "" for _ in range(4)]
        words = "|".join(draw.sample([f"w{k}" for k in range(40)], draw.randrange(4)))
        genres = "|".join(draw.sample(["Drama", "War", "Comedy"], i % 3))
        return f"Film {i},{genres},{','.join(people)},{words},{1990 + i % 30},{i * 7 % 50}"

    header = "movie_title,genres,director_name,actor_1_name,actor_2_name,actor_3_name,plot_keywords"
    text = rows(f"{header},title_year,budget", 120, film)
    text += "".join(line + "\n" for line in text.splitlines()[5:11])
    (tmp_path / "films.csv").write_bytes(text.encode("latin-1"))
    graph, _, trained = follow(hanme, tmp_path, "Film 3")
    film_ = graph["nodes"]["film"]
    assert film_["encoding"] == "latin-1"
    assert film_["duplicates"] == "first"
    assert (film_["label"], film_["label_separator"]) == ("genres", "|")
    assert graph["relations"] == {
        "director": {"columns": ["director_name"]},
        "actor": {"columns": ["actor_1_name", "actor_2_name", "actor_3_name"]},
        "plot_keyword": {"columns": ["plot_keywords"], "separator": "|"},
    }
    assert film_["features"]["title_year"] == "number"
    assert "film: 6 rows dropped" in trained


def test_the_documented_graphs_are_what_they_say(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tables.md").read_text()
    found = [tomllib.loads(b) for b in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)]
    whole = [GraphConfig.model_validate(values) for values in found if "target" in values]
    assert len(whole) == 3
    assert list(whole[0].node_types) == ["film", "actor", "director", "keyword"]
    part = {"target": "film", "nodes": {"film": {"table": "films.csv"}}}
    for values in found:
        GraphConfig.model_validate(part | values)


def test_a_star_of_five_tables(hanme: Command, tmp_path: Path) -> None:
    (tmp_path / "airlines.csv").write_text("carrier,airline\nAA,Aa Air\nBB,Bb Air\nCC,Cc Air\n")
    (tmp_path / "planes.csv").write_text(
        rows("tailnum,year,seats,speed", 20, lambda i: f"N{i},{1990 + i},{i * 9},NA")
    )
    (tmp_path / "airports.csv").write_text(
        rows("faa,name,alt", 8, lambda i: f"X{i},Airport {i},{i * 100}")
    )
    (tmp_path / "weather.csv").write_text(
        rows("origin,hour,temp,wind,gust,rain", 60, lambda i: f"X{i % 3},{i},{i % 9},{i % 4},NA,0")
    )
    (tmp_path / "flights.csv").write_text(
        rows(
            "month,day,dep_delay,carrier,tailnum,origin,dest,distance,late", 300,
            lambda i: f"{i % 12},{i % 28},{'NA' if i % 9 == 0 else i % 40},{'ABC'[i % 3] * 2},"
            f"N{i % 23},X{i % 3},{f'X{i % 8}' if i % 40 else 'ZZ'},{i * 3 % 170},"
            f"{'yes' if i * i % 11 % 4 else 'no'}",
        )
    )  # fmt: skip
    graph, _, trained = follow(hanme, tmp_path, "7", "--target", "flight", "--label", "late")
    assert graph["target"] == "flight"
    assert graph["nodes"]["flight"]["empty"] == ["NA"]
    assert "id" not in graph["nodes"]["flight"]
    relations = graph["relations"]
    assert relations["carrier"] == {"columns": ["carrier"], "type": "airline"}
    assert relations["tailnum"] == {"columns": ["tailnum"], "type": "plane", "unknown": "add"}
    assert relations["origin"] == {"columns": ["origin"], "type": "airport"}
    assert relations["dest"]["unknown"] == "add"
    assert "links to unknown ids dropped" not in trained
    said = hanme("inspect", tmp_path)
    assert re.search(r"plane\W+23\b", said)  # three are in no table, in 13 rows each
    assert "yes" in hanme("predict", tmp_path / "run")


def test_a_table_of_links_with_unknown_ids(hanme: Command, tmp_path: Path) -> None:
    (tmp_path / "packages.csv").write_text(
        rows("name,license,size", 50, lambda i: f"pkg{i},{['MIT', 'BSD', 'GPL'][i % 3]},{i}")
    )
    (tmp_path / "requires.csv").write_text(
        rows("package,depends_on", 200,
             lambda i: f"pkg{i % 50},{f'pkg{i * 7 % 50}' if i % 25 > 2 else f'sys{i}'}")
    )  # fmt: skip
    graph, _, trained = follow(hanme, tmp_path, "pkg3")
    assert graph["relations"]["require"]["target"] == {"type": "package", "column": "depends_on"}
    assert graph["relations"]["require"]["unknown"] == "drop"
    assert "require: 24 links to unknown ids dropped" in trained


def test_unknown_endings(hanme: Command, tmp_path: Path) -> None:
    (tmp_path / "ml.item").write_text(
        rows("item_id\ttitle\tyear\tclass", 40,
             lambda i: f"{i + 1}\tThe Film {i}\t{1980 + i}\t{['Drama', 'War', 'Comedy'][i % 3]}")
    )  # fmt: skip
    (tmp_path / "ml.inter").write_text(
        rows("user_id\titem_id\trating\ttimestamp", 300,
             lambda i: f"{i % 17}\t{i * 3 % 40 + 1}\t{i % 5 + 1}\t{i}")
    )  # fmt: skip
    (tmp_path / "README.md").write_text("What is this?\n\nSome data, and more.\n")
    graph, said, _ = follow(hanme, tmp_path, "5")
    assert "Skipped: README.md: its ending says no format" in said
    nodes = graph["nodes"]["item"]
    assert (nodes["format"], nodes["id"], nodes["label"]) == ("tsv", "item_id", "class")
    relation = graph["relations"]["inter"]
    assert relation["format"] == "tsv"
    assert {relation["source"]["type"], relation["target"]["type"]} == {"user", "item"}
    assert graph["nodes"]["user"] == {}
    assert list(graph["nodes"]["inter"]["features"]) == ["rating"]  # and row numbers


@pytest.mark.parametrize(
    "text", ["x\n1\n1\n", "id,genre\n1,a\n2,b\n", "a;b\n1;2\n1;3\n", "when\n2020-01-01\n"]
)
def test_a_folder_with_a_table_is_never_refused(text: str, hanme: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    (tmp_path / "broken.csv").write_text("a,b\n1\n")
    said = hanme("init", tmp_path)
    assert "Skipped: broken.csv line 2" in said
    assert "# Skipped: broken.csv" in (tmp_path / "graph.toml").read_text()


def test_a_copy_of_the_label_and_dates(hanme: Command, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        rows("genre,genre_id,when,studio", 60,
             lambda i: f"{'xyz'[i % 3]},{i % 3 + 7},{i % 28 + 1}.03.20{i % 20 + 10},s{i % 25}")
    )  # fmt: skip
    hanme("init", tmp_path / "a.csv", "--label", "genre")
    text = (tmp_path / "graph.toml").read_text()
    graph = tomllib.loads(text)
    assert graph["nodes"]["a"]["features"] == {"when": {"kind": "date", "format": "%d.%m.%Y"}}
    assert "# genre_id: left out (each of its values has only one label" in text
    assert graph["relations"] == {"studio": {"columns": ["studio"]}}


def test_one_table_without_a_relation_and_runs_without_a_name(
    hanme: Command, refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "parts.csv").write_text(
        rows("part,size,weight,kind", 60, lambda i: f"p{i},{i % 9},{i * 7 % 11},{'ab'[i % 9 > 4]}")
    )
    hanme("init", "parts")
    assert "no finished run in" in refused("predict")
    said = hanme("train", "parts")
    assert "no relation starts or ends at part: training linear instead" in said
    assert "The run is in runs/parts." in said
    assert "The run is in runs/parts-2." in hanme("train", "parts", "--seed", "1")
    assert "The run is in runs/parts-2." in hanme("train", "parts", "--seed", "1", "--resume")
    for command in (["evaluate"], ["predict"], ["explain", "p3"]):
        assert "Latest run: runs/parts-2" in hanme(*command)
    assert "Latest" not in hanme("explain", "runs/parts", "p3")
    assert "part 'p99': no node has that id" in refused("explain", "runs/parts", "p99")


def test_what_is_asked_for_must_be_there(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,y\n1,a\n")
    assert "--target b: no such table; expected one of a" in refused(
        "init", tmp_path, "--target", "b"
    )
    assert "--label z: no such column; expected one of id, y" in refused(
        "init", tmp_path, "--label", "z"
    )
    assert not (tmp_path / "graph.toml").exists()


def test_force_overwrites_and_print_writes_nothing(
    hanme: Command, refused: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(rows("id,kind,group", 30, lambda i: f"{i},{'ab'[i % 2]},g"))
    shown = hanme("init", tmp_path, "--print", "--label", "kind")
    assert tomllib.loads(shown)["nodes"]["a"]["label"] == "kind"
    assert not (tmp_path / "graph.toml").exists()
    hanme("init", tmp_path, "--label", "kind")
    assert (tmp_path / "graph.toml").read_text() == shown
    (tmp_path / "graph.toml").write_text("mine")
    assert "--force" in refused("init", tmp_path)
    assert (tmp_path / "graph.toml").read_text() == "mine"
    said = hanme("init", tmp_path, "--force", "--label", "kind")
    assert "label column: kind" in said
    assert (tmp_path / "graph.toml").read_text() == shown
