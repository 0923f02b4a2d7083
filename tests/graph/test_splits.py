"""How labelled nodes are split, and that the same seed draws the same nodes in every version."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hanme.data import load
from hanme.errors import HanmeError
from hanme.graph.splits import Split, hold_out, stratified, without_fold

NOBODY = torch.zeros(0, dtype=torch.bool)


def numbers(mask: torch.Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()


# ---------------------------------------------------------------------------------------- hold_out


@given(st.lists(st.booleans(), max_size=200), st.floats(0, 0.99), st.integers(0, 2**63 - 1))
def test_hold_out_partitions_the_labelled_nodes(given_labels, share, seed):
    labelled = torch.tensor(given_labels, dtype=torch.bool)
    split = hold_out(labelled, ~labelled, val=share, seed=seed)
    assert split.train.dtype == split.val.dtype == torch.bool
    assert not (split.train & split.val).any()
    assert torch.equal(split.labelled, labelled)
    assert torch.equal(split.test, ~labelled)
    assert abs(int(split.val.sum()) - share * int(labelled.sum())) < 1
    again = hold_out(labelled, ~labelled, val=share, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(split, again, strict=True))


@pytest.mark.parametrize(
    ("size", "share", "val"),
    [(1371, 0.2, 275), (907, 0.2, 182), (1217, 0.2, 244), (100, 0.07, 7), (5, 0.2, 1), (9, 0.0, 0)],
)
def test_share_is_rounded_up(size, share, val):
    split = hold_out(torch.ones(size, dtype=torch.bool), NOBODY, val=share, seed=483)
    assert (int(split.train.sum()), int(split.val.sum())) == (size - val, val)


def test_seed_decides_and_nothing_else_does():
    labelled = torch.rand(1000) < 0.5
    torch.manual_seed(1)
    first = hold_out(labelled, NOBODY, seed=483).val
    state = torch.get_rng_state()
    torch.manual_seed(2)
    again = hold_out(labelled, NOBODY, seed=483).val
    other = hold_out(labelled, NOBODY, seed=484).val
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_the_split_of_the_paper():
    # What `np.random.seed(42)` and its permutation give in the paper's code for IMDB's sizes.
    np.random.seed(42)  # noqa: NPY002
    order = np.random.permutation(1371)  # noqa: NPY002
    split = hold_out(torch.ones(1371, dtype=torch.bool), NOBODY, seed=42)
    assert numbers(split.train) == sorted(order[:1096])
    assert numbers(split.val) == sorted(order[1096:])


@pytest.mark.parametrize(
    ("labelled", "val", "seed", "drawn"),
    [
        (torch.arange(20) % 3 > 0, 0.3, 483, [1, 7, 11, 14]),
        (torch.ones(12, dtype=torch.bool), 0.2, 2**40 + 7, [2, 5, 10]),
        (torch.ones(9, dtype=torch.bool), 0.5, 0, [0, 3, 5, 6, 8]),
    ],
)
def test_hold_out_draws_what_version_0_1_drew(labelled, val, seed, drawn):
    assert numbers(hold_out(labelled, NOBODY, val=val, seed=seed).val) == drawn


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_impossible_share(share):
    with pytest.raises(HanmeError, match="`val` to be at least 0 and below 1"):
        hold_out(torch.ones(3, dtype=torch.bool), NOBODY, val=share, seed=0)


# -------------------------------------------------------------------------------------- stratified


def check_stratified(split: Split, stratum: np.ndarray, val: float, test: float) -> None:
    """Check a split by counting, given the label that each node counts as."""
    masks = torch.stack(split).numpy()
    labelled = stratum >= 0
    labels = set(stratum[labelled].tolist())
    assert (masks.sum(0) == labelled).all()
    for label in labels:
        assert masks[0, stratum == label].any()
    size = int(labelled.sum())
    free = size - len(labels)
    assert masks[1].sum() == min(free, max(1, round(val * size)))
    if free >= round(val * size) + round(test * size) + 2:
        assert masks[2].sum() == (max(1, round(test * size)) if test else 0)
        for mask in masks[1:]:
            for label in labels:
                rest = (stratum == label).sum() - 1
                assert abs(mask[stratum == label].sum() - mask.sum() * rest / free) <= 2


SHARES = st.floats(0.05, 0.45), st.floats(0, 0.45), st.integers(0, 5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-1, 5), min_size=1, max_size=60), *SHARES)
def test_stratified(labels, val, test, seed):
    y = torch.tensor(labels)
    split = stratified(y, val=val, test=test, seed=seed)
    check_stratified(split, np.array(labels), val, test)
    again = stratified(y, val=val, test=test, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(split, again, strict=True))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.booleans()] * 3), min_size=1, max_size=40), *SHARES)
def test_a_node_of_several_labels_counts_as_the_rarest(rows, val, test, seed):
    split = stratified(torch.tensor(rows).float(), val=val, test=test, seed=seed)
    frequency = [sum(row[c] for row in rows) for c in range(3)]
    stratum = [min((frequency[c], c) for c in range(3) if row[c])[1] if any(row) else -1
               for row in rows]  # fmt: skip
    check_stratified(split, np.array(stratum), val, test)


def test_stratified_draws_what_version_0_1_drew():
    y = torch.tensor([0, 1, -1, 0, 2, 1, 0, 1, 0, -1, 1, 0, 0, 1, 2, 0])
    split = stratified(y, val=0.2, test=0.2, seed=483)
    assert list(map(numbers, split)) == [[0, 4, 5, 6, 7, 8, 12, 14], [3, 10, 15], [1, 11, 13]]
    split = stratified(y, val=0.3, test=0, seed=1)
    assert list(map(numbers, split)) == [[1, 3, 4, 6, 8, 10, 12, 13, 14, 15], [0, 5, 7, 11], []]
    y = torch.zeros(14, 3)
    y[[1, 2, 4, 7, 8, 11, 12, 13], 0] = 1
    y[[1, 3, 4, 10, 12, 13], 1] = 1
    y[[3, 6, 7, 10, 11], 2] = 1
    split = stratified(y, val=0.2, test=0.2, seed=483)
    assert list(map(numbers, split)) == [[2, 3, 6, 8, 11, 12, 13], [1, 7], [4, 10]]


@pytest.mark.parametrize("y", [torch.full((4,), -1), torch.zeros(4, 2), torch.zeros(0).long()])
def test_no_labelled_node(y):
    split = stratified(y, val=0.2, test=0.2, seed=0)
    assert all(mask.shape == (len(y),) and not mask.any() for mask in split)


def test_folds_divide_the_labelled_nodes_and_leave_the_test_part():
    graph = load("planted", options={"movies": 200})
    splits = [without_fold(graph.split, graph.y, k, 3, seed=1) for k in (1, 2, 3)]
    assert torch.equal(torch.stack([s.val for s in splits]).sum(0) == 1, graph.split.labelled)
    for split in splits:
        assert torch.equal(split.train | split.val, graph.split.labelled)
        assert torch.equal(split.test, graph.split.test)
    one = graph.y.argmax(1)  # as if nodes had one label each
    counts = torch.stack(
        [one[without_fold(graph.split, one, k, 3, seed=1).val].bincount() for k in (1, 2, 3)]
    )
    assert (counts.amax(0) - counts.amin(0)).max() <= 1
    with pytest.raises(HanmeError, match="folds"):
        without_fold(graph.split, graph.y, 1, 10_000, seed=1)
