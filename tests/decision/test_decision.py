"""Decisions: thresholds against brute force, calibration against scikit-learn, quality by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.metrics import brier_score_loss

from hanme.decision import Costs, Decision, calibrate, quality
from hanme.decision.rules import binary_threshold, expected_f1_thresholds
from hanme.errors import HanmeError


def draw(n: int, labels: int, seed: int, slope: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits and labels drawn by ``slope`` times them."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, labels, generator=generator) - 1
    y = (torch.rand(n, labels, generator=generator) < torch.sigmoid(slope * logits)).float()
    return logits, y


@pytest.mark.parametrize("several", [False, True])
def test_uncertainty_is_the_surprise_to_expect(several: bool) -> None:
    logits, _ = draw(20, 3, seed=1)
    decision = Decision(slope=0.7, bias=(0.1, -0.2, 0.3))
    p = decision.probabilities(logits, multilabel=several).double()
    sets = torch.eye(3).bool() if not several else torch.tensor(
        list(itertools.product([False, True], repeat=3))
    )  # fmt: skip
    mean = torch.zeros(20, dtype=torch.double)
    for labels in sets:
        given = labels.expand(20, 3)
        chance = torch.where(given, p, 1 - p).prod(1) if several else p[given]
        found = decision.surprise(logits, given, multilabel=several)
        if labels.any():
            torch.testing.assert_close(found.double(), -chance.log2(), rtol=1e-4, atol=1e-5)
        else:  # no label is given, rather than that of having none
            assert found.isnan().all()
        mean -= chance * chance.log2()
    found = decision.uncertainty(logits, multilabel=several)
    torch.testing.assert_close(found.double(), mean, rtol=1e-4, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 9), st.integers(0, 1000))
def test_the_threshold_of_a_label_has_the_best_expected_f1_of_all(n: int, seed: int) -> None:
    p = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)).double()
    (threshold,) = expected_f1_thresholds(p, macro=True)

    def score(chosen: np.ndarray) -> float:  # of sums of expectations, over any set of nodes
        return 2 * p[:, 0].numpy()[chosen].sum() / (chosen.sum() + p.sum().item())

    sets = itertools.product([False, True], repeat=n)
    best = max(score(np.array(chosen)) for chosen in sets if any(chosen))
    if best / 2 < 0.5:
        assert score((p[:, 0] > threshold).numpy()) == pytest.approx(best)


def test_thresholds_raise_the_f1_that_they_are_for() -> None:
    logits, y = draw(4000, 4, seed=1)
    true = y.bool()

    def score(rule: str) -> tuple[float, float]:
        chosen = Decision.fit(rule, logits, y).labels(logits, multilabel=True)
        hits, total = (chosen & true).sum(0), chosen.sum(0) + true.sum(0)
        return float(2 * hits.sum() / total.sum()), float((2 * hits / total).mean())

    assert score("micro")[0] > score("half")[0] + 0.01
    assert score("macro")[1] > score("half")[1] + 0.01


@pytest.mark.parametrize("slope", [0.3, 1.0, 2.0])
def test_calibration_finds_the_slope_that_labels_were_drawn_by(slope: float) -> None:
    logits, y = draw(5000, 3, seed=2, slope=slope)
    (found,), bias = calibrate([logits], y)
    assert found == pytest.approx(slope, rel=0.1)
    assert bias.abs().max() < 0.15


def test_a_part_that_knows_nothing_gets_a_slope_near_0() -> None:
    logits, y = draw(3000, 3, seed=3)
    noise = torch.randn(3000, 3, generator=torch.Generator().manual_seed(9))
    (first, second), _ = calibrate([logits, noise], y)
    assert first == pytest.approx(1, abs=0.1)
    assert second < 0.1
    (first, second), _ = calibrate([noise, logits], y)
    assert first < 0.1


def test_one_label_per_node_is_the_most_likely_calibrated() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = 3 * torch.randn(2000, 4, generator=generator)
    y = torch.distributions.Categorical(logits=0.5 * logits).sample()
    decision = Decision.fit("macro", logits, y)
    assert decision.slope == pytest.approx(0.5, abs=0.15)
    assert not decision.thresholds
    p = decision.probabilities(logits, multilabel=False)
    torch.testing.assert_close(p.sum(1), torch.ones(2000))
    assert torch.equal(p.argmax(1), decision.labels(logits, multilabel=False).int().argmax(1))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["micro", "macro", "half", "fallback"]))
def test_a_node_s_labels_do_not_depend_on_the_others_asked_for(seed: int, rule: str) -> None:
    logits, y = draw(40, 3, seed)
    decision = Decision.fit(rule, logits, y)
    every = decision.labels(logits, multilabel=True)
    assert torch.equal(decision.labels(logits[7:9], multilabel=True), every[7:9])
    again = Decision.model_validate_json(decision.model_dump_json())
    assert torch.equal(again.labels(logits, multilabel=True), every)


def test_a_decision_that_is_none_is_refused() -> None:
    for values in ({"rule": "best"}, {"slope": math.nan}, {"threshold": 1}):
        with pytest.raises(ValidationError):
            Decision.model_validate(values)


def test_quality_is_scikit_learns_brier_score_and_the_error_by_hand() -> None:
    logits, y = draw(500, 2, seed=5)
    p, there = torch.sigmoid(logits), y.bool()
    found = quality(p, there)
    assert found.brier == pytest.approx(brier_score_loss(y.flatten(), p.flatten()), abs=1e-6)
    assert sum(n for n, _, _ in found.reliability) == 1000
    by_hand = sum(n * abs(said - seen) for n, said, seen in found.reliability) / 1000
    assert found.error == pytest.approx(by_hand)
    sure = quality(torch.tensor([[1.0], [0.0]]), torch.tensor([[True], [False]]))
    assert (sure.brier, sure.error) == (0, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.integers(0, 1000))
def test_the_threshold_of_two_labels_has_the_best_expected_macro_f1(n: int, seed: int) -> None:
    p = torch.rand(n, generator=torch.Generator().manual_seed(seed)).double().numpy() ** 2

    def score(second: np.ndarray) -> float:
        return p[second].sum() / (second.sum() + p.sum()) + (1 - p)[~second].sum() / (
            (~second).sum() + (1 - p).sum()
        )

    sets = itertools.product([False, True], repeat=n)
    best = max(score(np.array(chosen)) for chosen in sets)
    assert score(p > binary_threshold(torch.from_numpy(p))) == pytest.approx(best)


def test_a_rare_label_is_predicted_and_a_balanced_one_at_about_a_half() -> None:
    generator = torch.Generator().manual_seed(6)
    for shift, low, high in ((-5.0, 0.05, 0.4), (0.0, 0.45, 0.55)):
        score = torch.randn(20_000, generator=generator) * 1.5 + shift
        logits = torch.stack([torch.zeros_like(score), score], 1)
        y = (torch.rand(20_000, generator=generator) < torch.sigmoid(score)).long()
        decision = Decision.fit("macro", logits, y, calibrated=True)
        assert low < decision.weights[0] < high
        assert decision.labels(logits, multilabel=False)[:, 1].any()
        assert Decision.fit("micro", logits, y, calibrated=True).weights == ()


def test_costs_choose_the_label_of_the_least_expected_cost() -> None:
    labels = ["no", "yes, maybe", "yes"]
    costs = Costs.parse("missed yes=50, missed yes, maybe=2.5,false alarm=0.5", labels)
    assert costs == ((0.5, 2.5, 50.0), 0.5)
    logits, _ = draw(200, 3, seed=7)
    y = logits.argmax(1)
    chosen = Decision.fit("fallback", logits, y, costs=costs, calibrated=True)
    assert chosen.rule == "cost"
    p = torch.softmax(logits, 1)
    matrix = torch.tensor(costs.missed)[:, None] * (1 - torch.eye(3))  # true, predicted
    expected = (p @ matrix).argmin(1)
    assert torch.equal(chosen.labels(logits, multilabel=False).int().argmax(1), expected)
    several = Decision.fit("macro", logits, torch.eye(3)[y], costs=costs, calibrated=True)
    assert several.thresholds == pytest.approx((0.5, 1 / 6, 0.5 / 50.5))
    for wrong in ("missed no", "missed perhaps=1", "yes=2", "missed no=0", "missed no=1 x", ""):
        with pytest.raises(HanmeError, match="cost"):
            Costs.parse(wrong, labels)
