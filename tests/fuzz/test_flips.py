"""A sample of flipped bits; ``make flips`` flips all of them."""

import pytest

from fuzz.flips import Small, flip_all, make

EVERY = 499
"""A prime, so that all bits of a byte are flipped."""


@pytest.fixture(scope="module")
def smalls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Small]:
    return make(tmp_path_factory.mktemp("flips"))


@pytest.mark.parametrize("folder", ["run", "store"])
def test_a_flipped_bit_is_rejected_or_harmless(smalls: dict[str, Small], folder: str) -> None:
    tallies = flip_all(smalls[folder], EVERY)
    assert not [defect for tally in tallies.values() for defect in tally.defects]
    assert all(tally.counts["refused"] for name, tally in tallies.items() if "json" in name)


def test_a_flipped_bit_of_an_epoch_is_rejected(smalls: dict[str, Small]) -> None:
    run = smalls["run"]
    tally = flip_all(run, 13, only="metrics.jsonl")["metrics.jsonl"]
    assert set(tally.counts) == {"refused"}
