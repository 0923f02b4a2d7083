import math

import pytest
import torch
from pydantic import ValidationError

from hanme.training import LTS, TrainingConfig


@pytest.mark.parametrize(
    ("pace", "halfway"),
    [("linear", 0.55), ("root", math.sqrt(0.505)), ("geometric", math.sqrt(0.1))],
)
def test_shares(pace: str, halfway: float) -> None:
    lts = LTS(pace=pace, start=0.1, until=100)
    assert lts.share(0) == pytest.approx(0.1)
    assert lts.share(50) == pytest.approx(halfway)
    assert lts.share(100) == lts.share(1000) == 1
    shares = [lts.share(t) for t in range(101)]
    assert shares == sorted(shares)


def test_takes_the_easiest_nodes() -> None:
    losses = torch.tensor([3.0, 1.0, 2.0, 0.5])
    lts = LTS(start=0.5, until=10)
    assert lts.easiest(losses, 0).tolist() == [3, 1]
    assert sorted(lts.easiest(losses, 10).tolist()) == [0, 1, 2, 3]
    assert LTS(start=0.001, until=10).easiest(losses, 0).tolist() == [3]


@pytest.mark.parametrize("wrong", [{"start": 0}, {"start": 1.2}, {"until": 0}, {"pace": "slow"}])
def test_bad_values(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        LTS(**wrong)


@pytest.mark.parametrize(("epochs", "until"), [(1, 2), (2, 2), (3, 2), (4, 2), (8, 4), (500, 100)])
def test_a_short_training_has_a_schedule_too(epochs: int, until: int) -> None:
    lts = TrainingConfig(epochs=epochs, lts=LTS()).lts
    assert lts is not None
    assert lts.until == until
    assert lts.share(1) < 1
