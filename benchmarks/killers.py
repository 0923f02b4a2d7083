"""Graphs that killed other tools: time and peak memory of theirs and of hanme.

    python benchmarks/killers.py [CASE ...] [--tools TOOL ...] [--scale S] [--dgl PYTHON]

Prints a table. A case of ``CASES`` is a graph with the sizes that a public report names, drawn with
a fixed seed, and the metapaths of that report; S multiplies its nodes and links. Each tool runs in
a process of its own with limits on memory and time, and reads the same graph:

- ``pyg``: PyG's ``AddMetaPaths``, then forward and backward of ``HANConv`` for all target nodes.
  ``pyg-1`` is the same with ``max_sample=1``, ``pyg-walks`` with ``AddRandomMetaPaths`` and 32
  walks per node.
- ``dgl``: DGL's ``metapath_reachable_graph``, by another Python that has DGL (``--dgl``).
- ``magnn``: our writing of what HNE's MAGNN does: list all instances, then take a step on 4,096
  nodes, the ends of 1,024 links and as many negative ones, in two layers, with the vectors of up to
  100 instances per node and metapath. ``magnn-1`` has one layer.
- ``hanme``: forward and backward of HAN-ME for all target nodes, over all instances. For MAGNN's
  case these are two layers of its size with its encoder, for all nodes of all types; ``hanme-1``
  has one layer.
- ``hanme-batch``: the same for 1,024 target nodes.
- ``hanme-sampled``: 100 batches of 1,024 target nodes, at most 32 instances per node and metapath.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SEED = 483
MEMORY_GIB, SECONDS = 12.0, 300.0
FEATURES, HIDDEN, HEADS, LABELS = 16, 64, 8, 4
ROOTS, BATCHES, PER_ROOT = 1024, 100, 32
VECTOR, PAIRS, PER_NODE = 50, 1024, 100
"""MAGNN's size of a vector per head, links per step and instances per node: HNE's defaults."""

Step = tuple[str, str, str]
Edges = dict[Step, np.ndarray]
Steps = list[Step]


@dataclass(frozen=True)
class Case:
    """A graph to draw and the metapaths to follow, each from its root.

    A relation is (source, target, links, power): its targets are ⌊N u^power⌋ of a uniform u, which
    gives the node of rank r a share ∝ r^(1/power - 1); its sources are uniform. A relation within a
    type is symmetric; any other has a reverse, named with ~.
    """

    nodes: dict[str, int]
    relations: dict[str, tuple[str, str, int, float]]
    metapaths: list[list[str]]
    tools: list[str]


BATCHED = ["hanme", "hanme-batch", "hanme-sampled"]
AMINER = (
    {"author": 1_693_531, "paper": 3_194_405, "venue": 3_883},
    {"wrote": ("paper", "author", 9_323_739, 2.0), "in": ("paper", "venue", 3_194_405, 4.0)},
)
MAG = (
    {"paper": 736_389, "author": 1_134_649, "institution": 8_740, "field": 59_965},
    {
        "by": ("paper", "author", 7_145_660, 2.0),
        "has": ("paper", "field", 7_505_078, 4.0),
        "cites": ("paper", "paper", 5_416_271, 2.0),
        "at": ("author", "institution", 1_043_998, 4.0),
    },
)
LINKED = {  # the link types of HNE's PubMed, which has 244,986 links; their own numbers are unknown
    "gene": ["gene", "disease"],
    "disease": ["disease"],
    "chemical": ["gene", "disease", "chemical", "species"],
    "species": ["gene", "disease", "species"],
}


def back(source: str, target: str) -> str:
    return f"{source}-{target}" + ("~" if source != target else "")


CASES = {
    "aminer-apa": Case(*AMINER, [["wrote~", "wrote"]], ["pyg", "pyg-1", "pyg-walks", *BATCHED]),
    "aminer": Case(
        *AMINER,
        [["wrote~", "wrote"], ["wrote~", "in", "in~", "wrote"]],
        ["pyg", "pyg-1", "pyg-walks", *BATCHED],
    ),
    "mag-pap": Case(*MAG, [["by", "by~"]], ["dgl", "pyg", "pyg-walks", *BATCHED]),
    "mag": Case(*MAG, [["by", "by~"], ["has", "has~"]], ["dgl", "pyg", "pyg-walks", *BATCHED]),
    "pubmed": Case(
        {"gene": 13_561, "disease": 20_163, "chemical": 26_522, "species": 2_863},
        {f"{a}-{b}": (a, b, 24_499, 2.0) for a, ends in LINKED.items() for b in ends},
        # All of one and two hops, as HNE's transform writes them; a root is at their end there.
        [
            path
            for a, ends in LINKED.items()
            for b in ends
            for path in ([back(a, b)], *([back(b, c), back(a, b)] for c in LINKED[b]))
        ],
        ["magnn", "magnn-1", "hanme", "hanme-1"],
    ),
    "tags": Case(
        {"item": 138_168, "tag": 50},
        {"has": ("item", "tag", 552_672, 2.0)},
        [["has", "has~"]],
        ["dgl", "pyg", "pyg-walks", *BATCHED],
    ),
}


def draw(case: Case, scale: float = 1.0) -> tuple[dict[str, int], Edges]:
    """Return the number of nodes by type, and links by edge type without a pair twice."""
    rng = np.random.default_rng(SEED)
    sizes = {t: n if n <= 50 else max(50, round(n * scale)) for t, n in case.nodes.items()}
    edges: Edges = {}
    for name, (source, target, number, power) in case.relations.items():
        n, m = sizes[source], sizes[target]
        links = min(round(number * scale), n * m // 4)
        ids, one_each = rng.permutation(m), number == case.nodes[source]
        found = np.empty(0, np.int64)
        while found.size < links:
            more = links - found.size + (0 if one_each else links // 20)
            begin = np.arange(n)[:more] if one_each else rng.integers(n, size=more)
            end = ids[(m * rng.random(more) ** power).astype(np.int64)]
            found = np.unique(np.concatenate([found, begin * m + end]))
        pairs = np.stack(np.divmod(np.sort(rng.choice(found, links, replace=False)), m))
        if source == target:
            pairs = np.stack(
                np.divmod(np.unique([pairs[0] * m + pairs[1], pairs[1] * m + pairs[0]]), m)
            )
        else:
            edges[target, f"{name}~", source] = pairs[::-1, np.lexsort(pairs)].copy()
        edges[source, name, target] = pairs
    return sizes, edges


def steps(case: Case, edges: Edges) -> list[Steps]:
    """Return the metapaths as lists of edge types."""
    by_name = {edge_type[1]: edge_type for edge_type in edges}
    return [[by_name[name] for name in path] for path in case.metapaths]


Stages = Iterator[tuple[str, dict[str, int]]]
"""What a tool yields after each stage: its name and what was counted."""


def pyg(sizes: dict[str, int], edges: Edges, paths: list[Steps], mode: str) -> Stages:
    import torch
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import HANConv
    from torch_geometric.transforms import AddMetaPaths, AddRandomMetaPaths

    data, target = HeteroData(), paths[0][0][0]
    for node_type, size in sizes.items():
        data[node_type].x = torch.randn(size, FEATURES)
    for edge_type, links in edges.items():
        data[edge_type].edge_index = torch.from_numpy(links)
    if mode == "walks":
        join = AddRandomMetaPaths(paths, drop_orig_edge_types=True, walks_per_node=PER_ROOT)
    else:
        sample = int(mode) if mode else None
        join = AddMetaPaths(paths, drop_orig_edge_types=True, max_sample=sample)
    data = join(data)
    yield "metapath graph", {"pairs": sum(x.size(1) for x in data.edge_index_dict.values())}
    conv = HANConv(FEATURES, HIDDEN, ([target], list(data.edge_types)), heads=HEADS, dropout=0.6)
    conv({target: data[target].x}, data.edge_index_dict)[target].sum().backward()
    yield "step, all nodes", {}


def dgl(sizes: dict[str, int], edges: Edges, paths: list[Steps]) -> Stages:
    import dgl as library

    links = {edge_type: (pairs[0], pairs[1]) for edge_type, pairs in edges.items()}
    graph = library.heterograph(links, num_nodes_dict=sizes)
    found = [library.metapath_reachable_graph(graph, path).num_edges() for path in paths]
    yield "metapath graph", {"pairs": sum(found)}


def listed(edges: Edges, path: Steps) -> np.ndarray:
    """Return every instance of a metapath, ``[P, L + 1]``, ordered by root."""
    nodes = edges[path[0]].T
    for step in path[1:]:
        source, target = edges[step]  # ordered by source
        begin = np.searchsorted(source, nodes[:, -1])
        count = np.searchsorted(source, nodes[:, -1], side="right") - begin
        row = np.repeat(np.arange(len(nodes)), count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        nodes = np.column_stack([nodes[row], target[begin[row] + place]])
    return nodes


def chosen(nodes: np.ndarray, roots: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return up to ``PER_NODE`` instances of each of some roots."""
    nodes = nodes[np.isin(nodes[:, 0], roots)]
    nodes = nodes[np.lexsort([rng.random(len(nodes)), nodes[:, 0]])]
    first = np.searchsorted(nodes[:, 0], nodes[:, 0])
    return nodes[np.arange(len(nodes)) - first < PER_NODE]


def magnn(sizes: dict[str, int], edges: Edges, paths: list[Steps], depth: int) -> Stages:
    import torch

    rng = np.random.default_rng(SEED)
    every = [listed(edges, path) for path in paths]
    yield "list instances", {"instances": sum(map(len, every))}
    types = [[path[0][0], *(step[2] for step in path)] for path in paths]
    share = 4 * PAIRS / sum(sizes.values())  # two ends of a link and of a negative one
    targets = {
        t: np.sort(rng.choice(n, max(1, min(n, round(n * share))), replace=False))
        for t, n in sizes.items()
    }
    layers = []
    for _ in range(depth):  # from the last to the first, as its minibatches are prepared
        some = [chosen(p, targets[t[0]], rng) for p, t in zip(every, types, strict=True)]
        layers.insert(0, (targets, some))
        reached: dict[str, list[np.ndarray]] = {t: [ids] for t, ids in targets.items()}
        for nodes, along in zip(some, types, strict=True):
            for position, node_type in enumerate(along):
                reached[node_type].append(nodes[:, position])
        targets = {t: np.unique(np.concatenate(ids)) for t, ids in reached.items()}
    h = {t: torch.randn(n, VECTOR, requires_grad=True) for t, n in sizes.items()}
    for roots, some in layers:
        h = magnn_layer(h, roots, some, types)
    torch.stack([x.square().mean() for x in h.values()]).sum().backward()
    yield "step, a batch", {"instances": sum(len(p) for _, some in layers for p in some)}


def magnn_layer(h: Any, roots: Any, some: list[np.ndarray], types: list[list[str]]) -> Any:
    """Return new vectors of the roots: instances gathered, rotated, averaged, attended to."""
    import torch
    from torch.nn.functional import dropout, elu, leaky_relu

    zs: dict[str, list[Any]] = {}
    for nodes, along in zip(some, types, strict=True):
        p = torch.from_numpy(nodes)
        x = torch.stack([h[t][p[:, i]] for i, t in enumerate(along)], 1)
        turn = torch.randn(len(along), VECTOR // 2, 2, requires_grad=True)
        pairs = x.view(len(p), len(along), VECTOR // 2, 2).contiguous()
        x = torch.view_as_complex(pairs) * torch.view_as_complex(turn)
        e = torch.view_as_real(x).flatten(2).mean(1).unsqueeze(1).repeat(1, HEADS, 1)
        a = torch.randn(2, HEADS, VECTOR, requires_grad=True)
        place = torch.from_numpy(np.searchsorted(roots[along[0]], nodes[:, 0]))
        s = leaky_relu(h[along[0]][p[:, 0]] @ a[0].t() + (e * a[1]).sum(-1), 0.01).exp()
        total = torch.zeros(len(roots[along[0]]), HEADS).index_add(0, place, s)
        w = dropout(s / total[place], 0.5).unsqueeze(-1)
        z = torch.zeros(len(total), HEADS, VECTOR).index_add(0, place, w * e)
        zs.setdefault(along[0], []).append(elu(z).flatten(1))
    new = {}
    for t, vectors in zs.items():
        attend = torch.nn.Sequential(
            torch.nn.Linear(HEADS * VECTOR, 100), torch.nn.Tanh(), torch.nn.Linear(100, 1)
        )
        beta = torch.stack([attend(z).mean() for z in vectors]).softmax(0)
        fused = sum(b * z for b, z in zip(beta, vectors, strict=True))
        out = elu(torch.nn.Linear(HEADS * VECTOR, VECTOR)(fused))
        new[t] = torch.zeros_like(h[t]).index_copy(0, torch.from_numpy(roots[t]), out)
    return new


def hanme(sizes: dict[str, int], edges: Edges, paths: list[Steps], mode: str) -> Stages:
    import torch

    from hanme.graph.chain import Chain
    from hanme.graph.metapath import Metapath
    from hanme.nn import HANME, Batch

    metadata, target = (list(sizes), list(edges)), paths[0][0][0]
    links = {edge_type: torch.from_numpy(pairs) for edge_type, pairs in edges.items()}
    metapaths = [Metapath.of(path, metadata) for path in paths]
    count = [Chain.cached(metapath, links, sizes).count() for metapath in metapaths]
    yield "count instances", {"instances": sum(int(of_each.sum()) for of_each in count)}
    if len({metapath.root for metapath in metapaths}) > 1:
        yield from hanme_layers(sizes, links, metapaths, depth=int(mode or 2))
        return
    x = {t: torch.randn(n, FEATURES) for t, n in sizes.items()}
    model = HANME(
        metadata, target, metapaths, LABELS,
        in_channels=FEATURES, hidden_channels=HIDDEN, heads=HEADS,
        per_root=PER_ROOT if mode == "sampled" else None,
    )  # fmt: skip
    if mode == "sampled":
        yield from hanme_sampled(model, x, links, target)
        return
    roots = torch.randperm(sizes[target])[:ROOTS] if mode == "batch" else None
    logits = model(Batch(x, links, roots))
    torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)) % LABELS).backward()
    held = count if roots is None else [of_each[roots] for of_each in count]
    name = "step, all nodes" if roots is None else f"step, {len(roots):,} nodes"
    yield name, {"instances": sum(int(of_each.sum()) for of_each in held)}


def hanme_layers(sizes: dict[str, int], links: Any, metapaths: list[Any], depth: int) -> Stages:
    """Take a step of some layers with MAGNN's encoder for all nodes of all types."""
    import torch

    from hanme.nn import HANMEConv

    metadata = (list(sizes), list(links))
    h = {t: torch.randn(n, VECTOR, requires_grad=True) for t, n in sizes.items()}
    for _ in range(depth):
        conv = HANMEConv(
            VECTOR, HEADS * VECTOR, metadata, metapaths,
            encoder="rotate", heads=HEADS, dropout=0.5, activation="elu", negative_slope=0.01,
        )  # fmt: skip
        lin = torch.nn.Linear(HEADS * VECTOR, VECTOR)
        h = {t: torch.nn.functional.elu(lin(z)) for t, z in conv(h, links).items()}
    torch.stack([x.square().mean() for x in h.values()]).sum().backward()
    yield "step, all nodes", {}


def hanme_sampled(model: Any, x: Any, links: Any, target: str) -> Stages:
    """Train on batches as ``hanme train --batch-size 1024 --per-root 32`` does."""
    import torch

    from hanme.graph import Graph, Nodes, Split
    from hanme.training.batches import prefetched

    y = torch.arange(len(x[target])) % LABELS
    nodes = {t: Nodes(t, len(features), features) for t, features in x.items()}
    graph = Graph(nodes, links, target, y, list("abcd"), Split.of(torch.zeros_like(y)))
    optimizer = torch.optim.AdamW(model.parameters())
    parts = torch.randperm(len(y))[: ROOTS * BATCHES].split(ROOTS)
    for roots, batch in zip(parts, prefetched(model, graph, parts), strict=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), y[roots]).backward()
        optimizer.step()
    yield f"{len(parts)} steps, {PER_ROOT} instances per node", {"nodes": sum(map(len, parts))}


def stages(tool: str, sizes: dict[str, int], edges: Edges, paths: list[Steps]) -> Stages:
    name, _, mode = tool.partition("-")
    if name == "pyg":
        return pyg(sizes, edges, paths, mode)
    if name == "hanme":
        return hanme(sizes, edges, paths, mode)
    if name == "magnn":
        return magnn(sizes, edges, paths, int(mode or 2))
    return dgl(sizes, edges, paths)


def report(**found: Any) -> None:
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(json.dumps(found | {"peak_mb": peak_mb}), flush=True)


def one(name: str, tool: str, folder: Path, memory_gib: float) -> None:
    """Run a tool in this process: print a line of JSON per stage, and one if memory ran out."""
    case = CASES[name]
    for _ in stages(tool, *(small := draw(case, 0.0001)), steps(case, small[1])):
        pass  # imports and compiled code are not what is measured
    sizes = json.loads((folder / "sizes.json").read_text())
    with np.load(folder / "edges.npz") as arrays:
        edges = {edge_type: arrays[edge_type] for edge_type in arrays.files}
    edges = {tuple(edge_type.split("|")): pairs for edge_type, pairs in edges.items()}
    paths = steps(case, edges)
    limit = int(memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    report(stage="graph read", seconds=0.0, cpu=0.0)
    began, spent = time.perf_counter(), time.process_time()
    try:
        for stage, counted in stages(tool, sizes, edges, paths):
            seconds, cpu = time.perf_counter() - began, time.process_time() - spent
            report(stage=stage, seconds=seconds, cpu=cpu, **counted)
            began, spent = time.perf_counter(), time.process_time()
    except (MemoryError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if isinstance(error, RuntimeError) and "alloc" not in text.lower():
            raise
        seconds, cpu = time.perf_counter() - began, time.process_time() - spent
        report(failed=f"out of memory: {text[-200:]}", seconds=seconds, cpu=cpu)


def measured(
    name: str, tool: str, folder: Path, python: str, memory_gib: float, seconds: float
) -> list[dict[str, Any]]:
    """Run a tool in a process with limits; return a row per stage, and one for how it failed."""
    command = [python, __file__, name, "--tools", tool, "--folder", str(folder)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--memory", str(memory_gib)], stdout=out, stderr=errors
        )
        deadline = time.monotonic() + seconds
        while (ended := os.wait4(process.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                process.kill()
                ended = os.wait4(process.pid, 0)
                break
            time.sleep(0.1)
        out.seek(0)
        errors.seek(0)
        rows: list[dict[str, Any]] = [json.loads(line) for line in out if line.startswith("{")]
        if ended[1] and not (rows and "failed" in rows[-1]):
            why = f"stopped after {seconds:g} s" if time.monotonic() > deadline else "died: "
            why += (errors.read().strip().splitlines() or [""])[-1][-200:] if "died" in why else ""
            used = ended[2]
            row = {"failed": why, "cpu": used.ru_utime + used.ru_stime}
            rows.append(row | {"peak_mb": used.ru_maxrss / 2**10})
    process.returncode = 0  # it has been waited for
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--tools", nargs="+", help="default: those of the case")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--dgl", metavar="PYTHON", help="a Python that can import dgl")
    parser.add_argument("--memory", type=float, default=MEMORY_GIB, help="GiB per process")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per process")
    parser.add_argument("--folder", type=Path, help="run one tool here on the graph in a folder")
    given = parser.parse_args(arguments)
    if given.folder:
        one(given.cases[0], given.tools[0], given.folder, given.memory)
        return
    print("| graph | tool | stage | counted | seconds | processor s | peak memory MB |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for name in given.cases or CASES:
        with tempfile.TemporaryDirectory() as folder:
            sizes, edges = draw(CASES[name], given.scale)
            Path(folder, "sizes.json").write_text(json.dumps(sizes))
            np.savez(Path(folder, "edges.npz"), **{"|".join(k): v for k, v in edges.items()})
            del edges
            for tool in given.tools or CASES[name].tools:
                if tool == "dgl" and not given.dgl:
                    continue
                python = given.dgl if tool == "dgl" else sys.executable
                for row in measured(name, tool, Path(folder), python, given.memory, given.seconds):
                    print(table_row(name, tool, row), flush=True)


def table_row(name: str, tool: str, row: dict[str, Any]) -> str:
    counted = [f"{row[k]:,} {k}" for k in ("pairs", "instances", "nodes") if k in row]
    times = [f"{row[k]:.1f}" if k in row else "" for k in ("seconds", "cpu")]
    cells = [name, tool, row.get("stage") or f"**{row['failed']}**", ", ".join(counted), *times]
    return f"| {' | '.join(cells)} | {row['peak_mb']:,.0f} |"


if __name__ == "__main__":
    main()
