"""Reports say what the numbers beside them say."""

import json
import re
from pathlib import Path

import pytest

from hanme.experiments.benchmark import Experiment
from hanme.experiments.report import markdown
from hanme.experiments.summary import summarise_majority
from hanme.runs import Run
from hanme.runs.checks import check_result

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("name", ["benchmark", "paper"])
def test_the_document_is_made_from_its_numbers(name: str) -> None:
    table = json.loads((RESULTS / f"{name}.json").read_text())
    text = (RESULTS / f"{name}.md").read_text()
    assert text == markdown(Experiment.read(name), table)
    for stem in re.findall(r"\]\((\S+)\.svg\)", text):
        assert (RESULTS / f"{stem}.svg").exists()
    for row in table["rows"]:
        for figure in row["published"]:
            mean = sum(ours := row[f"{figure['rule']}.test.macro"]["values"]) / len(ours)
            assert f"{mean - figure['macro']:+.2f} | {figure['source']} |" in text


def test_a_row_short_of_a_published_figure_is_named() -> None:
    table = json.loads((RESULTS / "paper.json").read_text())
    paper = Experiment.read("paper")
    assert "\nBelow, in micro or macro F1:\n\n- IMDB, HAN: -0.21 / -0.54" in markdown(paper, table)
    lenient = paper.model_copy(update={"tolerance": 2.0})
    assert markdown(lenient, table).endswith("\nNone of ours is more than 2 points below.\n")


def test_runs_before_majorities_have_no_row_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"with_fallback": {"test": {"micro": 60.0, "macro": 50.0}}}
    old = check_result({"scores": scores, "epochs": 5, "best_epoch": 3}, Path("result.json"))
    monkeypatch.setattr(Run, "result", lambda _: old)
    assert summarise_majority([Run(Path(), None)]) is None
