"""What is believed of other nodes, and how far it is trusted."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from hanme.data import planted
from hanme.decision import calibrate
from hanme.errors import HanmeError
from hanme.explain import explain
from hanme.graph import Graph, Nodes, Split
from hanme.graph.chain import Chain
from hanme.nn.batch import Batch
from hanme.nn.channels import Task, WideChannels
from hanme.runs import RunConfig
from hanme.runs.train import prepare
from hanme.training import belief_blocks, settle, wide_part
from hanme.training.beliefs import Weighed, believed, cross_fit
from hanme.training.convex import logistic
from hanme.training.wide import Mixture, Wide


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
    batch = Batch(graph.x_dict, graph.edge_index_dict)
    active = [block for block in part.active if block.read == "beliefs"]
    reading = part.reading(batch, beliefs.float())
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
    batch = Batch(graph.x_dict, graph.edge_index_dict)
    beliefs = believed(graph, logits)
    first = val[:1].numpy()
    before = [rows(first).toarray() for rows in part.reading(batch, beliefs)]
    beliefs[first] += 5
    after = [rows(first).toarray() for rows in part.reading(batch, beliefs)]
    np.testing.assert_allclose(before, after, atol=1e-5)


def test_an_explanation_with_beliefs_adds_up() -> None:
    graph = friends()
    model, found = train(graph)
    explanation = explain(model, replace(graph, visible=graph.split.labelled), 3, top=1000)
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


def test_one_training_node_is_too_few() -> None:
    graph = friends()
    first, second = graph.split.labelled.nonzero().flatten()[:2]
    split = Split(torch.arange(600) == first, torch.arange(600) == second, graph.split.test)
    with pytest.raises(HanmeError, match="one training node is too few"):
        train(replace(graph, split=split))


def several_mixtures(monkeypatch: pytest.MonkeyPatch) -> tuple[Wide, WideChannels]:
    """Return two mixtures, of labels and of words, and slopes for them that no node decides."""
    graph = friends()
    paths = [f"person-{name}:person" for name in ("knows", "known_by")]
    blocks = ["features:plain", f"{paths[0]}:labels:plain", f"{paths[1]}:features:unit"]
    mixtures = [
        Mixture(scales=[0, 3.0, 0], strength=0.1, loss=1),
        Mixture(scales=[0.5, 0, 2.0], strength=0.3, loss=1),
    ]
    beliefs = [f"{path}:beliefs:plain" for path in paths]
    task = Task(graph.metadata(), "person", 3)
    monkeypatch.setattr(
        "hanme.training.beliefs.calibrate", lambda *_: ([0.25, 0.75], torch.tensor([0.0, 1, 2]))
    )
    part = WideChannels(task, blocks=blocks + beliefs)
    return Wide(blocks=blocks, mixtures=mixtures, beliefs=beliefs), part


def test_mixtures_are_added_up_each_with_its_scales_and_slope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, (wide, part) = friends(), several_mixtures(monkeypatch)
    first = cross_fit(part, graph, wide, seed=1).first
    words, met, further = (
        torch.from_numpy(rows(np.arange(600)).toarray()) for rows in part.rows(Batch.of(graph))
    )
    expected = torch.tensor([0.0, 1, 2])
    for rows, strength, slope in (
        (3 * met, 0.1, 0.25),
        (torch.cat([0.5 * words, 2 * further], 1), 0.3, 0.75),
    ):
        seen = graph.split.train
        weights = logistic(rows[seen], graph.y[seen], strength, labels=3, steps=500)
        expected = expected + slope * (rows @ weights[:-1] + weights[-1])
    torch.testing.assert_close(first.logits, expected, rtol=0.02, atol=0.02)


def test_a_fold_sees_no_label_that_it_is_held_out_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, (wide, part) = friends(), several_mixtures(monkeypatch)
    order = torch.randperm(600, generator=torch.Generator().manual_seed(0))

    def dealt(split: Split, y: torch.Tensor, fold: int, folds: int, *, seed: int) -> Split:
        val = split.labelled & (order % folds == fold - 1)
        return Split(split.labelled & ~val, val, split.test)

    monkeypatch.setattr("hanme.training.beliefs.without_fold", dealt)
    before = cross_fit(part, graph, wide, seed=1)
    for number in (0, 2):
        fold = before.folds[number]
        val = fold.graph.split.val
        y = torch.where(val, (graph.y + 1) % 3, graph.y)
        again = cross_fit(part, replace(graph, y=y), wide, seed=1).folds[number]
        assert torch.equal(fold.logits, again.logits)
        assert torch.equal(Weighed.of(part, fold).means, Weighed.of(part, again).means)


@pytest.mark.parametrize("several", [False, True])
def test_slopes_of_mixtures_are_fitted_to_training_nodes_out_of_fold(
    several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, (wide, part) = friends(), several_mixtures(monkeypatch)
    if not several:  # of labels, rows differ from fold to fold
        wide = wide.model_copy(update={"blocks": [wide.blocks[0], *wide.blocks[2:]]})
        scales = ([1.0, 0], [0.5, 2.0])
        mixtures = [Mixture(scales=each, strength=0.1, loss=1) for each in scales]
        wide = wide.model_copy(update={"mixtures": mixtures, "beliefs": []})
        part = WideChannels(Task(graph.metadata(), "person", 3), blocks=wide.blocks)
    given = []
    monkeypatch.setattr(
        "hanme.training.beliefs.calibrate",
        lambda *args: given.append(args) or ([1.0, 0.0], torch.zeros(3)),
    )
    folds = cross_fit(part, graph, wide, seed=1).folds
    ((parts, y, _),) = given
    nodes = torch.cat([(f.graph.split.val & graph.split.train).nonzero().flatten() for f in folds])
    assert sorted(nodes.tolist()) == graph.split.train.nonzero().flatten().tolist()
    assert torch.equal(y, graph.y[nodes])
    assert all(fold.logits.numel() == (600 * 3 if several else 0) for fold in folds)
    if several:
        own = [f.logits[f.graph.split.val & graph.split.train] for f in folds]
        torch.testing.assert_close(torch.cat(own), parts[0])


def test_a_linear_model_alone_is_expected_to_carry_all(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def recorded(parts, y, expected, *rest):
        given.extend(expected)
        return calibrate(parts, y, expected, *rest)

    monkeypatch.setattr(sys.modules["hanme.training.settle"], "calibrate", recorded)
    train(friends(), beliefs=False)
    assert [mean for mean, _ in given] == [1]


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
