"""A stored graph is the graph that was stored; a store that is not whole or damaged is refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import random_array

from hanme.data import load, planted
from hanme.data.store.open import check_store, is_store, open_store
from hanme.data.store.write import create_store, write_store
from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Provenance, Split, Texts
from hanme.graph.features import to_torch

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "a\nb", "Zoë", "\u202e", "'; DROP", "日本", "a" * 300]
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of three types: dense, sparse and no features; repeated links; odd names."""
    seed = draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    sizes = {kind: draw(st.integers(1, 9)) for kind in ("a", "b", "c")}
    several = draw(st.booleans())
    size = sizes["a"]
    y = torch.randint(-1, 3, (size,), generator=generator)
    if several:
        y = torch.randint(0, 2, (size, 3), generator=generator).float()
    part = torch.randint(-1, 3, (size,), generator=generator)
    texts = st.lists(TEXTS, min_size=sizes["a"], max_size=sizes["a"])
    ids = Texts.of([str(i) for i in range(sizes["b"])])
    sparse = to_torch(
        random_array((sizes["b"], 5), density=0.2, rng=seed, dtype=np.float32, format="csr")
    )
    nodes = {
        "a": Nodes("a", size, torch.randn(size, 4, generator=generator), draw(texts), draw(texts)),
        "b": Nodes("b", sizes["b"], sparse, ids, ids),
        "c": Nodes("c", sizes["c"]),
    }
    links = {
        (s, "to", t): _links(sizes[s], sizes[t], draw(st.integers(0, 20)), generator)
        for s, t in (("a", "b"), ("b", "a"), ("a", "a"), ("b", "c"))
    }
    return Graph(
        nodes,
        links,
        "a",
        y,
        ["x", "y", "z"],
        Split(*(part == i for i in range(3))),
        metapaths=["a-b-a"],
        provenance=Provenance(
            left_out_metapaths={"a-a": "why"}, dropped_links={"to": 3}, notes=["ü"]
        ),
    )


def _links(source: int, target: int, count: int, generator: torch.Generator) -> torch.Tensor:
    rows = [torch.randint(size, (count,), generator=generator) for size in (source, target)]
    return torch.stack(rows)


def sorted_links(graph: Graph, edge_type: tuple[str, str, str]) -> list[list[int]]:
    return sorted(graph.links[edge_type].t().tolist())


@settings(max_examples=25, deadline=None)
@given(graph=graphs())
def test_a_graph_comes_back(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store") / "graph"
    write_store(graph, folder, features="given")
    found = open_store(folder)
    assert found.stored
    assert found.sizes == graph.sizes
    assert found.metadata() == graph.metadata()
    assert found.widths == graph.widths
    assert repr(found) == repr(graph)
    for kind, nodes in graph.nodes.items():
        mine = found.nodes[kind]
        for texts, other in ((nodes.ids, mine.ids), (nodes.names, mine.names)):
            assert (texts is None) == (other is None)
            assert other is None or list(other) == list(texts or ())
            for text in set(texts or ()):
                assert isinstance(other, Texts)
                assert other.find(text) == [i for i, t in enumerate(texts or ()) if t == text]
                assert not other.find(text + "?") or text + "?" in (texts or ())
        assert (nodes.x is None) == (mine.x is None)
        if nodes.x is not None and mine.x is not None:
            assert torch.equal(mine.x.to_dense(), nodes.x.to_dense())
            some = torch.tensor([nodes.num_nodes - 1, 0])
            rows = mine.rows(some)
            assert rows is not None
            assert torch.equal(rows.to_dense(), nodes.x.to_dense()[some])
    for edge_type in graph.edge_types:
        assert sorted_links(found, edge_type) == sorted_links(graph, edge_type)
        assert found.num_links[edge_type] == graph.num_links[edge_type]
    every = torch.arange(graph.sizes["a"])
    assert found.multilabel == graph.multilabel
    assert torch.equal(found.labels_of(every)[0], graph.y)
    assert torch.equal(found.y, graph.y)
    for mask, other in zip(graph.split, found.split, strict=True):
        assert torch.equal(mask, other)
    for key in ("labels", "metapaths", "provenance"):
        assert getattr(found, key) == getattr(graph, key)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_store(planted(movies=40, seed=1).with_features("given"), tmp_path / "s", features="given")
    return tmp_path / "s"


def read_all(folder: Path) -> None:
    """Use everything that is in a store."""
    graph = open_store(folder)
    graph.subgraph(torch.arange(40), [(e,) for e in graph.edge_types if e[0] == "movie"])
    assert graph.x_dict
    assert list(graph.links.values())
    assert graph.y is not None
    assert graph.split is not None
    for nodes in graph.nodes.values():
        for number in range(nodes.num_nodes):
            assert nodes.find(nodes.title(number)) == number


def test_a_flipped_byte_in_any_file_is_refused_by_name(stored: Path) -> None:
    read_all(stored)
    for path in sorted(stored.iterdir()):
        whole = path.read_bytes()
        for place in {0, len(whole) - 2}:
            broken = bytearray(whole)
            broken[place] ^= 4
            path.write_bytes(broken)
            for use in (read_all, check_store):
                with pytest.raises(HanmeError, match=path.name):
                    use(stored)
        path.write_bytes(whole)
    assert check_store(stored) == sum(path.stat().st_size for path in stored.glob("*.bin"))


def test_a_file_that_is_short_or_missing_is_refused_by_name(stored: Path) -> None:
    for path in sorted(stored.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-2])
        with pytest.raises(HanmeError, match=path.name):
            open_store(stored)
        path.unlink()
        with pytest.raises(HanmeError, match=path.name):
            open_store(stored)
        path.write_bytes(whole)
    open_store(stored)


def test_only_what_is_read_is_checked(stored: Path) -> None:
    """A damaged block refuses those who read it and nobody else."""
    (target,) = (i for i, kind in enumerate(open_store(stored).nodes) if kind == "actor")
    path = stored / f"nodes.{target}.value.bin"
    path.write_bytes(bytes(path.stat().st_size))
    graph = open_store(stored)
    assert graph.nodes["movie"].rows(torch.tensor([0])) is not None
    with pytest.raises(HanmeError, match="damaged"):
        graph.nodes["actor"].rows(torch.tensor([0]))


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a manifest says, and give everything the checksums of what is there now."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest.pop("sha256", None)
    for name, entry in manifest["files"].items():
        content = (folder / f"{name}.bin").read_bytes()
        starts = range(0, len(content), 1 << 16)
        entry["checksums"] = [zlib.crc32(content[at : at + (1 << 16)]) for at in starts]
    change(manifest)
    path.write_text(json.dumps(manifest))


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "no labels": lambda m: m.pop("labels"),
    "another target": lambda m: m.update(target="nobody"),
    "more nodes": lambda m: m["types"]["movie"].update(nodes=41),
    "another width": lambda m: m["types"]["movie"].update(width=1),
    "an unknown type": lambda m: m["relations"][0].__setitem__(0, "nobody"),
    "another relation": lambda m: m["relations"].append(["movie", "x", "movie"]),
    "a path": lambda m: m["files"].update({"../x": {**m["files"]["part"], "shape": [0]}}),
    "a giant": lambda m: m["files"]["part"].update(shape=[2**32, 2**32]),
    "another checksum": lambda m: m["files"]["part"]["checksums"].append(0),
    "fewer labels": lambda m: m["labels"].pop(),
    "odd features": lambda m: m.update(features="odd"),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_manifest_that_fits_its_checksums_but_not_the_files_is_refused(
    stored: Path, how: str
) -> None:
    forge(stored, lambda manifest: None)
    read_all(stored)
    if how == "a path":
        (stored.parent / "x.bin").touch()
    forge(stored, FORGED[how])
    with pytest.raises(HanmeError, match=r"manifest\.json|store the graph again"):
        read_all(stored)


@pytest.mark.parametrize(
    ("name", "number"),
    [("links.0.end", 40), ("links.0.end", -1), ("links.0.begin", 9**9), ("links.0.begin", -1),
     ("nodes.0.ids.offsets", 9**9), ("y", 7)],
)  # fmt: skip
def test_numbers_that_lead_out_of_an_array_are_refused_whoever_wrote_them(
    tmp_path: Path, name: str, number: int
) -> None:
    size = 40
    texts = Texts.of([f"m{i}" for i in range(size)])
    links = torch.stack([torch.arange(size), torch.arange(size).flip(0)])
    masks = Split(*(torch.arange(size) % 3 == i for i in range(3)))
    graph = Graph(
        {"movie": Nodes("movie", size, torch.ones(size, 2), texts, texts)},
        {("movie", "to", "movie"): links}, "movie", torch.arange(size) % 2, ["a", "b"], masks,
    )  # fmt: skip
    write_store(graph, tmp_path / "s", features="given")
    read_all(tmp_path / "s")
    path = tmp_path / "s" / f"{name}.bin"
    files = json.loads((tmp_path / "s" / "manifest.json").read_text())["files"]
    values = np.fromfile(path, files[name]["dtype"])
    values[3] = number
    values.tofile(path)
    forge(tmp_path / "s", lambda manifest: None)
    with pytest.raises(HanmeError, match=path.name):
        read_all(tmp_path / "s")


def test_any_other_folder_with_a_manifest_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my web app", "version": 1}')
    assert not is_store(tmp_path)
    with pytest.raises(HanmeError, match=r"a folder without a graph\.toml; .* hanme init /"):
        load(str(tmp_path))
    (tmp_path / "graph.toml").touch()
    with pytest.raises(HanmeError, match=r"graph\.toml"):
        load(str(tmp_path))


def test_a_store_can_be_moved(stored: Path, tmp_path: Path) -> None:
    shutil.move(stored, tmp_path / "elsewhere ü'")
    graph = load("planted", source=tmp_path / "elsewhere ü'", options={"movies": 40})
    assert graph.provenance.origin == load(str(tmp_path / "elsewhere ü'")).provenance.origin
    assert graph.stored
    assert graph.targets.num_nodes == 40


def test_a_folder_with_anything_else_in_it_is_left_alone(stored: Path, tmp_path: Path) -> None:
    graph = planted(movies=40)
    with pytest.raises(HanmeError, match="already"):
        write_store(graph, stored, features="given")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(HanmeError, match="new or empty"):
        write_store(graph, tmp_path / "mine", features="given")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["letter.txt"]


SLOWLY = """
import sys, time
from pathlib import Path
from hanme.data import planted
from hanme.data.store.write import write_store
write_store(planted(movies=40), Path(sys.argv[1]), features="given",
            progress=lambda text: (print(text, flush=True), time.sleep(0.05)))
"""


def test_a_killed_store_does_not_open_and_can_be_stored_again(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(folder)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stdout is not None
    for _ in range(4):
        process.stdout.readline()
    time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list(tmp_path.glob(".s.*/*.bin"))
    assert not is_store(folder)
    with pytest.raises(HanmeError):
        load(str(folder))
    write_store(planted(movies=40), folder, features="given")
    assert check_store(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_store_beside_one_that_is_being_written(tmp_path: Path) -> None:
    graph = planted(movies=30)
    with create_store(tmp_path / "data.v2") as writer:
        write_store(graph, tmp_path / "data", features="given")
        assert writer.folder.exists()
