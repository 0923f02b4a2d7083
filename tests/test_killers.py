"""The benchmark of graphs that killed other tools: all tools see the same graph and instances."""

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.transforms import AddMetaPaths

SCALE = 0.001
NAMES = ["aminer-apa", "aminer", "mag-pap", "mag", "pubmed", "tags"]


@pytest.fixture
def killers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return __import__("killers")


def counted(stages: Iterator[tuple[str, dict[str, int]]]) -> list[dict[str, int]]:
    return [found for _, found in stages]


def test_a_drawn_graph_has_the_sizes_asked_for_and_no_pair_twice(killers: ModuleType) -> None:
    case = killers.CASES["mag"]
    sizes, edges = killers.draw(case, 0.01)
    assert sizes == {"paper": 7364, "author": 11346, "institution": 87, "field": 600}
    by = edges["paper", "by", "author"]
    assert by.shape == (2, 71_457)
    assert np.unique(by, axis=1).shape == by.shape
    back = edges["author", "by~", "paper"]
    assert set(zip(*by.tolist(), strict=True)) == set(zip(*back[::-1].tolist(), strict=True))
    degree = np.bincount(by[1])
    assert degree.max() > 20 * degree.mean(), "hubs, or the graph kills nobody"
    again = killers.draw(case, 0.01)[1]
    assert all((edges[edge_type] == again[edge_type]).all() for edge_type in edges)


def test_every_paper_has_one_venue(killers: ModuleType) -> None:
    _, edges = killers.draw(killers.CASES["aminer"], 0.01)
    assert (np.bincount(edges["paper", "in", "venue"][0]) == 1).all()


def test_pubmed_has_all_metapaths_of_one_and_two_hops(killers: ModuleType) -> None:
    case = killers.CASES["pubmed"]
    assert len(case.relations) == 10
    paths = killers.steps(case, killers.draw(case, SCALE)[1])
    assert [len(path) for path in paths].count(1) == 10
    assert len({tuple(path) for path in paths}) == 30
    assert all(a[2] == b[0] for path in paths for a, b in pairwise(path))


@pytest.mark.parametrize("name", NAMES)
def test_theirs_and_ours_are_about_the_same_instances(killers: ModuleType, name: str) -> None:
    sizes, edges = killers.draw(killers.CASES[name], SCALE / 3)
    paths = [path for path in killers.steps(killers.CASES[name], edges) if len(path) > 1]
    data = HeteroData()
    for node_type, size in sizes.items():
        data[node_type].num_nodes = size
    for edge_type, links in edges.items():
        data[edge_type].edge_index = torch.from_numpy(links)
    joined = AddMetaPaths(paths, drop_orig_edge_types=True, weighted=True)(data)
    instances = sum(int(weight.sum()) for weight in joined.edge_weight_dict.values())
    assert next(iter(killers.hanme(sizes, edges, paths, "")))[1] == {"instances": instances}
    assert sum(len(killers.listed(edges, path)) for path in paths) == instances > 0


def test_pyg_counts_distinct_pairs(killers: ModuleType) -> None:
    sizes, edges = killers.draw(killers.CASES["tags"], SCALE)
    paths = killers.steps(killers.CASES["tags"], edges)
    has = np.zeros((sizes["item"], sizes["tag"]), int)
    has[tuple(edges["item", "has", "tag"])] = 1
    pairs = int((has @ has.T > 0).sum())
    assert counted(killers.pyg(sizes, edges, paths, "")) == [{"pairs": pairs}, {}]
    walked, _ = counted(killers.pyg(sizes, edges, paths, "walks"))
    assert 0 < walked["pairs"] <= min(pairs, killers.PER_ROOT * sizes["item"])


@pytest.mark.parametrize(("mode", "last"), [("batch", "instances"), ("sampled", "nodes")])
def test_ours_takes_steps_on_batches(killers: ModuleType, mode: str, last: str) -> None:
    sizes, edges = killers.draw(killers.CASES["tags"], 0.01)
    paths = killers.steps(killers.CASES["tags"], edges)
    first, then = counted(killers.hanme(sizes, edges, paths, mode))
    roots = min(killers.ROOTS, sizes["item"]) if mode == "batch" else sizes["item"]
    if mode == "batch":
        assert 0 < then["instances"] < first["instances"]
    else:
        assert then == {last: roots}


def test_magnn_samples_instances_of_each_node(killers: ModuleType) -> None:
    nodes = np.array([[0, i] for i in range(300)] + [[1, i] for i in range(5)] + [[2, 0]])
    some = killers.chosen(nodes, np.array([0, 1]), np.random.default_rng(1))
    assert np.bincount(some[:, 0]).tolist() == [killers.PER_NODE, 5]
    assert len(np.unique(some, axis=0)) == len(some)


@pytest.mark.slow
def test_the_script_prints_a_table(killers: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    killers.main(["pubmed", "--scale", str(SCALE), "--tools", "magnn"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[2] for row in rows] == ["graph read", "list instances", "step, a batch"]
    sizes, edges = killers.draw(killers.CASES["pubmed"], SCALE)
    paths = killers.steps(killers.CASES["pubmed"], edges)
    ours, _ = counted(killers.hanme(sizes, edges, paths, "1"))
    assert rows[1][3] == f"{ours['instances']:,} instances"


@pytest.mark.slow
def test_limits_end_a_tool_and_the_table_says_so(killers: ModuleType, tmp_path: Path) -> None:
    sizes, edges = killers.draw(killers.CASES["pubmed"], 0.3)
    (tmp_path / "sizes.json").write_text(json.dumps(sizes))
    np.savez(tmp_path / "edges.npz", **{"|".join(k): v for k, v in edges.items()})
    short = killers.measured("pubmed", "magnn", tmp_path, sys.executable, 12, 0)
    assert short[-1]["failed"] == "stopped after 0 s"
    small = killers.measured("pubmed", "magnn", tmp_path, sys.executable, 0.01, 120)
    assert small[0]["stage"] == "graph read"
    assert small[-1]["failed"].startswith("out of memory")
    assert "**out of memory" in killers.table_row("pubmed", "magnn", small[-1])
