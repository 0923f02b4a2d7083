"""Fail every operation on the files of a run, a benchmark, a report, a study and a store once.

``python tests/fuzz/faults.py`` counts what a command opens, writes, syncs and renames, then repeats
it: killed in the first operation, the second, and so on, and again with a disk that is full from
there on. What is there afterwards must continue to the same files, none more, or be refused in one
line.
``--most N`` tries N operations of each, evenly spread.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.results import contents

HERE = Path(__file__).parent
FULL, KILL = 1, 2
QUICK = [
    "--set", "data.options.movies=60", "--hidden", "8", "--heads", "1", "--epochs", "3", "-m",
    "movie-director-movie",
]  # fmt: skip
TINY = ["--set", "data.options.movies=60", "--set", "training.epochs=2"]


@dataclass(frozen=True)
class Work:
    """What is done to files.

    Args:
        start: The command, given the folder.
        again: The command that continues it.
        results: Patterns of the files that must be the same in the end.
        prepare: Makes what the command starts from.
    """

    start: Callable[[str], list[str]]
    again: Callable[[str], list[str]]
    results: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda folder: None


def train(out: str) -> list[str]:
    """Return the command that trains a run."""
    return ["train", "planted", *QUICK, "--out", f"{out}/run"]


def batches(out: str) -> list[str]:
    """Return the command that trains a run in batches."""
    return [*train(out), "--batch-size", "16", "--epochs", "2"]


def checkpoint_every_step() -> None:
    """Let a run in batches write a checkpoint after every step instead of every two minutes."""
    from hanme.runs import folder

    folder.SECONDS = 0.0


def benchmark(out: str, runs: str = "OUT/runs") -> list[str]:
    """Return the command that trains runs and reports them, all in this process."""
    small = [*TINY, "--model", "han", "--graph", "planted", "--seeds", "1", "--processes", "1"]
    where = ["--out", f"{out}/report", "--runs", runs.replace("OUT", out)]
    return ["benchmark", *where, *small]


def train_here() -> None:
    """Let a benchmark train its runs in the process whose operations fail."""
    from hanme.runs import pool

    def train_all(
        jobs: Sequence[pool.Job], processes: int, on_done: Callable[[Path], None]
    ) -> dict[Path, str]:
        said = {}
        for config, folder in pool.unfinished(jobs):
            pool.work(config, folder, SimpleNamespace(send=partial(said.__setitem__, folder)))  # type: ignore[arg-type]
            on_done(folder)
        return {folder: text for folder, text in said.items() if text}

    pool.train_all = train_all


def report(out: str) -> list[str]:
    """Return the command that reports finished runs."""
    return benchmark(out, "OUT/../runs")


def tune(out: str) -> list[str]:
    """Return the command that searches."""
    changes = [*TINY, "--trials", "2", "--force"]
    return ["tune", "han", "planted", "--out", f"{out}/best.toml", *changes]


def store(out: str) -> list[str]:
    """Return the command that stores a graph of tables."""
    return ["inspect", str(Path(out).parent / "tables"), "--store", f"{out}/store"]


def tables(folder: Path) -> None:
    """Write tables beside a folder."""
    from fuzz.inputs import write_tables

    write_tables(folder.parent / "tables")


WORKS = {
    "run": Work(train, lambda out: [*train(out), "--resume"], ("run/model.safetensors",)),
    "batches": Work(
        batches, lambda out: [*batches(out), "--resume"], ("run/model.safetensors",),
        lambda folder: checkpoint_every_step(),
    ),
    "benchmark": Work(
        benchmark, benchmark, ("runs/*/*/model.safetensors",), lambda folder: train_here(),
    ),
    "report": Work(
        lambda out: [*report(out), "--collect"], report, ("report/benchmark.json",),
        lambda folder: finish(report(str(folder))),
    ),
    "study": Work(tune, tune, ("best.toml",)),
    "store": Work(store, store, ("store/*.bin", "store/manifest.json"), tables),
}  # fmt: skip


def draw_quickly() -> None:
    """Let pictures be written without being drawn, which takes longer than all the rest."""
    from matplotlib.figure import Figure

    Figure.savefig = lambda self, path, **options: Path(path).write_text("a picture")  # type: ignore


def finish(command: list[str]) -> None:
    """Run a command that must succeed."""
    from fuzz.harness import run

    found = run(command)
    assert found.kind == "accepted", found


def in_child(
    command: list[str], folder: str = "", number: int = 0, how: int = 0
) -> tuple[str, int]:
    """Run a command in a process forked from this one; return how it ended and its operations."""
    from fuzz.harness import run

    shim = ctypes.CDLL(None)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        shim.fault_arm(folder.encode(), ctypes.c_long(number), how)
        found = run(command)
        shim.fault_arm(b"", ctypes.c_long(0), 0) if how else None
        said = f"{found.kind}\n{shim.fault_count()}\n{found.said}"
        os.write(writer, said.encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return ("killed" if os.WTERMSIG(status) == signal.SIGKILL else "defect\ncrashed"), 0
    kind, count, text = said.split("\n", 2)
    return (f"defect\n{text}" if kind == "defect" else kind), int(count)


def names(folder: Path) -> set[str]:
    """Return the paths of all files in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def fail_each(name: str, folder: Path, most: int | None) -> tuple[Counter[str], list[str]]:
    """Fail operations of one kind of work; return how all of it ended, and what is wrong."""
    work = WORKS[name]
    warm, sound, place = (folder / name for name in ("warm", "sound", "place"))
    sound.mkdir()
    work.prepare(sound)
    finish(work.start(str(warm)))  # what it imports and compiles, the processes share
    kind, total = in_child(work.start(str(sound)), str(sound))
    assert kind == "accepted", kind
    expected, files = contents(sound, work.results), names(sound)
    counts, wrong = Counter[str](), list[str]()
    step = max(1, total // most) if most else 1
    for how, fault in ((KILL, "killed"), (FULL, "disk full")):
        for number in range(1, total + 1, step):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            first, _ = in_child(work.start(str(place)), str(place), number, how)
            then, _ = in_child(work.again(str(place)))
            same = then == "accepted" and contents(place, work.results) == expected
            more = names(place) - files
            end = "the same" if same else then if then == "refused" else "wrong"
            counts[f"{fault}: {first.split()[0]}, then {end}"] += 1
            if first.startswith("defect") or end == "wrong" or more:
                wrong.append(f"{name}, operation {number}, {fault}: {first}; then {then} {more}")
    counts["operations"] = total
    return counts, wrong


def main() -> None:
    """Fail operations and print how each kind of work ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        library = f"{made}/shim.so"
        if "LD_PRELOAD" not in os.environ:
            build = ["cc", "-shared", "-fPIC", "-O1", "-o", library, str(HERE / "shim.c"), "-ldl"]
            subprocess.run(build, check=True)
            environment = os.environ | {"LD_PRELOAD": library, "HANME_CACHE": f"{made}/cache"}
            sys.exit(subprocess.call([sys.executable, *sys.argv], env=environment))
        import torch

        import hanme.experiments.tune
        import hanme.runs.train  # noqa: F401

        torch.set_num_threads(1)
        draw_quickly()
        failures = []
        for name in arguments.works:
            folder = Path(made) / name
            folder.mkdir()
            counts, wrong = fail_each(name, folder, arguments.most)
            print(f"{name}: {dict(counts)}", *wrong, sep="\n", flush=True)
            failures += wrong
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
