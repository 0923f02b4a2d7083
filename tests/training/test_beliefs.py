"""What is believed of other nodes, and how far it is trusted."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hanme.chain import Chain
from hanme.datasets import planted
from hanme.explain import explain
from hanme.graph import Graph, Nodes, Split
from hanme.nn.channels import Inputs
from hanme.runs import RunConfig
from hanme.runs.train import prepare
from hanme.training import belief_blocks, settle, wide_part
from hanme.training.beliefs import believed


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


def train(graph: Graph, **training: object):
    config = RunConfig.make(
        {
            "data": {"name": "planted"},
            "model": {"name": "linear"},
            "training": {"recipe": "default", "seed": 1, **training},
        }
    )
    trainer, wide = prepare(config, graph)
    return trainer.model, settle(trainer.model, graph, config.training, wide)


def right(graph: Graph, logits: torch.Tensor) -> float:
    test = graph.split.test
    return float((logits.argmax(1) == graph.y)[test].double().mean())


def test_what_friends_are_believed_to_be_helps_where_friends_are_alike() -> None:
    graph = friends()
    _, without = train(graph, beliefs=False)
    model, found = train(graph)
    part = wide_part(model)
    assert any(name.endswith(":beliefs:plain") for name in part.names)
    assert right(graph, found.model.logits) > right(graph, without.model.logits) + 0.02


def test_it_costs_little_where_they_are_not() -> None:
    graph = friends(alike=False)
    _, without = train(graph, beliefs=False)
    _, found = train(graph)
    assert right(graph, found.model.logits) > right(graph, without.model.logits) - 0.04


def test_means_are_those_over_instances_without_the_root() -> None:
    graph = friends()
    model, found = train(graph)
    part = wide_part(model)
    beliefs = believed(graph, found.model.logits).double()
    roots = torch.tensor([0, 7, 599])
    inputs = Inputs(graph.x_dict, graph.edge_index_dict)
    active = [block for block in part.active if block.read == "beliefs"]
    reading = part.reading(inputs, beliefs.float())
    assert len(reading) == len(active) > 0
    for block, rows in zip(active, reading, strict=True):
        given = torch.from_numpy(rows(roots.numpy()).toarray())
        chain = Chain.build(block.path, graph.links, graph.sizes)
        for root, row in zip(roots.tolist(), given, strict=True):
            ends = torch.cat([some.nodes[:, -1] for some in chain.blocks(root, 1000)])
            ends = ends[ends != root]
            expected = beliefs[ends].sum(0) / max(1, len(ends))
            assert torch.allclose(row.double(), expected, atol=1e-5)


def test_no_node_s_own_label_comes_back_to_its_logits() -> None:
    graph = friends()
    logits = torch.randn(600, 3)
    val = graph.split.val.nonzero().flatten()
    y = graph.y.clone()
    y[val] = (y[val] + 1) % 3
    assert torch.equal(believed(graph, logits), believed(replace(graph, y=y), logits))
    model, _ = train(graph)
    part = wide_part(model)
    inputs = Inputs(graph.x_dict, graph.edge_index_dict)
    beliefs = believed(graph, logits)
    first = val[:1].numpy()
    before = [rows(first).toarray() for rows in part.reading(inputs, beliefs)]
    beliefs[first] += 5
    after = [rows(first).toarray() for rows in part.reading(inputs, beliefs)]
    np.testing.assert_allclose(before, after, atol=1e-5)


def test_an_explanation_with_beliefs_adds_up() -> None:
    graph = friends()
    model, found = train(graph)
    explanation = explain(model, replace(graph, seen=graph.split.labelled), 3, top=1000)
    parts = [part[explanation.label] for part in explanation.others.values()]
    assert any("beliefs" in name for name in explanation.others)
    assert sum(parts) == pytest.approx(explanation.logits[explanation.label], abs=1e-4)
    reasons = [r for r in explanation.reasons if "beliefs" in r.block]
    assert {r.what for r in reasons} <= {"label a", "label b", "label c"}
    total = sum(r.parts[explanation.label] for r in explanation.reasons)
    bias = float(wide_part(model).bias[graph.labels.index(explanation.label)])
    assert total + bias == pytest.approx(explanation.logits[explanation.label], abs=1e-4)
    assert torch.allclose(found.model.logits[3], torch.tensor(list(explanation.logits.values())))


def test_nodes_in_another_order_keep_their_beliefs() -> None:
    graph = friends()
    model, found = train(graph)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))
    place = torch.empty_like(order)
    place[order] = torch.arange(600)
    links = {e: place[x] for e, x in graph.links.items()}
    x = {"person": graph.x_dict["person"].to_dense()[order]}
    wide_part(model).renumber("person", place, 600)
    moved = model(x, links)
    assert torch.allclose(moved, found.model.logits[order], atol=1e-4)


def test_short_paths_to_the_target_and_long_ones_there_and_back_are_tried() -> None:
    assert belief_blocks(friends()) == [
        f"person-{path}:person:beliefs:plain" for path in ("knows", "known_by")
    ] + [
        f"person-{first}:person-{second}:person:beliefs:plain"
        for first in ("knows", "known_by")
        for second in ("knows", "known_by")
    ]
    found = belief_blocks(planted(movies=60).with_features("given"))
    assert "movie-actor-movie:beliefs:plain" in found
    assert "movie-actor-movie-actor-movie:beliefs:plain" in found
    assert "movie-actor-movie-director-movie:beliefs:plain" not in found


@pytest.mark.parametrize("several", [False, True])
def test_labels_of_test_nodes_change_nothing(several: bool) -> None:
    graph = friends()
    if several:
        y = torch.nn.functional.one_hot(graph.y, 3).float()
        more = torch.rand(y.shape, generator=torch.Generator().manual_seed(0)) < 0.15
        graph = replace(graph, y=torch.maximum(y, more.float()))
    other = graph.y.clone()
    other[graph.split.test] = torch.tensor([1.0, 0, 0]) if several else 0
    found, again = (train(replace(graph, y=y))[1] for y in (graph.y, other))
    assert torch.equal(found.model.held_out, again.model.held_out)
    assert torch.equal(found.model.logits, again.model.logits)
    assert found.model.decision == again.model.decision


@pytest.mark.parametrize("labelled", [4, 7])
def test_a_handful_of_labels_is_enough(labelled: int) -> None:
    graph = friends()
    nodes = graph.split.labelled.nonzero().flatten()[:labelled]
    train_, val = torch.zeros(600, dtype=torch.bool), torch.zeros(600, dtype=torch.bool)
    train_[nodes[:-1]], val[nodes[-1:]] = True, True
    _, found = train(replace(graph, split=Split(train_, val, graph.split.test)))
    assert found.model.logits.isfinite().all()


def test_noise_is_not_trusted_where_labels_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanme.training.beliefs.MOST_SPANNED", 50)
    trusted = 0
    for seed in range(6):
        model, _ = train(friends(seed, alike=False))
        trusted += any("beliefs" in name for name in wide_part(model).names)
    assert trusted <= 2


def test_a_path_that_few_nodes_have_is_not_trusted() -> None:
    graph = friends()
    some = graph.split.labelled.nonzero().flatten()[:2]
    links = dict(graph.links)
    links["person", "twin", "person"] = torch.stack([some, some.flip(0)])
    model, _ = train(replace(graph, links=links))
    assert any("knows" in name for name in wide_part(model).names)
    assert not any("twin:person:beliefs" in name for name in wide_part(model).names)
