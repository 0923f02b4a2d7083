"""No choice ever sees a test label: with all of them scrambled, the same is chosen."""

from pathlib import Path

import pytest

from hanme.data import planted
from hanme.experiments.benchmark import Entry, Experiment
from hanme.experiments.configuration import find_config, override, read_config
from hanme.experiments.report import report
from hanme.experiments.tune import Search, best_trial, run_trials, search_space
from hanme.runs import train
from hgb_layout import write_imdb

SMALL = {"model.options.hidden_channels": 16, "model.options.heads": 2}
COSTS = ("seconds_per_epoch", "peak_memory_mb")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    data = planted(movies=100)
    return [
        write_imdb(data, tmp_path / "true" / "IMDB"),
        write_imdb(data, tmp_path / "scrambled" / "IMDB", scramble_test=True),
    ]


def test_benchmark(sources: list[Path]) -> None:
    rows, runs = [], []
    for source in sources:
        changes = {**SMALL, "training.epochs": 5}
        place = source.parent
        entries = [
            Entry.make(model, "IMDB", lts, None, {**changes, "data.source": str(source)})
            for model, lts in (("han", "none"), ("hanme-direct", "linear"))
        ]
        for entry in entries:
            for config, folder in entry.jobs(place / "runs", [483]):
                runs.append(train(config, folder))
        plan = Experiment.read("benchmark")
        table = report(plan, entries, place / "runs", [483], place, command="", failed={})
        rows.append(table["rows"])
    half = len(runs) // 2
    for true, scrambled in zip(runs[:half], runs[half:], strict=True):
        weights = [(run.folder / "model.safetensors").read_bytes() for run in (true, scrambled)]
        assert weights[0] == weights[1]
        assert true.result()["best_epoch"] == scrambled.result()["best_epoch"]
        epochs = [[row | {"seconds": 0} for row in run.metrics()] for run in (true, scrambled)]
        assert epochs[0] == epochs[1]
        found = [run.result()["scores"]["without_fallback"] for run in (true, scrambled)]
        assert found[0]["test"] != found[1]["test"]  # scrambled indeed
        assert true.result()["selection"] == scrambled.result()["selection"]
    han = rows[0][0]  # the graph is none of the benchmark's: its figures are far away
    assert [figure["micro"] for figure in han["published"]] == [64.6, 64.26]
    ours = han["without_fallback.test.micro"]["mean"]
    assert han["published"][0]["difference_micro"] == pytest.approx(ours - 64.6)
    text = (sources[0].parent / "benchmark.md").read_text()
    assert "| IMDB, han | 64.6 / 57.7 | HGB's rule |" in text
    assert not rows[0][1]["published"]  # nobody has published it with LTS
    for true, scrambled in zip(*rows, strict=True):
        other = {key for key in true if true[key] != scrambled[key]}
        assert all(".test." in key for key in other - {"published", *COSTS})


def test_tune(sources: list[Path]) -> None:
    values = override(read_config(find_config("han-IMDB")), SMALL)
    search = Search(
        values=values, space=search_space("han", "planted", values), seeds=[483, 1], epochs=4
    )
    found = [run_trials(search, s.with_suffix(".db"), 13, source=s) for s in sources]
    assert found[0] == found[1]
    assert len({trial.score for trial in found[0]}) > 3
    assert best_trial(found[0]) == best_trial(found[1])
