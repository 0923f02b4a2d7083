"""Graphs larger than memory: from tables to a store, opening it, single nodes, and training.

    python benchmarks/scale.py make FOLDER [--times N] [--features F]
    python benchmarks/scale.py store FOLDER
    python benchmarks/scale.py open FOLDER
    python benchmarks/scale.py single FOLDER RUN

``make`` writes Parquet tables of ogbn-mag's shape, or N times that, and a ``graph.toml``; ``store``
writes FOLDER/store; ``single`` predicts and explains single nodes of it with a trained run. Each
measures its own process and prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import duckdb
import torch

from hanme.common.memory import peak_mb

NODES = {"paper": 736_389, "author": 1_134_649, "field": 59_965, "institution": 8_740}
LINKS = {"writes": 7_145_660, "cites": 5_416_271, "topic": 7_505_078, "member": 1_043_998}
ENDS = {
    "writes": ("paper", "author", 1.5),
    "cites": ("paper", "paper", 2),
    "topic": ("paper", "field", 3),  # hubs: the first field has 2.6 % of the links
    "member": ("author", "institution", 1.5),
}
LABELS = 349


def make(folder: Path, times: int, features: int) -> dict[str, Any]:
    """Write tables of ogbn-mag's shape, or so many times that; links to node ⌊N u^k⌋ make hubs."""
    folder.mkdir(parents=True)
    nodes = {kind: n * times for kind, n in NODES.items()}
    with duckdb.connect(
        config={"memory_limit": "2GB", "temp_directory": str(folder / "tmp")}
    ) as db:
        db.execute("SET preserve_insertion_order = false")
        db.execute("SELECT setseed(0.483)")
        # A feature in twelve says something of the label.
        value = f"random() + CASE WHEN i % 12 = row % {LABELS} % 12 THEN 0.5 ELSE 0 END"
        vector = f"list_transform(range({features}), lambda i: CAST({value} AS FLOAT))"
        part = "CASE WHEN u < 0.86 THEN 'train' WHEN u < 0.94 THEN 'val' ELSE 'test' END"
        write(
            db,
            folder / "papers.parquet",
            f"SELECT 'p' || row AS id, 'venue ' || (row % {LABELS}) AS venue, {part} AS split, "
            f"{vector} AS words FROM (SELECT range AS row, random() AS u "
            f"FROM range({nodes['paper']}))",
        )
        for name, (source, target, power) in ENDS.items():
            ends = (
                f"'{source[0]}' || CAST(floor(random() * {nodes[source]}) AS BIGINT) AS source, "
                f"'{target[0]}' || CAST(floor(pow(random(), {power}) * {nodes[target]}) AS BIGINT) "
                "AS target"
            )
            links = f"SELECT {ends} FROM range({LINKS[name] * times})"
            write(db, folder / f"{name}.parquet", links)
    lines = ['target = "paper"', "[nodes.paper]", 'table = "papers.parquet"', 'id = "id"']
    lines += ['label = "venue"', 'split = "split"', 'features = {words = "vector"}']
    lines += ["[nodes.author]", "[nodes.field]", "[nodes.institution]"]
    for name, (source, target, _) in ENDS.items():
        lines += [f"[relations.{name}]", f'table = "{name}.parquet"']
        lines += [f'source = {{type = "{source}", column = "source"}}']
        lines += [f'target = {{type = "{target}", column = "target"}}']
    (folder / "graph.toml").write_text("\n".join(lines) + "\n")
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    return {"nodes": nodes, "links": sum(LINKS.values()) * times, "parquet_gb": size / 1e9}


def write(db: Any, path: Path, select: str) -> None:
    db.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")


def store(folder: Path) -> dict[str, Any]:
    from hanme.datasets import store_graph

    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:6.0f} s  {peak_mb():6.0f} MB  {text}", flush=True)

    store_graph(str(folder), folder / "store", say=say)
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    return {"seconds": time.perf_counter() - began, "peak_mb": peak_mb(), "store_gb": size / 1e9}


def open_(folder: Path) -> dict[str, Any]:
    from hanme.datasets import load

    before = peak_mb()
    began = time.perf_counter()
    graph = load(str(folder / "store"))
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "grown_mb": peak_mb() - before,
        "nodes": sum(graph.sizes.values()),
        "links": sum(graph.num_links.values()),
    }


def single(folder: Path, run: Path) -> dict[str, Any]:
    """Predict and explain single nodes, each in a time of its own, after the model is loaded."""
    from hanme.explain import Explainer
    from hanme.runs import Run
    from hanme.runs.use import open_run, predict

    began = time.perf_counter()
    found = Run.open(run)
    graph, model = open_run(found)
    opened = time.perf_counter() - began
    ids = [f"p{(i * 7919 + 13) % graph.targets.num_nodes}" for i in range(20)]
    predicting, explaining = [], []
    for node in ids:
        began = time.perf_counter()
        predict(run, nodes=[node])
        predicting.append(time.perf_counter() - began)
        began = time.perf_counter()
        Explainer(model, graph, found.decision()).explain(node)
        explaining.append(time.perf_counter() - began)
    return {
        "open_seconds": opened,
        "predict_first": predicting[0],
        "predict_median": statistics.median(predicting),
        "predict_most": max(predicting[1:]),
        "explain_median": statistics.median(explaining),
        "explain_most": max(explaining[1:]),
        "peak_mb": peak_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["make", "store", "open", "single"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--features", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    folder = arguments.folder
    measure = {
        "make": lambda: make(folder, arguments.times, arguments.features),
        "store": lambda: store(folder),
        "open": lambda: open_(folder),
        "single": lambda: single(folder, arguments.run),
    }[arguments.what]
    print(json.dumps({"what": arguments.what, **measure()}))


if __name__ == "__main__":
    main()
