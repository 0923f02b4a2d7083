"""Graphs larger than memory: from tables to a store, opening it, training, and single nodes.

    python benchmarks/scale.py make FOLDER [--times N] [--features F]
    python benchmarks/scale.py store FOLDER
    python benchmarks/scale.py draw FOLDER [--times N] [--features F]
    python benchmarks/scale.py open FOLDER
    python benchmarks/scale.py train FOLDER [--per-root N] [--batch-size B] [--steps S] [-m PATH]
    python benchmarks/scale.py whole FOLDER [-m PATH]
    python benchmarks/scale.py run FOLDER RUN [--per-root N] [--share S]
    python benchmarks/scale.py single FOLDER [RUN] [--per-root N]
    python benchmarks/scale.py plot FILE

``make`` writes Parquet tables of ogbn-mag's shape, or N times that, and a ``graph.toml``; ``store``
writes FOLDER/store from them, and ``draw`` a store of the same shape without tables, for sizes that
take long to make; ``train`` takes some steps in batches, under torchrun in several processes;
``whole`` takes one on the whole graph; ``run`` trains a run for an epoch over a share of the
training nodes, scores it and predicts all nodes, as ``hanme train`` does; ``single`` predicts and
explains single nodes. Each measures its own process and prints a line of JSON;
``plot`` draws the lines of ``train`` that are in a file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hanme  # noqa: F401  before torch, whose threads it keeps from spinning

# isort: split
import duckdb
import numpy as np
import torch
from scipy.sparse import csr_array

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
METAPATHS = ["paper-author-paper", "paper-cites:paper-cites:paper", "paper-field-paper"]
HIDDEN, HEADS = 64, 8
WARM = 3
"""Steps that are not counted: compiled code is loaded and memory is taken."""


def make(folder: Path, times: int, features: int) -> dict[str, Any]:
    """Write tables of ogbn-mag's shape, or a multiple of it; links to node ⌊N u^k⌋ make hubs."""
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
    lines = [
        'target = "paper"',
        f"metapaths = {json.dumps(METAPATHS)}",
        "[nodes.paper]",
        'table = "papers.parquet"',
        'id = "id"',
    ]
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
    from hanme.data import store_graph

    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:6.0f} s  {peak_mb():6.0f} MB  {text}", flush=True)

    store_graph(str(folder), folder / "store", progress=say)
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time(),
        "peak_mb": peak_mb(),
        "store_gb": size / 1e9,
    }


def drawn(folder: Path, times: int, features: int) -> dict[str, Any]:
    """Write a store of ogbn-mag's shape, or a multiple of it, without ids, from drawn arrays."""
    from hanme.data.store.files import StoreWriter

    (folder / "store").mkdir(parents=True)
    writer, draws = StoreWriter(folder / "store"), np.random.default_rng(483)
    nodes = {kind: n * times for kind, n in NODES.items()}
    for i, size in enumerate(nodes.values()):
        with writer.array(f"nodes.{i}.x", "float32", (features,)) as x:
            for begin in range(0, size, 1 << 20):
                rows = min(1 << 20, size - begin)
                x.append(draws.random((rows, features), dtype=np.float32) - 0.5)
    relations = []
    for i, (name, (source, target, power)) in enumerate(ENDS.items()):
        counts = draws.poisson(LINKS[name] * times / nodes[source], nodes[source])
        begin = np.concatenate([[0], np.cumsum(counts)])
        u = draws.random(int(begin[-1]), dtype=np.float32).astype(np.float64)
        ends = np.minimum(u**power * nodes[target], nodes[target] - 1).astype(np.int32)
        ones = np.ones(len(ends), np.int8)
        there = csr_array((ones, ends, begin), shape=(nodes[source], nodes[target]))
        back = there.tocsc()
        for j, links in enumerate((there, back)):
            writer.add(f"links.{2 * i + j}.begin", links.indptr.astype(np.int64))
            writer.add(f"links.{2 * i + j}.end", links.indices.astype(np.int32))
        relations += [(source, name, target), (target, f"rev_{name}", source)]
    papers = nodes["paper"]
    writer.add("y", draws.integers(0, LABELS, papers).astype(np.int16))
    writer.add("part", draws.choice(3, papers, p=[0.86, 0.08, 0.06]).astype(np.uint8))
    about = {"width": features, "named_by_id": False, "extra": []}
    writer.finish(
        {
            "target": "paper",
            "labels": [f"venue {i}" for i in range(LABELS)],
            "types": {kind: {"nodes": size, **about} for kind, size in nodes.items()},
            "relations": relations,
            "metapaths": METAPATHS,
            "left_out_metapaths": {},
            "fitted": None,
            "dropped_links": {},
            "notes": [],
            "digest": None,
            "features": "given",
        }
    )
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    return {"cpu_seconds": time.process_time(), "peak_mb": peak_mb(), "store_gb": size / 1e9}


def open_(folder: Path) -> dict[str, Any]:
    from hanme.data import load

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


class Enough(Exception):
    """Raised after the steps that are measured."""


@contextmanager
def watched(found: dict[str, Any]) -> Iterator[None]:
    """Note the most memory of the process that is not pages of files, which the system can drop."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            text = Path("/proc/self/status").read_text()
            anonymous = int(text.split("RssAnon:")[1].split()[0]) / 1024
            found["anonymous_mb"] = max(found.get("anonymous_mb", 0.0), anonymous)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        found["peak_mb"] = peak_mb()


def trainer(
    folder: Path, metapaths: list[str], batch_size: int | None, per_root: int | None
) -> Any:
    from hanme.data import load
    from hanme.nn import HANME
    from hanme.training import Trainer, TrainingConfig, build_seeded

    graph = load(str(folder / "store"))
    config = TrainingConfig(recipe="paper", epochs=10**6, batch_size=batch_size)
    model, random = build_seeded(
        lambda: HANME(
            graph.metadata(),
            graph.target,
            metapaths,
            len(graph.labels),
            in_channels=graph.widths,
            hidden_channels=HIDDEN,
            heads=HEADS,
            per_root=per_root,
        ),
        graph,
        483,
    )
    return Trainer(model, graph, config, random=random)


def train(given: argparse.Namespace) -> dict[str, Any]:
    """Take some steps in batches; under torchrun each process has a core of its own."""
    from hanme.common import ranks

    if ranks.under_torchrun() or given.core is not None:
        cores = sorted(os.sched_getaffinity(0))
        local = int(os.environ.get("LOCAL_RANK", given.core or 0))
        os.sched_setaffinity(0, {cores[local % len(cores)]})
    found: dict[str, Any] = {}
    ends: list[float] = []
    spent: list[float] = []

    def on_step() -> None:
        ends.append(time.perf_counter())
        spent.append(time.process_time())
        if len(ends) == WARM + given.steps:
            raise Enough

    with ranks.joined(), watched(found):
        run = trainer(given.folder, given.metapaths, given.batch_size, given.per_root)
        run.on_step = on_step
        with suppress(Enough):
            run._epoch(1)
        count = ranks.count()
    each = [after - before for before, after in zip(ends[WARM - 1 :], ends[WARM:], strict=False)]
    return {
        "nodes": sum(run.graph.sizes.values()),
        "links": sum(run.graph.num_links.values()) // 2,
        "metapaths": given.metapaths,
        "per_root": given.per_root,
        "batch_size": given.batch_size,
        "processes": count,
        "roots_per_second": given.batch_size * len(each) / (ends[-1] - ends[WARM - 1]),
        "batch_seconds": statistics.median(each),
        "batch_cpu_seconds": (spent[-1] - spent[WARM - 1]) / len(each),
        **found,
    }


def whole(given: argparse.Namespace) -> dict[str, Any]:
    """Take a step on the whole graph, over all instances."""
    found: dict[str, Any] = {}
    with watched(found):
        run = trainer(given.folder, given.metapaths, None, None)
        run._epoch(1)
        began, spent = time.perf_counter(), time.process_time()
        run._epoch(2)
        seconds, spent = time.perf_counter() - began, time.process_time() - spent
    rate = int(run.graph.split.train.sum()) / seconds
    return {
        "metapaths": given.metapaths,
        "seconds": seconds,
        "cpu_seconds": spent,
        "roots_per_second": rate,
        **found,
    }


def finished(given: argparse.Namespace) -> dict[str, Any]:
    """Train a run on some of the training nodes, for an epoch, and predict all nodes with it."""
    from dataclasses import replace

    from hanme.data import load
    from hanme.runs import RunConfig, train

    found: dict[str, Any] = {}
    options = {"metapaths": given.metapaths, "per_root": given.per_root}
    values = {
        "data": {"name": str(given.folder / "store")},
        "model": {"options": {**options, "hidden_channels": HIDDEN, "heads": HEADS}},
        "training": {
            "recipe": "paper",
            "epochs": 1,
            "batch_size": given.batch_size,
            "decide": "macro",
        },
    }
    began = time.perf_counter()
    with watched(found):
        graph = load(str(given.folder / "store"))
        chosen = torch.rand(len(graph.y), generator=torch.Generator().manual_seed(0)) < given.share
        graph = replace(graph, split=graph.split._replace(train=graph.split.train & chosen))
        result = train(RunConfig.make(values), given.run, graph=graph).result()
    return {
        "trained_on": int(graph.split.train.sum()),
        "predicted": len(graph.y),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time(),
        "scores": result["scores"],
        **found,
    }


def plot(file: Path) -> dict[str, Any]:
    """Draw memory and time per batch over the number of links, beside the file."""
    from matplotlib import pyplot as plt

    rows = [json.loads(line) for line in file.read_text().splitlines() if line.startswith("{")]
    rows = [row for row in rows if row["what"] == "train" and row["processes"] == 1]
    figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
    for panel, key, title in (
        (panels[0], "anonymous_mb", "memory of the process, MB"),
        (panels[1], "batch_cpu_seconds", "processor seconds per batch"),
    ):
        panel.plot(
            [row["links"] for row in rows], [row[key] for row in rows], "o-", color="#1f77b4"
        )
        panel.set(xscale="log", xlabel="links", title=title, ylim=(0, None))
    figure.savefig(file.with_suffix(".svg"))
    return {"rows": len(rows)}


def single(given: argparse.Namespace) -> dict[str, Any]:
    """Predict and explain single nodes, each in a time of its own, after the model is loaded.

    Without a run the weights are as drawn, which takes as long.
    """
    from hanme.explain import Explainer
    from hanme.runs import OpenedRun
    from hanme.training.batches import logits_of

    began = time.perf_counter()
    if given.run is None:
        made = trainer(given.folder, given.metapaths, 1, given.per_root)
        graph, model, decision = made.graph, made.model, None
    else:
        run = OpenedRun.open(given.run)
        graph, model, decision = run.graph, run.model, run.decision
    opened = time.perf_counter() - began
    predicting, explaining, processor = [], [], []
    for i in range(10):
        node = (i * 7919 + 13) % graph.targets.num_nodes
        began = time.perf_counter()
        logits_of(model, graph, torch.tensor([node]), batch_size=1)
        predicting.append(time.perf_counter() - began)
        began, spent = time.perf_counter(), time.process_time()
        Explainer(model, graph, decision).explain(node)
        explaining.append(time.perf_counter() - began)
        processor.append(time.process_time() - spent)
    return {
        "per_root": given.per_root,
        "open_seconds": opened,
        "predict_first": predicting[0],
        "predict_median": statistics.median(predicting),
        "predict_most": max(predicting[1:]),
        "explain_median": statistics.median(explaining),
        "explain_most": max(explaining[1:]),
        "explain_cpu_median": statistics.median(processor),
        "peak_mb": peak_mb(),
    }


WHAT = {
    "make": lambda given: make(given.folder, given.times, given.features),
    "store": lambda given: store(given.folder),
    "draw": lambda given: drawn(given.folder, given.times, given.features),
    "open": lambda given: open_(given.folder),
    "train": train,
    "whole": whole,
    "run": finished,
    "single": single,
    "plot": lambda given: plot(given.folder),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=list(WHAT))
    parser.add_argument("folder", type=Path)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--per-root", type=int)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--core", type=int, help="run on this core alone")
    parser.add_argument("-m", dest="metapaths", action="append")
    given = parser.parse_args()
    given.metapaths = given.metapaths or METAPATHS
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    found = {"what": given.what, **WHAT[given.what](given)}
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
