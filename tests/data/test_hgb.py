import hashlib
import http.server
import json
import os
import random
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hanme.data import hgb
from hanme.data.hgb import files as hgb_files
from hanme.data.hgb import load_hgb
from hanme.data.hgb.files import FILES
from hanme.data.hgb.parse import parse
from hanme.errors import HanmeError


def info(types, relations, classes, target=0):
    return json.dumps(
        {
            "node.dat": {"node type": {str(i): name for i, name in enumerate(types)}},
            "link.dat": {
                "link type": {
                    str(i): {"start": start, "end": str(end), "meaning": meaning}
                    for i, (start, end, meaning) in enumerate(relations)
                }
            },
            "label.dat": {"node type": {str(target): {str(i): c for i, c in enumerate(classes)}}},
        }
    )


# Ids of one type are not contiguous; keywords have no relation back to movies.
TINY = {
    "info.dat": info(
        ["movie", "actor", "keyword"],
        [
            (0, 1, "movie->actorh"),
            (1, 0, "actor->movie"),
            (0, 0, "movie-cite-movie"),
            (0, 0, "movie-ref-movie"),
            (0, 2, "movie->keyword"),
        ],
        ["Romance", "Drama"],
    ),
    "node.dat": (
        "0\tM_0\t0\t1.5,0,0.0\n"
        "1\tÀctor\t1\t0,2\n"
        "2\t\t0\t0,0,0\n"
        "3\tA1\t1\t1e-1,-3.5\n"
        "4\tK\t2\n"
        "5\tM2\t0\t0,0.0,-7\n"
        "6\tM3\t0\t.5,+1,0\n"
        "7\tM4\t0\t0,1,0\n"
    ),
    "link.dat": (
        "0\t1\t0\t1\n2\t1\t0\t1\n2\t3\t0\t1\n1\t0\t1\t1.0\n1\t2\t1\t1\n3\t2\t1\t1\n"
        "0\t2\t2\t1\n2\t0\t3\t1\n0\t4\t4\t1\n5\t4\t4\t1\n5\t4\t4\t1\n"
    ),
    "label.dat": "0\tM_0\t0\t0,1\n2\t\t0\t1\n6\tM3\t0\t0\n",
    "label.dat.test": "5\tM2\t0\t1\n",
}


def write_folder(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def write_archive(path, files, prefix="IMDB/", method=zipfile.ZIP_DEFLATED):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", method) as opened:
        for name, text in files.items():
            opened.writestr(prefix + name, text)
    return path


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("HANME_DATA", raising=False)
    monkeypatch.setenv("HANME_HGB_URL", "http://127.0.0.1:9/{name}.zip")  # nobody listens there


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "source" / "IMDB", TINY)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def pairs(data, *relation):
    return sorted(data.links[relation].t().tolist())


def test_tiny_graph(root, folder):
    data = load_hgb("IMDB", root, source=folder)
    assert data.target == "movie"
    assert data.multilabel is True
    assert data.node_types == ["movie", "actor", "keyword"]
    assert [data.nodes[kind].num_nodes for kind in data.node_types] == [5, 2, 1]
    assert data.nodes["movie"].names == ["M_0", "", "M2", "M3", "M4"]
    assert data.nodes["actor"].names == ["Àctor", "A1"]
    assert data.nodes["movie"].x.layout == torch.sparse_csr
    assert data.nodes["movie"].x.to_dense().tolist() == [
        [1.5, 0, 0],
        [0, 0, 0],
        [0, 0, -7],
        [0.5, 1, 0],
        [0, 1, 0],
    ]
    assert data.nodes["movie"].x.values().numel() == 5
    torch.testing.assert_close(
        data.nodes["actor"].x.to_dense(), torch.tensor([[0, 2], [0.1, -3.5]])
    )
    assert data.nodes["keyword"].x is None
    mean = data.with_features("given").nodes["keyword"].x.to_dense()
    assert mean.tolist() == pytest.approx(np.array([[1.5, 0, -14]]) / 3)  # parallel links count

    assert set(data.edge_types) == {
        ("movie", "to", "actor"),
        ("actor", "to", "movie"),
        ("movie", "cite", "movie"),
        ("movie", "ref", "movie"),
        ("movie", "to", "keyword"),
        ("keyword", "rev_to", "movie"),
    }
    assert pairs(data, "movie", "to", "actor") == [[0, 0], [1, 0], [1, 1]]
    assert pairs(data, "actor", "to", "movie") == [[0, 0], [0, 1], [1, 1]]
    assert pairs(data, "movie", "cite", "movie") == [[0, 1]]
    assert pairs(data, "movie", "ref", "movie") == [[1, 0]]
    assert pairs(data, "movie", "to", "keyword") == [[0, 0], [2, 0], [2, 0]]
    assert pairs(data, "keyword", "rev_to", "movie") == [[0, 0], [0, 2], [0, 2]]
    assert all(links.dtype == torch.int64 for links in data.links.values())

    assert data.labels == ["Romance", "Drama"]
    assert data.y.dtype == torch.float32
    assert data.y.tolist() == [[1, 1], [0, 1], [0, 1], [1, 0], [0, 0]]
    assert data.split.test.tolist() == [False, False, True, False, False]
    assert data.split.labelled.tolist() == [True, True, False, True, False]
    assert int(data.split.val.sum()) == 1


@given(
    names=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n")),
        min_size=3,
        max_size=3,
    )
)
@example(names=["'=x", '"', "#\r"])
def test_names_are_what_the_file_has(names):
    info = {
        "node.dat": {"node type": {"0": "a", "1": "b"}},
        "link.dat": {"link type": {"0": {"start": 0, "end": 1, "meaning": "a-b"}}},
        "label.dat": {"node type": {"0": {"0": "u", "1": "v"}}},
    }
    files = {
        "info.dat": json.dumps(info),
        "node.dat": "".join(f"{i}\t{name}\t{i // 2}\n" for i, name in enumerate(names)),
        "link.dat": "0\t2\t0\t1\n",
        "label.dat": f"0\t{names[0]}\t0\t1\n",
        "label.dat.test": f"1\t{names[1]}\t0\t0\n",
    }
    graph = parse({name: text.encode() for name, text in files.items()}, "test")
    assert [*graph.nodes["a"].names, *graph.nodes["b"].names] == names
    assert graph.y.tolist() == [1, 0]


def test_single_label(root, folder):
    (folder / "label.dat").write_text("0\tM_0\t0\t0\n2\t\t0\t1\n")
    data = load_hgb("IMDB", root, source=folder)
    assert data.multilabel is False
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == [0, 1, 1, -1, -1]


def test_seed_decides_the_split_without_parsing(root, folder, monkeypatch):
    lines = "".join(f"{i}\tM\t0\t1,1,1\n" for i in range(8, 200))
    labels = "".join(f"{i}\tM\t0\t{i % 2}\n" for i in range(8, 200))
    (folder / "node.dat").write_text(TINY["node.dat"] + lines)
    (folder / "label.dat").write_text(TINY["label.dat"] + labels)
    first = load_hgb("IMDB", root, source=folder).split
    monkeypatch.setattr(hgb, "parse", None)
    same = load_hgb("IMDB", root, source=folder).split
    other = load_hgb("IMDB", root, source=folder, seed=1).split
    for split in (first, other):
        assert torch.stack(split).int().sum(0).max() == 1
        assert int(split.val.sum()) == 39  # 20 % of 195, rounded up
    assert torch.equal(first.val, same.val)
    assert not torch.equal(first.val, other.val)
    assert torch.equal(first.test, other.test)


@pytest.mark.parametrize(
    ("meanings", "names"),
    [
        (["BOOK-to-FILM"], ["to"]),
        (["BOOK->cites->FILM", "BOOK-FILM"], ["cites", "link1"]),
        (["BOOK-on-FILM", "BOOK_on_FILM", "BOOK"], ["on", "link1", "link2"]),
    ],
)
def test_relation_names(root, tmp_path, meanings, names):
    files = TINY | {
        "info.dat": info(["BOOK", "FILM"], [(0, 1, meaning) for meaning in meanings], ["a", "b"]),
        "node.dat": "0\t\t0\n1\t\t1\n2\t\t0\n",
        "link.dat": "0\t1\t0\t1\n",
        "label.dat": "0\t\t0\t1\n",
        "label.dat.test": "2\t\t0\t1\n",
    }
    data = load_hgb("IMDB", root, source=write_folder(tmp_path / "source", files))
    forward = [("BOOK", name, "FILM") for name in names]
    assert set(data.edge_types) == {
        *forward,
        *(("FILM", f"rev_{name}", "BOOK") for name in names),
    }


def line(file, number, text):
    """Puts `text` in place of a line."""
    lines = TINY[file].split("\n")
    lines[number - 1] = text
    return file, "\n".join(lines)


WRONG = [  # one for each check
    line("node.dat", 4, "3\tA1"),
    line("node.dat", 4, "1\tA1\t1\t1,2"),
    line("node.dat", 4, "3\tA1\t7\t1,2"),
    line("node.dat", 4, "3\tA1\t1\t1"),
    line("node.dat", 4, "3\tA1\t1\t1,1e39"),
    line("link.dat", 2, "2\t99\t0\t1"),
    line("link.dat", 2, "2\t1\t5\t1"),
    line("link.dat", 2, "1\t2\t0\t1"),
    ("link.dat", ""),
    line("label.dat", 1, "1\tA\t1\t1"),
    line("label.dat", 1, "0\tM_0\t0\t1,2"),
    line("label.dat", 2, "0\tM_0\t0\t1"),
    ("label.dat.test", "0\tM_0\t0\t1\n"),
    ("info.dat", "[" * 10**6),
    ("info.dat", info(["movie"], [], [])),
    ("info.dat", info("aa", [(0, 1, "x")], "l")),
]


@pytest.mark.parametrize(("file", "text"), WRONG)
def test_malformed_text(root, tmp_path, file, text):
    """The message is one line with the place and the file."""
    folder = write_folder(tmp_path / "IMDB", TINY | {file: text})
    with pytest.raises(HanmeError, match=f"^IMDB: {file}: [^\n]*$"):
        load_hgb("IMDB", root, source=folder)
    assert not root.exists()


def test_archive_bombs_are_refused_before_they_are_unpacked(root, tmp_path, monkeypatch):
    zeros = TINY | {"node.dat": "0\tM\t0\t" + "0," * 5_000_000 + "0"}
    with pytest.raises(HanmeError, match=r"IMDB\.zip: node\.dat unpacks from"):
        load_hgb("IMDB", root, source=write_archive(tmp_path / "IMDB.zip", zeros))
    monkeypatch.setattr(hgb_files, "MAX_BYTES", 100)
    with pytest.raises(HanmeError, match=r"IMDB\.zip: info\.dat unpacks from"):
        load_hgb("IMDB", root, source=write_archive(tmp_path / "IMDB.zip", TINY))


def test_missing_file(root, tmp_path):
    files = {name: text for name, text in TINY.items() if name != "label.dat"}
    both = files | {"a/label.dat": "", "b/label.dat": ""}
    folder = write_folder(tmp_path / "IMDB", files)
    with pytest.raises(HanmeError, match=r"IMDB cannot be read.*label\.dat"):
        hgb_files.read_files(folder, "IMDB")
    for wrong in (files, both):
        with pytest.raises(HanmeError, match=r"IMDB\.zip: [02] files label\.dat"):
            load_hgb("IMDB", root, source=write_archive(tmp_path / "IMDB.zip", wrong))


def test_damaged_archives(root, tmp_path):
    path = write_archive(tmp_path / "IMDB.zip", TINY, method=zipfile.ZIP_STORED)
    intact = path.read_bytes()
    changed = intact.replace(b"1.5,0,0.0", b"2.5,0,0.0")  # well-formed, but not its checksum
    for content in (b"", intact[: len(intact) // 2], intact[:-10], b"<html></html>", changed):
        path.write_bytes(content)
        with pytest.raises(HanmeError, match=r"IMDB.zip.* cannot be read"):
            load_hgb("IMDB", root, source=path)


def test_scrambled_labels_are_refused(root, tmp_path):
    files = TINY | {"label.dat.test_full": TINY["label.dat.test"]}
    for source in (
        write_folder(tmp_path / "IMDB", files),
        write_archive(tmp_path / "IMDB.zip", files),
    ):
        with pytest.raises(HanmeError, match=r"label.dat.test_full, .*scrambled"):
            load_hgb("IMDB", root, source=source)


@pytest.mark.parametrize("place", ["", "IMDB", "hgb/IMDB"])
def test_folders(root, tmp_path, monkeypatch, place):
    write_folder(tmp_path / "data" / place, TINY)
    assert load_hgb("IMDB", root, source=tmp_path / "data").nodes["movie"].num_nodes == 5
    monkeypatch.setenv("HANME_DATA", str(tmp_path / "data"))
    assert load_hgb("IMDB", root).nodes["movie"].num_nodes == 5


@pytest.mark.parametrize(
    ("place", "prefix"), [("", ""), ("IMDB.zip", "IMDB/"), ("hgb/IMDB.zip", "some/where/")]
)
def test_archives(root, tmp_path, place, prefix):
    write_archive(tmp_path / "data" / (place or "mine.zip"), TINY, prefix)
    source = tmp_path / "data" / ("" if place else "mine.zip")
    assert load_hgb("IMDB", root, source=source).nodes["movie"].num_nodes == 5


def test_source_without_the_graph(root, tmp_path):
    write_archive(tmp_path / "IMDB.zip", TINY)
    for source in (tmp_path, tmp_path / "none", tmp_path / "IMDB.zip"):
        with pytest.raises(HanmeError, match=r"nothing found for ACM; looked for .*ACM.zip"):
            load_hgb("ACM", root, source=source)


def test_carriage_returns(root, tmp_path):
    windows = {name: text.replace("\n", "\r\n") for name, text in TINY.items()}
    data = load_hgb("IMDB", root / "a", source=write_folder(tmp_path / "windows", windows))
    other = load_hgb("IMDB", root / "b", source=write_folder(tmp_path / "unix", TINY))
    same(data, other)


def same(data, other):
    assert data.metadata() == other.metadata()
    assert data.target == other.target
    for kind, nodes in data.nodes.items():
        assert list(nodes.names) == list(other.nodes[kind].names)
        assert (nodes.x is None) == (other.nodes[kind].x is None)
    for kind, x in data.x_dict.items():
        assert torch.equal(x.to_dense(), other.nodes[kind].x.to_dense())
    for relation, links in data.links.items():
        assert torch.equal(links, other.links[relation])
    assert torch.equal(data.y, other.y)
    assert all(torch.equal(a, b) for a, b in zip(data.split, other.split, strict=True))
    assert data.labels == other.labels


@contextmanager
def serve(content, monkeypatch, status=200, declared=None):
    """Serves `content` for any address, from this machine to this machine."""

    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(declared or len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("HANME_HGB_URL", f"http://127.0.0.1:{server.server_port}/{{name}}.zip")
        try:
            yield asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def archived(tmp_path, monkeypatch):
    path = write_archive(tmp_path / "served" / "ACM.zip", TINY)
    content = {name: text.encode() for name, text in TINY.items()}
    digest = hashlib.sha256(b"".join(content[file] for file in FILES)).hexdigest()
    monkeypatch.setitem(hgb_files.SHA256, "ACM", digest)
    return path.read_bytes()


def test_download(root, archived, monkeypatch):
    with serve(archived, monkeypatch) as asked:
        first = load_hgb("ACM", root)
        again = load_hgb("ACM", root)
        assert asked == ["/ACM.zip"]
    same(first, again)


@pytest.mark.parametrize(
    ("name", "reply", "message"),
    [
        ("ACM", lambda whole: {"content": b"gone", "status": 404}, "HTTP Error 404"),
        ("ACM", lambda whole: {"content": whole[:100], "declared": len(whole)}, "100 bytes read"),
        ("ACM", lambda whole: {"content": whole[:-50]}, "cannot be read"),
        ("ACM", lambda whole: {"content": b"<html>sign in</html>"}, "cannot be read"),
        ("IMDB", lambda whole: {"content": whole}, "not the benchmark's"),
    ],
)
def test_failed_download_leaves_nothing(root, archived, monkeypatch, name, reply, message):
    with (
        serve(monkeypatch=monkeypatch, **reply(archived)),
        pytest.raises(HanmeError, match=f"{message}.*{name}.zip yourself.*--data") as caught,
    ):
        load_hgb(name, root)
    assert "\n" not in str(caught.value)
    assert not [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/{name}.zip", "nonsense"])
def test_nobody_answers(root, monkeypatch, url):
    monkeypatch.setenv("HANME_HGB_URL", url)
    with pytest.raises(HanmeError, match="ACM could not be downloaded"):
        load_hgb("ACM", root)


@pytest.fixture
def parses(monkeypatch):
    calls = []

    def counting(files, title):
        calls.append(title)
        return parse(files, title)

    monkeypatch.setattr(hgb, "parse", counting)
    return calls


@pytest.mark.parametrize("kind", ["folder", "archive"])
@pytest.mark.parametrize("hashed", [0, 1 << 26])
def test_a_changed_file_is_parsed_again(root, tmp_path, parses, kind, hashed, monkeypatch):
    """Even if its size and its modification time are those of before."""
    monkeypatch.setattr("hanme.data.store.cache.HASHED", hashed)

    def write(files):
        if kind == "folder":
            return write_folder(tmp_path / "IMDB", files) / "label.dat.test", tmp_path / "IMDB"
        path = write_archive(tmp_path / "IMDB.zip", files, method=zipfile.ZIP_STORED)
        return path, path

    path, source = write(TINY | {"label.dat.test": "7\tM2\t0\t1\n"})
    before = path.stat()
    first = load_hgb("IMDB", root, source=source)
    same(first, load_hgb("IMDB", root, source=source))
    assert len(parses) == 1

    write(TINY)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert load_hgb("IMDB", root, source=source).split.test.tolist()[2]
    assert len(parses) == 2


def test_a_damaged_cache_is_rebuilt_silently(root, folder, parses):
    first = load_hgb("IMDB", root, source=folder)
    path = next((root / "hgb").rglob("y.bin"))
    content = path.read_bytes()
    for damaged in (b"", content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        same(first, load_hgb("IMDB", root, source=folder))
        assert path.read_bytes() == content
    assert len(parses) == 3


def test_unwritable_cache_folder(root, folder):
    root.mkdir()
    (root / "hgb").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written"):
        data = load_hgb("IMDB", root, source=folder)
    assert data.nodes["movie"].num_nodes == 5


COUNTS = {
    "IMDB": {
        "nodes": {"movie": 4932, "director": 2393, "actor": 6124, "keyword": 7971},
        "nnz": {"movie": 129975, "director": 29604, "actor": 87936},
        "links": 86642,
        "masks": (1096, 275, 3202),
        "labels": ["Romance", "Thriller", "Comedy", "Action", "Drama"],
    },
    "ACM": {
        "nodes": {"paper": 3025, "author": 5959, "subject": 56, "term": 1902},
        "nnz": {"paper": 255619, "author": 697969, "subject": 26730},
        "links": 547872,
        "masks": (725, 182, 2118),
        "labels": ["database", "wireless communication", "data mining"],
    },
    "DBLP": {
        "nodes": {"author": 4057, "paper": 14328, "term": 7723, "venue": 20},
        "nnz": {"author": 48810, "paper": 95030, "term": 386150},
        "links": 239566,
        "masks": (973, 244, 2840),
        "labels": ["Database", "Data Mining", "AI", "Information Retrieval"],
    },
}


@pytest.fixture(scope="session")
def real(hgb_source, tmp_path_factory):
    root = tmp_path_factory.mktemp("real")
    return lambda name: load_hgb(name, root, source=hgb_source)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(real, name):
    expected = COUNTS[name]
    data = real(name)
    assert data.sizes == expected["nodes"]
    assert {k: data.nodes[k].x.values().numel() for k in expected["nnz"]} == expected["nnz"]
    assert sum(links.size(1) for links in data.links.values()) == expected["links"]
    assert tuple(int(mask.sum()) for mask in data.split) == expected["masks"]
    assert data.labels == expected["labels"]
    assert data.multilabel is (name == "IMDB")
    if name == "ACM":
        assert {("paper", "cite", "paper"), ("paper", "ref", "paper")} < set(data.edge_types)
    assert all(not relation.startswith("rev_") for _, relation, _ in data.edge_types)


@pytest.mark.parametrize("name", COUNTS)
def test_nodes_against_the_text(real, hgb_source, name):
    """A handful of nodes and links, read from the archive by plain Python."""
    data = real(name)
    text = {}
    with zipfile.ZipFile(Path(hgb_source) / "hgb" / f"{name}.zip") as archive:
        for file in FILES[1:]:
            text[file] = archive.read(f"{name}/{file}").decode().splitlines()
    types = list(COUNTS[name]["nodes"])
    first = np.cumsum([0, *COUNTS[name]["nodes"].values()])
    draw = random.Random(0)
    for row in draw.sample(text["node.dat"], 40):
        number, title, kind, *features = row.split("\t")
        kind, local = types[int(kind)], int(number) - first[int(kind)]
        assert data.nodes[kind].names[local] == title
        if features:
            x = [float(value) for value in features[0].split(",")]
            np.testing.assert_array_equal(data.nodes[kind].x[int(local)].to_dense(), np.float32(x))
    links = {r: set(map(tuple, pairs(data, *r))) for r in data.edge_types}
    for row in draw.sample(text["link.dat"], 100):
        start, end, _, _ = row.split("\t")
        s, e = (int(np.searchsorted(first, int(i), side="right")) - 1 for i in (start, end))
        pair = int(start) - first[s], int(end) - first[e]
        relations = [r for r in links if (r[0], r[2]) == (types[s], types[e])]
        assert any(pair in links[r] for r in relations)
    test = data.split.test
    for file, mask in (("label.dat", ~test), ("label.dat.test", test)):
        for row in draw.sample(text[file], 50):
            number, _, _, labels = row.split("\t")
            y = data.y[int(number)]
            found = y.nonzero().view(-1).tolist() if data.multilabel else [int(y)]
            assert found == sorted(map(int, labels.split(",")))
            assert mask[int(number)]


def test_scrambled_real_labels(root, tmp_path, hgb_source):
    """The whole test set with other labels is what the scrambled file looks like."""
    with zipfile.ZipFile(Path(hgb_source) / "hgb" / "ACM.zip") as archive:
        files = {file: archive.read(f"ACM/{file}") for file in FILES}
    rows = [row.rsplit(b"\t", 1) for row in files["label.dat.test"].splitlines()]
    labels = [label for _, label in rows]
    random.Random(0).shuffle(labels)
    shuffled = zip((row for row, _ in rows), labels, strict=True)
    files["label.dat.test"] = b"".join(row + b"\t" + label + b"\n" for row, label in shuffled)
    with pytest.raises(HanmeError, match=r"ACM: not the benchmark.*scrambled"):
        load_hgb("ACM", root, source=write_folder(tmp_path / "ACM", files))
