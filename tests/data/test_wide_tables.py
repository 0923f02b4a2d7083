"""Graphs from wide tables, databases and odd files: what comes out, against what was put in."""

import sqlite3
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch

from drafts import sqlite_file, write_draft
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.load import load_tables
from hanme.data.tables.read import databases
from hanme.data.tables.read.databases import declared_keys
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError
from hanme.serve.rows import TableRows

FILMS = """title,year,genres,director,actor_1,actor_2,keywords
One,1999,Drama|War,Ann,Bo,Cy,sea|ship
Two,2001,Comedy,Ann,Bo,Bo,
Three,2002,Drama,,Cy,, sea |love
Three,2002,Drama,,Cy,, sea |love
Four,2015,Comedy,Dee,,Bo,   |love
Five,2016,,Dee,Ed,Cy,
"""
GRAPH = """
target = "film"
[nodes.film]
table = "films.csv"
id = "title"
duplicates = "first"
label = "genres"
label_separator = "|"
[relations]
director = {columns = "director", type = "person"}
actor = {columns = ["actor_1", "actor_2"], type = "person"}
keyword = {columns = ["keywords"], separator = "|"}
"""


def write(folder: Path, graph: str = GRAPH, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "graph.toml").write_text(graph)
    if not (folder / "films.csv").exists():
        (folder / "films.csv").write_text(FILMS)
    for name, text in files.items():
        (folder / name.replace("_csv", ".csv").replace("_tsv", ".tsv")).write_text(text)
    return folder


def named(graph, edge_type: tuple[str, str, str]) -> list[tuple[str, str]]:
    source, target = graph.nodes[edge_type[0]].ids, graph.nodes[edge_type[2]].ids
    return [(source[i], target[j]) for i, j in graph.links[edge_type].t().tolist()]


def test_columns_are_relations(tmp_path: Path) -> None:
    assert len([line for line in GRAPH.splitlines() if line]) < 15
    graph = load_tables(write(tmp_path), cache=tmp_path / "cache")
    assert list(graph.nodes["film"].ids) == ["One", "Two", "Three", "Four", "Five"]
    assert list(graph.nodes["person"].ids) == ["Ann", "Dee", "Bo", "Cy", "Ed"]
    assert named(graph, ("film", "director", "person")) == [
        ("One", "Ann"), ("Two", "Ann"), ("Four", "Dee"), ("Five", "Dee")
    ]  # fmt: skip
    assert named(graph, ("film", "actor", "person")) == [
        ("One", "Bo"), ("One", "Cy"), ("Two", "Bo"), ("Three", "Cy"), ("Four", "Bo"),
        ("Five", "Cy"), ("Five", "Ed"),
    ]  # fmt: skip
    assert named(graph, ("film", "keyword", "keyword")) == [
        ("One", "sea"), ("One", "ship"), ("Three", "sea"), ("Three", "love"), ("Four", "love")
    ]  # fmt: skip
    assert graph.labels == ["Comedy", "Drama", "War"]
    assert graph.provenance.notes == [
        "film: 1 rows dropped, as an earlier row is the same node",
    ]
    again = load_tables(tmp_path, cache=tmp_path / "cache")
    assert (again.provenance.notes, again.provenance.digest) == (
        graph.provenance.notes,
        graph.provenance.digest,
    )
    assert graph.metapaths == [
        "film-director:person-rev_director:film", "film-actor:person-rev_actor:film",
        "film-keyword:keyword-rev_keyword:film",
    ]  # fmt: skip


def test_without_an_id_the_row_number_is_one(tmp_path: Path) -> None:
    graph = GRAPH.replace('id = "title"\n', "").replace('duplicates = "first"', 'name = "title"')
    found = load_tables(write(tmp_path, graph))
    assert list(found.nodes["film"].ids) == ["1", "2", "3", "4", "5", "6"]
    assert found.nodes["film"].names[5] == "Five"
    (tmp_path / "graph.toml").write_text(graph.replace("label =", 'duplicates = "first"\nlabel ='))
    assert list(load_tables(tmp_path).nodes["film"].ids) == ["1", "2", "3", "5", "6"]


def test_messages_name_the_row_of_the_file_although_rows_were_dropped(tmp_path: Path) -> None:
    graph = GRAPH.replace("[relations]", 'features = {year = "number"}\n[relations]')
    write(tmp_path, graph, films_csv=FILMS.replace("2016", "soon"))
    with pytest.raises(HanmeError, match=r"films\.csv row 6, column year: 'soon' is not a finite"):
        load_tables(tmp_path)


def test_values_of_columns_may_be_ids_of_a_table(tmp_path: Path) -> None:
    people = '[nodes.person]\ntable = "people.csv"\nid = "name"\n[relations]'
    graph = GRAPH.replace("[relations]", people)
    names = "name\nAnn\nBo\nCy\nDee\n"
    write(tmp_path, graph, people_csv=names)
    with pytest.raises(
        HanmeError, match=r"films\.csv row 6, column actor_1, actor_2: no person has the id 'Ed'"
    ):
        load_tables(tmp_path)
    for unknown, size, lost in (("drop", 4, 1), ("add", 5, 0)):
        changed = graph.replace('"actor_2"]', f'"actor_2"], unknown = "{unknown}"')
        found = load_tables(write(tmp_path, changed, people_csv=names))
        assert found.sizes["person"] == size
        assert found.provenance.dropped_links["actor"] == lost


TRIPLES = """head\trelation\ttail
a\tknows\tb
b\tknows\tc
a\tlives in\tParis
b\tlives in\tRome
c\thttp://x.org/ns#likes\ta
d\tknows\ta
"""
KNOWLEDGE = """
target = "thing"
[nodes.thing]
table = "things.csv"
id = "id"
label = "kind"
[relations.fact]
table = "facts.tsv"
source = {type = "thing", column = "head"}
target = {type = "thing", column = "tail"}
each = "relation"
unknown = "add"
"""


def test_each_value_makes_a_relation(tmp_path: Path) -> None:
    things = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    folder = write(tmp_path, KNOWLEDGE, things_csv=things, facts_tsv=TRIPLES)
    found = load_tables(folder)
    assert list(found.nodes["thing"].ids) == ["a", "b", "c", "d", "Paris", "Rome"]
    assert found.y.tolist() == [0, 1, 0, 1, -1, -1]
    assert named(found, ("thing", "lives_in", "thing")) == [("a", "Paris"), ("b", "Rome")]
    assert named(found, ("thing", "likes", "thing")) == [("c", "a")]
    assert named(found, ("thing", "knows", "thing")) == [("a", "b"), ("b", "c"), ("d", "a")]
    assert len(found.metapaths) == 6
    fitted = FittedGraph.make(found.provenance.fitted, "test")
    (folder / "facts.tsv").write_text(TRIPLES + "d\thates\tRome\ne\tknows\tOslo\n")
    grown = load_tables(folder, fitted=fitted)  # a relation that the run does not know is left out
    assert grown.edge_types == found.edge_types
    assert grown.sizes["thing"] == 8
    (folder / "facts.tsv").write_text(TRIPLES + "d\tlives-in\tRome\n")
    with pytest.raises(
        HanmeError, match=r"column relation: 'lives.in' reads as lives_in, as another"
    ):
        load_tables(folder, fitted=fitted)
    some = KNOWLEDGE.replace('each = "relation"', 'where = {relation = "knows"}')
    (folder / "graph.toml").write_text(some)
    (folder / "facts.tsv").write_text(TRIPLES)
    found = load_tables(folder)
    assert found.links["thing", "fact", "thing"].size(1) == 3
    assert found.provenance.notes == []
    (folder / "graph.toml").write_text(some.replace('"knows"', '"hates"'))
    assert load_tables(folder).provenance.notes == [
        "fact: no links, as where is true for no row of facts.tsv"
    ]


def test_a_value_of_which_every_link_would_be_dropped_makes_no_relation(tmp_path: Path) -> None:
    things = "id,kind\na,x\nb,y\nd,x\ne,y\n"
    graph = KNOWLEDGE.replace('unknown = "add"', 'unknown = "drop"')
    found = load_tables(write(tmp_path, graph, things_csv=things, facts_tsv=TRIPLES))
    assert [relation for _, relation, _ in found.links] == ["knows", "rev_knows"]
    assert named(found, ("thing", "knows", "thing")) == [("a", "b"), ("d", "a")]
    none = TRIPLES.replace("a\tknows\tb\n", "").replace("d\tknows\ta\n", "")
    folder = write(tmp_path, graph, things_csv=things, facts_tsv=none)
    with pytest.raises(HanmeError, match=r"relations\.fact: no value has a link in .* relation"):
        load_tables(folder)


ENDS = """
target = "film"
[nodes.film]
table = "films.csv"
id = "id"
label = "kind"
[nodes.entity]
[relations.fact_of]
table = "facts.tsv"
source = {type = "film", column = "head"}
target = {type = "entity", column = "tail"}
each = "relation"
unknown = "drop"
[relations.fact_to]
table = "facts.tsv"
source = {type = "entity", column = "head"}
target = {type = "film", column = "tail"}
each = "relation"
unknown = "drop"
"""


def test_a_run_knows_its_relations_by_their_ends_though_the_tables_have_grown(
    tmp_path: Path,
) -> None:
    films = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    facts = "head\trelation\ttail\na\tstars\tp\nb\tsequel\tz\nq\tacts in\tc\n"
    folder = write(tmp_path, ENDS, films_csv=films, facts_tsv=facts)
    found = load_tables(folder)
    there = [
        ("film", "sequel", "entity"),
        ("film", "stars", "entity"),
        ("entity", "acts_in", "film"),
    ]
    assert [e for e in found.links if not e[1].startswith("rev_")] == there
    fitted = FittedGraph.make(found.provenance.fitted, "test")
    (folder / "films.csv").write_text(films + "z,\n")  # the sequel has become a film
    (folder / "facts.tsv").write_text(facts + "p\tstars\tc\n")
    grown = load_tables(folder, fitted=fitted)
    assert grown.edge_types == found.edge_types
    (folder / "films.csv").write_text(films)
    (folder / "facts.tsv").write_text(facts.replace("q\tacts in\tc", "q\tacts in\ty"))
    less = load_tables(folder, fitted=fitted)  # none is left of a relation that the run knows
    assert less.edge_types == found.edge_types
    assert less.links["entity", "acts_in", "film"].size(1) == 0
    assert grown.links["film", "sequel", "entity"].size(1) == 1


def test_a_new_value_takes_no_relation_that_is_numbered_by_its_own_value(tmp_path: Path) -> None:
    things = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    facts = "head\trelation\ttail\na\tknows 2\tb\n"
    folder = write(tmp_path, KNOWLEDGE, things_csv=things, facts_tsv=facts)
    fitted = FittedGraph.make(load_tables(folder).provenance.fitted, "test")
    (folder / "facts.tsv").write_text(facts + "c\tknows\td\n")
    grown = load_tables(folder, fitted=fitted)
    assert named(grown, ("thing", "knows_2", "thing")) == [("a", "b")]


def test_ids_that_another_relation_adds_count_as_known(tmp_path: Path) -> None:
    films = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    more = '[relations.next]\ntable = "next.csv"\nunknown = "add"\n'
    more += 'source = {type = "film", column = "one"}\ntarget = {type = "film", column = "two"}\n'
    facts = "head\trelation\ttail\na\tstars\tp\nn\tborn\tp\np\tin\tb\n"
    folder = write(
        tmp_path, ENDS + more, films_csv=films, facts_tsv=facts, next_csv="one,two\na,n\n"
    )
    assert named(load_tables(folder), ("film", "born", "entity")) == [("n", "p")]


def test_a_table_of_several_relations_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []
    read = Reader.read

    def counted(reader: Reader, source: ResolvedSource, columns: dict[str, ColumnRequest]) -> Table:
        titles.append(source.title)
        return read(reader, source, columns)

    monkeypatch.setattr(Reader, "read", counted)
    things = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    found = load_tables(write(tmp_path, KNOWLEDGE, things_csv=things, facts_tsv=TRIPLES))
    assert len(found.links) == 6
    assert titles == ["things.csv", "facts.tsv"]


def test_a_type_without_a_table(tmp_path: Path) -> None:
    graph = KNOWLEDGE.replace("[relations.fact]", "[nodes.place]\n[relations.fact]")
    graph = graph.replace('each = "relation"', 'where = {relation = "lives in"}')
    graph = graph.replace('target = {type = "thing"', 'target = {type = "place"')
    graph = graph.replace('unknown = "add"', "")
    things = "id,kind\na,x\nb,y\nc,x\nd,y\n"
    found = load_tables(write(tmp_path, graph, things_csv=things, facts_tsv=TRIPLES))
    assert list(found.nodes["place"].ids) == ["Paris", "Rome"]


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_databases(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    statements = [
        "CREATE TABLE films (id INTEGER, title VARCHAR, genre VARCHAR, year DOUBLE)",
        "INSERT INTO films VALUES (1, 'One', 'a', 1.5), (2, 'Two', 'b', NULL), (3, 'Tü', 'a', 2), "
        "(4, 'Four', 'b', 1)",
        "CREATE TABLE roles (film INTEGER, person VARCHAR)",
        "INSERT INTO roles VALUES (1, 'Ann'), (2, 'Bo'), (3, 'Ann'), (4, NULL)",
    ]
    opened = duckdb.connect(str(path)) if kind == "duckdb" else sqlite3.connect(path)
    for statement in statements:
        opened.execute(statement)
    opened.commit()
    opened.close()
    graph = """
target = "film"
[nodes.film]
database = "shop.db"
table = "films"
id = "id"
label = "genre"
features = {year = "number"}
[nodes.person]
[relations.role]
database = "shop.db"
query = "SELECT film, person FROM roles WHERE film < 4"
source = {type = "film", column = "film"}
target = {type = "person", column = "person"}
"""
    before = path.read_bytes()
    cache = tmp_path / "cache"
    found = load_tables(write(tmp_path, graph), cache=cache)
    assert list(found.nodes["film"].ids) == ["1", "2", "3", "4"]
    assert named(found, ("film", "role", "person")) == [("1", "Ann"), ("2", "Bo"), ("3", "Ann")]
    assert found.nodes["film"].x.to_dense()[1].item() == 0
    assert path.read_bytes() == before
    with pytest.raises(HanmeError, match=r"shop\.db table nothing: "):
        load_tables(write(tmp_path, graph.replace('table = "films"', 'table = "nothing"')))
    for query in ("DROP TABLE roles", "ATTACH 'x.db' AS x", "SELECT 1; SELECT 2", "SELEC"):
        changed = graph.replace("SELECT film, person FROM roles WHERE film < 4", query)
        with pytest.raises(HanmeError, match=r"relations\.role query"):
            load_tables(write(tmp_path, changed))
    assert path.read_bytes() == before
    with pytest.raises(HanmeError, match=r"shop\.db: a database; write database ="):
        load_tables(write(tmp_path, graph.replace('database = "shop.db"\ntable = "films"',
                                                  'table = "shop.db"')))  # fmt: skip
    opened = duckdb.connect(str(path)) if kind == "duckdb" else sqlite3.connect(path)
    opened.execute("INSERT INTO roles VALUES (3, 'Cy')")
    opened.commit()
    opened.close()
    assert load_tables(write(tmp_path, graph), cache=cache).sizes["person"] == 3


def test_declared_keys_of_sqlite(tmp_path: Path) -> None:
    sqlite_file(
        tmp_path / "shop.db",
        "CREATE TABLE film (key INTEGER PRIMARY KEY, title TEXT);"
        "CREATE TABLE cast (film REFERENCES film, who REFERENCES person (name), "
        "PRIMARY KEY (film, who));"
        "CREATE TABLE award (film, who, FOREIGN KEY (film, who) REFERENCES cast)",
    )
    for table, expected in (
        ("film", ("key", {})),
        ("cast", (None, {"film": ("film", "key"), "who": ("person", "name")})),
        ("award", (None, {})),
    ):
        spec = Source(database="shop.db", table=table)
        assert declared_keys(ResolvedSource.find(spec, tmp_path, "test")) == expected


def test_ctrl_c_interrupts_a_query_on_sqlite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a query makes SQLite interrupt it, as the function here does."""
    sqlite_file(tmp_path / "shop.db", "CREATE TABLE film (id, genre)")
    (tmp_path / "graph.toml").write_text(
        """
        target = "film"
        [nodes.film]
        database = "shop.db"
        query = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9) SELECT stop() FROM n"
        label = "genre"
        """
    )

    def with_stop(path: Path) -> sqlite3.Connection:
        opened = sqlite3.connect(path)
        opened.create_function("stop", 0, opened.interrupt)
        return opened

    monkeypatch.setattr(databases, "_open", with_stop)
    with pytest.raises(KeyboardInterrupt):
        load_tables(tmp_path)


def test_a_file_whose_ending_says_nothing(tmp_path: Path) -> None:
    graph = KNOWLEDGE.replace('"things.csv"', '"things.item"')
    things = "id\tkind\tn\na\tx\tNA\nb\ty\t1\nc\tx\t3\nd\ty\t NA \n"
    folder = write(tmp_path, graph, facts_tsv=TRIPLES, **{"things.item": things})
    with pytest.raises(HanmeError, match=r'things\.item: unknown format; .* format = "tsv"'):
        load_tables(folder)
    table = 'table = "things.item"\nformat = "tsv"\nempty = ["NA"]\nfeatures = {n = "number"}'
    found = load_tables(write(tmp_path, graph.replace('table = "things.item"', table)))
    assert found.labels == ["x", "y"]
    assert found.nodes["thing"].x.to_dense().flatten().tolist() == [0, -1, 1, 0, 0, 0]


def test_vectors_and_dates(tmp_path: Path) -> None:
    films = """title,year,genres,director,when,e,d
a,1,Drama,x,Nov 12 2004,0.5 1 -2,[1, 2]
b,2,War,x,,,"[3, 4]"
c,3,Drama,y,Jan 01 2000,1.5 1 2,"(5; 9)"
d,4,War,y,Jan 01 2001,4 1 0,
""".replace("[1, 2]", '"[1, 2]"')
    features = """[nodes.film.features]
e = "vector"
d = "vector"
when = {kind = "date", format = "%b %d %Y"}
[relations]
"""
    graph = GRAPH.split("[relations]")[0] + features + 'director = {columns = ["director"]}\n'
    found = load_tables(write(tmp_path, graph, films_csv=films))
    e = np.array([[0.5, 1, -2], [1.5, 1, 2], [4, 1, 0]])
    d = np.array([[1, 2], [3, 4], [5, 9.0]])
    years = np.array([2004 + 316 / 366, 2000, 2001])
    x = found.nodes["film"].x.to_dense().numpy()
    std = np.where(e.std(0) > 0, e.std(0), 1)
    np.testing.assert_allclose(x[[0, 2, 3], :3], (e - e.mean(0)) / std, atol=1e-6)
    np.testing.assert_allclose(x[:3, 3:5], (d - d.mean(0)) / d.std(0), atol=1e-6)
    np.testing.assert_allclose(x[[0, 2, 3], 5], (years - years.mean()) / years.std(), atol=1e-5)
    assert not x[1, [0, 1, 2, 5]].any()
    assert not x[3, 3:5].any()
    again = load_tables(tmp_path, fitted=FittedGraph.make(found.provenance.fitted, "test"))
    torch.testing.assert_close(again.nodes["film"].x.to_dense(), torch.from_numpy(x))
    duckdb.sql(
        f"COPY (SELECT title, genres, director, \"when\", CAST(string_split(e, ' ') AS FLOAT[3]) "
        f"AS e, d FROM read_csv('{tmp_path / 'films.csv'}')) TO '{tmp_path / 'films.parquet'}'"
    )
    (tmp_path / "graph.toml").write_text(graph.replace("films.csv", "films.parquet"))
    same = load_tables(tmp_path).nodes["film"].x.to_dense()
    torch.testing.assert_close(same, torch.from_numpy(x))
    (tmp_path / "graph.toml").write_text(graph)
    for old, new, message in (
        ("1.5 1 2", "1.5 1", r"row 3, column e: 2 numbers, but expected 3"),
        ("1.5 1 2", "1.5 one 2", r"row 3, column e: not all are finite numbers in float32"),
        ("Jan 01 2001", "1 Jan 2001", r"row 4, column when: '1 Jan 2001' is not a date as %b"),
    ):
        (tmp_path / "films.csv").write_text(films.replace(old, new))
        with pytest.raises(HanmeError, match=message):
            load_tables(tmp_path)


ROWS = "".join(
    f"f{i},{1990 + i % 30},{['a', 'b', 'c'][i % 3]},d{i % 13},{'' if i % 5 == 0 else f's{i % 7}'}\n"
    for i in range(200)
)
SPLIT = """
target = "film"
[nodes.film]
table = "films.csv"
id = "id"
label = "y"
[relations]
director = {columns = ["director"]}
"""


def test_split_by_time(tmp_path: Path) -> None:
    header = "id,year,y,director,series\n"
    rule = '[split]\ntest = "year >= 2015"\nval = "year BETWEEN 2010 AND 2016"\n'
    graph = load_tables(write(tmp_path, SPLIT + rule, films_csv=header + ROWS))
    years = torch.tensor([1990 + i % 30 for i in range(200)])
    assert torch.equal(graph.split.test, years >= 2015)
    assert torch.equal(graph.split.val, (years >= 2010) & (years < 2015))
    assert torch.equal(graph.split.train, years < 2010)
    assert graph.provenance.digest != load_tables(write(tmp_path, SPLIT)).provenance.digest
    drawn = load_tables(write(tmp_path, SPLIT + '[split]\ntest = "year >= 2015"\n'), seed=1)
    assert torch.equal(drawn.split.test, years >= 2015)
    rest = int((years < 2015).sum())
    assert int(drawn.split.val.sum()) == round(rest * 0.25)
    assert int(drawn.split.train.sum()) == rest - round(rest * 0.25)
    assert not torch.equal(load_tables(tmp_path, seed=2).split.val, drawn.split.val)
    for condition, message in (
        ("yaer > 3", r"split\.test: DuckDB .*yaer"),
        ("year > 2050", r"no labelled row for which year > 2050 is left for test"),
        ("year > 0", r"split|no row in train"),
        ("true; SELECT 1", r"split\.test: "),
        ("true) AS a, (true", r"split\.test: "),
        ("(SELECT count(*) FROM '/etc/passwd') > 0", r"split\.test: "),
        ("year >", r"split\.test: DuckDB"),
    ):
        write(tmp_path, SPLIT + f'[split]\ntest = "{condition}"\n')
        with pytest.raises(HanmeError, match=message):
            load_tables(tmp_path)


def test_a_label_that_only_test_rows_have(tmp_path: Path) -> None:
    header = "id,year,y,director,series\n"
    write(tmp_path, SPLIT + '[split]\ntest = "year >= 2015"\n',
          films_csv=header + ROWS + "g,2016,new,d1,\n")  # fmt: skip
    with pytest.raises(HanmeError, match=r"films\.csv row 201, column y: no row in train .*new"):
        load_tables(tmp_path)
    rule = 'label = "y"\nlabel_min_count = 1'
    text = (tmp_path / "graph.toml").read_text().replace('label = "y"', rule)
    (tmp_path / "graph.toml").write_text(text)
    found = load_tables(tmp_path)
    assert found.y[200] == -1
    assert found.provenance.notes == ["1 label of fewer than 1 training rows dropped: new"]


def test_rare_labels(tmp_path: Path) -> None:
    labels = ["a"] * 6 + ["b"] * 5 + ["c"] * 2 + ["d"] + [""]
    rows = "id,y,director\n" + "".join(f"{i},{y},x{i % 2}\n" for i, y in enumerate(labels))
    rule = 'label = "y"\nlabel_min_count = 3'
    folder = write(tmp_path, SPLIT.replace('label = "y"', rule), films_csv=rows)
    graph = load_tables(folder)
    assert graph.labels == ["a", "b"]
    assert graph.y.tolist() == [0] * 6 + [1] * 5 + [-1] * 4
    assert graph.provenance.notes == ["2 labels of fewer than 3 training rows dropped: c, d"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('columns = "director"', 'columns = "genres"', "genres is the label"),
        ('columns = "director"', "columns = []", r"relations\.director\.columns"),
        ('columns = "director"', 'columns = "regie"', r"films\.csv: no column 'regie'"),
        ('columns = "director"', 'column = "director"', r"no such key 'column'; did you mean"),
        ('type = "person"', 'type = "person", source = "people"', "no node type 'people'"),
        ('"first"', '"last"', r"nodes\.film\.duplicates"),
        ('"first"', '"error"', r"films\.csv row 4, column title: the id 'Three' is already"),
        ('"films.csv"', '"films"\ndatabase = "films.csv"', "neither a DuckDB nor an SQLite file"),
        ('"films.csv"', '"films"\ndatabase = "no.db"', r"nodes\.film: no file no\.db"),
        ('[nodes.film]\ntable = "films.csv"\nid = "title"\nduplicates = "first"\nlabel = "genres"\n'
         'label_separator = "|"', "[nodes.film]", r"nodes\.film: give a table or a query"),
    ],
)  # fmt: skip
def test_one_line_that_says_where(old: str, new: str, message: str, tmp_path: Path) -> None:
    assert old in GRAPH
    with pytest.raises(HanmeError, match=message) as raised:
        load_tables(write(tmp_path, GRAPH.replace(old, new)), cache=tmp_path / "cache")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "cache").exists()


def _keys_as_doubles(kind: str, folder: Path) -> None:
    """Write people with integer ids, and films that refer to them in a column of DOUBLE."""
    people = "CREATE TABLE people AS SELECT i AS person_id, 'P' || i AS name FROM range(1, 21) t(i)"
    films = (
        "CREATE TABLE films AS SELECT i::VARCHAR || '.0' AS film_id, ['a', 'b'][1 + i % 2] AS "
        "genre, CASE WHEN i % 7 > 0 THEN 1 + i % 20 END::DOUBLE AS person_id FROM range(40) t(i)"
    )
    folder.mkdir()
    database = duckdb.connect(str(folder / "shop.db") if kind == "duckdb" else ":memory:")
    database.execute(people)
    database.execute(films)
    for table in ("people", "films"):
        if kind in ("parquet", "json"):
            database.execute(f"COPY {table} TO '{folder / f'{table}.{kind}'}'")
        elif kind == "sqlite":
            types = {"people": "person_id INTEGER, name", "films": "film_id, genre, person_id REAL"}
            rows = database.execute(f"SELECT * FROM {table}").fetchall()
            with sqlite3.connect(folder / "shop.db") as opened:
                opened.execute(f"CREATE TABLE {table} ({types[table]})")
                marks = ", ".join("?" * len(rows[0]))
                opened.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    database.close()


@pytest.mark.parametrize("kind", ["parquet", "json", "duckdb", "sqlite"])
def test_ids_stored_as_doubles_are_those_of_integers(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    _keys_as_doubles(kind, folder)
    config = write_draft(folder, label="genre")
    found = load_tables(config)
    assert found.sizes == {"film": 40, "person": 20}  # no person2
    (name,) = {e[1] for e in found.links if e[0] == "film"}
    expected = [(f"{i}.0", str(1 + i % 20)) for i in range(40) if i % 7]  # text stays text
    assert sorted(named(found, ("film", name, "person"))) == sorted(expected)
    rows = TableRows.of(folder)  # of the web page: what a form shows is what links mean
    assert rows.row("film", 1)["person_id"] == "2"
    assert rows.written("film", "person_id", 2.0) == "2"
    assert rows.written("film", "person_id", 4111111111111111.0) == "4111111111111111"
