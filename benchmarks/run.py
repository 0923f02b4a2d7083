"""`make bench`: every backend on every case, and how time and memory grow with the instances.

Also the time of a step on some roots, by the size of the graph.

Each measurement is a process of its own, so that its peak memory is its own; the machine is noisy,
so that what counts are ratios within one run. Writes ``speed.md``, ``speed.json`` and
``growth.svg`` to the folder given (default: docs/results). With cases named after
the folder, only these (or ``growth``, ``roots``) are measured, and the others stay as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from hanme.common.files import read_json, replacing, write_json

HERE = Path(__file__).parent
SHORT = ["streaming", "chunked", "eager"]
LONG = ["streaming", "chunked"]
CASES = {
    "paper": ("IMDB M-D-M + M-A-M, the paper's", [*SHORT, "paper", "pyg"]),
    "keywords": ("IMDB with M-K-M added", [*SHORT, "pyg"]),
    "MAMAM": ("IMDB M-A-M-A-M", [*LONG, "pyg"]),
    "MKMKM": ("IMDB M-K-M-K-M", LONG),
    "APTPA": ("DBLP A-P-T-P-A", LONG),
    "APVPA": ("DBLP A-P-V-P-A", LONG),
}
NAMES = {
    "paper": "eager, dense features, as the paper's code",
    "pyg": "PyG `HANConv`, dense features",
}
REPEAT = {"paper": 20}  # the case that targets are about, also over again, in turns
ROUNDS = {"paper": 2}
ONCE = [(case, "chunked") for case in ("MKMKM", "APTPA", "APVPA")]  # minutes each
DEGREES = (5, 16, 50, 158, 500, 1581, 5000)


def measure(script: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    print(" ".join(["python", f"benchmarks/{script}", *map(str, arguments)]), flush=True)
    # The references with PyTorch's threads as they come, which hanme would keep from spinning.
    usual = {"GOMP_SPINCOUNT": "300000"} if arguments[1:2] in [("pyg",), ("paper",)] else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | usual
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {found}", flush=True)
    return found


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| case | backend | instances | best of | training step | evaluation | epoch "
        "| × streaming | ns per instance and head | peak memory of the process |",
        "| --- | --- " + "| ---: " * 8 + "|",
    ]
    streaming = {r["case"]: r["train"] + r["evaluate"] for r in rows if r["backend"] == "streaming"}
    for row in rows:
        epoch = row["train"] + row["evaluate"]
        nanoseconds = 1e9 * row["train"] / row["instances"] / 8
        lines.append(
            f"| {CASES[row['case']][0]} | {NAMES.get(row['backend'], row['backend'])} "
            f"| {row['instances']:,} | {row['repeat']} "
            f"| {row['train']:.3f} s | {row['evaluate']:.3f} s | {epoch:.3f} s "
            f"| {epoch / streaming[row['case']]:.1f} "
            f"| {'–' if row['backend'] == 'pyg' else f'{nanoseconds:.1f}'} "
            f"| {row['peak_mb']:,.0f} MB |"
        )
    return lines


def growth_table(rows: list[dict[str, Any]]) -> list[str]:
    return [
        "| instances | forward + backward | ns per instance and head | memory above the start "
        "| stated beforehand |",
        "| ---: | ---: | ---: | ---: | ---: |",
        *(
            f"| {row['instances']:,} | {row['seconds']:.3f} s "
            f"| {1e9 * row['seconds'] / row['instances'] / 8:.1f} | {row['grown_mb']:,.0f} MB "
            f"| {row['stated_mb']:,.0f} MB |"
            for row in rows
        ),
    ]


def roots_table(found: dict[str, Any]) -> list[str]:
    least = found["sizes"][0]["seconds"]
    return [
        "| nodes of each type | instances | forward + backward | × the smallest graph |",
        "| ---: | ---: | ---: | ---: |",
        *(
            f"| {row['nodes']:,} | {row['instances']:,} | {1000 * row['seconds']:.1f} ms "
            f"| {row['seconds'] / least:.2f} |"
            for row in found["sizes"]
        ),
    ]


def draw(rows: list[dict[str, Any]], stem: Path) -> None:
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    instances = [row["instances"] for row in rows]
    left.loglog(instances, [row["seconds"] for row in rows], "o-")
    left.set_ylabel("forward + backward (s)")
    right.semilogx(instances, [row["grown_mb"] for row in rows], "o-")
    right.set_ylabel("memory above the start (MB)")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("instances")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(stem.with_suffix(".svg")) as path:
        figure.savefig(path, format="svg")


def _repeat(case: str, backend: str) -> int:
    return 1 if (case, backend) in ONCE else REPEAT.get(case, 5)


def _best(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several measurements of the same, the least times and the highest peak."""
    best = dict(rows[0])
    best["repeat"] = sum(row["repeat"] for row in rows)
    best |= {key: min(row[key] for row in rows) for key in ("train", "evaluate")}
    return best | {"peak_mb": max(row["peak_mb"] for row in rows)}


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/results")
    wanted = sys.argv[2:] or [*CASES, "growth", "roots"]
    known = read_json(out / "speed.json") if sys.argv[2:] else {}
    rows = []
    for case, (_, backends) in CASES.items():
        if case not in wanted:
            rows += [row for row in known["cases"] if row["case"] == case]
            continue
        rounds = [
            [
                measure("measure.py", case, backend, "--repeat", _repeat(case, backend))
                for backend in backends
            ]
            for _ in range(ROUNDS.get(case, 1))
        ]
        rows += [_best(turns) for turns in zip(*rounds, strict=True)]
    if "growth" in wanted:
        growth = [measure("growth.py", degree) for degree in DEGREES]
    else:
        growth = known["growth"]
    roots = measure("roots.py") if "roots" in wanted else known["roots"]
    write_json(out / "speed.json", {"cases": rows, "growth": growth, "roots": roots})
    draw(growth, out / "growth")
    text = [
        "# Speed and memory",
        "",
        f"Made by `make bench`; do not edit. {os.cpu_count()} cores, no GPU; `chunked`, which a",
        "GPU would use, was not measured on one. The model is HAN-ME with the multihop encoder,",
        "8 heads of 16, dropout 0.6. Every row is a process of its own; times are the best of so",
        "many repetitions after one to warm up, which a single one does not have; memory is the",
        'peak of the whole process, Python and PyTorch included. "As the paper\'s code" is our own',
        "writing of its method.",
        "",
        *table(rows),
        "",
        "`eager` is left out where it would not fit in memory: it refuses, and says what it needs.",
        "",
        "What bounds it: on long metapaths the walks, forward and once more backward, with an",
        "exponential, a draw of the dropout and a few multiplications for each instance, eight",
        "heads at a time. Where a root's instances seldom meet a node twice (A-P-T-P-A, and growth",
        "below) it is the row of 128 numbers that is read and written for each distinct pair of",
        "root and node; on the paper's configuration it is the projections and linear layers.",
        "",
        "## Growth",
        "",
        "A graph of a fixed number of nodes and links, walked along metapaths that have ever more",
        "instances (`python benchmarks/growth.py DEGREE`):",
        "",
        *growth_table(growth),
        "",
        "![Time and memory by the number of instances](growth.svg)",
        "",
        "## Some nodes of a large graph",
        "",
        f"A forward pass for {roots['roots']} nodes computes what their instances touch and",
        "nothing else. A step on graphs of several sizes, in turns, best of",
        f"{roots['repeat']} (`python benchmarks/roots.py`):",
        "",
        *roots_table(roots),
        "",
    ]
    with replacing(out / "speed.md") as path:
        path.write_text("\n".join(text))


if __name__ == "__main__":
    main()
