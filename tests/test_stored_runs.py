"""Run folders of every release open in this version (tools/store_fixture.py writes them)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import hanme

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "tests" / "fixtures" / "runs"
VERSIONS = sorted(path.name for path in RUNS.iterdir()) if RUNS.exists() else []


def check(stored: Path, folder: Path) -> None:
    """Predict and explain on a copy of a stored run; compare with the version that wrote it."""
    shutil.copytree(stored, folder)
    expected = json.loads((folder / "expected.json").read_text())
    on = ("--graph", folder / "films", "--json")
    done = hanme("predict", folder / "run", *on)
    assert done.returncode == 0, done.stderr
    predictions = json.loads(done.stdout)
    assert len(predictions) == len(expected["predictions"]) == 120
    for row, was in zip(predictions, expected["predictions"], strict=True):
        assert (row["id"], row["predicted"]) == (was["id"], was["predicted"])
        labels = [key for key in was if key.startswith("p_")]
        assert labels
        for label in labels:
            assert row[label] == pytest.approx(was[label], abs=1e-4)
    done = hanme("explain", folder / "run", expected["explanation"]["id"], *on)
    assert done.returncode == 0, done.stderr
    explanation, was = json.loads(done.stdout), expected["explanation"]
    assert explanation["predicted"] == was["predicted"]
    assert explanation["logits"] == pytest.approx(was["logits"], abs=1e-4)


@pytest.mark.parametrize("version", VERSIONS or [pytest.param("", marks=pytest.mark.skip)])
def test_a_run_of_an_earlier_release_predicts_and_explains(version: str, tmp_path: Path) -> None:
    check(RUNS / version, tmp_path / "stored")


@pytest.mark.slow
def test_the_fixture_of_the_next_release(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "tools" / "store_fixture.py"), str(tmp_path / "stored")]
    subprocess.run(script, check=True, capture_output=True)
    files = [path for path in (tmp_path / "stored").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    check(tmp_path / "stored", tmp_path / "copy")
