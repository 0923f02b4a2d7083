"""Kill commands at random moments and continue them: ``make kills N=20``.

Each is run undisturbed once. Then it is started, killed with SIGKILL up to three times at random
moments, and continued to the end. The result must be the same, and no process may be left.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANME = [sys.executable, "-c", "from hanme.cli import main; main()"]
SMALL = ["--set", "data.options.movies=120", "--set", "training.epochs=60"]
PATHS = ["-m", "movie-director-movie", "-m", "movie-actor-movie"]
COMMANDS = {
    "train": (
        ["train", "planted", "-o", "movies=120", *PATHS, "--epochs", "60", "--out",
         "OUT/run", "--resume"],
        ["run/model.safetensors", "run/decision.json"],
    ),
    "benchmark": (
        ["benchmark", "--model", "han", "--graph", "planted", "--seeds", "2", "--processes",
         "2", *SMALL, "--out", "OUT"],
        ["runs/planted-han/483/model.safetensors", "runs/planted-han/1/model.safetensors"],
    ),
    "tune": (
        ["tune", "han", "planted", "--trials", "3", *SMALL, "--force", "--out", "OUT/best.toml"],
        ["best.toml"],
    ),
}  # fmt: skip


def start(name: str, out: Path) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own."""
    words = [word.replace("OUT", str(out)) for word in COMMANDS[name][0]]
    log = (out.parent / "log.txt").open("ab")
    return subprocess.Popen([*HANME, *words], stdout=log, stderr=log, start_new_session=True)


def members(group: int) -> list[int]:
    """Return the processes of a group that are not dead yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def results(name: str, out: Path) -> list[bytes]:
    """Return the files that must be the same."""
    return [(out / file).read_bytes().replace(str(out).encode(), b"") for file in COMMANDS[name][1]]


def disturb(name: str, out: Path, seconds: float, draw: random.Random) -> tuple[int, str]:
    """Kill and continue one command; return the number of kills and what is wrong."""
    kills = 0
    for _ in range(draw.choice([1, 2, 3])):
        process = start(name, out)
        time.sleep(draw.uniform(0, seconds))
        if process.poll() is None:
            process.kill()
            kills += 1
        process.wait()
        time.sleep(5)
        if left := members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
            return kills, f"{len(left)} processes left"
    status = start(name, out).wait()
    return kills, "" if status == 0 else f"status {status} when continued"


def main() -> None:
    """Disturb each command and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="how often each command is disturbed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=list(COMMANDS))
    arguments = parser.parse_args()
    draw, failures = random.Random(arguments.seed), 0
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as made:
            place, began = Path(made) / "same", time.monotonic()
            assert start(name, place).wait() == 0, (Path(made) / "log.txt").read_text()
            seconds, expected = time.monotonic() - began, results(name, place)
            kills = 0
            for _ in range(arguments.times):
                shutil.rmtree(place)
                killed, wrong = disturb(name, place, seconds, draw)
                kills += killed
                if not wrong and results(name, place) != expected:
                    wrong = "another result"
                if wrong:
                    failures += 1
                    print(f"{name}: {wrong}", flush=True)
            print(f"{name}: {kills} kills in {arguments.times} attempts", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
