"""Cases by fixed seeds; ``make fuzz`` runs as many as one likes."""

import shutil
from pathlib import Path

import pytest

from fuzz.cases import draw_case
from fuzz.harness import Tally
from fuzz.inputs import Inputs

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(4))
def test_damaged_input_is_refused_in_one_line_or_does_what_it_says(
    inputs: Inputs, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some cases name files of the folder they are run in
    tally = Tally()
    for number in range(50):
        case = draw_case(1000 * seed + number, inputs, tmp_path / "case")
        tally.add(case.name, case.run())
        shutil.rmtree(tmp_path / "case", ignore_errors=True)
    assert not tally.defects, "\n".join(tally.defects)
    assert tally.counts["refused"] >= 20
    assert tally.counts["accepted"] >= 2
