"""Trees in the wide part: what they learn, that they see no held-out label, that they add up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from hanme import Classifier
from hanme.graph import Graph
from hanme.graph.splits import Split
from hanme.nn.batch import Batch
from hanme.nn.channels import Task, WideChannels
from hanme.training import trees
from hanme.training.beliefs import cross_fit
from hanme.training.trees import Size, can_grow, grow
from hanme.training.wide import Mixture, Wide


def three_together(nodes: int = 900, *, several: bool = False) -> Graph:
    """Nodes whose label is told by three features together, and by no two of them."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (nodes, 6)).astype(np.float32)
    y = (x[:, 0] > 0) ^ (x[:, 1] > 0) ^ (x[:, 2] > 0)
    y ^= random.random(nodes) < 0.05
    data = HeteroData()
    data["node"].x = torch.from_numpy(x)
    labels = np.stack([y, ~y, x[:, 3] > 0], 1) if several else y
    data["node"].y = torch.from_numpy(labels).float() if several else torch.from_numpy(y).long()
    data["node"].num_nodes = nodes
    data["other"].num_nodes = 2
    data["node", "to", "other"].edge_index = torch.stack(
        [torch.arange(nodes), torch.arange(nodes) % 2]
    )
    part = torch.from_numpy(random.permutation(nodes) % 5)
    data["node"].train_mask, data["node"].val_mask = part > 1, part == 1
    data["node"].test_mask = part == 0
    return Graph.from_hetero(data, target="node")


@pytest.mark.parametrize("nodes", [1800, 4500])
@pytest.mark.parametrize("several", [True, False])
def test_what_three_features_say_together_is_learnt(nodes: int, several: bool) -> None:
    graph = three_together(nodes, several=several)
    scores = {}
    for grown in (True, False):
        found = Classifier("linear", training={"trees": grown}).fit(graph)
        scores[grown] = found.scores()["test"]["micro"]
    assert scores[True] > 0.85
    assert scores[False] < (0.8 if several else 0.6)


def test_a_run_with_trees_opens_again_and_its_reasons_add_up(tmp_path: Path) -> None:
    graph = three_together()
    found = Classifier("linear").fit(graph, out=tmp_path / "run")
    again = Classifier.load(tmp_path / "run", graph)
    np.testing.assert_array_equal(again.predict_proba(), found.predict_proba())
    why = found.explain(7, top=10**6)
    assert {reason.block for reason in why.reasons} >= {"trees"}
    told = [reason.what for reason in why.reasons if reason.block == "trees"]
    assert len(set(told)) == len(told) <= 7
    assert "any node" in told
    for label in graph.labels:
        parts = [reason.parts[label] for reason in why.reasons if reason.block == "trees"]
        assert sum(parts) == pytest.approx(why.others["trees:plain"][label], abs=1e-4)
        added = sum(each[label] for each in why.others.values())
        assert added == pytest.approx(why.logits[label], abs=1e-4)


def channels(graph: Graph) -> WideChannels:
    task = Task(graph.metadata(), graph.target, len(graph.labels))
    return WideChannels(task, blocks=["features:plain", "trees:plain"])


def test_no_tree_sees_a_label_that_it_is_held_out_for() -> None:
    graph, wide = (
        three_together(300),
        Wide(
            blocks=["features:plain"],
            mixtures=[Mixture(scales=[1], strength=1, loss=0)],
            trees=True,
        ),
    )
    part = channels(graph)
    found = cross_fit(part, graph, wide, 0)
    for fold in found.folds:
        hidden = fold.graph.split.val & graph.split.train
        y = torch.where(hidden, 1 - graph.y, graph.y)
        other = channels(graph)
        masks = [fold.graph.split.train]
        none = [torch.zeros_like(hidden)]
        one, _ = grow(part, graph, masks, none, 0, Size(16, 5))
        two, _ = grow(other, replace(graph, y=y), masks, none, 0, Size(16, 5))
        torch.testing.assert_close(one, two, rtol=0, atol=0)
        torch.testing.assert_close(part.trees, other.trees, rtol=0, atol=0)


def test_leaves_add_up_to_what_boosting_came_to() -> None:
    graph = three_together(300)
    part = channels(graph)
    masks = [graph.split.train, graph.split.labelled]
    none = [torch.zeros_like(masks[0])] * 2
    weights, _ = grow(part, graph, masks, none, 0, Size(16, 6))
    (rows,) = [rows for rows in part.rows(Batch.of(graph)) if rows.forest is not None]
    nodes = graph.split.labelled.nonzero().flatten()
    x = graph.targets.x
    assert x is not None
    for mask, weight in zip(masks, weights, strict=True):
        boost = trees.Boost(
            x[nodes].numpy(), graph.y[nodes], mask[nodes], mask[nodes], 2, 16, 1e9, 0
        )
        boost.columns = min(10, x.size(1))
        for _ in range(6):
            boost.add()
        found = rows.times(nodes.numpy(), weight[:-1]) + weight[-1]
        torch.testing.assert_close(found, boost.logits, atol=1e-5, rtol=1e-5)


def test_noise_grows_no_trees() -> None:
    graph = three_together(300)
    random = torch.Generator().manual_seed(0)
    noise = replace(graph, y=torch.randint(2, (300,), generator=random))
    halves = torch.arange(300) % 2 == 0
    _, size = grow(channels(noise), noise, [halves], [~halves], 0)
    assert size.trees <= 5


def test_large_problems_are_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = three_together(900)
    assert can_grow(graph)
    monkeypatch.setattr(trees, "MOST_CELLS", 150 * 400 * 4)
    nodes = torch.ones(900, dtype=torch.bool)
    x = graph.targets.x
    assert x is not None
    boost = trees.Boost(x.numpy(), graph.y, nodes, nodes, 2, 16, 400 * 4, 0)
    assert boost.rows * boost.columns <= 1600
    before = boost.loss()
    for _ in range(10):
        boost.add()
    assert boost.loss() < before
    monkeypatch.setattr(trees, "MOST_FEATURES", 5)
    assert not can_grow(graph)
    few = replace(graph, split=Split(*([nodes] * 3)))
    monkeypatch.undo()
    monkeypatch.setattr(trees, "MOST_LOGITS", 1000)
    assert not can_grow(few)


def test_words_of_texts_are_left_to_the_linear_part(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(1100)]
    lines = ["a,b,c,about,kind"]
    for _ in range(1500):
        a, b, c = random.uniform(-1, 1, 3)
        told = " ".join(random.choice(words, 12))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{told},{'xy'[int((a > 0) ^ (b > 0) ^ (c > 0))]}")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "graph.toml").write_text(
        'target = "t"\n[nodes.t]\ntable = "t.csv"\nlabel = "kind"\n[nodes.t.features]\n'
        'a = "number"\nb = "number"\nc = "number"\nabout = { kind = "text", size = 2000 }\n'
    )
    graph = Graph.from_tables(tmp_path)
    assert graph.targets.width > trees.MOST_FEATURES
    found = Classifier("linear").fit(graph)
    assert found.scores()["test"]["micro"] > 0.8
    told = [r.what for r in found.explain(3, top=10**6).reasons if r.block == "trees"]
    assert {what.split(" near ")[0] for what in told} == {"a", "b", "c", "any node"}


def test_one_feature_is_enough_for_trees() -> None:
    graph = three_together(600)
    x = torch.linspace(-1, 1, 600)[torch.randperm(600, generator=torch.Generator().manual_seed(0))]
    nodes = replace(graph.targets, x=x[:, None])
    one = replace(graph, nodes=graph.nodes | {"node": nodes}, y=(x.abs() < 0.5).long())
    found = Classifier("linear").fit(one)
    assert found.scores()["test"]["micro"] > 0.95
    assert "trees" in {reason.block for reason in found.explain(7).reasons}


def test_few_nodes_to_choose_a_size_by_and_many_labels_grow_no_trees() -> None:
    graph = three_together(300)
    masks = [graph.split.train]
    few = torch.zeros_like(masks[0])
    few[graph.split.val.nonzero().flatten()[:40]] = True
    assert grow(channels(graph), graph, masks, [few], 0)[1].trees == 0
    boosts = [trees.Boost(np.zeros((300, 1)), graph.y, masks[0], graph.split.val, 2, 16, 1e9, 0)]
    assert trees._sized(boosts, 16, 0)[1].trees == 0


def test_features_of_unknown_origin_that_are_mostly_0_count_as_words() -> None:
    graph = three_together(300)
    x = torch.zeros(300, 100)
    x[torch.arange(300), torch.arange(300) % 100] = 1
    for filled, grows in ((x, False), (x + 1, True), (x.to_sparse_csr(), False)):
        nodes = replace(graph.targets, x=filled)
        assert can_grow(replace(graph, nodes=graph.nodes | {"node": nodes})) is grows
