"""Measure training beside a busy process, and what a second thread gains.

python benchmarks/threads.py train FOLDER [--runs 3]    # a folder with a graph.toml
python benchmarks/threads.py trees

`train` alternates idle and busy runs, so that other load on the machine meets both alike; CPU time
is that of the training alone. Two environment variables show what they change: OMP_NUM_THREADS=1,
and GOMP_SPINCOUNT=300000, which lets threads spin as they do without hanme.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUSY = [sys.executable, "-c", "while True: pass"]
LONGEST = 1800  # seconds that the busy process runs at most
ROUNDS = 12
SIZES = [
    (1_000, 100, 2),
    (2_000, 300, 2),
    (2_000, 300, 24),
    (10_000, 30, 2),
    (10_000, 100, 2),
    (10_000, 300, 2),
    (100_000, 50, 2),
]


def train_once(folder: Path, *, busy: bool) -> tuple[float, float]:
    """Train once; return wall and CPU seconds."""
    limit = ["timeout", str(LONGEST)]
    beside = subprocess.Popen([*limit, *BUSY]) if busy else None
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "hanme", "train", str(folder), "--model", "linear"]
        start, process = (
            time.perf_counter(),
            subprocess.Popen(
                [*command, "--out", f"{out}/run"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ),
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    if beside is not None:
        beside.terminate()
        beside.wait()
    if status:
        raise SystemExit(f"training failed with status {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_utime + usage.ru_stime


def measure_training(folder: Path, runs: int) -> None:
    """Print wall and CPU seconds of idle and busy runs, and the ratios of their medians."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    train_once(folder, busy=False)  # fills the cache of graphs and kernels
    for busy in [False, True] * runs:
        found[busy].append(train_once(folder, busy=busy))
        wall, cpu = found[busy][-1]
        load = os.getloadavg()[0]
        print(
            f"{'busy' if busy else 'idle'}: {wall:.0f} s, {cpu:.0f} s CPU, load {load:.1f}",
            flush=True,
        )
    medians = {b: [statistics.median(x) for x in zip(*found[b], strict=True)] for b in found}
    wall, cpu = (busy / idle for busy, idle in zip(medians[True], medians[False], strict=True))
    print(f"busy / idle: {wall:.2f} times the time, {cpu:.2f} times the CPU time")


def measure_trees() -> None:
    """Print the time per round of boosting with one thread and with all, by size."""
    import numpy as np
    import xgboost

    import hanme  # noqa: F401  # before XGBoost: sets how threads wait
    from hanme.linear.trees import PARAMETERS

    random, most = np.random.default_rng(0), os.cpu_count() or 1
    for rows, columns, classes in SIZES:
        x, y = random.normal(size=(rows, columns)), random.integers(0, classes, rows)
        matrix = xgboost.DMatrix(x, y, nthread=1)
        objective = {"objective": "multi:softprob", "num_class": classes, "eta": 0.05}
        boosters = {
            threads: xgboost.Booster(PARAMETERS | objective | {"nthread": threads}, [matrix])
            for threads in (1, most)
        }
        times: dict[int, list[float]] = {1: [], most: []}
        for number in range(ROUNDS):
            for threads, booster in boosters.items():  # in turns
                start = time.perf_counter()
                booster.update(matrix, number)
                times[threads].append(1e3 * time.perf_counter() - 1e3 * start)
        one, many = (statistics.median(found[1:]) for found in times.values())
        print(
            f"{rows:,} rows, {columns} columns, {classes} classes: {one:.1f} ms with one thread, "
            f"{many:.1f} ms with {most}",
            flush=True,
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "trees"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.what == "trees":
        measure_trees()
    else:
        measure_training(arguments.folder, arguments.runs)


if __name__ == "__main__":
    main()
