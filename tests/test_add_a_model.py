"""The example of docs/add-a-model.md runs as it stands."""

import json
import re
from pathlib import Path

import pytest

from hanme.datasets import planted
from hanme.errors import HanmeError
from hanme.nn import MODELS
from hanme.training import RunConfig, evaluate
from hanme.runs.pipeline import build_model

DOCUMENT = Path(__file__).parent.parent / "docs" / "add-a-model.md"


def build(options: dict) -> None:
    config = {"data": {"name": "planted"}, "model": {"name": "relational", "options": options}}
    build_model(RunConfig.make(config).model, planted(movies=40))


def test_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 60
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODELS, "relational", None)  # taken out again after the test
    names: dict = {}
    exec(code, names)
    folder = Path("runs/relational")
    scores = json.loads((folder / "result.json").read_text())["scores"]
    assert scores["with_fallback"]["val"]["macro"] > 40
    assert evaluate(folder) == scores
    for value in ({"hidden_channels": 0}, {"dropout": 1.5}, {"layers": "two"}, {"depth": 1}):
        with pytest.raises(HanmeError, match=next(iter(value))):
            build(value)
