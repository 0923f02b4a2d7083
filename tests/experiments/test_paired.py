"""Paired comparisons against enumeration, textbook formulas and scikit-learn."""

from itertools import product

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score

from hanme.experiments.paired import bootstrap_f1, interval, paired_tests

FIRST, SECOND = [70.1, 71.3, 69.8, 70.9, 72.0], [69.7, 70.2, 70.0, 70.1, 70.4]


def test_p_values_are_those_of_the_textbook() -> None:
    found = paired_tests(FIRST, SECOND)
    d = np.subtract(FIRST, SECOND)
    t = d.mean() / (d.std(ddof=1) / np.sqrt(5))
    assert found["t"] == pytest.approx(2 * stats.t.sf(abs(t), df=4))
    assert found["d_z"] == pytest.approx(t / np.sqrt(5))
    assert found["difference"] == pytest.approx(0.74)
    assert (found["better"], found["worse"]) == (4, 1)
    ranks = stats.rankdata(abs(d))
    sums = [
        sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in product(*[[0, 1]] * 5)
    ]
    observed = sum(ranks[d > 0])
    extreme = [abs(x - 7.5) >= abs(observed - 7.5) for x in sums]  # 15 / 2 is their mean
    assert found["wilcoxon"] == pytest.approx(np.mean(extreme))
    assert found["sign"] == pytest.approx(2 * (5 + 1) / 32)


def test_equal_scores_have_no_p_value() -> None:
    found = paired_tests(FIRST, FIRST)
    assert found["difference"] == 0
    assert [found[name] for name in ("t", "wilcoxon", "sign", "d_z")] == [None] * 4
    assert paired_tests([70.0], [69.0])["t"] is None


def test_the_bootstrap_scores_resampled_nodes_as_scikit_learn_does() -> None:
    random = np.random.default_rng(3)
    true, predicted = random.random((2, 2, 40, 3)) < 0.4  # 2 seeds, 40 nodes, 3 labels
    drawn = bootstrap_f1(predicted, true, draws=50, seed=7)
    counts = np.random.default_rng(7).multinomial(40, np.full(40, 1 / 40), 50)
    for average, values in drawn.items():
        for count, value in zip(counts, values, strict=True):
            nodes = np.repeat(np.arange(40), count)
            scores = [
                f1_score(true[s][nodes], predicted[s][nodes], average=average, zero_division=0)
                for s in range(2)
            ]
            assert value == pytest.approx(100 * np.mean(scores))


def test_pairs_share_their_draws() -> None:
    random = np.random.default_rng(5)
    true = random.random((3, 200, 4)) < 0.5
    first = true ^ (random.random(true.shape) < 0.2)
    second = first.copy()
    second[:, :4] = ~true[:, :4]  # worse at four nodes: a small but certain difference
    a, b = bootstrap_f1(first, true), bootstrap_f1(second, true)
    low, high = interval(a["micro"] - b["micro"])
    apart = interval(a["micro"])
    assert 0 < low < high
    assert high - low < apart[1] - apart[0]
