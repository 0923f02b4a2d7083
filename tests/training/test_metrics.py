"""Scores against scikit-learn."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import f1_score
from torch.nn.functional import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
)

from hanme.common import memory
from hanme.decision import Decision
from hanme.decision.losses import node_losses
from hanme.graph.graph import label_matrix
from hanme.training.metrics import f1, f1_interval, probability_scores, scores, wilson_interval


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 30), labels=st.integers(2, 6), share=st.floats(0, 1), seed=st.integers(0, 999)
)
@pytest.mark.parametrize("fallback", [True, False])
def test_multilabel_equals_scikit_learn(
    fallback: bool, n: int, labels: int, share: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, labels, generator=generator)
    y = (torch.rand(n, labels, generator=generator) < share).float()
    probability = torch.sigmoid(logits.double()).numpy()
    predicted = probability > 0.5
    decision = Decision(rule="fallback" if fallback else "half")
    if fallback:
        for row, p in zip(predicted, probability, strict=True):
            if not row.any():
                row[np.argmax(p)] = True
    ours = f1(decision.labels(logits, multilabel=True), y.bool())
    for average, value in zip(("micro", "macro"), ours, strict=True):
        expected = f1_score(y.numpy(), predicted, average=average, zero_division=0)
        assert value == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 30), labels=st.integers(2, 6), seed=st.integers(0, 999))
def test_single_label_equals_scikit_learn(n: int, labels: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, labels, generator=generator)
    y = torch.randint(0, labels, (n,), generator=generator)
    ours = scores(logits, y, {"all": torch.ones(n, dtype=torch.bool)}, Decision(rule="half"))["all"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for average, value in zip(("micro", "macro"), ours, strict=True):
            expected = f1_score(
                y, logits.argmax(1), average=average, labels=range(labels), zero_division=0
            )
            assert value == pytest.approx(expected)


def test_unlabelled_nodes_have_no_label() -> None:
    assert label_matrix(torch.tensor([1, -1]), 3).tolist() == [[False, True, False], [False] * 3]


def test_losses_are_torch_s_per_node() -> None:
    logits, y = torch.randn(6, 3), (torch.rand(6, 3) > 0.5).float()
    torch.testing.assert_close(
        node_losses(logits, y).mean(), binary_cross_entropy_with_logits(logits, y)
    )
    one = torch.tensor([0, 1, 2, 0, 1, 2])
    torch.testing.assert_close(node_losses(logits, one).mean(), cross_entropy(logits, one))


def test_intervals_are_those_of_drawing_nodes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(3)
    true = torch.rand(300, 4, generator=generator) < 0.3
    predicted = torch.where(torch.rand(300, 4, generator=generator) < 0.8, true, ~true)
    rng = np.random.default_rng(1)
    drawn = [f1(predicted[i], true[i]) for i in rng.integers(300, size=(2000, 300))]
    expected = np.quantile(drawn, [0.025, 0.975], axis=0)
    found = f1_interval(predicted, true)
    np.testing.assert_allclose(found["micro"], expected[:, 0], atol=0.012)
    np.testing.assert_allclose(found["macro"], expected[:, 1], atol=0.012)
    assert found["micro"][0] < f1(predicted, true).micro < found["micro"][1]
    monkeypatch.setattr(memory, "BLOCK", 1)  # one draw at a time
    assert f1_interval(predicted, true) == found


def test_scores_of_probabilities_describe_the_rarer_of_two_labels() -> None:
    p = torch.tensor([0.9, 0.6, 0.3, 0.2, *[0.1] * 16])
    true = torch.tensor([True, False, True, *[False] * 17])
    for order in ([0, 1], [1, 0]):
        both = torch.stack([1 - p, p], 1)[:, order], torch.stack([~true, true], 1)[:, order]
        found = probability_scores(*both, multilabel=False)
        assert found["roc_auc"] == pytest.approx(35 / 36)  # of 36 pairs, one is in the wrong order
        assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
        assert found["lift"] == pytest.approx(0.5 / 0.1)  # one of the first two, against 2 of 20
        loss = -torch.where(true, p, 1 - p).log().mean()
        assert found["log_loss"] == pytest.approx(float(loss), abs=1e-6)


def test_scores_of_probabilities_are_means_over_more_labels() -> None:
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(50, 3, generator=generator)
    true = torch.rand(50, 3, generator=generator) < p
    true[:, 2] = False  # nobody has the last one, so it is not ranked
    found = probability_scores(p, true, multilabel=True)
    each = [probability_scores(p[:, [i]], true[:, [i]], multilabel=True) for i in range(3)]
    assert "roc_auc" not in each[2]
    assert found["roc_auc"] == pytest.approx((each[0]["roc_auc"] + each[1]["roc_auc"]) / 2)
    losses = binary_cross_entropy(p, true.float())
    assert found["log_loss"] == pytest.approx(float(losses), abs=1e-6)


@pytest.mark.parametrize(("correct", "nodes"), [(20, 20), (19, 20), (0, 7), (500, 1000)])
def test_the_interval_of_a_share_is_that_of_scipy(correct: int, nodes: int) -> None:
    expected = binomtest(correct, nodes).proportion_ci(0.95, method="wilson")
    assert wilson_interval(correct, nodes) == pytest.approx((expected.low, expected.high), abs=1e-4)
