"""Kill commands at random moments and continue them: ``make kills N=20`` for 20 kills of each.

Each is run undisturbed once. Then, until there were so many kills, it is started, killed with
SIGKILL up to five times at random moments, and continued to the end. What is killed is the command,
one of its processes or all of them. The result must be the same, and no process may be left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import hanme.experiments.tune
import hanme.runs.train  # noqa: F401
from fuzz.inputs import write_tables
from fuzz.processes import MARK, alive, end
from fuzz.results import contents
from hanme.cli import main as main_of_hanme

PATIENCE = 20
"""How many seconds processes have to end after what they worked for was killed.

One that was just started first imports what it looks for torchrun with.
"""

LIMIT = 300
"""A command that takes more seconds hangs."""

HANME = [sys.executable, "-m", "hanme"]
TORCHRUN = [
    sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
    "--max-restarts", "1", "-m", "hanme",
]  # fmt: skip
SMALL = ["--set", "data.options.movies=60", "--set", "training.epochs=20"]
PLANTED = ["train", "planted", "--set", "data.options.movies=60", "-m", "movie-director-movie"]
RUN = ["--out", "OUT/run", "--resume"]


@dataclass(frozen=True)
class Work:
    """A command to disturb.

    Args:
        command: Its words; OUT is the folder, TABLES that of a ``graph.toml``.
        results: Patterns of the files that must be the same in the end.
        program: What runs it; without one, a process forked from this one, which has imported all.
        last: The file that is written last, where the command refuses to be done twice.
    """

    command: list[str]
    results: list[str]
    program: list[str] = field(default_factory=list)
    last: str = ""


WORKS = {
    "train": Work(
        [*PLANTED, "-m", "movie-actor-movie", "--epochs", "30", *RUN],
        ["run/model.safetensors", "run/decision.json"],
    ),
    "benchmark": Work(
        ["benchmark", "--model", "han", "--graph", "planted", "--seeds", "2", "--processes",
         "2", *SMALL, "--out", "OUT"],
        ["runs/planted-han/*/model.safetensors"],
        HANME,
    ),
    "tune": Work(
        ["tune", "han", "planted", "--trials", "2", *SMALL, "--force", "--out", "OUT/best.toml"],
        ["best.toml"],
    ),
    "store": Work(
        ["inspect", "TABLES", "--store", "OUT/store"],
        ["store/*.bin", "store/manifest.json"],
        last="store/manifest.json",
    ),
    "torchrun": Work(
        [*PLANTED, "--batch-size", "16", "--epochs", "8", *RUN],
        ["run/model.safetensors", "run/decision.json"],
        TORCHRUN,
    ),
}  # fmt: skip


class Forked:
    """A process forked from this one, in the way of :class:`subprocess.Popen`.

    Args:
        words: The command.
        log: Where it writes to.
    """

    def __init__(self, words: list[str], log: int) -> None:
        self.process = multiprocessing.get_context("fork").Process(target=_run, args=(words, log))
        self.process.start()
        self.pid = self.process.pid or 0

    def poll(self) -> int | None:
        """Return the status, None while it runs."""
        return self.process.exitcode

    def wait(self, seconds: float) -> int:
        """Wait for its end."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("hanme", seconds)
        return self.process.exitcode


def _run(words: list[str], log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["hanme", *words]
    main_of_hanme()


class Started:
    """A command that runs, and all processes that it has started.

    Args:
        work: The command.
        out: The folder it writes to.
    """

    def __init__(self, work: Work, out: Path) -> None:
        places = {"OUT": str(out), "TABLES": str(out.parent / "tables")}
        words = [_placed(word, places) for word in work.command]
        self.mark = uuid4().hex
        with (out.parent / "log.txt").open("ab") as log:
            environment = os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1"}
            self.process: Forked | subprocess.Popen[bytes] = (
                subprocess.Popen([*work.program, *words], stdout=log, stderr=log, env=environment)
                if work.program
                else Forked(words, log.fileno())
            )

    def alive(self) -> list[int]:
        """Return its processes that have not ended."""
        if isinstance(self.process, Forked):
            return [self.process.pid] if self.process.poll() is None else []
        return alive(self.mark)

    def kill(self, draw: random.Random) -> bool:
        """Kill the command, one of its processes or all; return whether there was any."""
        there = self.alive()
        if self.process.poll() is not None or not there:
            return False
        end(draw.choice([[self.process.pid], [draw.choice(there)], there]))
        return True

    def left(self) -> int:
        """Wait for its processes to end; kill those that do not, and return how many."""
        until = time.monotonic() + PATIENCE
        while (there := self.alive()) and time.monotonic() < until:
            time.sleep(0.05)
        end(there)
        return len(there)


def _placed(word: str, places: dict[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(name, place)
    return word


def disturb(work: Work, out: Path, seconds: list[float], draw: random.Random) -> tuple[int, str]:
    """Kill and continue a command; return the number of kills and what is wrong.

    The last of `seconds` is how long it takes; a command that ends before it is killed adds to it.
    """
    kills = 0
    for _ in range(draw.choice([1, 2, 3, 4, 5])):
        started, began = Started(work, out), time.monotonic()
        with suppress(subprocess.TimeoutExpired):  # it begins with imports
            started.process.wait(draw.triangular(0, seconds[-1], seconds[-1]))
            seconds.append(time.monotonic() - began)
        kills += started.kill(draw)
        try:
            started.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            end(started.alive())
            return kills, f"no end after {LIMIT} s"
        if left := started.left():
            return kills, f"{left} processes left"
        if work.last and (out / work.last).exists():
            return kills, ""
    status = Started(work, out).process.wait(LIMIT)
    return kills, "" if status == 0 else f"status {status} when continued"


def main() -> None:
    """Disturb each command and print what happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5, help="how often each command is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*", default=list(WORKS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw, failures = random.Random(arguments.seed), 0
    for name in arguments.names:
        work = WORKS[name]
        with tempfile.TemporaryDirectory() as made:
            write_tables(Path(made) / "tables")
            place, log = Path(made) / "same", Path(made) / "log.txt"
            began = time.monotonic()
            assert Started(work, place).process.wait(LIMIT) == 0, log.read_text()
            seconds, expected = [time.monotonic() - began], contents(place, work.results)
            assert expected
            kills = attempts = 0
            while kills < arguments.kills:
                attempts += 1
                shutil.rmtree(place, ignore_errors=True)
                log.unlink()
                killed, wrong = disturb(work, place, seconds, draw)
                kills += killed
                if not wrong and contents(place, work.results) != expected:
                    wrong = "another result"
                if wrong:
                    failures += 1
                    print(f"{name}: {wrong}\n{log.read_text()}", flush=True)
            print(f"{name}: {kills} kills in {attempts} attempts, {failures} failures", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
