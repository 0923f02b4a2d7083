"""Store a small finished run of this version for tests/test_stored_runs.py.

    python tools/store_fixture.py [FOLDER]    (default: tests/fixtures/runs/VERSION)

Every release adds one. Later versions must open it, predict the same labels and explain them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import hanme

ROOT = Path(__file__).parents[1]
NODE = "f011"
TRAIN = ("--epochs", "8", "--hidden", "16", "--heads", "2")


def command(*arguments: str, cwd: Path) -> str:
    """Run a command of hanme; return what it prints."""
    words = [sys.executable, "-m", "hanme", *arguments]
    return subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout


def store(folder: Path) -> None:
    """Train on the films, and write the tables, the run and its predictions to a new folder."""
    with TemporaryDirectory(prefix="hanme-") as name:
        place = Path(name)
        shutil.copytree(ROOT / "examples" / "films", place / "films")
        command("init", "films", cwd=place)
        command("train", "films", "--out", "run", *TRAIN, cwd=place)
        on = ("--graph", "films", "--json")
        expected = {
            "predictions": json.loads(command("predict", "run", *on, cwd=place)),
            "explanation": json.loads(command("explain", "run", NODE, *on, cwd=place)),
        }
        (place / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        shutil.copytree(place, folder)


if __name__ == "__main__":
    default = ROOT / "tests" / "fixtures" / "runs" / hanme.__version__
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    store(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{target}: {size / 1000:.0f} kB")
