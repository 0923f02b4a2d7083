import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hanme.datasets.splits import split
from hanme.errors import HanmeError


@given(st.lists(st.booleans(), max_size=200), st.floats(0, 0.99), st.integers(0, 2**63 - 1))
def test_masks_partition_the_labelled_nodes(labelled, val_share, seed):
    labelled = torch.tensor(labelled, dtype=torch.bool)
    train, val = split(labelled, val_share=val_share, seed=seed)
    assert train.dtype == val.dtype == torch.bool
    assert not (train & val).any()
    assert torch.equal(train | val, labelled)
    assert abs(int(val.sum()) - val_share * int(labelled.sum())) < 1


@pytest.mark.parametrize(
    ("size", "share", "val"),
    [(1371, 0.2, 275), (907, 0.2, 182), (1217, 0.2, 244), (100, 0.07, 7), (5, 0.2, 1), (9, 0.0, 0)],
)
def test_share_is_rounded_up(size, share, val):
    train, drawn = split(torch.ones(size, dtype=torch.bool), val_share=share, seed=483)
    assert (int(train.sum()), int(drawn.sum())) == (size - val, val)


def test_seed_decides_and_nothing_else_does():
    labelled = torch.rand(1000) < 0.5
    torch.manual_seed(1)
    _, first = split(labelled, seed=483)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    _, again = split(labelled, seed=483)
    _, other = split(labelled, seed=484)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())


def test_the_split_of_the_paper():
    # What `np.random.seed(42)` and its permutation give in the paper's code for IMDB's sizes.
    np.random.seed(42)  # noqa: NPY002
    order = np.random.permutation(1371)  # noqa: NPY002
    train, val = split(torch.ones(1371, dtype=torch.bool), seed=42)
    assert train.nonzero().flatten().tolist() == sorted(order[:1096])
    assert val.nonzero().flatten().tolist() == sorted(order[1096:])


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_impossible_share(share):
    with pytest.raises(HanmeError, match="val_share"):
        split(torch.ones(3, dtype=torch.bool), val_share=share, seed=0)
