"""The graph itself: to PyG and back, labels, mistakes in what PyG holds, how it shows itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData
from torch_geometric.transforms import AddMetaPaths

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Split, Texts
from hanme.graph.splits import stratified

TEXTS = st.text(max_size=4)
VALUES = st.floats(-4, 4, width=32)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Small graphs of up to three types, with and without features, names and ids."""
    kinds = draw(st.lists(st.sampled_from(["a", "b", "target", "y", "x"]), min_size=1, max_size=3,
                          unique=True))  # fmt: skip
    nodes = {}
    for kind in kinds:
        size = draw(st.integers(1, 5))
        texts = st.lists(TEXTS, min_size=size, max_size=size)
        rows = st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=size, max_size=size)
        x = draw(st.none() | rows.map(torch.tensor))
        if x is not None and draw(st.booleans()):
            x = x.to_sparse_csr()
        extra = {"truth": torch.arange(size)} if draw(st.booleans()) else {}
        names, ids = draw(st.none() | texts), draw(st.none() | texts | texts.map(Texts.of))
        nodes[kind] = Nodes(kind, size, x, names, ids, extra)
    links = {}
    for start in kinds:
        for end in kinds:
            if draw(st.booleans()):
                sizes = [nodes[kind].num_nodes - 1 for kind in (start, end)]
                pairs = st.tuples(*(st.integers(0, size) for size in sizes))
                found = torch.tensor(draw(st.lists(pairs, max_size=5)), dtype=torch.long)
                links[start, "to", end] = found.view(-1, 2).t()
    target = kinds[0]
    size, labels = nodes[target].num_nodes, draw(st.integers(1, 3))
    y = torch.tensor(draw(st.lists(st.integers(-1, labels - 1), min_size=size, max_size=size)))
    if draw(st.booleans()):
        y = (y[:, None] == torch.arange(labels)).float()
    split = stratified(y, val=0.3, test=0.3, seed=draw(st.integers(0, 9)))
    names = [f"label {i}" for i in range(labels)]
    return Graph(nodes, links, target, y, names, split)


def dense(x: torch.Tensor | None) -> Any:
    return None if x is None else x.to_dense().tolist()


def plain(graph: Graph) -> dict[str, Any]:
    """A graph's content as Python values."""
    return {
        "nodes": {
            kind: (n.num_nodes, dense(n.x), n.names and list(n.names), n.ids and list(n.ids),
                   {key: value.tolist() for key, value in n.extra.items()})
            for kind, n in graph.nodes.items()
        },
        "links": {e: links.tolist() for e, links in graph.links.items()},
        "target": graph.target,
        "y": graph.y.tolist(),
        "labels": graph.labels,
        "split": [mask.tolist() for mask in graph.split],
    }  # fmt: skip


@settings(deadline=None)
@given(graphs(), st.sampled_from(["given", "mean", "onehot", "given-onehot"]))
def test_to_pyg_and_back(graph: Graph, how: Any) -> None:
    data = graph.to_hetero()
    before = data.clone()
    again = Graph.from_hetero(data, target=graph.target, features=how)
    assert plain(again) == plain(graph.with_features(how))
    assert set(again.x_dict) == set(graph.nodes)
    # Neither the data nor the graph it was made from has changed.
    assert data.node_types == before.node_types
    for store, old in zip(data.stores, before.stores, strict=True):
        assert list(store.keys()) == list(old.keys())
        for key, value in store.items():
            if not isinstance(value, torch.Tensor):
                assert value == old[key]
            else:
                assert value.layout == old[key].layout
                assert torch.equal(value.to_dense(), old[key].to_dense())
    assert (
        Graph.from_hetero(graph.to_hetero(), target=graph.target).provenance.digest
        == again.provenance.digest
    )


def test_pyg_s_transforms_take_it() -> None:
    data = planted(movies=60).to_hetero()
    there_and_back = [[("movie", "to", "actor"), ("actor", "to", "movie")]]
    joined = AddMetaPaths(there_and_back)(data)
    assert ("movie", "metapath_0", "movie") in joined.edge_types


def hetero() -> HeteroData:
    data = planted(movies=60).to_hetero()
    for kind in data.node_types:
        data[kind].x = data[kind].x.to_dense()
    return data


def test_what_pyg_leaves_out_is_made_up() -> None:
    data = hetero()
    movie = data["movie"]
    for key in ("label_names", "train_mask", "val_mask", "test_mask", "name", "level"):
        del movie[key]
    movie.id = torch.arange(100, 160)
    graph = Graph.from_hetero(data, seed=3)
    assert graph.labels == ["0", "1", "2", "3", "4"]
    assert graph.targets.names is None
    assert graph.targets.title(2) == "102"
    labelled = movie.y.any(1)
    assert torch.equal(torch.stack(graph.split).sum(0), labelled.long())
    for mask, share in zip(graph.split, (0.6, 0.2, 0.2), strict=True):
        assert int(mask.sum()) == pytest.approx(share * int(labelled.sum()), abs=1)
    assert torch.equal(graph.split.val, Graph.from_hetero(data, seed=3).split.val)
    movie.val_mask = labelled.clone()  # one mask: the other parts are empty
    graph = Graph.from_hetero(data)
    assert torch.equal(graph.split.val, labelled)
    assert not graph.split.train.any()
    assert not graph.split.test.any()


def test_other_number_types_and_layouts_of_pyg() -> None:
    data = hetero()
    x = data["actor"].x
    data["actor"].x = x.double().to_sparse()  # COO
    data["movie", "to", "actor"].edge_index = data["movie", "to", "actor"].edge_index.int()
    data["movie"].y = data["movie"].y.bool()
    graph = Graph.from_hetero(data)
    assert graph.nodes["actor"].x.layout == torch.sparse_csr
    assert {x.dtype for x in graph.x_dict.values()} == {torch.float32}
    assert graph.links["movie", "to", "actor"].dtype == torch.int64
    assert graph.y.dtype == torch.float32
    torch.testing.assert_close(graph.nodes["actor"].x.to_dense(), x)


def put(kind: str, **values: Any) -> Callable[[HeteroData], None]:
    return lambda data: data[kind].update(values)


def link(edge_index: torch.Tensor) -> Callable[[HeteroData], None]:
    return lambda data: data["movie", "to", "actor"].update({"edge_index": edge_index})


def half(*parts: float) -> torch.Tensor:
    return torch.cat([torch.full((30,), part) for part in parts])


WRONG: dict[str, tuple[Callable[[HeteroData], object], str]] = {
    "rows of x": (put("actor", x=torch.ones(3, 2), num_nodes=4), "actor: expected x of floats, "
                  r"\[N, F\] for N = 4 nodes, but got torch.float32 \[3, 2\]"),
    "x of one dimension": (put("movie", x=torch.ones(60)), r"movie: expected x .* got .* \[60\]"),
    "x of integers": (put("movie", x=torch.ones(60, 2).long()), "movie: expected x .*torch.int64"),
    "NaN": (put("movie", x=torch.full((60, 2), torch.nan)), "movie: x has a value that is NaN"),
    "infinite": (
        put("movie", x=torch.full((60, 2), torch.inf).to_sparse_csr()),
        "movie: x has a value that is NaN or infinite",
    ),
    "no size": (lambda d: d["thing"].update({"note": "?"}), "thing: no features and no num_nodes"),
    "names": (put("movie", name=["one"]), "movie: name: expected one for each of 60 .* got 1"),
    "ids": (put("movie", id=torch.arange(3)), "movie: id: expected one for each of 60 .* got 3"),
    "link past the end": (link(torch.tensor([[0], [9999]])), "exceeds the .* nodes of"),
    "link before the start": (link(torch.tensor([[-1], [0]])), "exceeds the .* nodes of"),
    "links of floats": (link(torch.rand(2, 3)), "expected edge_index of integers"),
    "links of another shape": (link(torch.zeros(3, 2).long()), r"edge_index of integers, \[2, E\]"),
    "no links": (lambda d: d["movie", "to", "actor"].pop("edge_index"), "expected edge_index"),
    "links to nowhere": (
        lambda d: d["movie", "to", "star"].update({"edge_index": torch.zeros(2, 1).long()}),
        "nodes of 'star'",
    ),
    "weights of links": (
        lambda d: d["movie", "to", "actor"].update({"edge_weight": torch.ones(3)}),
        r"'actor'\): edge_weight is not supported; remove it, or store it as edge_attr",
    ),
    "no labels": (lambda d: d["movie"].pop("y"), "one node type with y to classify, but got 0"),
    "labels of two types": (put("actor", y=torch.zeros(3)), "but got 2: name the `target`"),
    "labels as floats": (put("movie", y=torch.rand(60)), r"movie: expected integers in y .*\[N\]"),
    "labels below -1": (put("movie", y=torch.full((60,), -2)), "movie: expected integers in y"),
    "too few labels": (put("movie", y=torch.zeros(3).long()), r"movie: expected y of shape \[N\]"),
    "no columns": (put("movie", y=torch.zeros(60, 0)), r"movie: expected y of shape \[N\]"),
    "shares of labels": (put("movie", y=torch.rand(60, 5)), "movie: expected 0 and 1 in y"),
    "label names": (put("movie", label_names=["a"]), "movie: 1 label_names, but y has 5 labels"),
    "mask of another shape": (
        put("movie", val_mask=torch.ones(60, 3).bool()), r"val_mask of bool, \[N\] .*\[60, 3\]"
    ),
    "mask of numbers": (put("movie", val_mask=half(0, 1)), "val_mask of bool, .*torch.int64"),
    "two masks": (
        put("movie", train_mask=half(1, 0).bool(), test_mask=half(1, 1).bool()),
        "movie: node 0 is under two masks",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Unable to accurately infer")
@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_what_pyg_holds_is_one_line(case: str) -> None:
    change, message = WRONG[case]
    data = hetero()
    change(data)
    with pytest.raises(HanmeError, match=message) as raised:
        Graph.from_hetero(data)
    assert "\n" not in str(raised.value)


def test_the_target_may_be_named() -> None:
    data = hetero()
    data["actor"].y = torch.arange(data["actor"].num_nodes) % 2
    assert Graph.from_hetero(data, target="actor").labels == ["0", "1"]
    with pytest.raises(HanmeError, match=r"`target` to be one of .*movie.* but got 'film'"):
        Graph.from_hetero(data, target="film")
    with pytest.raises(HanmeError, match="`features` to be one of mean, onehot"):
        Graph.from_hetero(data, target="actor", features="median")  # type: ignore[arg-type]


@pytest.mark.parametrize("y", [torch.full((60,), -1), torch.zeros(60, 5)])
def test_a_graph_without_labels_can_be_made_but_not_trained_on(y: torch.Tensor) -> None:
    data = hetero()
    data["movie"].update({"y": y})
    for part in ("train", "val", "test"):
        del data["movie"][f"{part}_mask"]
    graph = Graph.from_hetero(data)
    assert graph.labels == data["movie"].label_names
    assert graph.label_matrix.shape == (60, 5)
    assert not graph.label_matrix.any()
    assert not torch.stack(graph.split).any()
    with pytest.raises(HanmeError, match="movie: no node is in the train part"):
        graph.check_trainable()
    del data["movie"]["label_names"]
    assert Graph.from_hetero(data).label_matrix.shape == (60, 0 if y.dim() == 1 else 5)


def test_a_type_without_nodes() -> None:
    data = HeteroData()
    data["a"].x, data["a"].y = torch.zeros(0, 2), torch.zeros(0).long()
    data["a", "to", "a"].edge_index = torch.zeros(2, 0).long()
    graph = Graph.from_hetero(data)
    assert (graph.sizes, graph.labels, graph.label_matrix.shape) == ({"a": 0}, [], (0, 0))


@given(st.lists(st.integers(-1, 3), max_size=8), st.lists(st.booleans(), min_size=8, max_size=8))
def test_labels_as_a_matrix(labels: list[int], train: list[bool]) -> None:
    y, mask = torch.tensor(labels, dtype=torch.long), torch.tensor(train[: len(labels)]).bool()
    split = Split(mask, ~mask, torch.zeros_like(mask))
    graph = Graph({"a": Nodes("a", len(y))}, {}, "a", y, list("wxyz"), split)
    rows = [[label == c for c in range(4)] for label in labels]
    assert graph.label_matrix.tolist() == rows
    seen = [[float(c and t) for c in row] for row, t in zip(rows, train, strict=False)]
    assert graph.training_labels.tolist() == seen
    several = replace(graph, y=graph.label_matrix.float())
    assert several.multilabel
    assert not graph.multilabel
    assert torch.equal(several.label_matrix, graph.label_matrix)


def test_an_unlabelled_training_node_is_refused() -> None:
    graph = planted(movies=60)
    graph.check_trainable()
    y = torch.where(graph.y.any(1), graph.y.argmax(1), -1)
    replace(graph, y=y).check_trainable()
    y[graph.split.val.nonzero()[0]] = -1
    with pytest.raises(HanmeError, match="movie: a node in the val part has no label"):
        replace(graph, y=y).check_trainable()
    nobody = graph.split._replace(val=torch.zeros(60, dtype=torch.bool))
    with pytest.raises(HanmeError, match="movie: no node is in the val part"):
        replace(graph, split=nobody).check_trainable()


def test_reverse_relations_follow_the_ones_they_reverse() -> None:
    nodes = {"a": Nodes("a", 2), "b": Nodes("b", 3)}
    links = {
        ("a", "to", "b"): torch.tensor([[0, 1], [2, 0]]),
        ("b", "in", "b"): torch.eye(2).long(),
    }
    none = torch.zeros(2, dtype=torch.bool)
    split = Split(none, none, none)
    graph = Graph(nodes, links, "a", torch.tensor([0, 1]), ["u", "v"], split)
    both = graph.with_reverse({("a", "to", "b"): ("b", "rev_to", "a")})
    assert both.edge_types == [("a", "to", "b"), ("b", "rev_to", "a"), ("b", "in", "b")]
    assert both.links["b", "rev_to", "a"].tolist() == [[2, 0], [0, 1]]
    assert graph.edge_types == [("a", "to", "b"), ("b", "in", "b")]


def test_it_shows_itself() -> None:
    nodes = {"film": Nodes("film", 1200), "<b>": Nodes("<b>", 3)}
    links = {("film", "of", "<b>"): torch.zeros(2, 4567).long()}
    none = torch.zeros(1200, dtype=torch.bool)
    split = Split(none, none, none)
    graph = Graph(nodes, links, "film", torch.full((1200,), -1), ["Drama", "War & <i>"], split)
    assert repr(graph) == "Graph(1,200 film, 3 <b>; 4,567 links; film: Drama, War & <i>)"


def test_pyg_s_names_are_there() -> None:
    graph = planted(movies=20)
    data = graph.to_hetero()
    assert graph.metadata() == data.metadata()
    assert graph.edge_index_dict.keys() == data.edge_index_dict.keys()
    assert graph.x_dict.keys() == data.x_dict.keys()
    assert graph.sizes == {kind: data[kind].num_nodes for kind in data.node_types}
    assert graph.widths == {kind: data[kind].x.size(1) for kind in data.node_types}
