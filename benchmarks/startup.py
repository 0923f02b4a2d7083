"""Measure how long commands take to start, compared with ``import torch``.

    python benchmarks/startup.py

Trains on ``examples/films`` for a few epochs in a temporary folder, then prints the CPU seconds of
``hanme --help`` and of ``hanme predict RUN --node f011``, each the minimum of several runs, and
their ratio to those of ``python -c 'import torch'`` in the same run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FILMS = Path(__file__).parents[1] / "examples" / "films"
RUNS = 5
"""Runs per command: enough for one without interference from other programs."""

HANME = [sys.executable, "-m", "hanme"]


def cpu_seconds(command: list[str], folder: Path) -> float:
    """Return the smallest CPU time of several runs of a command."""
    times = []
    for _ in range(RUNS):
        before = os.times()
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = os.times()
        children = (after.children_user, after.children_system)
        times.append(sum(children) - before.children_user - before.children_system)
    return min(times)


def main() -> None:
    """Train, measure and print a line per command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(FILMS, folder / "films")
        os.environ["HANME_CACHE"] = str(folder / "cache")
        for command in (["init", "films"], ["train", "films", "--epochs", "8", "--out", "run"]):
            subprocess.run([*HANME, *command], cwd=folder, check=True, capture_output=True)
        torch = cpu_seconds([sys.executable, "-c", "import torch"], folder)
        print(f"import torch            {torch:.2f} s")
        for title, command in (
            ("hanme --help", ["--help"]),
            ("hanme predict --node", ["predict", "run", "--node", "f011"]),
        ):
            seconds = cpu_seconds([*HANME, *command], folder)
            print(f"{title:23} {seconds:.2f} s, {seconds / torch:.2f} times import torch")


if __name__ == "__main__":
    main()
