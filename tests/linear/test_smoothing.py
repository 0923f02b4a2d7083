"""Smoothing over the graph against a loop over instances, and what it is allowed to see."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Split
from hanme.graph.chain import Chain
from hanme.linear import LinearModel, Smoothing
from hanme.linear.matrices import GraphMatrices
from hanme.linear.smoothing import (
    SmoothingSpec,
    fit_smoothing,
    path_means,
    smoothing_paths,
    soft_labels,
)


def friends(seed: int = 0, *, alike: bool = True) -> Graph:
    """People who know two others, mostly of their own label, and have a word that tells little."""
    draw = np.random.default_rng(seed)
    size, labels = 600, 3
    y = draw.integers(0, labels, size)
    word = np.where(draw.random(size) < 0.2, y, draw.integers(0, labels, size))
    x = torch.nn.functional.one_hot(torch.from_numpy(word), labels).float()
    own = draw.random((size, 2)) < (0.75 if alike else 0)
    same = np.stack([draw.choice(np.flatnonzero(y == label), 2) for label in y])
    ends = np.where(own, same, draw.integers(0, size, (size, 2)))
    links = torch.from_numpy(np.stack([np.repeat(np.arange(size), 2), ends.reshape(-1)]))
    part = torch.from_numpy(draw.permutation(size))
    return Graph(
        {"person": Nodes("person", size, x)},
        {("person", "knows", "person"): links, ("person", "known_by", "person"): links.flip(0)},
        "person",
        torch.from_numpy(y),
        ["a", "b", "c"],
        Split(part < 60, (part >= 60) & (part < 120), part >= 300),
    )


def smoothed(graph: Graph) -> tuple[LinearModel, Smoothing]:
    base, matrices = LinearModel.fit(graph, seed=1), GraphMatrices(graph)
    paths = smoothing_paths(graph, matrices)
    nodes = graph.split.val.nonzero().flatten()
    held, group = [(graph, base.predict(graph), nodes)], torch.arange(len(nodes)) % 2
    return base, fit_smoothing(base, graph, matrices, paths, held, group).learner


def accuracy(graph: Graph, logits: torch.Tensor) -> float:
    return float((logits.argmax(1) == graph.y)[graph.split.test].double().mean())


def test_it_helps_where_linked_nodes_are_alike_and_costs_little_elsewhere() -> None:
    for alike, gain in ((True, 0.02), (False, -0.04)):
        graph = friends(alike=alike)
        base, model = smoothed(graph)
        after = replace(graph, visible=graph.split.labelled)
        assert accuracy(graph, model.predict(after)) > accuracy(graph, base.predict(graph)) + gain


def test_means_are_over_instances_without_the_node_itself() -> None:
    graph = friends()
    matrices, soft = GraphMatrices(graph), torch.randn(600, 3)
    nodes = torch.tensor([0, 7, 599])
    for path in smoothing_paths(graph, matrices):
        means = path_means(matrices, path, soft, nodes)
        chain = Chain.build(path, graph.links, graph.sizes)
        for node, row in zip(nodes.tolist(), means, strict=True):
            ends = torch.cat([some.nodes[:, -1] for some in chain.blocks(node, 1000)])
            ends = ends[ends != node]
            expected = soft[ends].double().sum(0) / max(1, len(ends))
            torch.testing.assert_close(row.double(), expected, rtol=1e-4, atol=1e-5)


def test_no_label_comes_back_to_its_own_node() -> None:
    graph, logits = friends(), torch.randn(600, 3)
    prior, val = torch.zeros(3), graph.split.val.nonzero().flatten()
    y = graph.y.clone()
    y[val] = (y[val] + 1) % 3
    other = replace(graph, y=y)
    assert torch.equal(soft_labels(graph, logits, prior), soft_labels(other, logits, prior))
    matrices, soft = GraphMatrices(graph), soft_labels(graph, logits, prior)
    paths = smoothing_paths(graph, matrices)
    before = [path_means(matrices, path, soft, val[:1]) for path in paths]
    soft[val[0]] += 5
    after = [path_means(matrices, path, soft, val[:1]) for path in paths]
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-5)


def test_contributions_and_blocks_add_up() -> None:
    graph = friends()
    _, model = smoothed(graph)
    logits = model.predict(graph)
    torch.testing.assert_close(sum(model.block_logits(graph).values()), logits)
    found = model.contributions(graph, 3)
    assert found.logits == pytest.approx(logits[3].double().numpy(), abs=1e-4)
    neighbours = [part for part in found.parts if part.block.endswith(":predictions")]
    assert neighbours
    friends_of_3 = graph.adjacency(graph.edge_types[0]).of_node(3).tolist()
    assert set(neighbours[0].numbers) <= set(friends_of_3)


def test_a_graph_is_smoothed_by_its_own_predictions_and_labels() -> None:
    graph = friends()
    _, model = smoothed(graph)
    logits = model.predict(graph)
    more = replace(graph, visible=graph.split.labelled)
    assert not torch.equal(model.predict(more), logits)
    assert torch.equal(model.predict(graph), logits)
    bare = replace(graph, links={e: links[:, :0] for e, links in graph.links.items()})
    assert not torch.allclose(model.predict(bare), logits)
    node = torch.tensor([3])
    part = graph.subgraph(node, model.walks())
    frozen = model.frozen(graph)
    torch.testing.assert_close(frozen.predict(part, part.roots), logits[node])


def test_it_is_the_same_after_saving() -> None:
    graph = friends()
    base, model = smoothed(graph)
    values, tensors = model.state()
    assert values.pop("kind") == "smoothing"
    values.pop("base")
    again = Smoothing.from_state(values, LinearModel.from_state(_own(base), tensors, graph), graph)
    assert torch.equal(again.predict(graph), model.predict(graph))
    with pytest.raises(HanmeError):
        Smoothing.from_state(values | {"slope": float("nan")}, base, graph)


def _own(model: LinearModel) -> dict:
    return {key: value for key, value in model.state()[0].items() if key != "kind"}


def test_short_paths_and_long_ones_there_and_back_are_tried() -> None:
    graph = friends()
    steps = ("knows", "known_by")
    assert [str(path) for path in smoothing_paths(graph, GraphMatrices(graph))] == [
        f"person-{step}:person" for step in steps
    ] + [f"person-{one}:person-{two}:person" for one in steps for two in steps]
    graph = planted(movies=60).with_features("given")
    paths = [str(path) for path in smoothing_paths(graph, GraphMatrices(graph))]
    assert "movie-actor-movie-actor-movie" in paths
    assert "movie-actor-movie-director-movie" not in paths


def test_a_spec_needs_as_many_slopes_as_paths() -> None:
    with pytest.raises(ValueError, match="slopes"):
        SmoothingSpec(paths=["a-b"], slopes=[], slope=1, bias=[0], prior=[0])


def test_labels_that_are_edited_in_place_are_read_as_new_ones_are() -> None:
    graph = friends()
    _, model = smoothed(graph)
    before = model.predict(graph)
    train = graph.split.train.nonzero().flatten()
    graph.y[train] = (graph.y[train] + 1) % 3
    after = model.predict(graph)
    assert not torch.equal(after, before)
    assert torch.equal(after, model.predict(replace(graph, y=graph.y.clone())))
