"""An audit finds what makes scores too good, and nothing where nothing does."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import hanme
from commands import hanme as command
from hanme import Graph
from hanme.auditing import Auditor, Measured, row_keys
from hanme.data import planted
from hanme.errors import HanmeError
from hanme.training import TrainingConfig, finalize
from planting import LEAKS, OWN, customers, graph_of

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "audit.md"


def auditor(graph: Graph, **config: object) -> Auditor:
    config = {"trees": False, "smoothing": False} | config  # fast
    return Auditor(graph, TrainingConfig(**config), shuffles=2)


def noise(random: np.random.Generator, size: int = 400) -> pd.DataFrame:
    """Return rows whose columns have nothing to do with their label."""
    frame = pd.DataFrame(random.normal(size=(size, 4)), columns=list("abcd"))
    frame.insert(0, "id", [f"c{i}" for i in range(size)])
    frame["label"] = random.choice(["yes", "no"], size)
    return frame


NUMBERS = dict.fromkeys("abcd", "number")


def table(frame: pd.DataFrame, kinds: dict[str, str] = NUMBERS) -> Graph:
    return graph_of({"customer": frame}, {"customer": kinds})


@pytest.fixture(scope="module")
def quiet() -> Auditor:
    """The audit of a table of noise."""
    return auditor(table(noise(np.random.default_rng(0))))


@pytest.fixture(scope="module")
def found(quiet: Auditor) -> Measured:
    """Its test rows."""
    return quiet._measured(quiet.graph, finalize(None, quiet.graph, quiet.config))


def test_the_losses_are_those_of_a_loop(found: Measured) -> None:
    for loss, p, true in zip(found.losses, found.p, found.true, strict=True):
        assert float(loss) == pytest.approx(-np.log(float(p[true.nonzero()[0, 0]])), abs=1e-5)


def test_shuffled_labels_cannot_be_predicted() -> None:
    frame, _ = customers(np.random.default_rng(0), 200)
    one = auditor(graph_of({"customer": frame}, {"customer": OWN}))
    assert one._shuffled().finding == "fine"
    assert one.fits == 2


@pytest.mark.parametrize(("worse", "words"), [(-0.2, "better than possible"), (0.2, "from noise")])
def test_a_loss_other_than_the_base_rate_is_wrong(
    worse: float, words: str, quiet: Auditor, found: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "_measured", lambda *_: found._replace(losses=found.base + worse))
    monkeypatch.setattr(quiet, "_fit", lambda *_: None)
    check = quiet._shuffled()
    assert check.finding == "wrong"
    assert words in check.found


def test_rows_that_repeat_training_rows_are_counted() -> None:
    frame = noise(np.random.default_rng(0))
    assert auditor(table(frame))._duplicates().finding == "fine"
    again = frame.head(100).assign(id=[f"again{i}" for i in range(100)])
    again["a"] += 1e-6
    graph = table(pd.concat([frame, again], ignore_index=True))
    graph.targets.extra.clear()
    part = torch.zeros(500, dtype=torch.long)
    part[400:450], part[450:] = 1, 2
    check = auditor(replace(graph, split=hanme.graph.Split.of(part)))._duplicates()
    assert check.finding == "wrong"
    assert check.found.startswith("100 of 100 ")


def test_rows_of_few_values_do_not_count_as_repeated() -> None:
    random = np.random.default_rng(0)
    frame = noise(random)[["id", "label"]]
    frame["place"], frame["size"] = random.choice(list("abc"), 400), random.choice(["s", "l"], 400)
    graph = table(frame, {"place": "category", "size": "category"})
    assert row_keys(graph) is None
    assert auditor(graph)._duplicates().finding == "fine"


def test_rows_without_columns_are_compared_by_their_links() -> None:
    graph = planted(movies=200)
    keys = row_keys(graph)
    assert keys is not None
    assert len(np.unique(keys)) == 200


def test_sorted_rows_raise_a_question(found: Measured) -> None:
    own = found._replace(p=found.true.float())  # a perfect model
    frame, y = customers(np.random.default_rng(0))
    for order, finding in ((np.arange(len(y)), "fine"), (np.argsort(y), "ask")):
        one = auditor(graph_of({"customer": frame.iloc[order]}, {"customer": OWN}))
        position = np.arange(len(y), dtype=np.float32)
        assert one._alone("row position", position, own).finding == finding


def drifting(random: np.random.Generator, *, drifts: bool) -> Graph:
    """Return rows with a date, whose column says something else each year if it drifts."""
    size = 800
    frame, day = noise(random, size), random.integers(2000, size=size)
    frame["day"] = (np.datetime64("2018-01-01") + day).astype(str)
    sign = np.where(day // 400 % 2, 1, -1) if drifts else 1
    frame["label"] = np.where(sign * frame["a"] > 0, "yes", "no")
    return table(frame, NUMBERS | {"day": "date"})


@pytest.mark.slow
@pytest.mark.parametrize("drifts", [True, False])
def test_a_score_that_the_future_does_not_have_is_found(drifts: bool) -> None:
    found = hanme.audit(drifting(np.random.default_rng(0), drifts=drifts), shuffles=2)
    check = next(check for check in found.checks if check.name == "split by time")
    assert check.finding == ("wrong" if drifts else "fine"), check.found


@pytest.mark.slow
def test_a_planted_leak_is_wrong_and_noise_is_not() -> None:
    found = hanme.audit(LEAKS["category"][0](np.random.default_rng(0)), shuffles=2)
    assert not found.passed
    assert found.verdict.endswith("see sources that give the label away.")
    assert "delete leak from [nodes.customer.features]" in str(found)
    found = hanme.audit(table(noise(np.random.default_rng(1))), shuffles=2)
    assert found.passed, str(found)
    assert found.verdict == "Nothing shows that the scores are too good."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with rows that are there twice and drawn by themselves."""
    frame = noise(np.random.default_rng(0), 150)
    both = pd.concat([frame, frame.assign(id=[f"again{i}" for i in range(150)])])
    both.to_csv(tmp_path / "customers.csv", index=False)
    features = "\n".join(f'{name} = "number"' for name in NUMBERS)
    (tmp_path / "graph.toml").write_text(
        'target = "customer"\n[nodes.customer]\ntable = "customers.csv"\nid = "id"\n'
        f'label = "label"\n[nodes.customer.features]\n{features}\n[split]\nduplicates = "apart"\n'
    )
    return tmp_path


def test_the_command_exits_with_1_if_something_is_wrong(folder: Path) -> None:
    fast = ["--set", "training.trees=false", "--shuffles", "2"]
    done = command("audit", folder, *fast)
    assert done.returncode == 1, done.stderr
    assert "near-duplicates across the split" in done.stdout
    assert "The scores are too good" in done.stdout
    assert "fits of linear model and trees" in done.stdout
    file = folder / "graph.toml"
    file.write_text(file.read_text().replace('[split]\nduplicates = "apart"\n', ""))
    done = command("audit", folder, *fast, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["passed"]) == (0, True), found
    assert [check["finding"] for check in found["checks"]] == ["fine"] * len(found["checks"])


@pytest.mark.slow
def test_the_films_pass(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "films", tmp_path / "films")
    assert command("init", folder).returncode == 0
    done = command("audit", folder, "--shuffles", "2")
    assert done.returncode == 0, done.stdout
    assert "Nothing shows that the scores are too good" in done.stdout


@pytest.mark.slow
def test_the_python_of_the_guide_runs_and_planted_passes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["found"].passed, str(names["found"])
    assert "shuffled labels fine" in capsys.readouterr().out


def test_a_graph_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hanme.auditing.MAX_IN_MEMORY", 10)
    with pytest.raises(HanmeError, match="more than 10 nodes and links"):
        hanme.audit(planted(movies=60))
