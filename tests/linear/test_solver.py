"""The convex solver against scikit-learn, and fits in the span of the rows against it."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from hanme.errors import HanmeError
from hanme.linear import fit
from hanme.linear.fit import TrainingRows
from hanme.linear.matrices import DesignMatrix
from hanme.linear.solver import logistic_regression


def data(n: int, width: int, labels: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, width, generator=generator)
    rows = rows * (torch.rand(n, width, generator=generator) < 0.4)
    y = (rows @ torch.randn(width, labels, generator=generator)).argmax(1)
    return rows, y


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("multilabel", [True, False])
def test_the_minimum_is_scikit_learns(sparse: bool, multilabel: bool) -> None:
    rows, y = data(300, 12, 3)
    x = rows.to_sparse_csr() if sparse else rows
    labels = torch.nn.functional.one_hot(y).float() if multilabel else y
    weights = logistic_regression(x, labels, 0.5, max_iter=500)
    if multilabel:
        for i in range(3):
            theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(rows, labels[:, i])
            np.testing.assert_allclose(weights[:-1, i], theirs.coef_[0], atol=0.02)
            np.testing.assert_allclose(weights[-1, i], theirs.intercept_[0], atol=0.02)
    else:
        theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(rows, y)
        ours = torch.softmax(rows @ weights[:-1] + weights[-1], 1)
        np.testing.assert_allclose(ours, theirs.predict_proba(rows), atol=0.01)


def fitted(
    rows: torch.Tensor, y: torch.Tensor, masks: list[torch.Tensor], *, in_span: bool = True
) -> list[torch.Tensor]:
    design = DesignMatrix(csr_array(rows.numpy()))
    training = TrainingRows([design], [1.0], np.arange(len(rows)), y, 3)
    assert training.in_span == in_span
    return training.fit_each(masks, 0.3)


def test_both_ways_to_fit_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, y = data(60, 200, 3)
    masks = [torch.ones(60, dtype=torch.bool), torch.arange(60) % 5 != 0]
    short = fitted(rows, y, masks)
    monkeypatch.setattr(fit, "MAX_GRAM_NODES", 10)
    long = fitted(rows, y, masks, in_span=False)
    for a, b in zip(long, short, strict=True):
        torch.testing.assert_close(rows @ a[:-1], rows @ b[:-1], rtol=0.02, atol=0.05)


def test_nearly_equal_rows_lose_no_precision() -> None:
    rows, y = data(100, 30, 3)
    rows = torch.cat([rows + 3, rows + 3 + 1e-5 * torch.randn(100, 30)], 0).repeat(1, 10)
    design = DesignMatrix(csr_array(rows.numpy()))
    training = TrainingRows([design], [1.0], np.arange(200), y.repeat(2), 3)
    every = torch.ones(200, dtype=torch.bool)
    weights = training.fit(every, 0.01)
    (columns,) = training.fit_each([every], 0.01)
    expected = training.logits(every, weights)
    torch.testing.assert_close(rows @ columns[:-1] + columns[-1], expected, rtol=1e-3, atol=1e-3)


def test_a_set_that_contains_the_one_before_gets_its_own_weights() -> None:
    rows, y = data(60, 200, 3)
    every = torch.ones(60, dtype=torch.bool)
    some = torch.arange(60) % 5 != 0
    first, again, both = fitted(rows, y, [some, some, every])
    assert torch.equal(first, again)
    (alone,) = fitted(rows, y, [every])
    torch.testing.assert_close(rows @ both[:-1], rows @ alone[:-1], rtol=0.02, atol=0.05)


def test_a_large_constant_column_hides_no_others() -> None:
    rows, y = data(60, 200, 3)
    wider = torch.cat([rows, torch.full((60, 1), 3e4)], 1)
    masks = [torch.arange(60) % 5 != 0, torch.ones(60, dtype=torch.bool)]
    pairs = zip(*(fitted(x, y, masks) for x in (rows, wider)), strict=True)
    for short, long in pairs:
        expected, logits = (x @ w[:-1] + w[-1] for x, w in ((rows, short), (wider, long)))
        torch.testing.assert_close(logits, expected, rtol=0.01, atol=0.01)


def test_a_distant_row_spoils_no_fit_that_leaves_it_out() -> None:
    rows, y = data(200, 300, 3)
    mask = torch.arange(200) < 150
    (expected,) = fitted(rows, y, [mask])
    far = rows.clone()
    far[-1, 7] = 1e5
    (weights,) = fitted(far, y, [mask])
    before, after = (x[mask] @ w[:-1] + w[-1] for x, w in ((rows, expected), (far, weights)))
    torch.testing.assert_close(after, before, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("offset", [3e3, 1e4])
def test_columns_far_from_0_are_fitted_as_well_as_others(offset: float, sparse: bool) -> None:
    rows, y = data(300, 10, 3)
    far = rows + offset
    best = logistic_regression(rows, y, 0.1, max_iter=500)
    weights = logistic_regression(far.to_sparse_csr() if sparse else far, y, 0.1, max_iter=60)

    def objective(weights: torch.Tensor, shift: float) -> float:
        exact = weights.double()
        logits = (rows.double() + shift) @ exact[:-1] + exact[-1]
        loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
        return float(loss + 0.05 * exact[:-1].square().sum())

    assert objective(weights, offset) <= objective(best, 0) + 300 * 1e-3


def test_numbers_beyond_float32_are_refused() -> None:
    rows, y = data(50, 3, 2)
    with pytest.raises(HanmeError, match="scale"):
        logistic_regression(rows * 1e30, y, 1e-3, max_iter=500)
