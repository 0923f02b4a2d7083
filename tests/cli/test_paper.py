"""The paper's table on the real graph, cut short, stopped and started again."""

import json
from pathlib import Path

import pytest

from commands import hanme


@pytest.mark.slow
def test_writes_table_and_figure_and_repeats_nothing(hgb_source: Path, tmp_path: Path) -> None:
    command = ["benchmark", "--config", "paper", "--seeds", 1, "--set", "training.epochs=1"]
    command += ["--out", tmp_path, "--data", hgb_source]
    assert hanme(*command).returncode == 0
    table = json.loads((tmp_path / "paper.json").read_text())
    names = [row["name"] for row in table["rows"]]
    assert len(names) == 17
    assert names[:2] == ["HAN, paper's split", "HAN + LTS, paper's split"]
    text = (tmp_path / "paper.md").read_text()
    assert "| IMDB, HAN-ME multihop, paper's split | 68.0 / 63.5 |" in text
    for row in table["rows"]:
        entry = row["with_fallback.test.micro"]
        runs = tmp_path / "runs"
        assert entry["values"] == [entry["mean"]]
    assert (tmp_path / "paper-IMDB-curves.svg").exists()
    split = {
        path.parent.parent.name: json.loads(path.read_text())["data"]["seed"]
        for path in runs.rglob("config.json")
    }
    fixed = [name for name, seed in split.items() if seed is not None]
    assert sorted(fixed) == sorted(name for name in split if name.endswith("paper-s-split"))
    assert {split[name] for name in fixed} == {42}
    results = {path: path.stat().st_mtime_ns for path in runs.rglob("result.json")}
    assert len(results) == 17
    next(iter(results)).unlink()  # as if it had been stopped before this one was finished
    assert hanme(*command).returncode == 0
    again = {path: path.stat().st_mtime_ns for path in runs.rglob("result.json")}
    assert sum(again[path] != results[path] for path in results) == 1
