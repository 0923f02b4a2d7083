"""The linear model: what it selects, predicts, explains, saves and carries to another graph."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes
from hanme.linear import LinearModel, select_blocks
from hanme.linear.matrices import GraphMatrices
from hanme.linear.selection import _affordable, leave_one_out, normalised


@pytest.fixture(scope="module")
def movies() -> Graph:
    return planted(movies=200, guests=0, noise=0, genres=3, seed=1).with_features("given")


@pytest.fixture(scope="module")
def model(movies: Graph) -> LinearModel:
    return LinearModel.fit(movies, seed=1)


def test_it_learns(movies: Graph, model: LinearModel) -> None:
    logits, test = model.predict(movies), movies.split.test
    assert ((logits > 0) == movies.label_matrix)[test].float().mean() > 0.85
    some = torch.tensor([3, 199, 3])
    torch.testing.assert_close(model.predict(movies, some), logits[some], rtol=1e-5, atol=1e-5)
    blocks = model.block_logits(movies)
    assert set(blocks) == {*(str(each.block) for each in model.blocks), "bias"}
    torch.testing.assert_close(sum(blocks.values()), logits, rtol=1e-4, atol=1e-4)


def test_contributions_add_up_to_the_logits(movies: Graph, model: LinearModel) -> None:
    logits = model.predict(movies).double().numpy()
    for node in (0, 7):
        found = model.contributions(movies, node)
        assert found.logits == pytest.approx(logits[node], abs=1e-5)
    part = next(part for part in found.parts if part.node_type)
    linked = movies.links["movie", "to", part.node_type]
    assert set(part.numbers) <= set(linked[1, linked[0] == node].tolist())


def test_it_is_the_same_after_saving(movies: Graph, model: LinearModel) -> None:
    values, tensors = model.state()
    assert values.pop("kind") == "linear"
    places = [tensor.data_ptr() for tensor in tensors.values() if tensor.numel()]
    assert len(set(places)) == len(places)  # safetensors refuses shared memory
    again = LinearModel.from_state(values, tensors, movies)
    assert torch.equal(again.predict(movies), model.predict(movies))
    with pytest.raises(HanmeError):
        LinearModel.from_state(values | {"blocks": ["names:unit"]}, tensors, movies)
    with pytest.raises(HanmeError):
        LinearModel.from_state(values, tensors, replace(movies, labels=["one"]))


def test_weights_follow_ids_to_a_graph_in_another_order(movies: Graph) -> None:
    actors = movies.nodes["actor"]
    ids = [f"a{i}" for i in range(actors.num_nodes)]
    graph = replace(movies, nodes=movies.nodes | {"actor": replace(actors, ids=ids)})
    fitted = LinearModel.fit(graph, seed=1)
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(ids))
    links = {
        e: torch.stack(
            [place[row] if t == "actor" else row for t, row in zip((e[0], e[2]), pair, strict=True)]
        )
        for e, pair in graph.links.items()
    }
    moved = replace(
        actors, ids=[ids[i] for i in order], x=actors.x.to_dense()[order].to_sparse_csr()
    )
    other = replace(graph, links=links, nodes=graph.nodes | {"actor": moved})
    torch.testing.assert_close(
        fitted.aligned_to(other).predict(other), fitted.predict(graph), rtol=1e-4, atol=1e-4
    )
    fewer = replace(other.nodes["actor"], ids=["unknown", *moved.ids[1:]])
    unknown = replace(other, nodes=other.nodes | {"actor": fewer})
    assert not torch.equal(fitted.aligned_to(unknown).predict(unknown), fitted.predict(graph))


def test_a_graph_without_its_links_gives_other_logits(movies: Graph, model: LinearModel) -> None:
    bare = replace(movies, links={e: x[:, :0] for e, x in movies.links.items()})
    assert not torch.allclose(model.predict(bare), model.predict(movies))


class Stored(Graph):
    stored = True


def test_a_stored_graph_is_read_by_subgraphs(
    movies: Graph, model: LinearModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanme.linear.model.BATCH", 70)
    fields = ("nodes", "links", "target", "y", "labels", "split")
    stored = Stored(**{name: getattr(movies, name) for name in fields})
    torch.testing.assert_close(model.predict(stored), model.predict(movies), rtol=1e-4, atol=1e-4)


def labelled_by_last(x: torch.Tensor) -> Graph:
    data = HeteroData()
    data["node"].x, data["node"].y = x, (x[:, -1] > x[:, -1].median()).long()
    return Graph.from_hetero(data)


@pytest.mark.parametrize("factor", [1e-8, 1e6])
def test_units_and_offsets_of_features_do_not_matter(factor: float) -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    moved = factor * torch.cat([torch.full((100, 1), 3e4), 10 + x], 1)
    graph = labelled_by_last(x)
    expected = LinearModel.fit(graph, seed=1).predict(graph)
    for other in (labelled_by_last(factor * x), labelled_by_last(moved)):
        logits = LinearModel.fit(other, seed=1).predict(other)
        assert (logits.argmax(1) == expected.argmax(1)).float().mean() > 0.95


def test_features_that_differ_by_rounding_alone_are_left_out() -> None:
    rows = np.array([[1 / 3], [1 / 3], [1 / 3 + 2e-8]], np.float32).astype(np.float64)
    assert normalised(rows @ rows.T)[1] == 0
    graph = labelled_by_last(torch.full((50, 1), 0.1))
    masks = [graph.split.train]
    with pytest.raises(HanmeError, match="no features and no links"):
        select_blocks(replace(graph, y=torch.arange(50) % 2), masks, 1, GraphMatrices(graph))


def test_one_training_node_is_too_few(movies: Graph) -> None:
    train = torch.zeros_like(movies.split.train)
    train[0] = True
    with pytest.raises(HanmeError, match="training nodes"):
        LinearModel.fit(replace(movies, split=movies.split._replace(train=train)))


def test_the_selection_sees_no_validation_label() -> None:
    graph = planted(movies=120, seed=1).with_features("given")
    y = graph.y.clone()
    y[graph.split.val] = 1 - y[graph.split.val]
    matrices, masks = GraphMatrices(graph), [graph.split.train]
    again = select_blocks(replace(graph, y=y), masks, 1, matrices)
    assert select_blocks(graph, masks, 1, matrices) == again


def test_large_fits_take_the_most_relevant_affordable_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hanme.linear.selection.MAX_WORK", 10)
    weights = torch.tensor([0.2, 0.5, 0.2, 0.0, 0.1])
    assert _affordable([4, 20, 5, 1, 3], weights).tolist() == [0.5, 0, 0.5, 0, 0]
    assert _affordable([20, 30], torch.tensor([0.1, 0.9])).tolist() == [1, 0]


def test_many_nodes_choose_weights_and_strength_and_ids_that_never_repeat_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hanme.linear.selection.MAX_GRAM_NODES", 50)
    graph = planted(movies=200, guests=0, noise=0, genres=3, seed=1).with_features("given")
    e = ("movie", "has", "review")
    links = {e: torch.arange(200).repeat(2, 1), e[::-1]: torch.arange(200).repeat(2, 1)}
    nodes = graph.nodes | {"review": Nodes("review", 200, torch.rand(200, 1))}
    graph = replace(graph, nodes=nodes, links={**graph.links, **links})
    model = LinearModel.fit(graph, seed=1)
    assert not [each for each in model.blocks if "review:ids" in str(each.block)]
    right = ((model.predict(graph) > 0) == graph.label_matrix)[graph.split.test]
    assert right.float().mean() > 0.85


def test_edits_in_place_are_read_as_a_new_graph_is() -> None:
    graph = planted(movies=120, seed=1).with_features("given")
    model = LinearModel.fit(graph)
    before = model.predict(graph)
    edges = next(iter(graph.links.values()))
    edges[1] = edges[1].flip(0)
    fresh = replace(graph, links={e: links.clone() for e, links in graph.links.items()})
    assert not torch.equal(model.predict(graph), before)
    assert torch.equal(model.predict(graph), model.predict(fresh))


def test_the_matrices_of_one_target_are_not_those_of_another() -> None:
    graph = planted(movies=120, seed=1)
    matrices = GraphMatrices(graph)
    assert matrices.belong_to(replace(graph, labels=["a", "b"]))
    assert not matrices.belong_to(replace(graph, target=graph.edge_types[0][2]))


def test_leave_one_out_errors_are_those_of_ridge_regressions() -> None:
    random = torch.Generator().manual_seed(0)
    rows = [torch.randn(30, 4, generator=random).double() for _ in range(3)]
    grams, y = torch.stack([x @ x.t() for x in rows]), torch.randn(30, 2, generator=random).double()
    weights = torch.rand(3, generator=random).double().requires_grad_()
    inner, errors = torch.einsum("b,bij->ij", weights, grams), []
    for i in range(30):
        rest = torch.arange(30) != i
        fitted = torch.linalg.solve(inner[rest][:, rest] + torch.eye(29), y[rest])
        errors.append(y[i] - inner[i, rest] @ fitted)
    mean = torch.stack(errors).square().mean()
    mean.backward()
    found, gradient = leave_one_out(weights.detach(), grams, y)
    assert found == pytest.approx(float(mean.detach()))
    torch.testing.assert_close(gradient, weights.grad)
