"""The estimator: from a graph to predictions, scores, explanations and a folder, and back."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score
from torch_geometric.data import HeteroData

from hanme import Classifier, Graph
from hanme.data import load, planted
from hanme.errors import HanmeError
from hanme.graph import Split, defaults
from hanme.runs import OpenedRun

ROOT = Path(__file__).parents[1]
WITH_TREES = {"options": {"hidden_channels": 16, "heads": 2}, "training": {"epochs": 5}}
SMALL = WITH_TREES | {"training": {"epochs": 5, "trees": False}}  # trees take the most time
ACTORS = SMALL | {"metapaths": ["movie-actor-movie"]}


def copied(folder: Path) -> Path:
    """Copy the films of the examples, with the graph.toml of the document."""
    shutil.copytree(ROOT / "examples" / "films", folder)
    text = (ROOT / "docs" / "tables.md").read_text()
    found = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    graph = next(block for block in found if "roles.csv" in block)
    (folder / "graph.toml").write_text(graph)
    return folder


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    return copied(tmp_path / "films")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Classifier]:
    """A classifier of films that no test changes, fitted in memory."""
    folder = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HANME_CACHE", str(folder / "cache"))
        yield Classifier(**WITH_TREES).fit(Graph.from_tables(copied(folder / "films")))


def bare(movies: int = 100) -> HeteroData:
    """A graph as somebody else would make it: links, labels, and features of one type."""
    made, data = planted(movies=movies), HeteroData()
    for kind, nodes in made.nodes.items():
        data[kind].num_nodes = nodes.num_nodes
    data["movie"].x = made.targets.x.to_dense().double()  # as NumPy would have them
    data["movie"].y = made.y
    for edge_type, links in made.links.items():
        data[edge_type].edge_index = links
    return data


def test_from_tables_to_an_explanation(films: Path, fitted: Classifier, tmp_path: Path) -> None:
    graph = Graph.from_tables(films)
    assert repr(graph) == "Graph(120 film, 60 person; 844 links; film: Comedy, Drama, Thriller)"
    assert len(graph.metapaths) == 2
    classifier = Classifier(**WITH_TREES).fit(graph, out=tmp_path / "run")
    found = classifier.predictions(nodes=["f001", "Amber Voyage"])
    assert [row["id"] for row in found.rows()] == ["f001", "f003"]
    assert "<td>f001</td>" in found._repr_html_()
    assert "The Silver Voyage" in str(classifier.explain("f001"))
    # In memory the same as through a run folder, and through the commands' functions.
    wanted = classifier.predict_proba()
    np.testing.assert_allclose(fitted.predict_proba(), wanted, rtol=1e-5)
    np.testing.assert_allclose(Classifier.load(tmp_path / "run").predict_proba(), wanted, rtol=1e-5)
    logits = OpenedRun.open(tmp_path / "run").predict().logits
    np.testing.assert_allclose(torch.softmax(logits, 1).numpy(), wanted, rtol=1e-5)


def test_what_comes_out_is_arrays(fitted: Classifier) -> None:
    classifier, graph = fitted, fitted.run_.graph
    assert classifier.classes_.tolist() == ["Comedy", "Drama", "Thriller"]
    probability, labels = classifier.predict_proba(), classifier.predict()
    assert probability.shape == (120, 3)
    np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-5)
    assert (classifier.classes_[probability.argmax(1)] == labels).all()
    test = graph.split.test.numpy()
    true = classifier.classes_[graph.y.numpy()[test]]
    assert classifier.score() == pytest.approx(f1_score(true, labels[test], average="micro"))
    assert classifier.score("train") == classifier.scores()["train"]["micro"]
    with pytest.raises(HanmeError):
        classifier.score("all")
    several = Classifier(**ACTORS).fit(planted(movies=100))
    assert several.predict().dtype == bool
    assert several.predict(nodes=[3, 5]).shape == (2, 5)
    frame = classifier.predictions(nodes=["f001", "f002"]).frame()
    assert frame["id"].tolist() == ["f001", "f002"]
    assert {"predicted", "p_Comedy", "p_Drama", "p_Thriller"} <= set(frame.columns)


def test_it_is_an_estimator() -> None:
    classifier = Classifier("gat", options={"heads": 2}, seed=7)
    assert classifier.get_params()["seed"] == 7
    assert clone(classifier).get_params() == classifier.get_params()
    assert repr(classifier) == "Classifier(model='gat', options={'heads': 2}, seed=7)"
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier.predict()


@pytest.mark.parametrize("where", ["classifier", "run folder", "graph"])
def test_a_seed_reaches_what_it_draws(where: str, tmp_path: Path) -> None:
    def fitted(number: int, seed: int) -> Classifier:
        graph = load("planted", seed=seed if where == "graph" else 1, options={"movies": 60})
        alone = ACTORS | {"training": {"epochs": 5, "linear": False}}
        classifier = Classifier(**alone, seed=1 if where == "graph" else seed)
        return classifier.fit(graph, out=tmp_path / str(number) if where == "run folder" else None)

    first, second, other = (fitted(*given) for given in enumerate((1, 1, 2)))
    assert (first.predict_proba() == second.predict_proba()).all()
    assert not np.allclose(first.predict_proba(), other.predict_proba())
    if where != "graph":
        assert other.run_.config.training.seed == 2
    else:
        assert other.run_.config.data.seed == 2
        assert not (first.run_.graph.y == other.run_.graph.y).all()


@pytest.mark.parametrize("source", ["python", "tables"])
def test_the_split_of_a_graph_is_drawn_by_its_seed(source: str, films: Path) -> None:
    def split(seed: int) -> Split:
        if source == "python":
            return Graph.from_hetero(bare(), seed=seed).split
        return Graph.from_tables(films, seed=seed).split

    first, again, other = map(split, (1, 1, 2))
    assert first.train.equal(again.train)
    assert not first.train.equal(other.train)


def test_saves_and_loads_tables(fitted: Classifier, tmp_path: Path) -> None:
    classifier = fitted
    classifier.save(tmp_path / "run")
    again = Classifier.load(tmp_path / "run")
    assert (again.predict_proba() == classifier.predict_proba()).all()
    assert again.scores() == classifier.scores()
    assert again.get_params()["training"]["epochs"] == 5
    assert [row["epoch"] for row in again.run_.metrics] == [4, 5]
    stated = OpenedRun.open(tmp_path / "run").evaluate()["with_fallback"]["test"]["micro"]
    assert stated == pytest.approx(100 * classifier.score(), abs=1e-3)
    again.save(tmp_path / "copy")
    assert Classifier.load(tmp_path / "copy").scores() == classifier.scores()
    with pytest.raises(HanmeError):
        classifier.save(tmp_path / "run")


def test_saves_and_loads_a_graph_made_in_python(tmp_path: Path) -> None:
    graph = Graph.from_hetero(bare(), "movie")
    classifier = Classifier(**ACTORS).fit(graph)
    classifier.save(tmp_path / "run")
    again = Classifier.load(tmp_path / "run", graph)
    assert (again.predict_proba() == classifier.predict_proba()).all()
    assert again.scores() == classifier.scores()
    with pytest.raises(HanmeError):
        Classifier.load(tmp_path / "run")
    with pytest.raises(HanmeError):
        OpenedRun.open(tmp_path / "run").evaluate()
    Classifier(**ACTORS).fit(graph, out=tmp_path / "other")
    found = Classifier.load(tmp_path / "other", graph)
    np.testing.assert_allclose(found.predict_proba(), classifier.predict_proba(), rtol=1e-5)


def test_what_is_saved_was_fitted_last(tmp_path: Path) -> None:
    graph = Graph.from_hetero(bare())
    classifier = Classifier(**ACTORS).fit(graph)
    classifier.set_params(seed=1).fit(graph, out=tmp_path / "run")
    classifier.save(tmp_path / "copy")
    loaded = Classifier.load(tmp_path / "copy", graph)
    assert (loaded.predict_proba() == classifier.predict_proba()).all()


def test_tables_that_have_grown_are_not_scored(films: Path, tmp_path: Path) -> None:
    Classifier(**SMALL).fit(Graph.from_tables(films), out=tmp_path / "run")
    with (films / "films.csv").open("a") as file:
        file.write("f121,Later,2001,FR,a quiet river,Drama\n")
    opened = Classifier.load(tmp_path / "run")
    with pytest.raises(HanmeError):
        opened.scores()
    assert "split" not in opened.predictions(nodes=["f121"]).rows()[0]


def test_a_graph_that_has_grown(films: Path, tmp_path: Path) -> None:
    classifier = Classifier(**SMALL).fit(Graph.from_tables(films), out=tmp_path / "run")
    shutil.copytree(films, tmp_path / "newer")
    with (tmp_path / "newer" / "films.csv").open("a") as file:
        file.write("f121,Later,2001,Norway,a word that no other film has: zyzzyva,\n")
    with (tmp_path / "newer" / "roles.csv").open("a") as file:
        file.write("f121,p05,director\nf121,p07,actor\n")
    newer = tmp_path / "newer"
    wanted = OpenedRun.open(tmp_path / "run", graph=newer).predict()
    torch.testing.assert_close(classifier.predictions(newer).logits, wanted.logits)
    assert classifier.with_graph(newer).explain("f121").node == "Later"
    assert classifier.predictions(newer).differs_from_training
    with pytest.raises(HanmeError):  # its words are numbered otherwise than in training
        classifier.predict(Graph.from_tables(newer))
    assert not classifier.predictions(films).differs_from_training
    with pytest.raises(HanmeError):
        classifier.predict(tmp_path)


@pytest.mark.parametrize("model", ["hanme", "sehgnn"])
def test_a_graph_is_used_as_passed(model: str, films: Path) -> None:
    graph = Graph.from_tables(films)
    classifier = Classifier(model, **SMALL).fit(graph)
    same = classifier.predict_proba(Graph.from_tables(films))
    np.testing.assert_allclose(same, classifier.predict_proba(), atol=1e-6)
    cut = replace(graph, links={e: links[:, :0] for e, links in graph.links.items()})
    assert not np.allclose(classifier.predict_proba(cut), same, atol=1e-3)


@pytest.mark.slow
def test_a_data_set_by_its_path_or_name(films: Path, fitted: Classifier) -> None:
    for path in (films, str(films / "graph.toml")):
        found = Classifier(**WITH_TREES).fit(path)
        np.testing.assert_allclose(found.predict_proba(), fitted.predict_proba(), atol=1e-6)
        assert len(found.predict(path)) == 120
    assert Classifier(**ACTORS).fit("planted").predict().shape == (600, 5)


def test_a_graph_of_one_s_own_that_has_grown() -> None:
    made = planted(movies=100)
    classifier = Classifier(**ACTORS).fit(made)
    more = made.to_hetero()
    store = more["movie"]
    for key in ("x", "y", "name", "train_mask", "val_mask", "test_mask", "level"):
        del store[key]
    store.num_nodes = 101
    x = made.targets.x.to_dense()
    store.x = torch.cat([x, x[:1]])
    store.y = torch.cat([made.y, torch.zeros(1, 5)])
    for kind in ("actor", "director", "keyword"):
        links = torch.cat([more["movie", "to", kind].edge_index, torch.tensor([[100], [0]])], 1)
        more["movie", "to", kind].edge_index = links
        more[kind, "to", "movie"].edge_index = links.flip(0)
    newer = classifier.with_graph(more)
    assert len(newer.predict()) == 101
    assert set(newer.explain(100).logits) == set(made.labels)
    with pytest.raises(HanmeError):
        newer.scores()
    with pytest.raises(HanmeError):
        classifier.with_graph("newer")
    store.label_names = made.labels[::-1]
    with pytest.raises(HanmeError):
        classifier.with_graph(more)
    del store.label_names
    store.x = store.x[:, 1:]
    with pytest.raises(HanmeError):
        classifier.with_graph(more)
    store.y = store.y[:, 1:]
    with pytest.raises(HanmeError):
        classifier.with_graph(more)
    del more["keyword", "to", "movie"]
    with pytest.raises(HanmeError):
        classifier.with_graph(more)


def test_a_newer_graph_needs_no_label() -> None:
    made = planted(movies=100)
    made = replace(made, y=made.y.argmax(1), labels=[str(i) for i in range(5)])
    classifier = Classifier(**ACTORS).fit(made)
    more = made.to_hetero()
    more["movie"].y = torch.full_like(made.y, -1)
    for part in ("train", "val", "test"):
        del more["movie"][f"{part}_mask"]
    del more["movie"].label_names
    assert len(classifier.predict(more)) == 100
    with pytest.raises(HanmeError):
        Classifier(**ACTORS).fit(Graph.from_hetero(more))


def test_a_graph_of_one_s_own() -> None:
    data = bare()
    graph = Graph.from_hetero(data, target="movie")
    assert data["movie"].x.dtype == torch.double  # what was passed is left as it was
    assert "train_mask" not in data["movie"]
    used = graph.split.train | graph.split.val | graph.split.test
    assert int(used.sum()) == int(data["movie"].y.any(1).sum())
    classifier = Classifier(**ACTORS).fit(graph)
    assert {"train", "test"} <= set(classifier.scores()) <= {"train", "oof", "test"}
    assert classifier.predictions(nodes=[3]).rows()[0]["node"] == 3
    other = Classifier("gat", **SMALL).fit(graph)  # a model that takes no metapaths
    assert other.predict_proba().shape == (100, 5)
    with pytest.raises(HanmeError):
        classifier.predict(nodes=[100])


@pytest.mark.parametrize("rule", ["fallback", "half"])
def test_an_explanation_decides_as_a_prediction_does(rule: str) -> None:
    training = {"epochs": 1, "recipe": "paper", "decide": rule}
    classifier = Classifier(**ACTORS | {"training": training}).fit(planted(movies=100))
    with torch.no_grad():
        for name, weight in classifier.run_.model.network.named_parameters():
            if name in ("lin.bias", "head.bias"):
                weight.fill_(-100)  # no label is over 0.5
    classifier = classifier.with_graph(classifier.run_.graph)  # computes the logits again
    predicted = classifier.predictions(nodes=[7]).rows()[0]["predicted"]
    assert len(predicted) == (rule == "fallback")
    assert list(classifier.explain(7).predicted) == predicted


def test_html_is_text(films: Path) -> None:
    hostile = "<script>alert(1)</script>"
    text = (films / "films.csv").read_text()
    text = text.replace("The Silver Voyage", hostile).replace(",Drama\n", f",{hostile}\n")
    (films / "films.csv").write_text(text)
    classifier = Classifier(**SMALL).fit(Graph.from_tables(films))
    html = classifier.predictions(nodes=["f001"])._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_document_s_python_runs(films: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(films.parent)
    text = (ROOT / "docs" / "tables.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(code.replace('"epochs": 100', '"epochs": 2'), {})
    assert "'test': {'micro':" in capsys.readouterr().out


def test_a_graph_without_a_relation_is_one_for_linear() -> None:
    graph = replace(planted(movies=100), links={}, metapaths=[])
    with pytest.warns(UserWarning, match="no relation starts or ends at movie: linear is trained"):
        found = Classifier(**SMALL).fit(graph)
    assert found.run_.config.model.name == "linear"
    with pytest.raises(HanmeError):
        Classifier("han").fit(graph)


def test_a_metapath_that_costs_too_much_is_left_out_with_a_warning(monkeypatch) -> None:
    monkeypatch.setattr(defaults, "BUDGET", 1)
    with pytest.warns(UserWarning, match="left out") as said:
        found = Classifier(**SMALL).fit(bare())
    texts = [str(warning.message) for warning in said]
    assert any(
        re.fullmatch(r"metapath movie-actor-movie: left out, [\d,]+ inst.*", t) for t in texts
    )
    assert found.run_.config.model.options["metapaths"] == ["movie-director-movie"]
    named = Classifier(**ACTORS).fit(bare())
    assert named.run_.config.model.options["metapaths"] == ["movie-actor-movie"]


def test_embeddings_are_what_the_head_reads(films: Path) -> None:
    graph = Graph.from_tables(films)
    paper = SMALL | {"training": {"epochs": 2, "recipe": "paper"}}
    classifier = Classifier(**paper).fit(graph)
    embedded = torch.from_numpy(classifier.transform())
    assert embedded.shape == (120, 16)
    logits = classifier.run_.model.network.head(embedded).detach()
    torch.testing.assert_close(logits, classifier.run_.logits())
    some = classifier.transform(nodes=["f003", "f001"])
    ids = list(graph.targets.ids)
    np.testing.assert_allclose(some, embedded[[ids.index("f003"), ids.index("f001")]], rtol=1e-5)


@pytest.mark.parametrize(("model", "why"), [("linear", "those of a network"), ("gat", "model GAT")])
def test_models_without_embeddings_say_why(films: Path, model: str, why: str) -> None:
    options = {} if model == "linear" else SMALL["options"]
    training = {} if model == "linear" else {"epochs": 1, "recipe": "paper"}
    classifier = Classifier(model, options=options, training=training)
    with pytest.raises(HanmeError, match=why):
        classifier.fit(Graph.from_tables(films)).transform()


@pytest.mark.parametrize("model", ["hanme", "linear"])
def test_a_single_label_is_refused(model: str) -> None:
    graph = planted(movies=30, genres=3)
    single = replace(graph, y=torch.zeros(30, dtype=torch.long), labels=["Drama"])
    message = "movie: all labelled nodes have the label Drama; a model needs two labels or more"
    with pytest.raises(HanmeError, match=message):
        Classifier(model, training={"epochs": 1}).fit(single)
