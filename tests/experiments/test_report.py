"""Reports say what the numbers beside them say."""

import json
import re
from pathlib import Path

import pytest

from hanme.experiments.benchmark import Experiment
from hanme.experiments.report import latex, markdown

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("name", ["benchmark", "paper", "questions"])
def test_the_document_is_made_from_its_numbers(name: str) -> None:
    table = json.loads((RESULTS / f"{name}.json").read_text())
    text = (RESULTS / f"{name}.md").read_text()
    assert text == markdown(Experiment.read(name), table)
    assert (RESULTS / f"{name}.tex").read_text() == latex(Experiment.read(name), table)
    for stem in re.findall(r"\]\((\S+)\.svg\)", text):
        assert (RESULTS / f"{stem}.svg").exists()
    for row in table["rows"]:
        for figure in (one for one in row["published"] if "macro" in one):
            mean = sum(ours := row[f"{figure['rule']}.test.macro"]["values"]) / len(ours)
            assert f"{mean - figure['macro']:+.2f} | {figure['source']} |" in text


def test_runs_that_are_left_out_are_listed_by_row_and_reason() -> None:
    failed = {"long/483": "no memory", "long/1": "not trained yet", "long/2": "not trained yet"}
    table = {"command": "hanme benchmark", "seeds": [483, 1, 2], "rows": [], "failed": failed}
    text = markdown(Experiment.read("paper"), table)
    assert text.endswith("\n- long, seeds 483: no memory\n- long, seeds 1, 2: not trained yet\n")
