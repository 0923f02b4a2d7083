"""Tables stored without holding them in memory are the graph that loading them gives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hanme.data import load, store_graph
from hanme.data.tables.build import load as tables_load
from hanme.data.tables.build import writer
from hanme.data.tables.build.fitted import FittedGraph
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import fill_features
from hanme.runs import OpenedRun, resolve, train

FILMS = """id,title,year,out,kind,tags,about,vec,genre,cast,when
{rows}
"""
CONFIG = """
target = "film"
[nodes.film]
table = "films.csv"
id = "id"
name = "title"
label = "genre"
label_separator = "|"
{features}
[nodes.person]
table = "people.csv"
id = "id"
[relations.role]
table = "roles.csv"
source = {{type = "person", column = "person"}}
target = {{type = "film", column = "film"}}
{role}
[relations.cast]
columns = ["cast"]
separator = ";"
[split]
{split}
"""
ALL = """features = {year = "number", out = "date", kind = "category", tags = "list", \
about = {kind = "text", size = 5}, vec = "vector"}"""


def tables(folder: Path, features: str, role: str, split: str) -> Path:
    folder.mkdir()
    rows = [
        f"f{i},{'' if i % 5 == 0 else f'Film “{i}”'},{1990 + i % 7 if i % 4 else ''},"
        f"20{i % 10:02}-03-0{1 + i % 9},{'abc'[i % 3]},{'x|y' if i % 2 else 'z'},"
        f"a word{i % 4} of the sea,{f'{i} {i * i % 7} 1' if i % 6 else ''},"
        f"{'|'.join(['Drama', 'Comedy'][: 1 + i % 2]) if i % 8 else ''},"
        f"{';'.join(f'q{j % 9}' for j in (i, i + 1, i))},{'2000' if i < 30 else '2015'}"
        for i in range(48)
    ]
    (folder / "films.csv").write_text(FILMS.format(rows="\n".join(rows)))
    people = [f"p{i}" for i in range(11)]
    (folder / "people.csv").write_text("id\n" + "\n".join(people) + "\n")
    roles = [f"p{i % 12},f{i * 7 % 50},{i % 3}" for i in range(90)] + ["p1,f7,2"] * 3
    (folder / "roles.csv").write_text("person,film,weight\n" + "\n".join(roles) + "\n")
    config = CONFIG.format(features=features, role=role, split=split)
    (folder / "graph.toml").write_text(config)
    return folder


def same(got: Graph, want: Graph) -> None:
    assert got.metadata() == want.metadata()
    assert got.sizes == want.sizes
    for kind, nodes in want.nodes.items():
        assert list(got.nodes[kind].ids or ()) == list(nodes.ids or ())
        assert list(got.nodes[kind].names or ()) == list(nodes.names or ())
        assert got.x_dict[kind].shape == want.x_dict[kind].shape
        assert torch.allclose(got.x_dict[kind].to_dense(), want.x_dict[kind].to_dense(), atol=1e-6)
    for edge_type, links in want.links.items():
        assert sorted(got.links[edge_type].t().tolist()) == sorted(links.t().tolist())
    assert torch.equal(got.y, want.y)
    for mask, other in zip(got.split, want.split, strict=True):
        assert torch.equal(mask, other)
    for key in ("target", "labels", "metapaths"):
        assert getattr(got, key) == getattr(want, key)
    for key in ("left_out_metapaths", "dropped_links", "digest", "fitted"):
        assert getattr(got.provenance, key) == getattr(want.provenance, key)
    assert sorted(got.provenance.notes) == sorted(want.provenance.notes)


ROLES = {
    "drop": 'unknown = "drop"',
    "add": 'unknown = "add"',
}
SPLITS = {"val": "val = \"kind = 'a'\"", "test": 'test = "\\"when\\" >= 2015"'}
CASES = [
    (ALL, "drop", "val", "given"),
    (ALL, "add", "test", "mean"),
    ('features = {vec = "vector", year = "number"}', "drop", "val", "given-onehot"),
    ('features = {kind = "category"}', "drop", "test", "onehot"),
]


@pytest.mark.parametrize(("features", "role", "split", "how"), CASES)
def test_stored_tables_are_the_loaded_graph(
    features: str, role: str, split: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    for name, size in (("LINKS", 40), ("NUMBERS", 300), ("TEXTS", 19)):
        monkeypatch.setattr(writer, name, size)
    folder = tables(tmp_path / "t", features, ROLES[role], SPLITS[split])
    said: list[str] = []
    store_graph(str(folder), tmp_path / "s", features=how, progress=said.append)
    monkeypatch.undo()
    whole = tables_load.load_tables(folder, features=how)
    same(load(str(tmp_path / "s")), whole)
    own = {"film": whole.nodes["film"]}
    bare = {kind: replace(nodes, x=None) for kind, nodes in whole.nodes.items()} | own
    for kind, nodes in fill_features(bare, whole.links, "film", how).items():
        torch.testing.assert_close(whole.x_dict[kind].to_dense(), nodes.x.to_dense())
    assert any("film" in text for text in said)
    assert not list((tmp_path / "s").glob(".*"))


@pytest.mark.parametrize("how", ["given", "onehot"])
def test_a_node_type_without_a_node_is_stored(how: str, tmp_path: Path) -> None:
    folder = tables(tmp_path / "t", ALL, ROLES["drop"], SPLITS["test"])
    config = (folder / "graph.toml").read_text()
    none = '[relations.none]\ntable = "none.csv"\nsource = {type = "film", column = "film"}\n'
    none += 'target = {type = "award", column = "award"}\n[split]'
    (folder / "none.csv").write_text("film,award\nf1,\n")
    config = config.replace("[split]", f"[nodes.award]\n{none}")
    (folder / "graph.toml").write_text(config.replace("[split]", 'unknown = "drop"\n[split]'))
    store_graph(str(folder), tmp_path / "s", features=how)
    same(load(str(tmp_path / "s")), tables_load.load_tables(folder, features=how))


@pytest.mark.parametrize("how", ["mean", "onehot"])
def test_features_that_are_replaced_leave_nothing_behind(how: str, tmp_path: Path) -> None:
    folder = tables(tmp_path / "t", ALL, ROLES["drop"], SPLITS["test"])
    (folder / "people.csv").write_text("id,age\n" + "".join(f"p{i},{i}\n" for i in range(11)))
    config = (folder / "graph.toml").read_text().replace("[nodes.person]", "[nodes.person]\n{age}")
    (folder / "graph.toml").write_text(config.replace("{age}", 'features = {age = "number"}'))
    store_graph(str(folder), tmp_path / "s", features=how)
    same(load(str(tmp_path / "s")), tables_load.load_tables(folder, features=how))


def test_what_loading_refuses_is_refused_in_the_same_words(tmp_path: Path) -> None:
    folder = tables(tmp_path / "t", 'features = {vec = "vector"}', "", SPLITS["test"])
    with pytest.raises(HanmeError) as loading:
        load(str(folder))
    with pytest.raises(HanmeError) as storing:
        store_graph(str(folder), tmp_path / "s")
    assert str(storing.value) == str(loading.value)
    assert not (tmp_path / "s").exists()


def test_relations_in_another_order_than_the_run_has_them_are_stored_as_loaded(
    tmp_path: Path,
) -> None:
    folder = tables(tmp_path / "t", ALL, ROLES["drop"], SPLITS["test"])
    fitted = FittedGraph.make(load(str(folder)).provenance.fitted, "run")
    start, role = (folder / "graph.toml").read_text().split("[relations.role]")
    role, cast = role.split("[relations.cast]")
    cast, split = cast.split("[split]")
    turned = f"{start}[relations.cast]{cast}[relations.role]{role}[split]{split}"
    (folder / "graph.toml").write_text(turned)
    tables_load.open_source(folder, fitted).store(tmp_path / "s", "given", 0)
    same(load(str(tmp_path / "s")), tables_load.load_tables(folder, fitted=fitted))


def test_large_tables_are_stored_by_themselves_until_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "small"))
    folder = tables(tmp_path / "t", ALL, ROLES["drop"], SPLITS["test"])
    want = load(str(folder))
    assert not want.stored
    monkeypatch.setattr(tables_load, "LARGE", 1000)
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    values: dict = {"data": {"name": str(folder)}}
    config, graph = resolve(values)
    assert graph is not None
    assert graph.stored
    assert config.training.batch_size == 1024
    assert not config.training.linear
    same(graph, want)
    said = capsys.readouterr().err
    assert "MB of tables; the graph is stored in" in said
    values["training"] = {"epochs": 1, "batch_size": 16}
    values["model"] = {"options": {"hidden_channels": 8, "heads": 2}}
    train(resolve(values)[0], tmp_path / "run")
    found = OpenedRun.open(tmp_path / "run").predict(["f3", "f7"]).rows()
    assert [row["id"] for row in found] == ["f3", "f7"]
    assert capsys.readouterr().err == ""
    with (folder / "films.csv").open("a") as file:
        file.write("f99,New,1993,2001-03-01,a,x,a word1 of the sea,1 2 1,,q3,2015\n")
    grown = OpenedRun.open(tmp_path / "run").predict(["f99"])
    assert grown.differs_from_training
    assert "the graph is stored in" in capsys.readouterr().err
    assert len(list((tmp_path / "cache" / "tables").glob("*/*-*"))) == 1


def test_large_tables_are_stored_once_for_all_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, cache = tables(tmp_path / "t", ALL, ROLES["drop"], SPLITS["test"]), tmp_path / "cache"
    want = [tables_load.load_tables(folder, seed=seed) for seed in (1, 2)]
    assert not torch.equal(want[0].split.val, want[1].split.val)
    monkeypatch.setattr(tables_load, "LARGE", 1000)
    for seed in (1, 2, 1):
        found = tables_load.load_tables(folder, seed=seed, cache=cache)
        assert found.stored
        same(found, want[seed - 1])
    assert len(list((cache / "tables").glob("*/*-*"))) == 1
    assert capsys.readouterr().err.count("the graph is stored in") == 1
