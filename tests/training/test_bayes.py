"""Naive Bayes against scikit-learn's, and when it is taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.naive_bayes import MultinomialNB
from torch_geometric.data import HeteroData

from hanme.graph import Graph
from hanme.nn.channels import Task, WideChannels
from hanme.training.bayes import BEFORE, FOLDS, choose_bayes, log_shares, out_of_fold
from hanme.training.fit import fit_wide
from hanme.training.wide import Mixture, Wide, choose_wide


def words(nodes: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return counts of words, and labels that they say something of."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, nodes)
    likely = random.dirichlet(np.ones(40), 3)
    return np.stack([random.multinomial(12, likely[c]) for c in y]).astype(np.float64), y


def test_weights_are_those_of_scikit_learn() -> None:
    x, y = words()
    given = torch.nn.functional.one_hot(torch.from_numpy(y)).double()
    sums = torch.from_numpy(x).t() @ torch.cat([given, torch.ones(len(y), 1)], 1).double()
    expected = MultinomialNB(alpha=BEFORE).fit(x, y).feature_log_prob_.T
    found = log_shares(sums, several=False).numpy()
    assert found == pytest.approx(expected - expected.mean(1, keepdims=True))
    against = log_shares(sums, several=True).numpy()
    for label in range(3):
        one = MultinomialNB(alpha=BEFORE).fit(x, y == label).feature_log_prob_
        assert against[:, label] == pytest.approx(one[1] - one[0])


def test_the_logits_of_a_node_do_not_depend_on_its_own_label() -> None:
    x, y = words()
    given = torch.nn.functional.one_hot(torch.from_numpy(y)).float()
    other = given.clone()
    fold = torch.arange(len(y)) % FOLDS
    other[fold == 2] = other[fold == 2].roll(1, 1)
    before = out_of_fold(csr_array(x), given, several=False)
    after = out_of_fold(csr_array(x), other, several=False)
    assert before is not None
    assert after is not None
    assert torch.equal(before[fold == 2], after[fold == 2])
    assert not torch.allclose(before[fold != 2], after[fold != 2])
    assert out_of_fold(csr_array(x - 1), given, several=False) is None


def test_what_says_nothing_new_is_not_taken() -> None:
    _, y = words(200)
    told = torch.nn.functional.one_hot(torch.from_numpy(y)).double()
    random = torch.Generator().manual_seed(0)
    known = told + 0.4 * torch.randn(told.shape, generator=random, dtype=torch.double)
    noise = torch.randn(told.shape, generator=random, dtype=torch.double)
    assert choose_bayes([known], {0: noise}, torch.from_numpy(y))[0] == {}
    more = told + 0.4 * torch.randn(told.shape, generator=random, dtype=torch.double)
    scales, logits = choose_bayes([known], {0: noise, 3: more}, torch.from_numpy(y))
    assert list(scales) == [3]
    assert torch.allclose(logits, scales[3] * more)


def test_columns_that_no_node_has_need_not_be_counted() -> None:
    x, y = words()
    x[:, 30:] = 0
    given = torch.nn.functional.one_hot(torch.from_numpy(y)).double()
    sums = torch.from_numpy(x).t() @ torch.cat([given, torch.ones(len(y), 1)], 1).double()
    for several in (False, True):
        whole = log_shares(sums, several=several)
        assert torch.allclose(log_shares(sums[:30], several=several, absent=10), whole[:30])


def test_a_negative_number_that_only_other_nodes_have_is_no_mistake() -> None:
    sums = torch.tensor([[3.0, 0, 3], [1, -300, -299]])
    assert log_shares(sums, several=False).isfinite().all()
    assert log_shares(sums, several=True).isfinite().all()


def test_a_sum_that_says_nothing_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanme.training.bayes.CLEAR", -100)
    _, y = words(200)
    told = torch.nn.functional.one_hot(torch.from_numpy(y)).double()
    assert choose_bayes([told], {0: -told}, torch.from_numpy(y))[0] == {}


@pytest.mark.parametrize("several", [False, True])
def test_weights_of_a_part_are_those_of_its_nodes_alone(several: bool) -> None:
    x, y = words()
    data = HeteroData()
    data["node"].x = torch.from_numpy(x).float()
    label = torch.from_numpy(y)
    data["node"].y = torch.nn.functional.one_hot(label).float() if several else label
    graph = Graph.from_hetero(data)
    convex = Mixture(scales=[0.5], strength=1, loss=1)
    naive = Mixture(scales=[2.0], strength=1, loss=1, bayes=True)
    wide = Wide(blocks=["features:unit"], mixtures=[convex, naive])
    part = WideChannels(Task(graph.metadata(), "node", 3), blocks=wide.channels)
    first, second = torch.arange(60) < 40, torch.arange(60) >= 10
    found = fit_wide(part, graph, wide, [first, second])
    assert found.shape == (2, 2, 41, 3)
    assert not found[:, 1, -1].any()
    for mask, weights in zip((first, second), found[:, 1], strict=True):
        (alone,) = fit_wide(part, graph, wide, [mask])
        assert torch.allclose(alone[1], weights, atol=1e-5)


def test_few_labels_and_many_words_are_what_it_is_for() -> None:
    random = np.random.default_rng(1)
    likely = random.dirichlet(np.full(600, 0.3), 3)
    y = np.arange(150) % 3
    x = np.stack([random.multinomial(20, 0.7 * likely[c] + 0.3 / 600) for c in y])
    data = HeteroData()
    data["node"].x, data["node"].y = torch.from_numpy(x).float(), torch.from_numpy(y)
    wide = choose_wide(Graph.from_hetero(data), seed=1)
    assert wide.mixtures[-1].bayes
    assert wide.mixtures[-1].loss < wide.mixtures[0].loss
