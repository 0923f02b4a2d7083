"""The whole way in a few lines."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from torch_geometric.data import HeteroData

import hanme
from hanme import Graph
from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.training import predict

ROOT = Path(__file__).parents[1]
SMALL = {"hidden_channels": 16, "heads": 2, "training": {"epochs": 5}}


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    shutil.copytree(ROOT / "examples" / "films", tmp_path / "films")
    text = (ROOT / "docs" / "tables.md").read_text()
    graph = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "films" / "graph.toml").write_text(graph)
    return tmp_path / "films"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["actor"].x.fill_(float("nan")), "actor: x has a value that is NaN"),
        (lambda d: d["actor"].update({"x": torch.ones(3, 2)}), r"actor: expected x of floats, \[N"),
        (lambda d: d["actor"].update({"x": d["actor"].x.long()}), "actor: expected x of floats"),
        (lambda d: d["movie"].update({"y": torch.rand(60)}), "movie: expected integers in y"),
        (lambda d: d.edge_stores[0].edge_index.add_(1000), "a node that is not there"),
        (lambda d: d.edge_stores[0].update({"edge_index": torch.ones(3)}), "of integers"),
    ],
)
def test_tensors_that_no_model_can_take_are_named(change, message: str) -> None:
    data = planted(movies=60)
    for kind in data.node_types:
        data[kind].x = data[kind].x.to_dense()
    change(data)
    with pytest.raises(HanmeError, match=message):
        Graph(data, target="movie")


def test_from_tables_to_an_explanation(films: Path, tmp_path: Path) -> None:
    graph = Graph.from_tables(films)
    assert repr(graph) == "Graph(120 film, 60 person; 844 links; film: Comedy, Drama, Thriller)"
    assert len(graph.metapaths) == 2
    assert graph.inspect(hops=2)["target"]["labelled"] == 98
    classifier = graph.fit(out=tmp_path / "run", **SMALL)
    assert "val micro F1" in repr(classifier)
    found = classifier.predict(["f001", "Amber Voyage"])
    assert [row["id"] for row in found.rows()] == ["f001", "f003"]
    assert [row["id"] for row in classifier.predict("f012").rows()] == ["f012"]
    assert "<td>f001</td>" in found._repr_html_()
    assert "The Silver Voyage" in str(classifier.explain("f001"))
    # In memory the same as through a run folder.
    again = Graph.from_tables(films).fit(**SMALL)
    torch.testing.assert_close(again.predict().logits, classifier.predict().logits)
    torch.testing.assert_close(predict(tmp_path / "run").logits, classifier.predict().logits)
    opened = hanme.Classifier.open(tmp_path / "run")
    torch.testing.assert_close(opened.predict().logits, classifier.predict().logits)


def test_tables_that_have_grown_are_not_scored(films: Path, tmp_path: Path) -> None:
    Graph.from_tables(films).fit(out=tmp_path / "run", **SMALL)
    with (films / "films.csv").open("a") as file:
        file.write("f121,Later,2001,FR,a quiet river,Drama\n")
    opened = hanme.Classifier.open(tmp_path / "run")
    with pytest.raises(HanmeError, match="changed since training"):
        opened.scores()
    assert "split" not in opened.predict(["f121"]).rows()[0]
    assert repr(opened) == "Classifier(HANME)"


def test_a_graph_that_has_grown(films: Path, tmp_path: Path) -> None:
    classifier = Graph.from_tables(films).fit(out=tmp_path / "run", **SMALL)
    shutil.copytree(films, tmp_path / "newer")
    with (tmp_path / "newer" / "films.csv").open("a") as file:
        file.write("f121,Later,2001,Norway,a word that no other film has: zyzzyva,\n")
    with (tmp_path / "newer" / "roles.csv").open("a") as file:
        file.write("f121,p05,director\nf121,p07,actor\n")
    wanted = predict(tmp_path / "run", graph=tmp_path / "newer")
    for graph in (tmp_path / "newer", Graph.from_tables(tmp_path / "newer")):
        newer = classifier.on(graph)
        torch.testing.assert_close(newer.predict().logits, wanted.logits)
        assert newer.explain("f121").node == "Later"
        assert newer.grown
    assert not classifier.on(films).grown
    with pytest.raises(HanmeError, match=r"not a graph\.toml, nor a folder"):
        classifier.on(tmp_path)


def test_a_graph_of_one_s_own_that_has_grown() -> None:
    data = planted(movies=100)
    classifier = Graph(data).fit(metapaths=["movie-actor-movie"], **SMALL)
    more = data.clone()
    store = more["movie"]
    for key in ("x", "y", "name", "train_mask", "val_mask", "test_mask", "level"):
        del store[key]
    store.num_nodes = 101
    store.x = torch.cat([data["movie"].x.to_dense(), data["movie"].x.to_dense()[:1]])
    store.y = torch.cat([data["movie"].y, torch.zeros(1, 5)])
    for kind in ("actor", "director", "keyword"):
        links = more["movie", "to", kind].edge_index
        added = torch.tensor([[100], [0]])
        more["movie", "to", kind].edge_index = torch.cat([links, added], 1)
        more[kind, "to", "movie"].edge_index = torch.cat([links, added], 1).flip(0)
    newer = classifier.on(Graph(more, target="movie"))
    assert len(newer.predict()) == 101
    assert set(newer.explain(100).logits) == set(data["movie"].label_names)
    with pytest.raises(HanmeError, match="changed since training"):
        newer.scores()
    with pytest.raises(HanmeError, match=r"trained on HeteroData, not on a graph\.toml"):
        classifier.on("newer")
    with pytest.raises(HanmeError, match=r"Graph\(data\) makes one"):
        classifier.on(more)
    store.label_names = data["movie"].label_names[::-1]
    with pytest.raises(HanmeError, match="in this order"):
        classifier.on(Graph(more, target="movie"))
    del store.label_names
    store.x = store.x[:, 1:]
    with pytest.raises(HanmeError, match="node type movie: 29 features"):
        classifier.on(Graph(more, target="movie"))
    store.y = store.y[:, 1:]
    with pytest.raises(HanmeError, match="4 labels, but the model was trained with 5"):
        classifier.on(Graph(more, target="movie"))
    del more["keyword", "to", "movie"]
    with pytest.raises(HanmeError, match="schema is not that of the graph trained on: relations"):
        classifier.on(Graph(more, target="movie"))


def test_a_newer_graph_needs_no_label() -> None:
    data = planted(movies=100)
    data["movie"].y = data["movie"].y.argmax(1)
    del data["movie"].label_names
    classifier = Graph(data).fit(metapaths=["movie-actor-movie"], **SMALL)
    more = data.clone()
    more["movie"].y = torch.full_like(more["movie"].y, -1)
    for part in ("train", "val", "test"):
        del more["movie"][f"{part}_mask"]
    assert len(classifier.on(Graph(more)).predict()) == 100
    with pytest.raises(HanmeError, match="no node under train_mask"):
        Graph(more).fit(metapaths=["movie-actor-movie"], **SMALL)


def test_a_graph_of_one_s_own() -> None:
    made = planted(movies=100)
    data = HeteroData()
    for kind in made.node_types:
        data[kind].num_nodes = made[kind].num_nodes
    data["movie"].x = made["movie"].x.to_dense().double()  # as numpy would have them
    data["movie"].y = made["movie"].y
    for relation in made.edge_types:
        data[relation].edge_index = made[relation].edge_index
    graph = Graph(data, target="movie")
    store = graph.data["movie"]
    assert data["movie"].x.dtype == torch.double
    assert "target" not in data  # the graph that was passed is left as it was
    assert int((store.train_mask | store.val_mask | store.test_mask).sum()) == int(
        made["movie"].y.any(1).sum()
    )
    classifier = graph.fit(metapaths=["movie-actor-movie"], **SMALL)
    assert set(classifier.scores()) == {"train", "val", "test"}
    assert classifier.predict([3]).rows()[0]["name"] == "3"
    other = graph.fit(model="gat", hidden_channels=16, heads=2, training={"epochs": 2})
    assert other.predict().logits.shape == (100, 5)  # a model that takes no metapaths
    assert graph.inspect()["nodes"][0]["set"] > 0
    data["movie"].y = made["movie"].y * 2
    with pytest.raises(HanmeError, match="expected 0 and 1"):
        Graph(data, target="movie")
    with pytest.raises(HanmeError, match="tables only"):
        graph.fit(out="run", **SMALL)
    with pytest.raises(HanmeError, match="numbered from 0"):
        classifier.predict([100])
    with pytest.raises(HanmeError, match="`target` to be one of"):
        Graph(data)


@pytest.mark.parametrize("fallback", [True, False])
def test_an_explanation_decides_as_a_prediction_does(fallback: bool) -> None:
    training = {"epochs": 1, "fallback": fallback}
    graph = Graph(planted(movies=100))
    classifier = graph.fit(metapaths=["movie-actor-movie"], **SMALL | {"training": training})
    with torch.no_grad():
        classifier.model.lin.bias.fill_(-100)  # no label is over 0.5
    predicted = classifier.predict([7]).rows()[0]["predicted"]
    assert len(predicted) == fallback
    assert list(classifier.explain(7).predicted) == predicted


def test_html_is_text(films: Path) -> None:
    hostile = "<script>alert(1)</script>"
    text = (films / "films.csv").read_text()
    text = text.replace("The Silver Voyage", hostile).replace(",Drama\n", f",{hostile}\n")
    (films / "films.csv").write_text(text)
    graph = Graph.from_tables(films)
    classifier = graph.fit(**SMALL)
    for shown in (graph, classifier.predict(["f001"])):
        assert "<script>" not in shown._repr_html_()
        assert "&lt;script&gt;" in shown._repr_html_()
    tags = re.findall(r"<(/?\w+)", graph._repr_html_() + classifier._repr_html_())
    assert {tag.strip("/") for tag in tags} == {"table", "tr", "th", "td", "p"}
    assert "<td>nodes</td><td>film</td><td>120</td>" in graph._repr_html_()
    assert "<td>val</td>" in classifier._repr_html_()


def test_the_document_s_python_runs(films: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(films.parent)
    text = (ROOT / "docs" / "tables.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(code.replace('"epochs": 100', '"epochs": 2'), {})
    assert "Classifier(HANME" in capsys.readouterr().out
