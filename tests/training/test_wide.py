"""The wide part: logistic regression against scikit-learn, what is chosen, what is never lost."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import HeteroData

from hanme.data import planted
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.nn.channels.blocks import Block, Rows
from hanme.runs import RunConfig
from hanme.runs.train import prepare
from hanme.training import choose_wide, settle
from hanme.training.convex import logistic
from hanme.training.fit import Told, _spanned
from hanme.training.metrics import scores
from hanme.training.relevance import gram
from hanme.training.wide import Mixture, Wide, _affordable, candidates


def data(n: int, width: int, labels: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, width, generator=generator) * (
        torch.rand(n, width, generator=generator) < 0.4
    )
    y = (rows @ torch.randn(width, labels, generator=generator)).argmax(1)
    return rows, y


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_the_convex_fit_is_scikit_learns(sparse: bool, several: bool) -> None:
    rows, y = data(300, 12, 3)
    given = rows.to_sparse_csr() if sparse else rows
    labels = torch.nn.functional.one_hot(y).float() if several else y
    found = logistic(given, labels, 0.5, steps=500)
    if several:
        for i in range(3):
            theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(rows, labels[:, i])
            np.testing.assert_allclose(found[:-1, i], theirs.coef_[0], atol=0.02)
            np.testing.assert_allclose(found[-1, i], theirs.intercept_[0], atol=0.02)
    else:
        theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(rows, y)
        ours = torch.softmax(rows @ found[:-1] + found[-1], 1)
        np.testing.assert_allclose(ours, theirs.predict_proba(rows), atol=0.01)


def spanned(rows: torch.Tensor, y: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
    block, nodes = Block(None, "features", "plain"), np.arange(len(rows))
    made = Rows(block, "node", {"node": rows}, {}, {"node": len(rows)})
    mixture = Mixture(scales=[1.0], strength=0.3, loss=0)
    given = y if y.dim() == 2 else torch.nn.functional.one_hot(y, 3)
    return _spanned(Told([made], nodes, y, given, parts), [mixture])[:, 0]


def test_fewer_nodes_than_columns_are_fitted_to_the_same_weights() -> None:
    rows, y = data(60, 200, 3)
    everyone = [torch.ones(60, dtype=torch.bool)]
    (short,) = spanned(rows, y, everyone)
    long = logistic(rows, y, 0.3, steps=500)
    torch.testing.assert_close(rows @ short[:-1], rows @ long[:-1], rtol=0.02, atol=0.05)


def test_a_large_column_that_hardly_differs_hides_no_others_from_few_nodes() -> None:
    rows, y = data(60, 200, 3)
    wider = torch.cat([rows, torch.full((60, 1), 3e4)], 1)
    parts = [torch.arange(60) % 5 != 0, torch.ones(60, dtype=torch.bool)]
    for short, long in zip(spanned(rows, y, parts), spanned(wider, y, parts), strict=True):
        expected, found = (x @ w[:-1] + w[-1] for x, w in ((rows, short), (wider, long)))
        torch.testing.assert_close(found, expected, rtol=0.01, atol=0.01)


def test_columns_that_are_large_and_hardly_differ_are_no_obstacle() -> None:
    rows, y = data(4000, 6, 3)
    rows[:, 0] = 50 + rows[:, 0]
    rows[:, 1] = 20 * (100 + rows[:, 1])
    centred = rows - rows.mean(0)

    def objective(x: torch.Tensor, weights: torch.Tensor) -> float:
        logits = x @ weights[:-1] + weights[-1]
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        return float(loss + weights[:-1].square().sum() / 2)

    found = objective(rows, logistic(rows, y, 1.0, steps=50))
    assert found <= 1.02 * objective(centred, logistic(centred, y, 1.0, steps=500))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [3e3, 1e4])
def test_columns_far_from_0_are_fitted_as_well_as_others(offset: float, sparse: bool) -> None:
    rows, y = data(300, 10, 3)
    far = rows + offset
    best = logistic(rows, y, 0.1, steps=500)
    found = logistic(far.to_sparse_csr() if sparse else far, y, 0.1, steps=60)

    def objective(weights: torch.Tensor, taken: float) -> float:
        exact = weights.double()
        logits = (rows.double() + taken) @ exact[:-1] + exact[-1]
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        return float(loss + 0.05 * exact[:-1].square().sum())

    assert objective(found, offset) <= objective(best, 0) + 300 * 1e-3


def test_a_row_far_away_spoils_no_fit_that_it_is_not_part_of() -> None:
    rows, y = data(200, 300, 3)
    part = torch.arange(200) < 150
    (expected,) = spanned(rows, y, [part])
    far = rows.clone()
    far[-1, 7] = 1e7
    (found,) = spanned(far, y, [part])
    before, after = (x[part] @ w[:-1] + w[-1] for x, w in ((rows, expected), (far, found)))
    torch.testing.assert_close(after, before, rtol=0.02, atol=0.05)


def settled(graph: Graph, model: str, **training: object) -> tuple[float, float, float]:
    """Return macro F1 on validation nodes of the model, linear, and their slopes' sum."""
    options = {"metapaths": graph.metapaths, "hidden_channels": 32, "heads": 4}
    config = RunConfig.make(
        {
            "data": {"name": "planted"},
            "model": {"name": model, "options": options if model == "hanme" else {}},
            "training": {"recipe": "default", "seed": 1, **training},
        }
    )
    trainer, wide = prepare(config, graph)
    trainer.run()
    found = settle(trainer.model, graph, config.training, wide)
    assert found.linear is not None
    part = {"test": graph.split.test}
    own = scores(found.model.logits, graph.y, part, found.model.decision)["test"].macro
    linear = scores(found.linear.logits, graph.y, part, found.linear.decision)["test"].macro
    return own, linear, sum(found.slopes.values())


def test_what_is_chosen_has_a_smaller_out_of_fold_loss_than_what_one_would_take_by_hand() -> None:
    graph = planted(movies=300, seed=1).with_features("given")
    wide = choose_wide(graph, seed=1)
    learnt, by_hand, *_ = wide.mixtures
    assert learnt.loss < by_hand.loss
    assert by_hand.scales.count(0) > 0


def made(x: torch.Tensor) -> Graph:
    """Return nodes without links whose label the second feature says."""
    data = HeteroData()
    data["node"].x, data["node"].y = x, (x[:, -1] > x[:, -1].median()).long()
    return Graph.from_hetero(data)


@pytest.mark.parametrize("factor", [1e-8, 1e6])
def test_features_count_as_much_whatever_their_unit_and_origin(factor: float) -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    moved = factor * torch.cat([torch.full((100, 1), 3e4), 10 + x], 1)
    for data in (factor * x, moved):
        wide, expected = choose_wide(made(data), seed=1), choose_wide(made(x), seed=1)
        place, before = wide.blocks.index("features:plain"), expected.blocks.index("features:plain")
        by_hand = wide.mixtures[1].scales[place] * factor
        assert by_hand == pytest.approx(expected.mixtures[1].scales[before], rel=0.01)


def test_features_that_differ_by_rounding_alone_are_none() -> None:
    rows = torch.from_numpy(np.float32([[1 / 3], [1 / 3], [np.float32(1 / 3) + 2e-8]])).double()
    assert gram(rows @ rows.t())[1] == 0
    graph = made(torch.full((50, 1), 0.1))
    y = torch.arange(50) % 2
    with pytest.raises(HanmeError, match="no features and no links"):
        choose_wide(replace(graph, y=y), seed=1)


@pytest.mark.parametrize("nodes", [400, 6000])
def test_a_label_that_two_features_say_together_is_found(nodes: int) -> None:
    x = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(0))
    data = HeteroData()
    data["node"].x, data["node"].y = x, (x[:, 0] * x[:, 1] > 0).long()
    graph = Graph.from_hetero(data)
    assert "pairs:plain" in choose_wide(graph, seed=1).blocks
    assert settled(graph, "linear")[0] > 0.95


def test_what_an_earlier_version_chose_is_one_mixture() -> None:
    before = {"blocks": ["features:plain"], "scales": [2.0], "strength": 0.1, "loss": 0.5}
    wide = Wide.make({**before, "losses": {"plain": 0.5}, "beliefs": []}, "wide.json")
    assert wide.mixtures == [Mixture(scales=[2.0], strength=0.1, loss=0.5)]
    with pytest.raises(HanmeError, match="as many scales"):
        Wide.make({**before, "scales": []}, "wide.json")


def test_the_model_with_a_wide_part_loses_nothing_that_either_has_alone() -> None:
    graph = planted(movies=500, seed=1).with_features("given")
    both, linear, slopes = settled(graph, "hanme")
    assert both > linear - 0.02
    assert both > 0.7
    assert slopes > 0.3


def test_weights_that_choose_see_no_validation_label() -> None:
    graph = planted(movies=120, seed=1).with_features("given")
    y = graph.y.clone()
    y[graph.split.val] = 1 - y[graph.split.val]
    assert choose_wide(graph, 1) == choose_wide(replace(graph, y=y), 1)


def test_a_label_that_no_training_node_has_is_no_mistake() -> None:
    graph = planted(movies=80, genres=3, seed=1).with_features("given")
    graph = replace(graph, y=graph.y.argmax(1))
    last = (graph.y == 2) & (graph.split.train | graph.split.val)
    split = graph.split._replace(train=graph.split.train & ~last, val=graph.split.val & ~last)
    graph = replace(graph, split=split)
    assert settled(graph, "linear")[0] >= 0
    assert settled(graph, "hanme", epochs=2)[0] >= 0


def test_nothing_is_left_of_a_root_whose_others_have_no_features() -> None:
    data = HeteroData()
    x = np.random.default_rng(0).integers(0, 4, (10, 30)).astype(np.float32)
    data["node"].x = torch.from_numpy(np.concatenate([x, 0 * x]))
    data["node"].y = torch.arange(20) % 2
    data["tag"].num_nodes = 70
    tags = torch.arange(70)
    links = torch.stack([torch.cat([tags % 10, tags % 10 + 10]), tags.repeat(2)])
    data["node", "has", "tag"].edge_index, data["tag", "of", "node"].edge_index = (
        links,
        links.flip(0),
    )
    graph = Graph.from_hetero(data)
    path = "node-tag-node:features:unit"
    (block,) = [block for block in candidates(graph) if str(block) == path]
    rows = Rows(block, "node", graph.x_dict, graph.edge_index_dict, graph.sizes)
    assert rows(np.arange(10)).nnz == 0
    assert not len(rows.row(3)[0])
    assert rows(np.arange(10, 20)).nnz == len(x.nonzero()[0])


def test_of_many_nodes_the_most_relevant_blocks_that_time_allows_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = planted()
    each = int(graph.split.labelled.sum()) / graph.targets.num_nodes * len(graph.labels)
    monkeypatch.setattr("hanme.training.wide.MOST_WORK", 10 * each)
    assert _affordable(graph, [4, 20, 5, 1, 3], [0.2, 0.5, 0.2, 0.0, 0.1]) == [0, 2]
    assert _affordable(graph, [20, 30], [0.1, 0.9]) == [0]
