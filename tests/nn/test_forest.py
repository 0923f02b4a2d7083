"""Forests against scikit-learn's own trees, and what they add divided among features."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.tree import DecisionTreeRegressor

from hanme.errors import HanmeError
from hanme.nn.channels.forest import Forest


def grown(seed: int, nodes: int, width: int, trees: int) -> tuple[np.ndarray, list]:
    random = np.random.default_rng(seed)
    x = random.integers(-3, 4, (nodes, width)).astype(np.float32)
    y = random.normal(size=(nodes, 2))
    made = [
        DecisionTreeRegressor(max_leaf_nodes=2 + i, max_features=1, random_state=i).fit(x, y)
        for i in range(trees)
    ]
    return x, made


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(2, 40), st.integers(1, 5), st.integers(1, 6))
def test_roots_fall_into_the_leaves_that_scikit_learn_says(
    seed: int, nodes: int, width: int, trees: int
) -> None:
    _, made = grown(seed, nodes, width, trees)
    forest = Forest(Forest.table([each.tree_ for each in made]))
    values = [each.tree_.value[each.tree_.children_left < 0, :, 0] for each in made]
    other = np.random.default_rng(1).normal(scale=3, size=(9, width)).astype(np.float32)
    found = forest.rows(csr_array(other)) @ np.concatenate(values)
    np.testing.assert_allclose(found, sum(each.predict(other) for each in made), atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_shares_of_features_are_steps_down_and_add_up(seed: int) -> None:
    x, made = grown(seed, 50, 4, 3)
    forest = Forest(Forest.table([each.tree_ for each in made]))
    weight = np.concatenate([each.tree_.value[each.tree_.children_left < 0, :, 0] for each in made])
    features, shares = forest.shares(x[0], weight)
    expected = np.zeros((5, 2))
    for each in made:  # the mean of a node's own rows is what scikit-learn stores with it
        path = each.decision_path(x[:1]).indices
        values = each.tree_.value[path, :, 0]
        expected[-1] += values[0]
        for node, step in zip(path, np.diff(values, axis=0), strict=False):
            expected[each.tree_.feature[node]] += step
    total = np.zeros((5, 2))
    total[features] = shares
    np.testing.assert_allclose(total, expected, atol=1e-9)
    np.testing.assert_allclose(total.sum(0), (forest.rows(csr_array(x[:1])) @ weight)[0], atol=1e-5)


def test_trees_that_add_nothing_are_pruned() -> None:
    x, made = grown(3, 40, 4, 5)
    forest = Forest(Forest.table([each.tree_ for each in made]))
    owner = np.repeat(np.arange(5), [each.get_n_leaves() for each in made])
    weight = torch.randn(forest.width, 3) * torch.from_numpy(np.isin(owner, [1, 4]))[:, None]
    table, kept = forest.pruned(weight)
    less = Forest(table)
    assert len(less.first) == 2
    np.testing.assert_allclose(
        less.rows(csr_array(x)) @ kept.numpy(), forest.rows(csr_array(x)) @ weight.numpy()
    )
    torch.testing.assert_close(table, Forest.table([made[1].tree_, made[4].tree_]))


def damaged(column: int, value: float) -> torch.Tensor:
    table = Forest.table([each.tree_ for each in grown(0, 40, 4, 3)[1]])
    table[0, column] = value
    return table


@pytest.mark.parametrize(
    ("column", "value"), [(2, 0), (2, -1), (3, 1e6), (2, np.nan), (0, -1), (0, np.inf)]
)
def test_trees_that_loop_or_lead_astray_are_refused(column: int, value: float) -> None:
    with pytest.raises(HanmeError, match="the trees of the wide part"):
        Forest(damaged(column, value))


def test_trees_of_other_features_are_refused() -> None:
    with pytest.raises(HanmeError, match="read more than 4 features"):
        Forest(damaged(0, 4)).rows(csr_array((1, 4), dtype=np.float32))
