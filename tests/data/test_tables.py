"""Graphs from tables: what comes out, against what was written into the files."""

import copy
import csv
import glob
import gzip
import json
import os
import shutil
import tracemalloc
import unicodedata
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import StandardScaler

from hanme import Graph
from hanme.data import known_name, load, planted
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.graph import GraphSource
from hanme.data.tables.build.load import load_tables
from hanme.data.tables.read.discover import find_tables
from hanme.data.tables.schema.config import schema
from hanme.errors import HanmeError
from hanme.graph import display
from hanme.graph.features import feature_names

ROOT = Path(__file__).parents[2]
FILMS = ROOT / "examples" / "films"

GRAPH = """
target = "film"

[nodes.film]
table = "films.csv"
id = "film_id"
name = "title"
label = "genre"

[nodes.film.features]
year = "number"
country = "category"
plot = {kind = "text", size = 30}

[nodes.person]
table = "people.csv"
id = "person_id"
name = "name"

[relations.directed]
query = "SELECT film_id, person_id FROM 'roles.csv' WHERE job = 'director'"
source = {type = "film", column = "film_id"}
target = {type = "person", column = "person_id"}
reverse = "directed_by"

[relations.played]
query = "SELECT film_id, person_id FROM 'roles.csv' WHERE job = 'actor'"
source = {type = "film", column = "film_id"}
target = {type = "person", column = "person_id"}
"""


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.fixture
def films(tmp_path: Path) -> Path:
    folder = tmp_path / "films"
    shutil.copytree(FILMS, folder)
    (folder / "graph.toml").write_text(GRAPH)
    return folder


def write(folder: Path, graph: str, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.toml").write_text(graph)
    for name, text in files.items():
        (folder / name.replace("_csv", ".csv")).write_text(text)
    return folder


def test_what_is_in_the_files_is_in_the_graph(films: Path) -> None:
    data = load_tables(films)
    given = rows(films / "films.csv")
    film, person = data.nodes["film"], data.nodes["person"]
    assert list(film.ids) == [row["film_id"] for row in given]
    assert list(film.names) == [row["title"] for row in given]
    assert data.labels == sorted({row["genre"] for row in given} - {""})
    names = [data.labels[y] if y >= 0 else "" for y in data.y.tolist()]
    assert names == [row["genre"] for row in given]

    for relation, job in (("directed", "director"), ("played", "actor")):
        links = data.links["film", relation, "person"].t().tolist()
        expected = [(r["film_id"], r["person_id"]) for r in rows(films / "roles.csv")
                    if r["job"] == job]  # fmt: skip
        assert sorted((film.ids[i], person.ids[j]) for i, j in links) == sorted(expected)
    there = data.links["film", "directed", "person"].t().tolist()
    back = data.links["person", "directed_by", "film"].flip(0).t().tolist()
    assert sorted(there) == sorted(back)
    assert ("person", "rev_played", "film") in data.edge_types
    assert data.target == "film"
    assert data.multilabel is False


def test_features_against_scikit_learn(films: Path) -> None:
    data = load_tables(films)
    given = rows(films / "films.csv")
    x = data.nodes["film"].x.to_dense().numpy()
    assert data.nodes["film"].x.layout == torch.sparse_csr
    assert data.nodes["film"].x.dtype == torch.float32

    years = np.array([float(row["year"] or "nan") for row in given])[:, None]
    expected = np.nan_to_num(StandardScaler().fit_transform(years))
    np.testing.assert_allclose(x[:, :1], expected, atol=1e-6)

    countries = [row["country"] for row in given]
    order = [c for c, _ in sorted(Counter(countries).items(), key=lambda item: (-item[1], item[0]))]
    onehot = np.array([[c == country for country in order] for c in countries])
    np.testing.assert_array_equal(x[:, 1:5], onehot)

    words = data.provenance.fitted["features"]["film"]["plot"]["words"]
    assert len(words) == 30
    vectors = TfidfVectorizer(vocabulary=words, token_pattern=r"\w+")
    expected = vectors.fit_transform(row["plot"] for row in given).toarray()
    np.testing.assert_allclose(x[:, 5:], expected, atol=1e-6)
    seen = Counter(w for row in given for w in set(row["plot"].lower().strip(".").split()))
    assert max(seen[w] for w in words) <= len(given) / 2
    left_out = [n for w, n in seen.items() if w not in words and n <= len(given) / 2]
    assert min(seen[w] for w in words) >= max(left_out)


def test_a_vocabulary_grows_with_the_texts(films: Path) -> None:
    (films / "graph.toml").write_text(GRAPH.replace('{kind = "text", size = 30}', '"text"'))
    words = load_tables(films).provenance.fitted["features"]["film"]["plot"]["words"]
    texts = [row["plot"] for row in rows(films / "films.csv")]
    seen = Counter(w for text in texts for w in set(text.lower().strip(".").split()))
    assert set(words) == {w for w, n in seen.items() if 2 <= n <= len(texts) / 2}
    many = "id,plot,y\n" + "".join(
        f"{i},w{i % 3000} v{i % 2999},{'ab'[i % 2]}\n" for i in range(8000)
    )
    graph = SMALL.split("[nodes.b]")[0] + 'features = {plot = "text"}\n'
    fitted = load_tables(write(films / "many", graph, a_csv=many)).provenance.fitted
    assert len(fitted["features"]["a"]["plot"]["words"]) == 2000


def test_many_numbers_have_knots_and_empty_cells_a_feature(tmp_path: Path) -> None:
    given = np.random.default_rng(0).normal(size=600).round(3)
    lines = [f"{i},{'uv'[int(abs(n) > 0.7)]},{n if i % 50 else ''}\n" for i, n in enumerate(given)]
    graph = SMALL.replace("[nodes.b]", 'keep = ["n"]\nfeatures = {n = "number"}\n[nodes.b]')
    data = load_tables(write(tmp_path, graph, a_csv="id,y,n\n" + "".join(lines), b_csv=B, r_csv=R))
    x = data.nodes["a"].x.to_dense().numpy()
    knots = data.provenance.fitted["features"]["a"]["n"]["knots"]
    empty = np.arange(600) % 50 == 0
    assert len(knots) == 5
    assert set(knots) <= set(given[~empty])
    spline = np.stack([np.interp(given, knots, hat) for hat in np.eye(5)], 1)
    np.testing.assert_allclose(x[:, 1:6], np.where(empty[:, None], 0, spline), atol=1e-6)
    np.testing.assert_array_equal(x[:, 6], empty)
    names = feature_names(data, "a")
    assert (names[0], names[1], names[-1]) == ("n", f"n near {knots[0]:g}", "n empty")


@pytest.mark.parametrize("count", [19, 20])
def test_empty_cells_of_a_small_table_have_a_feature(tmp_path: Path, count: int) -> None:
    lines = [f"{i},{'uv'[i % 2]},{i if i >= count else ''}\n" for i in range(40)]
    graph = SMALL.replace("[nodes.b]", 'keep = ["n"]\nfeatures = {n = "number"}\n[nodes.b]')
    data = load_tables(write(tmp_path, graph, a_csv="id,y,n\n" + "".join(lines), b_csv=B, r_csv=R))
    assert feature_names(data, "a") == (["n", "n empty"] if count == 20 else ["n"])


@pytest.mark.parametrize("text", ["soon", "1e39", "-3.5e38"])  # float32 ends at 3.4e38
@pytest.mark.parametrize("junk", [1, 2])
def test_a_few_cells_of_a_column_of_numbers_may_be_junk(
    junk: int, text: str, tmp_path: Path
) -> None:
    cells = [text] * junk + [str(i) for i in range(110 - junk)] + [""] * 9
    lines = [f"{i},{'uv'[i % 2]},{cell}\n" for i, cell in enumerate(cells)]
    graph = SMALL.replace("[nodes.b]", 'features = {n = "number"}\n[nodes.b]')
    folder = write(tmp_path, graph, a_csv="id,y,n\n" + "".join(lines), b_csv=B, r_csv=R)
    if junk > 1:
        with pytest.raises(HanmeError, match=rf"a\.csv row 1, column n: '{text}' is not a finite"):
            load_tables(folder)
        return
    data = load_tables(folder)
    assert (
        f"a.csv, column n: 1 of 110 cells count as empty, such as '{text}', which is not a finite "
        "number in float32"
    ) in data.provenance.notes
    n = data.nodes["a"].x.to_dense()[:, 0]
    assert n[[0, *range(110, 119)]].tolist() == [0] * 10
    assert data.provenance.fitted["features"]["a"]["n"]["mean"] == 54


def test_a_constant_column_is_zero_for_later_rows_too(tmp_path: Path) -> None:
    """The standard deviation of equal numbers is a rounding error, as that of forty 0.1."""
    graph = SMALL.replace("[nodes.b]", 'features = {n = "number", v = "vector"}\n[nodes.b]')
    lines = [f"{i},{'uv'[i % 2]},0.1,0.1 {i % 2} 3.3e38" for i in range(40)]

    def written(*more: str) -> Path:
        a = "\n".join(["id,y,n,v", *lines, *more]) + "\n"
        return write(tmp_path, graph, a_csv=a, b_csv=B, r_csv=R)

    trained = load_tables(written())
    assert np.unique(trained.nodes["a"].x.to_dense()).tolist() == [-1, 0, 1]
    learnt = copy.deepcopy(trained.provenance.fitted)
    learnt["features"]["a"]["n"]["std"] = 1.4e-17  # as a run of 0.3.0 has it
    fitted = FittedGraph.make(learnt, "test")
    later = load_tables(written("40,u,0.2,0.2 1 -3.3e38"), fitted=fitted)
    assert later.nodes["a"].x.to_dense()[40].tolist() == [0, 0, 1, 0]
    with pytest.raises(HanmeError, match=r"a\.csv row 41, column v: 1e\+38 is too far from"):
        load_tables(written("40,u,0.2,0.2 1e38 0"), fitted=fitted)
    with pytest.raises(HanmeError, match=r"a\.csv row 41, column v: not all are finite numbers"):
        load_tables(written("40,u,0.2,0.2 1 1e150"))


def test_types_without_features_get_the_mean_and_given_ones_are_kept(films: Path) -> None:
    data = load_tables(films)
    assert data.nodes["person"].x.shape == (60, data.nodes["film"].x.size(1))
    text = (films / "graph.toml").read_text()
    (films / "graph.toml").write_text(
        text.replace('name = "name"\n', 'name = "name"\nfeatures = {born = "number"}\n')
    )
    assert load_tables(films).nodes["person"].x.shape == (60, 1)
    assert load_tables(films, features="mean").nodes["person"].x.shape == (
        60,
        data.nodes["film"].x.size(1),
    )


def test_the_split_is_stratified_and_by_seed(films: Path) -> None:
    data = load_tables(films, seed=1)
    masks = torch.stack(data.split)
    assert torch.equal(masks.sum(0), (data.y >= 0).long())
    for label in range(3):
        share = masks[:, data.y == label].float().mean(1)
        np.testing.assert_allclose(share, [0.6, 0.2, 0.2], atol=0.07)
    assert torch.equal(load_tables(films, seed=1).split.val, data.split.val)
    assert not torch.equal(load_tables(films, seed=2).split.val, data.split.val)


SMALL = """
target = "a"
[nodes.a]
table = "a.csv"
id = "id"
label = "y"
[nodes.b]
table = "b.csv"
id = "id"
[relations.r]
table = "r.csv"
source = {type = "a", column = "a"}
target = {type = "b", column = "b"}
"""
A = "id,y\n1,u\n2,v\n3,u\n4,v\n5,\n"
B = "id\nx\ny\n"
R = "a,b\n1,x\n2,x\n3,y\n4,y\n5,x\n"


def test_several_labels_per_node_and_a_list_of_features(tmp_path: Path) -> None:
    graph = SMALL.replace(
        'label = "y"', 'label = "y"\nlabel_separator = "|"\n'
        'features = {t = {kind = "list", separator = ";", size = 2}}'
    )  # fmt: skip
    a = "id,y,t\n1,u|v,p; q\n2,v,p;r\n3, u ,\n4,|v|,q;p;p\n5,,z\n"
    data = load_tables(write(tmp_path, graph, a_csv=a, b_csv=B, r_csv=R))
    assert data.multilabel
    assert data.labels == ["u", "v"]
    assert data.y.tolist() == [[1, 1], [0, 1], [1, 0], [0, 1], [0, 0]]
    assert data.nodes["a"].x.to_dense().tolist() == [[1, 1], [1, 0], [0, 0], [1, 1], [0, 0]]
    assert data.provenance.fitted["features"]["a"]["t"]["values"] == ["p", "q"]
    assert torch.stack(data.split).sum(0).tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("kind", ["category", "list", "text"])
def test_a_column_of_empty_cells_has_no_features(kind: str, tmp_path: Path) -> None:
    b = "id,c\nx,\ny,\n"
    empty = SMALL.replace('"b.csv"\nid = "id"', f'"b.csv"\nid = "id"\nfeatures = {{c = "{kind}"}}')
    graph = empty.replace('label = "y"', 'label = "y"\nfeatures = {n = "number", c = "category"}')
    a = "id,y,n,c\n1,u,1,\n2,v,2,\n3,u,3,\n4,v,4,\n5,,5,\n"
    data = load_tables(write(tmp_path / "mean", graph, a_csv=a, b_csv=b, r_csv=R))
    assert data.nodes["a"].x.shape == (5, 1)  # the number alone
    n = data.nodes["a"].x.to_dense()[:, 0]
    mean = torch.stack([n[[0, 1, 4]].mean(), n[[2, 3]].mean()])  # of the neighbours
    torch.testing.assert_close(data.nodes["b"].x.to_dense()[:, 0], mean)
    data = load_tables(write(tmp_path / "ids", empty, a_csv=A, b_csv=b, r_csv=R))
    assert data.nodes["b"].x.to_dense().tolist() == [[1, 0], [0, 1]]  # no features anywhere


def test_a_split_column(tmp_path: Path) -> None:
    a = "id,y,part\n1,u,train\n2,v,train\n3,u,val\n4,v,\n5,u,test\n6,,\n"
    graph = SMALL.replace('label = "y"', 'label = "y"\nsplit = "part"')
    data = load_tables(write(tmp_path, graph, a_csv=a, b_csv=B, r_csv=R))
    assert data.split.train.tolist() == [True, True, False, False, False, False]
    assert data.split.val.tolist() == [False, False, True, False, False, False]
    assert data.split.test.tolist() == [False, False, False, False, True, False]
    assert data.y.tolist() == [0, 1, 0, 1, 0, -1]


def test_unknown_links_are_counted(tmp_path: Path) -> None:
    graph = SMALL + 'unknown = "drop"\n'
    r = "a,b\n1,x\n3,z\n9,y\n,y\n4,y\n"
    data = load_tables(write(tmp_path, graph, a_csv=A, b_csv=B, r_csv=r))
    assert data.links["a", "r", "b"].tolist() == [[0, 3], [0, 1]]
    assert data.provenance.dropped_links == {"r": 3}


@pytest.mark.parametrize(("left", "right"), [(" ", ""), ("", " "), ("  ", " ")])
def test_blanks_around_ids_count_on_neither_side_of_a_link(
    left: str, right: str, tmp_path: Path
) -> None:
    graph = SMALL + '[relations.c]\ncolumns = ["likes"]\nseparator = "|"\ntype = "b"\n'
    a = "id,y,likes\n" + "".join(f"{left}{i},{'uv'[i % 2]},x{right}|{right}y\n" for i in range(4))
    r = f"a,b\n1{right},x{right}\n{right}2,{right}y\n"
    b = f"id\nx{left}\n{left}y\n"
    data = load_tables(write(tmp_path, graph, a_csv=a, b_csv=b, r_csv=r))
    assert list(data.nodes["a"].ids) == ["0", "1", "2", "3"]
    assert data.links["a", "r", "b"].tolist() == [[1, 2], [0, 1]]
    assert data.links["a", "c", "b"].tolist() == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4]


BLANKS = "".join(c for c in map(chr, range(0x3001)) if unicodedata.category(c) == "Zs")
ID = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.strip(BLANKS))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(more=st.lists(ID.filter(bool), min_size=4, max_size=50))
def test_ids_are_what_the_file_has(more: list[str], tmp_path: Path) -> None:
    ids = ["'=x", "=x", "a\nb", "a\rb", 'a"b', "a,b", "#x", "1.0", "01", "1", "\ufeffx", "\0"]
    ids = list(dict.fromkeys([*ids, *more]))
    graph = SMALL.split("[nodes.b]")[0] + '[relations]\nr = {columns = ["up"], type = "a"}\n'
    with (write(tmp_path, graph) / "a.csv").open("w", newline="", encoding="utf-8") as file:
        lines = [[id_, "uv"[i % 2], ids[(i + 1) % len(ids)]] for i, id_ in enumerate(ids)]
        csv.writer(file).writerows([["id", "y", "up"], *lines])
    found = load_tables(tmp_path)
    assert list(found.nodes["a"].ids) == ids
    assert found.links["a", "r", "a"].tolist() == [[*range(len(ids))], [*range(1, len(ids)), 0]]


def test_a_type_may_link_to_itself_and_to_another_twice(tmp_path: Path) -> None:
    end = '{type = "a", column = "a"}'
    graph = (
        SMALL
        + f"""
[relations.s]
table = "r.csv"
source = {end}
target = {{type = "b", column = "b"}}
[relations.cites]
table = "c.csv"
source = {end}
target = {{type = "a", column = "b"}}
"""
    )
    folder = write(tmp_path, graph, a_csv=A, b_csv=B, r_csv=R, c_csv="a,b\n1,2\n1,1\n")
    data = load_tables(folder)
    assert data.links["a", "cites", "a"].tolist() == [[0, 0], [0, 1]]
    assert data.links["a", "rev_cites", "a"].tolist() == [[0, 1], [0, 0]]
    assert data.metapaths == [
        "a-r:b-rev_r:a", "a-s:b-rev_s:a", "a-cites:a", "a-rev_cites:a"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "form", ["tsv", "parquet", "jsonl", "json", "csv.gz", "glob", "latin", "semi"]
)
def test_every_format_gives_the_same_graph(form: str, tmp_path: Path) -> None:
    header, a = "id,y,n,t", [("1", "ü", "1.5", "p|q"), ("2", "v", "", "q"), ("3", "ü", "-2", ""),
                             ("4", "v, w", "1e3", "p")]  # fmt: skip
    features = 'features = {n = "number", t = "list"}'
    graph = SMALL.replace('label = "y"', f'label = "y"\n{features}')

    def text(delimiter: str, chosen: list[tuple[str, ...]] = a) -> str:
        lines = [header.replace(",", delimiter)]
        lines += [delimiter.join(f'"{c}"' if "," in c else c for c in row) for row in chosen]
        return "\n".join(lines) + "\n"

    plain = load_tables(write(tmp_path / "plain", graph, a_csv=text(","), b_csv=B, r_csv=R[:-4]))
    folder = write(tmp_path / form, graph, b_csv=B, r_csv=R[:-4])
    (folder / "a.csv").write_text(text(","))
    table = f'"a.{form}"'
    select = (
        f"SELECT CAST(id AS INTEGER) AS id, y, CAST(n AS DOUBLE) AS n, string_split(t, '|') AS t "
        f"FROM read_csv('{folder / 'a.csv'}', all_varchar = true)"
    )
    if form == "tsv":
        (folder / "a.tsv").write_text(text("\t"))
    elif form == "parquet":
        duckdb.sql(select).write_parquet(str(folder / "a.parquet"))
    elif form in ("json", "jsonl"):
        array = "true" if form == "json" else "false"
        duckdb.sql(f"COPY ({select}) TO '{folder / f'a.{form}'}' (FORMAT json, ARRAY {array})")
    elif form == "csv.gz":
        (folder / "a.csv.gz").write_bytes(gzip.compress(text(",").encode()))
    elif form == "glob":
        (folder / "part").mkdir()
        (folder / "part" / "1.csv").write_text(text(",", a[:1]))
        (folder / "part" / "2.csv").write_text(text(",", a[1:]))
        table = '"part/*.csv"'
    elif form == "latin":
        (folder / "a2.csv").write_bytes(text(",").encode("latin-1"))
        table = '"a2.csv"\nencoding = "latin-1"'
    elif form == "semi":
        (folder / "a3.csv").write_text(text(";"))
        table = '"a3.csv"\nseparator = ";"'
    (folder / "graph.toml").write_text(graph.replace('"a.csv"', table))
    data = load_tables(folder)
    assert list(data.nodes["a"].ids) == list(plain.nodes["a"].ids) == ["1", "2", "3", "4"]
    assert data.labels == plain.labels == ["v", "v, w", "ü"]
    assert torch.equal(data.y, plain.y)
    torch.testing.assert_close(data.nodes["a"].x.to_dense(), plain.nodes["a"].x.to_dense())
    assert data.links["a", "r", "b"].tolist() == plain.links["a", "r", "b"].tolist()


@pytest.mark.parametrize("table", ["a.csv", "a.tsv", "a.json"])
def test_comments_above_a_header_and_records_under_a_key(table: str, tmp_path: Path) -> None:
    graph = SMALL.replace('"a.csv"', f'"{table}"') + '[split]\nval = "n = 3"\n'
    rows = [dict(zip(("id", "y", "n"), row, strict=True)) for row in
            ((1, "u", 1.50), (2, "v", 2), (3, "u", 3), (4, "v", 4))]  # fmt: skip
    lines = [
        "# made by hand, 2024",
        "##",
        "id,y,n",
        *(",".join(map(str, r.values())) for r in rows),
    ]
    text = json.dumps({"meta": {"pages": 1}, "data": rows})
    if table != "a.json":
        text = "\n".join(lines).replace(",", "\t" if table == "a.tsv" else ",") + "\n"
    write(tmp_path, graph, b_csv=B, r_csv="a,b\n1,x\n2,y\n")
    (tmp_path / table).write_text(text)
    data = load_tables(tmp_path)
    assert list(data.nodes["a"].ids) == ["1", "2", "3", "4"]
    assert data.y.tolist() == [0, 1, 0, 1]
    assert data.split.val.tolist() == [False, False, True, False]


def test_records_under_several_keys(tmp_path: Path) -> None:
    write(tmp_path, SMALL.replace('"a.csv"', '"a.json"'), b_csv=B, r_csv=R)
    (tmp_path / "a.json").write_text('{"old": [{"id": 1}], "new": [{"id": 2}]}')
    with pytest.raises(HanmeError, match=r"a\.json: rows under several keys, old, new; choose one"):
        load_tables(tmp_path)


def test_a_query_leaves_ids_as_they_are_written(tmp_path: Path) -> None:
    ids = ["7", "007", "01/02/2020", "2020-01-02", "true", "0x1", "1e3", "7 a"]
    links = [f"{a},x,{i / 4}" for i, a in enumerate(["7"] * 30_000 + ids)]
    graph = SMALL.replace(
        'table = "r.csv"', "query = \"SELECT DISTINCT a, b FROM 'r.csv' WHERE w >= 7000\""
    )
    a = "id,y\n" + "".join(f"{a},{'uv'[i % 2]}\n" for i, a in enumerate(ids))
    r = "a,b,w\n" + "\n".join(links) + "\n"
    data = load_tables(write(tmp_path, graph, a_csv=a, b_csv=B, r_csv=r))
    assert sorted(data.links["a", "r", "b"][0].tolist()) == list(range(len(ids)))


def test_a_query_reads_as_the_table_would_be(tmp_path: Path) -> None:
    graph = SMALL.replace(
        'table = "r.csv"',
        'query = "SELECT a, b FROM \'r.csv\'"\nseparator = "#"\nencoding = "latin-1"',
    )
    folder = write(tmp_path, graph, a_csv=A, b_csv="id\nü\n")
    (folder / "r.csv").write_bytes("a#b\n1#ü\n2#ü\n".encode("latin-1"))
    assert load_tables(folder).links["a", "r", "b"].tolist() == [[0, 1], [0, 0]]


def test_a_query_reads_what_it_names_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "secret.csv").write_text("id\nx\n")
    folder = write(tmp_path / "in", SMALL, a_csv=A, b_csv=B, r_csv=R)
    elsewhere = tmp_path / "elsewhere"  # a file of the same name where the command is started
    write(elsewhere, SMALL, b_csv="id\nwrong\n")
    monkeypatch.chdir(elsewhere)

    def query(text: str) -> None:
        quoted = json.dumps(text)
        (folder / "graph.toml").write_text(SMALL.replace('table = "b.csv"', f"query = {quoted}"))

    for text in (
        "SELECT * FROM 'b.csv'",
        "FROM 'b.csv';",
        "WITH t AS (SELECT * FROM \"b.csv\") SELECT id FROM t -- 'secret.csv'",
        "SELECT * FROM 'b*.csv' WHERE 'b.csv' = 'b.csv'",
        "SELECT unnest(string_split('x.y', '.')) AS id",
    ):
        query(text)
        assert list(load_tables(folder).nodes["b"].ids) == ["x", "y"]
    for text, message in (
        ("COPY (SELECT 1) TO 'out.csv'", "one SELECT"),
        ("SELECT 1 AS id; SELECT 2 AS id", "one SELECT"),
        ("INSTALL httpfs", "one SELECT"),
        ("SELECT * FROM read_csv('/etc/' || 'passwd')", "only the files that it names"),
        ("SELECT * FROM glob('/etc/*')", "only the files that it names"),
        ("SELECT * FROM read_text('/proc/self' || '/environ')", "only the files that it names"),
        ("SELECT * FROM 'nowhere.csv'", "nodes.b query: .* only the files that it names"),
        ("SELECT * FROM read_csv('../secret.csv')", "nodes.b: .* is outside of"),
        ("SELECT * FROM folder", "nodes.b query"),
        ("SELEC", "nodes.b query"),
    ):
        query(text)
        with pytest.raises(HanmeError, match=message):
            load_tables(folder)
    assert not list(tmp_path.rglob("out.csv"))


def test_the_cache_notices_a_change(films: Path, tmp_path: Path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    first = load_tables(films, cache=cache)
    (kept,) = (cache / "tables").glob("*/*-given-0")
    with monkeypatch.context() as patch:
        patch.setattr(GraphSource, "store", lambda *_, **__: pytest.fail("done again"))
        again = load_tables(films, cache=cache)
    for kind in ("film", "person"):
        assert torch.equal(first.nodes[kind].x.to_dense(), again.nodes[kind].x.to_dense())
        assert first.nodes[kind].ids == again.nodes[kind].ids
        assert first.nodes[kind].names == again.nodes[kind].names
    assert first.provenance.fitted == again.provenance.fitted
    assert torch.equal(first.split.val, again.split.val)
    for relation in first.edge_types:
        assert torch.equal(first.links[relation], again.links[relation])

    ids = load_tables(films, features="onehot", cache=cache).nodes["person"].x.to_dense()
    assert torch.equal(ids, torch.eye(len(ids)))
    with monkeypatch.context() as patch:  # each choice has a file of its own
        patch.setattr(GraphSource, "store", lambda *_, **__: pytest.fail("read again"))
        for choice in ("given", "onehot"):
            load_tables(films, features=choice, cache=cache)
    manifest = kept / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-9])  # damaged: read again
    assert load_tables(films, cache=cache).nodes["film"].ids == first.nodes["film"].ids
    stat = (films / "roles.csv").stat()
    text = (films / "roles.csv").read_text()
    (films / "roles.csv").write_text(text.replace("f001,p05", "f002,p05"))
    os.utime(films / "roles.csv", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = load_tables(films, cache=cache)
    one = changed.links["film", "directed", "person"]
    assert not torch.equal(one, first.links["film", "directed", "person"])
    (films / "graph.toml").write_text(GRAPH.replace("size = 30", "size = 20"))
    assert (
        load_tables(films, cache=cache).nodes["film"].x.size(1)
        == first.nodes["film"].x.size(1) - 10
    )


def test_what_a_run_has_learnt_is_applied_to_new_rows(films: Path, tmp_path: Path) -> None:
    old = load_tables(films)
    fitted = FittedGraph.make(json.loads(json.dumps(old.provenance.fitted)), "test")
    with (films / "films.csv").open("a") as file:
        file.write("f900,New,2100,Atlantis,story secret wholly unheard words,Drama\n")
        file.write("f901,Newer,,France,,Western\n")
    new = load_tables(films, fitted=fitted)
    assert new.nodes["film"].x.size(1) == old.nodes["film"].x.size(1)
    torch.testing.assert_close(new.nodes["film"].x.to_dense()[:120], old.nodes["film"].x.to_dense())
    fresh = new.nodes["film"].x.to_dense()[120]
    year = fitted.features["film"]["year"]
    assert fresh[0] == pytest.approx((2100 - year.mean) / year.std)
    assert not fresh[1:5].any()  # a country that the run does not know
    assert new.y[-2:].tolist() == [1, -1]  # a label that the run does not know
    assert new.provenance.digest != old.provenance.digest
    graph = (films / "graph.toml").read_text()
    for change, message in (
        (graph.replace('country = "category"\n', ""), "features of film"),
        (graph.replace('year = "number"', 'year = "category"'), "features of film"),
        (graph.replace("relations.played", "relations.acted"), "relations"),
        (graph.replace('"genre"', '"genre"\nlabel_separator = "|"'), "several labels"),
    ):
        (films / "graph.toml").write_text(change)
        with pytest.raises(HanmeError, match=f"schema is not that of the run: {message}"):
            load_tables(films, fitted=fitted)


def test_features_follow_from_what_a_run_has_fitted(tmp_path: Path) -> None:
    features = 'n = "number"\nc = "category"\nt = {kind = "list", separator = "|"}\n'
    features += 'w = {kind = "text", size = 2}\n'
    graph = SMALL.replace("[nodes.b]", f"[nodes.a.features]\n{features}[nodes.b]")
    a = "id,y,n,c,t,w\n1,u,5,q,r|s,Sun sea SUN\n2,v,,p,s|z,sea\n3,u,1,z,,moon\n"
    folder = write(tmp_path, graph, a_csv=a, b_csv=B, r_csv="a,b\n1,x\n2,y\n")
    learnt = {
        "n": {"kind": "number", "mean": 3.0, "std": 4.0},
        "c": {"kind": "category", "values": ["p", "q"]},
        "t": {"kind": "list", "values": ["s", "r"]},
        "w": {"kind": "tfidf", "words": ["sea", "sun"], "idf": [3.0, 2.0]},
    }
    run = {
        "target": "a",
        "labels": ["v", "u"],
        "multilabel": False,
        "relations": [["a", "r", "b"], ["b", "rev_r", "a"]],
        "features": {"a": learnt, "b": {}},
        "trained_on": "0f",
        "widths": {"a": 7, "b": 7},
    }
    data = load_tables(folder, fitted=FittedGraph.make(run, "features.json"))
    assert data.nodes["a"].x.to_dense().tolist() == [
        pytest.approx([0.5, 0, 1, 1, 1, 0.6, 0.8]),
        pytest.approx([0, 1, 0, 1, 0, 1, 0]),
        pytest.approx([-0.5, 0, 0, 0, 0, 0, 0]),
    ]
    assert data.y.tolist() == [1, 0, 1]
    learnt["n"] |= {"knots": [], "gaps": False}  # as later runs have them
    assert data.provenance.fitted == {key: value for key, value in run.items() if key != "widths"}
    with pytest.raises(HanmeError, match=r"features\.json: not the features of a run"):
        FittedGraph.make(run | {"labels": 3}, "features.json")


def test_names_of_files_are_names_not_patterns(tmp_path: Path) -> None:
    graph = SMALL.replace('"b.csv"', '"b[1] it\'s.csv"')
    folder = write(tmp_path, graph, a_csv=A, r_csv=R)
    (folder / "b[1] it's.csv").write_text(B)
    assert list(load_tables(folder).nodes["b"].ids) == ["x", "y"]


@pytest.mark.parametrize("pattern", ["/**/*", "../**/*.csv", "part/../../*/b.csv", "*/../../**/*"])
def test_patterns_search_no_other_folder(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "in", SMALL.replace('"b.csv"', f'"{pattern}"'), a_csv=A, r_csv=R)
    seen = []
    monkeypatch.setattr(glob, "iglob", lambda *given, **options: seen.append(given) or [])
    with pytest.raises(HanmeError, match=r"^nodes\.b: .* is outside of .* --allow"):
        load_tables(folder)
    assert not seen
    monkeypatch.undo()
    other = write(tmp_path / "other" / "deep", SMALL, b_csv=B).parent
    (folder / "graph.toml").write_text(SMALL.replace('"b.csv"', f'"{other}/**/*.csv"'))
    monkeypatch.setenv("HANME_ALLOW", str(other))
    assert list(load_tables(folder).nodes["b"].ids) == ["x", "y"]


@pytest.mark.parametrize("place", ["first", "header", "init"])
def test_a_line_that_does_not_end_is_not_read(place: str, tmp_path: Path) -> None:
    """Zeros shrink to a thousandth: the line of 64 MB takes 64 kB in the file."""
    write(tmp_path, SMALL.replace("a.csv", "a.csv.gz"), b_csv=B, r_csv=R)
    start = b'id,"y\n' if place == "header" else b""
    with gzip.open(tmp_path / "a.csv.gz", "wb", compresslevel=1) as file:
        file.write(start + bytes(1 << 26) + b"\n1,u\n")
    if place == "init":
        found, skipped = find_tables(tmp_path)
        assert [source.table for source in found] == ["b.csv", "r.csv"]
        assert skipped == ["a.csv.gz: it cannot be read (a line is longer than 2,000,000 bytes)"]
        return
    tracemalloc.start()
    with pytest.raises(HanmeError, match=r"a\.csv\.gz line 1: no header \(a line is longer"):
        load_tables(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 25
    tracemalloc.stop()


def test_links_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the link says what kind of table it is."""
    monkeypatch.setenv("HANME_ALLOW", str(tmp_path / "store"))
    folder = write(tmp_path / "in", SMALL, a_csv=A, r_csv=R)
    store = tmp_path / "store"
    store.mkdir()
    for link, file, content in (
        ("b.csv", "0f3a", B.encode()),
        ("b.csv.gz", "77aa", gzip.compress(B.encode())),
    ):
        (store / file).write_bytes(content)
        (folder / link).symlink_to(store / file)
        (folder / "graph.toml").write_text(SMALL.replace('"b.csv"', f'"{link}"'))
        assert list(load_tables(folder).nodes["b"].ids) == ["x", "y"]
    (folder / "c").symlink_to(store / "0f3a")
    (folder / "graph.toml").write_text(SMALL.replace('"b.csv"', '"c"'))
    with pytest.raises(HanmeError, match=r"^c: unknown format; expected one of \.csv"):
        load_tables(folder)


def test_names_of_data_sets(films: Path, monkeypatch) -> None:
    monkeypatch.chdir(films)
    assert known_name(".") == known_name("graph.toml") == str(films / "graph.toml")
    assert load("graph.toml").nodes["film"].num_nodes == 120
    with pytest.raises(HanmeError, match=r"unknown data set"):
        known_name("nothing")


def test_a_folder_that_is_called_like_a_data_set(films: Path, monkeypatch) -> None:
    monkeypatch.chdir(films.parent)
    films.rename("IMDB")
    with pytest.raises(HanmeError, match=r"Write \./IMDB for the folder"):
        known_name("IMDB")
    path = str(films.parent / "IMDB" / "graph.toml")
    for name in ("./IMDB", "IMDB/", "IMDB/graph.toml"):
        assert known_name(name) == path
    assert load("./IMDB").nodes["film"].num_nodes == 120
    for name in ("IMDB", Path("./IMDB")):  # of tables, whatever else is called so
        assert Graph.from_tables(name).provenance.origin["name"] == path
    with pytest.raises(HanmeError, match=r"unknown data set .*ACM"):
        Graph.from_tables("ACM")


@pytest.mark.parametrize("how", ["given", "mean", "onehot", "given-onehot"])
def test_a_type_may_have_any_name(how: str, tmp_path: Path) -> None:
    """Attributes of graphs in Python and keys of graph.toml are names like others."""
    kinds = ["target", "multilabel", "fitted", "dropped", "digest", "nodes", "x", "y", "num_nodes"]
    graph = 'target = "target"\n'
    for i, kind in enumerate(kinds):
        label = 'label = "y"\nfeatures = {n = "number"}\n' if kind == "target" else ""
        graph += f'[nodes.{kind}]\ntable = "{i % 2}.csv"\nid = "id"\n{label}'
    for kind in kinds:
        graph += f"""[relations.{kind}]
table = "links.csv"
source = {{type = "target", column = "from"}}
target = {{type = "{kind}", column = "to"}}
"""
    folder = write(tmp_path / "in", graph)
    (folder / "0.csv").write_text("id,y,n\n1,u,1\n2,v,2\n3,u,3\n4,v,4\n")
    (folder / "1.csv").write_text("id\n1\n2\n3\n")
    (folder / "links.csv").write_text("from,to\n1,2\n4,3\n2,1\n")
    for _ in range(2):  # the second one comes from the cache
        data = load_tables(folder, features=how, cache=tmp_path / "cache")
        assert data.target == "target"
        assert data.sizes == {kind: 4 - i % 2 for i, kind in enumerate(kinds)}
        assert set(data.x_dict) == set(kinds)
        for kind in kinds:
            assert list(data.nodes[kind].ids) == ["1", "2", "3", "4"][: data.sizes[kind]]
            assert data.links["target", kind, kind].tolist() == [[0, 1, 3], [1, 0, 2]]
        assert data.y.tolist() == [0, 1, 0, 1]
        assert data.metapaths == ["target-target:target", "target-rev_target:target"]
        assert (
            len(data.provenance.left_out_metapaths) == len(kinds) - 1
        )  # each links a node to one of its own
        again = Graph.from_hetero(data.to_hetero())
        assert again.sizes == data.sizes


def test_the_published_schema_is_up_to_date() -> None:
    published = json.loads((ROOT / "docs" / "graph.schema.json").read_text())
    assert published == schema(), "make it again: see docs/tables.md"


def test_explanations_find_the_users_names_and_others_are_derived(films: Path) -> None:
    text = (films / "graph.toml").read_text()
    text = text.replace('year = "number"', 'year = {kind = "number", title = "year of release"}')
    text = text.replace("[nodes.person]", '[nodes.person]\nsingular = "artist"')
    text = text.replace("[nodes.film]", '[nodes.film]\nplural = "motion pictures"')
    (films / "graph.toml").write_text(text)
    for graph in (load_tables(films), load_tables(films, cache=films / "cache")):
        names = display(graph)
        assert (names["film"].singular, names["film"].plural) == ("film", "motion pictures")
        assert (names["person"].singular, names["person"].plural) == ("artist", "artists")
        titles = [names["film"].title(column) for column in ("year", "plot_keywords")]
        assert titles == ["year of release", "plot keywords"]


def test_a_type_without_a_table_may_have_a_name_and_a_number_a_unit(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        """
        target = "film"
        [nodes.film]
        table = "films.csv"
        label = "genre"
        features = {budget = {kind = "number", unit = "USD"}}
        [nodes.studio]
        plural = "film studios"
        [relations.studio]
        columns = "studio"
        """,
        films_csv="studio,budget,genre\n" + "a,1,x\nb,2,y\n" * 10,
    )
    names = display(load_tables(folder))
    assert names["film"].unit("budget") == "USD"
    assert names["studio"].plural == "film studios"
    assert display(planted(movies=20))["movie"].plural == "movies"
