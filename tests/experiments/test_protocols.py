"""The protocols of finished runs, against scikit-learn and against what the runs say themselves."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from commands import hanme
from hanme.common.files import load_tensors
from hanme.decision import Decision
from hanme.experiments.protocol_report import markdown
from hanme.experiments.protocols import RULES, decide
from hanme.runs import Run, load_graph

RESULTS = Path(__file__).parents[2] / "docs" / "results"
HANME = str(Path(sys.executable).with_name("hanme"))
SMALL = ["--graph", "planted", "--set", "data.options.movies=100", "--seeds", "2"]
BENCHMARK = ["benchmark", "--protocols", *SMALL, "--model", "linear", "--processes", "1"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train each run in a process of its own, as a Slurm array does, and collect them."""
    folder = tmp_path_factory.mktemp("protocols")
    shards = [
        subprocess.Popen([HANME, *BENCHMARK, "--out", str(folder), "--shard", f"{i}/2"])
        for i in (1, 2)
    ]
    assert [shard.wait(timeout=300) for shard in shards] == [0, 0]
    assert not (folder / "protocols.md").exists()
    finished = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    assert len(finished) == 2
    collected = hanme(*BENCHMARK, "--out", folder, "--collect")
    assert collected.returncode == 0, collected.stderr
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")} == finished
    return folder


@pytest.mark.slow
def test_refitted_rows_are_the_scores_of_the_runs(out: Path) -> None:
    table = json.loads((out / "protocols.json").read_text())
    row = next(row for row in table["rows"] if row["weights"] == "all")
    results = [
        Run.open(out / "runs" / "planted-linear" / str(seed)).result() for seed in table["seeds"]
    ]
    for rule in ("without_fallback", "with_fallback", "expected_f1"):
        for average in ("micro", "macro"):
            ours = [
                r["expected_f1"] if rule == "expected_f1" else r["scores"][rule] for r in results
            ]
            expected = [one["test"][average] for one in ours]
            assert row["rules"][rule][average]["values"] == expected


@pytest.mark.slow
def test_held_out_and_oracle_scores_are_those_of_scikit_learn(out: Path) -> None:
    table = json.loads((out / "protocols.json").read_text())
    row = next(row for row in table["rows"] if row["weights"] == "80 %")
    for place, seed in enumerate(table["seeds"]):
        run = Run.open(out / "runs" / "planted-linear" / str(seed))
        graph, (logits, _) = load_graph(run.config), load_tensors(run.folder / "logits.safetensors")
        test = graph.split.test
        scores, true = logits["held_out"][test].numpy(), graph.y[test].numpy() > 0
        top = np.zeros_like(true)
        for node, number in enumerate(true.sum(1)):
            top[node, np.argsort(-scores[node])[:number]] = True
        for rule, predicted in (("without_fallback", scores > 0), ("oracle_count", top)):
            cell = row["rules"][rule]
            for average in ("micro", "macro"):
                expected = 100 * f1_score(true, predicted, average=average)
                assert cell[average]["values"][place] == pytest.approx(expected, abs=1e-3)
            each = 100 * f1_score(true, predicted, average=None)
            assert [x["values"][place] for x in cell["labels"].values()] == pytest.approx(
                each, abs=1e-3
            )


@pytest.mark.slow
def test_thresholds_ignore_test_nodes(out: Path) -> None:
    run = Run.open(next((out / "runs" / "planted-linear").iterdir()))
    graph, (logits, _) = load_graph(run.config), load_tensors(run.folder / "logits.safetensors")
    kept, changed = graph.split.test.nonzero().flatten().chunk(2)
    decision = Decision()  # thresholds are fitted again
    before = decide(logits, graph, decision)
    for one in logits.values():
        one[changed] = 9.0
    after = decide(logits, graph, decision)
    rows = slice(len(kept))
    for weights in ("held_out", "final"):
        labels = [one[weights, "expected_f1"][rows] for one in (before, after)]
        assert torch.equal(*labels)


@pytest.mark.slow
def test_every_format_has_the_same_numbers(out: Path) -> None:
    table = json.loads((out / "protocols.json").read_text())
    text, latex = ((out / f"protocols.{suffix}").read_text() for suffix in ("md", "tex"))
    assert text == markdown(table)
    with (out / "protocols.csv").open() as file:
        records = {
            tuple(r[k] for k in ("weights", "rule", "score")): r for r in csv.DictReader(file)
        }
    for row in table["rows"]:
        for rule in RULES:
            mean = row["rules"][rule]["micro"]["mean"]
            assert float(records[row["weights"], rule, "micro"]["mean"]) == mean
            assert f"| {mean:.2f} ± " in text
            assert f"& {mean:.2f} $\\pm$ " in latex
    with (out / "protocols-pairs.csv").open() as file:
        pairs = list(csv.DictReader(file))
    assert len(pairs) == len(RULES) * 2  # one pair of rows, micro and macro
    assert f"{float(pairs[0]['difference']):+.2f} | [" in text


def test_wrong_shards_are_refused(tmp_path: Path) -> None:
    for shard in ("0/2", "3/2", "1", "a/b", "1/2/3"):
        failed = hanme(*BENCHMARK, "--out", tmp_path, "--shard", shard)
        assert failed.returncode == 2
        assert "expected I/N with I from 1 to N" in failed.stderr
    both = hanme(*BENCHMARK, "--out", tmp_path, "--shard", "1/2", "--collect")
    assert both.returncode == 2
    assert "use one of them" in both.stderr


def test_missing_runs_are_named(tmp_path: Path) -> None:
    missing = hanme(*BENCHMARK, "--out", tmp_path, "--collect")
    assert missing.returncode == 0
    assert "planted-linear/483: not trained yet" in missing.stdout
