"""Broken tables: each gives one line that says what is wrong and where, and writes nothing."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafts import write_draft
from graphs import FILMS_TOML as GRAPH
from hanme.data.tables.build.load import load_tables
from hanme.data.tables.draft.draft import render
from hanme.data.tables.draft.infer import infer
from hanme.data.tables.read import reader
from hanme.errors import HanmeError

FILMS = [
    "id,title,genre,year,country,tags,plot,part,weight",
    "1,One,Drama,1999,France,a|b,A quiet town,train,1",
    "2,Two,Comedy,2001,Japan,b,A loud town,train,1",
    "3,Three,Drama,2002,Japan,a|c,A lost letter,val,1",
    '4,"Four, Five",Comedy,,France,,,val,1',
    "5,Six,,2010,,a,A bridge,,1",
]
FILES = {
    "graph.toml": GRAPH,
    "films.csv": "\n".join(FILMS) + "\n",
    "people.csv": "id,name\np1,Ann\np2,Bob\n",
    "roles.csv": "film,person,weight\n1,p1,1\n2,p1,1\n3,p2,1\n4,p2,1\n5,p1,1\n",
}


def folder(path: Path, **changes: str | bytes | None) -> Path:
    path.mkdir(exist_ok=True)
    for name, content in (FILES | changes).items():
        file = path / name
        if isinstance(content, str):
            file.write_text(content)
        elif content is not None:
            file.write_bytes(content)
    return path


def film(row: int, **cells: str) -> dict[str, str]:
    """films.csv with some cells of a row changed."""
    header = FILMS[0].split(",")
    lines = list(FILMS)
    values = lines[row].replace('"Four, Five"', "Four").split(",")
    for column, value in cells.items():
        values[header.index(column)] = value
    lines[row] = ",".join(values)
    return {"films.csv": "\n".join(lines) + "\n"}


def graph(old: str, new: str) -> dict[str, str]:
    assert old in GRAPH
    return {"graph.toml": GRAPH.replace(old, new, 1)}


SPLIT = graph('label = "genre"', 'label = "genre"\nsplit = "part"')
MANY = graph('label = "genre"', 'label = "genre"\nlabel_separator = "|"')

CASES: dict[str, tuple[dict[str, str | bytes | None], str]] = {
    "no file": ({"films.csv": None}, r"nodes\.film: no file films\.csv"),
    "no match": (graph("roles.csv", "roles/*.csv"), r"relations\.played: no file roles/\*\.csv"),
    "no column id": (graph('id = "id"', 'id = "key"'), r"films\.csv: no column 'key'; expected"),
    "no column name": (graph('"title"', '"Title"'), r"films\.csv: no column 'Title'"),
    "no column label": (graph('"genre"', '"label"'), r"films\.csv: no column 'label'"),
    "no column split": (graph('"genre"', '"genre"\nsplit = "s"'), r"films\.csv: no column 's'"),
    "no feature": (graph("year =", "jahr ="), r"films\.csv: no column 'jahr'"),
    "no column source": (graph('"film"}', '"film_id"}'), r"roles\.csv: no column 'film_id'"),
    "a metapath that does not fit": (
        {"graph.toml": 'metapaths = ["film-actor-film"]\n' + GRAPH},
        r"graph\.toml: metapath 'film-actor-film': from film there is no step to 'actor",
    ),
    "a metapath from elsewhere": (
        {"graph.toml": 'metapaths = ["person-film-person"]\n' + GRAPH},
        r"graph\.toml: metapath 'person-film-person': it starts at person, not at film",
    ),
    "column twice": (
        {"people.csv": "id,id\np1,p1\np2,p2\n"}, r"people\.csv: 2 columns are called 'id'"
    ),
    "duplicate id": (film(4, id="2"), r"films\.csv row 4, column id: the id '2' .* row 2"),
    "duplicate id among many": (
        {"people.csv": "id\np1\np2\np3\np3\np1\n"}, r"people\.csv row 4, column id: the id 'p3'"
    ),
    "empty id": (film(3, id=""), r"films\.csv row 3, column id: the id is empty"),
    "quoted empty id": (film(3, id='""'), r"films\.csv row 3, column id: the id is empty"),
    "unknown source": (
        {"roles.csv": "film,person\n1,p1\n77,p1\n"},
        r"roles\.csv row 2, column film: no film has the id '77'; unknown = \"drop\"",
    ),
    "unknown target": (
        {"roles.csv": "film,person\n1,p1\n2,p2\n3,p9\n"},
        r"roles\.csv row 3, column person: no person has the id 'p9'",
    ),
    "empty end of a link": (
        {"roles.csv": "film,person\n1,\n"}, r"roles\.csv row 1, column person: the id is empty"
    ),
    "empty file": ({"people.csv": ""}, r"people\.csv line 1: no header"),
    "header only": ({"people.csv": "id,name\n"}, r"people\.csv: the table is empty"),
    "header without line end": ({"people.csv": "id,name"}, r"people\.csv: the table is empty"),
    "no links": ({"roles.csv": "film,person\n"}, r"roles\.csv: the table is empty"),
    "blank line first": ({"people.csv": "\nid\np1\np2\n"}, r"people\.csv"),
    "no number": (film(2, year="soon"), r"films\.csv row 2, column year: 'soon' is not a finite"),
    "decimal comma": (film(2, year='"3,5"'), r"films\.csv row 2, column year: '3,5'"),
    "NaN": (film(2, year="NaN"), r"films\.csv row 2, column year: 'NaN' is not a finite number"),
    "infinite": (film(3, year="-inf"), r"films\.csv row 3, column year: '-inf' is not a finite"),
    "overflow": (film(3, year="1e999"), r"films\.csv row 3, column year: '1e999' is not a finite"),
    "too large": (
        {"films.csv": film(3, year="1e308")["films.csv"].replace("1999", "-1e308")},
        r"films\.csv row 1, column year: '-1e308' is not a finite number in float32",
    ),
    "wrong encoding": (
        {"films.csv": FILES["films.csv"].replace("Two", "Tw\xf6").encode("latin-1")},
        r"films\.csv line 3: .* encoding",
    ),
    "wrong encoding of the header": ({"people.csv": b"id,n\xe9e\np1,A\n"}, r"people\.csv line 1"),
    "UTF-16": ({"people.csv": "id,name\np1,A\n".encode("utf-16")}, r"people\.csv line 1"),
    "binary": ({"people.csv": bytes(range(256)) * 20}, r"people\.csv"),
    "too few cells": (
        {"people.csv": "id,name\np1,Ann\np2\n"}, r"people\.csv line 3: 1 cells, .* header has 2"
    ),
    "too many cells": (
        {"people.csv": "id,name\np1,Ann\np2,B,ob\n"}, r"people\.csv line 3: .*3.* header has 2"
    ),
    "a very long line": (
        {"people.csv": f"id,name\np1,A\np2,{'B' * 3_000_000}\n"},
        r"people\.csv: its last line is longer than 2,000,000 bytes",
    ),
    "open quote": (
        {"people.csv": 'id,name\np1,Ann\np2,"Bob\n'}, r"people\.csv line 3: a quote is not closed"
    ),
    "unknown split": (
        SPLIT | film(3, part="valid"), r"films\.csv row 3, column part: expected train.*'valid'"
    ),
    "nothing to validate on": (
        SPLIT | {"films.csv": FILES["films.csv"].replace(",val,", ",test,")},
        r"no labelled row is left for val",
    ),
    "label in no training row": (
        SPLIT | film(3, genre="War"), r"films\.csv row 3, column genre: no row in train .* 'War'"
    ),
    "one of several labels in no training row": (
        {"graph.toml": MANY["graph.toml"].replace('"genre"', '"genre"\nsplit = "part"')}
        | film(3, genre="Drama|War"),
        r"films\.csv row 3, column genre: no row in train has the label 'War'",
    ),
    "no labels": (
        {"films.csv": FILES["films.csv"].replace("Drama", "").replace("Comedy", "")},
        r"films\.csv, column genre: no row has a label",
    ),
    "only separators for labels": (
        MANY | {"films.csv": FILES["films.csv"].replace("Drama", "|").replace("Comedy", " | ")},
        r"films\.csv, column genre: no row has a label",
    ),
    "no label column": (graph('label = "genre"\n', ""), r"the target has no labels"),
    "a single class": (
        {"films.csv": FILES["films.csv"].replace("Comedy", "Drama")},
        r"films\.csv, column genre: every label is 'Drama'",
    ),
    "no TOML": ({"graph.toml": "target = film"}, r"graph\.toml: not a TOML file: .*line 1, col"),
    "key twice": (
        {"graph.toml": GRAPH + "[nodes.film]\n"}, r"graph\.toml: not a TOML file: .*line"
    ),
    "TOML is not UTF-8": ({"graph.toml": b"# \xff"}, r"graph\.toml: not a TOML file: 'utf-8'"),
    "empty TOML": ({"graph.toml": ""}, r"graph\.toml: target: it is missing"),
    "unknown key": (graph("name =", "nmae ="), r"nodes\.film: no such key 'nmae'; did you mean"),
    "unknown part": (graph("[relations.", "[relation."), r"no such key 'relation'; did you mean"),
    "unknown kind": (graph('"number"', '"numeric"'), r"features\.year: a feature is one of number"),
    "unknown option of a kind": (
        graph('separator = "|"', 'seperator = "|"'),
        r"features\.tags: no such key 'seperator'; did you mean separator",
    ),
    "option of the wrong type": (
        graph('"text"', '{kind = "text", size = "ten"}'), r"features\.plot\.size: .*'ten'"
    ),
    "size 0": (graph('"text"', '{kind = "text", size = 0}'), r"features\.plot\.size"),
    "option of another kind": (
        graph('"number"', '{kind = "number", size = 3}'), r"features\.year: a number has no size"
    ),
    "unknown method": (graph('"text"', '{kind = "text", method = "bert"}'), r"method: .*'tfidf'"),
    "target is no type": (graph('target = "film"', 'target = "movie"'), r"no node type 'movie'"),
    "unknown type of an end": (graph('type = "person"', 'type = "actor"'), r"no node type 'actor'"),
    "table and query": (graph('"films.csv"', '"films.csv"\nquery = "SELECT 1"'), r"one of the two"),
    "neither": (graph('table = "films.csv"\n', ""), r"nodes\.film: give a table or a query"),
    "label elsewhere": (
        graph('table = "people.csv"', 'table = "people.csv"\nlabel = "name"'),
        r"nodes\.person\.label: only the target",
    ),
    "split and shares": (
        graph('"genre"', '"genre"\nsplit = "part"\nshares = {train = 0.8, val = 0.1, test = 0.1}'),
        r"split or shares",
    ),
    "shares": (graph('"genre"', '"genre"\nshares = {train = 0.9}'), r"add up to 1\.3, not to 1"),
    "a type's name": (graph("[nodes.person]", '[nodes."a b"]'), r"letters, digits and underscores"),
    "two names alike": (
        {"graph.toml": GRAPH + 'reverse = "r"\n' + GRAPH.split("[relations.played]")[1].join(
            ["[relations.other]", 'reverse = "r"\n'])},
        r"two are called r from person to film",
    ),
    "a folder": (graph("people.csv", "."), r"it is a folder"),
    "no kind of table": (graph("people.csv", "graph.toml"), r"unknown format"),
    "no Parquet": (
        graph("people.csv", "p.parquet") | {"p.parquet": b"PAR1 not"}, r"p\.parquet: not parquet"
    ),
    "no JSON": (graph("people.csv", "p.json") | {"p.json": b'{"id": '}, r"p\.json: not json"),
    "JSON of other things": (
        graph("people.csv", "p.json") | {"p.json": b"[1, 2]"}, r"p\.json: expected rows such as"
    ),
    "true and false in JSON": (
        graph('table = "people.csv"', 'table = "p.json"\nfeatures = {n = "number"}')
        | {"p.json": b'[{"id": "p1", "n": null}, {"id": "p2", "n": true}]'},
        r"p\.json row 2, column n: 'true' is not a finite number",
    ),
    "true among numbers in JSON": (
        graph('table = "people.csv"', 'table = "p.json"\nfeatures = {n = "number"}')
        | {"p.json": b'[{"id": "p1", "n": 1}, {"id": "p2", "n": false}]'},
        r"p\.json row 2, column n: 'false' is not a finite number",
    ),
    "no gzip": (
        graph("people.csv", "p.csv.gz") | {"p.csv.gz": b"id\np1\n"},
        r"p\.csv\.gz: it cannot be read \(Not a gzipped file",
    ),
    "a file of a pattern has other columns": (
        graph("people.csv", "p*.csv") | {"people2.csv": "key\np3\n"},
        r"people2\.csv: no column 'id'",
    ),
    "duplicate in another file of a pattern": (
        graph("people.csv", "people*.csv") | {"people2.csv": "id\np3\np1\n"},
        r"people2\.csv row 2, column id: the id 'p1' is already that of people\.csv row 1",
    ),
    "a label of rows without a part": (
        SPLIT | film(5, genre="War"), r"films\.csv row 5, column genre: no row in train .* 'War'"
    ),
    "lists as one label": (
        graph('table = "films.csv"', 'table = "f.json"')
        | {"f.json": b'''[{"id": 1, "title": "One", "genre": ["a", "b"], "year": 1, "country": "x",
            "tags": "t", "plot": "p"}, {"id": 2, "title": "Two", "genre": [], "year": 2}]'''},
        r"f\.json, column genre: cells are lists, .* label_separator",
    ),
    "the label as a feature": (
        graph("year =", 'genre = "category"\nyear ='),
        r"nodes\.film\.features: genre is the label, which no model may see",
    ),
    "no label": (
        graph('label = "genre"\n', ""), r"films\.csv: the target has no labels; name their column"
    ),
    "no file of a query": (
        graph('table = "roles.csv"', "query = \"SELECT film, person FROM 'rolls.csv'\""),
        r"relations\.played query: a query reads only the files that it names, .*rolls\.csv",
    ),
    "too few cells behind a query": (
        graph('table = "roles.csv"', "query = \"SELECT film, person FROM 'roles.csv'\"")
        | {"roles.csv": "film,person,weight\n1,p1,1\n2,p1\n"},
        r"relations\.played query: roles\.csv is not CSV as graph\.toml describes it",
    ),
    "an empty list of rows": (
        graph("people.csv", "p.json") | {"p.json": b"[]"}, r"p\.json: expected rows such as"
    ),
    "blank lines": ({"people.csv": "\n\n\n"}, r"people\.csv line 1: no header$"),
    "cut off JSON": (
        graph("people.csv", "p.json") | {"p.json": b"[{"}, r"p\.json: not json [^^]*$"
    ),
    "no SQL": (graph('table = "films.csv"', 'query = "SELECT FROM"'), r"nodes\.film query: DuckDB"),
    "SQL that fails at work": (
        graph('table = "people.csv"', "query = \"SELECT error('oh') AS id FROM 'people.csv'\""),
        r"nodes\.person query: DuckDB .*oh",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_line_that_says_where(case: str, tmp_path: Path) -> None:
    changes, message = CASES[case]
    tables = folder(tmp_path / "tables", **changes)
    before = sorted(tables.rglob("*"))
    with pytest.raises(HanmeError, match=message) as raised:
        load_tables(tables, cache=tmp_path / "cache")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600
    assert sorted(tables.rglob("*")) == before
    assert not list((tmp_path / "cache").rglob("manifest.json"))


@pytest.mark.parametrize("case", list(CASES)[::8])
def test_the_same_from_the_shell(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    """Status 2, one line, and no folder for the run."""
    changes, message = CASES[case]
    tables = folder(tmp_path / "tables", **changes)
    before = sorted(tables.rglob("*"))
    monkeypatch.setenv("HANME_CACHE", str(tmp_path / "cache"))
    assert re.search(message.removesuffix("$"), refused("train", tables, "--out", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    assert sorted(tables.rglob("*")) == before


def test_there_are_at_least_fifty() -> None:
    assert len(CASES) >= 50


def test_the_tables_are_whole_before_they_are_broken(tmp_path: Path) -> None:
    assert load_tables(folder(tmp_path)).sizes["film"] == 5
    assert load_tables(folder(tmp_path, **SPLIT)).split.val.sum() == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file, so none can be refused")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    (folder(tmp_path) / "people.csv").chmod(0)
    with pytest.raises(HanmeError, match=r"people\.csv: it cannot be read"):
        load_tables(tmp_path)


def test_a_metapath_over_a_relation_that_is_empty(tmp_path: Path) -> None:
    from hanme.runs import RunConfig, train

    text = GRAPH + 'unknown = "drop"\n'
    tables = folder(tmp_path / "t", **{"graph.toml": text, "roles.csv": "film,person\n1,p9\n"})
    options = {"metapaths": ["film-person-film"], "hidden_channels": 8, "heads": 2}
    config = RunConfig.make({"data": {"name": str(tables)}, "model": {"options": options}})
    with pytest.raises(HanmeError, match=r"relation .*film.*played.*person.* is empty"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_label_seen_once_is_trained_on(tmp_path: Path) -> None:
    data = load_tables(folder(tmp_path, **film(3, genre="War")))
    war = data.labels.index("War")
    assert data.split.train[data.y == war].all()


def test_too_few_labels(tmp_path: Path) -> None:
    tables = folder(tmp_path, **film(3, genre=""))
    text = (tables / "films.csv").read_text().replace("4,Four,Comedy", "4,Four,")
    (tables / "films.csv").write_text(text.replace('4,"Four, Five",Comedy', "4,Four,"))
    with pytest.raises(HanmeError, match="no labelled row is left for val; of 2"):
        load_tables(tables)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no tables"),
        ({"a.txt": "what is this"}, r'a\.txt: .*; if it is a table, .* format = "tsv"'),
        ({"a.csv": ""}, "no header"),
        ({"a.csv": "id\n1\n2,3\n"}, "a.csv line 3"),
        ({"a.parquet": "no"}, "not parquet"),
    ],
)
def test_init_refuses(files: dict[str, str], message: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(HanmeError, match=message):
        write_draft(tmp_path)
    assert not (tmp_path / "graph.toml").exists()


QUIET = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _only_hanme_errors(*works: Callable[[], object]) -> None:
    for work in works:
        said = ""
        try:
            work()
        except HanmeError as error:
            said = str(error)
        assert "\n" not in said


CELL = st.sampled_from([*"abc,;|\"'\n\r\t\0é", "1", "p1", "nan", "", "\ufeff", "\\", "{", "%"])


@pytest.mark.slow
@QUIET
@given(content=st.one_of(
    st.binary(max_size=60),
    st.lists(CELL, max_size=30).map(lambda cells: ("id,name\n" + "".join(cells)).encode()),
))  # fmt: skip
def test_random_bytes_in_a_table(content: bytes, tmp_path: Path) -> None:
    tables = folder(tmp_path / "t", **{"people.csv": content})
    _only_hanme_errors(lambda: load_tables(tables), lambda: render(infer(tables)))


@pytest.mark.slow
@QUIET
@given(data=st.data())
def test_random_cuts_in_a_table(data: st.DataObject, tmp_path: Path) -> None:
    file = data.draw(st.sampled_from(["films.csv", "people.csv", "roles.csv"]))
    text = FILES[file]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    new = text[:start] + "".join(data.draw(st.lists(CELL, max_size=4))) + text[end:]
    tables = folder(tmp_path / "t", **{file: new.encode("utf-8", "replace")})
    _only_hanme_errors(lambda: load_tables(tables), lambda: render(infer(tables)))


WORD = st.sampled_from(
    ['"', "[", "]", "{", "}", "=", "\n", ".", "nodes", "film", "1", "true", "''", "query",
     "SELECT 1", "type", "text", "é", "\0", "/", "*", "..", "id"]
)  # fmt: skip


@pytest.mark.slow
@QUIET
@given(data=st.data())
def test_random_changes_of_the_toml(data: st.DataObject, tmp_path: Path) -> None:
    start = data.draw(st.integers(0, len(GRAPH)))
    end = data.draw(st.integers(start, min(len(GRAPH), start + 12)))
    new = GRAPH[:start] + "".join(data.draw(st.lists(WORD, max_size=3))) + GRAPH[end:]
    tables = folder(tmp_path / "t", **{"graph.toml": new.encode()})
    _only_hanme_errors(lambda: load_tables(tables))


def test_a_table_that_is_too_large_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MEMORY", "1MB")
    cells = ",".join("12345.6789" for _ in range(200))
    header = ",".join(f"c{i}" for i in range(200))
    (tmp_path / "a.csv").write_text(f"{header}\n" + f"{cells}\n" * 500)
    with pytest.raises(HanmeError, match=r"^a\.csv: too large for the memory that DuckDB may use"):
        infer(tmp_path)
