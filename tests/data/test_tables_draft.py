"""What hanme init guesses, and that what it writes can be read."""

import gzip
import json
import os
import random
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drafts import csv_text, sqlite_file, write_draft
from hanme.data.tables.build.fitted import FittedGraph
from hanme.data.tables.build.load import load_tables
from hanme.data.tables.draft.draft import render
from hanme.data.tables.draft.infer import infer
from hanme.errors import HanmeError

FILMS = Path(__file__).parents[2] / "examples" / "films"


def guessed(folder: Path, **files: str) -> dict:
    for name, text in files.items():
        (folder / name.replace("_csv", ".csv")).write_text(text)
    path = write_draft(folder)
    return tomllib.loads(path.read_text())


def test_the_example(tmp_path: Path) -> None:
    folder = tmp_path / "films"
    shutil.copytree(FILMS, folder)
    found = guessed(folder)
    assert found["target"] == "film"
    assert found["nodes"]["film"] == {
        "table": "films.csv",
        "id": "film_id",
        "name": "title",
        "label": "genre",
        "features": {
            "year": "number",
            "country": "category",
            "plot": "text",
            "title": "text",
        },
    }
    assert found["nodes"]["person"]["name"] == "name"
    assert found["relations"] == {
        "role": {
            "table": "roles.csv",
            "source": {"type": "film", "column": "film_id"},
            "target": {"type": "person", "column": "person_id"},
        }
    }
    data = load_tables(folder)
    assert data.links["film", "role", "person"].size(1) == 422
    with pytest.raises(HanmeError, match="--force"):
        write_draft(folder)


def test_what_it_suggests_works(tmp_path: Path) -> None:
    shutil.copytree(FILMS, tmp_path / "films")
    path = write_draft(tmp_path / "films")
    (each,) = re.findall(r"^# (each = .*?):", path.read_text(), re.MULTILINE)
    path.write_text(path.read_text().replace('table = "roles.csv"', f'table = "roles.csv"\n{each}'))
    assert load_tables(path).links["film", "actor", "person"].size(1) == 302


def test_keys_in_a_table_of_nodes_numbers_as_ids_and_strays(tmp_path: Path) -> None:
    films = "id,title,director_id,rating,tags,class,part\n" + "".join(
        f"{i},Film {i},{'' if i == 3 else i % 4 + 1},{i % 5 + 1},a;b{i % 3},"
        f"{'xy'[i % 2] if i > 4 else ''},{['train', 'val'][i % 3 == 0] if i > 4 else ''}\n"
        for i in range(1, 31)
    )
    directors = "id,name\n1,A\n2,B\n3,C\n"
    found = guessed(tmp_path, films_csv=films, directors_csv=directors)
    assert found["relations"] == {  # rating is no key
        "director": {"columns": ["director_id"], "unknown": "add"}  # some are 4
    }
    film = found["nodes"]["film"]
    assert (film["label"], film["split"]) == ("class", "part")
    assert film["features"] == {
        "rating": "number",
        "tags": {"kind": "list", "separator": ";"},
        "title": "text",  # no other text
    }
    data = load_tables(tmp_path)
    assert data.provenance.dropped_links == {"director": 0}
    assert [data.nodes["director"].identity(i) for i in range(4)] == ["1", "2", "3", "4"]


def test_other_formats_and_several_labels(tmp_path: Path) -> None:
    papers = (
        "SELECT i AS paper, 'topic' || i % 3 || '|topic' || i % 2 AS topics FROM range(40) t(i)"
    )
    cites = "SELECT i AS paper, i // 2 AS cited_paper FROM range(40) t(i)"
    duckdb.sql(papers).write_parquet(str(tmp_path / "papers.parquet"))
    duckdb.sql(f"COPY ({cites}) TO '{tmp_path / 'cites.jsonl'}' (FORMAT json)")
    (tmp_path / "notes.txt").write_text("not a table")
    found = guessed(tmp_path)
    assert found["nodes"]["paper"]["label"] == "topics"
    assert found["nodes"]["paper"]["label_separator"] == "|"
    data = load_tables(tmp_path)
    assert data.multilabel
    assert data.links["paper", "cite", "paper"].size(1) == 40


def test_a_relation_of_few_values_is_a_feature_too(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'xy'[i % 2]},s{i % 31},d{i % 101},{i * 7 % 13}\n" for i in range(600))
    found = guessed(tmp_path, a_csv=f"id,class,studio,director,length\n{rows}")
    assert set(found["relations"]) == {"studio", "director"}
    assert found["nodes"]["a"]["features"] == {"studio": "category", "length": "number"}


def test_lists_as_labels_are_several(tmp_path: Path) -> None:
    movies = [{"id": i, "genre": (["Drama", "War"], [], ["War"])[i % 3]} for i in range(12)]
    (tmp_path / "movies.json").write_text(json.dumps(movies))
    (tmp_path / "people.csv").write_text("id\np1\np2\n")
    rows = "".join(f"{i},p{1 + i % 2}\n" for i in range(12))
    (tmp_path / "roles.csv").write_text(f"movie_id,person_id\n{rows}")
    write_draft(tmp_path)
    data = load_tables(tmp_path)
    assert data.labels == ["Drama", "War"]
    assert data.y.tolist() == [([1, 1], [0, 0], [0, 1])[i % 3] for i in range(12)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_that_is_not_utf_8(encoding: str, packed: bool, tmp_path: Path) -> None:
    rows = "".join(f"{i};Übung {i};{'äö'[i % 2]};p{i % 2}\n" for i in range(12))
    text = f"id;name;genre;person\n{rows}".encode(encoding)
    name = "movies.csv.gz" if packed else "movies.csv"
    (tmp_path / name).write_bytes(gzip.compress(text) if packed else text)
    nodes = guessed(tmp_path, people_csv="id,name\np0,A\np1,B\n")["nodes"]
    assert nodes["movie"].get("encoding", "utf-8") == encoding.removesuffix("-sig")
    assert nodes["movie"]["separator"] == ";"
    assert "encoding" not in nodes["person"]
    data = load_tables(tmp_path)
    assert data.labels == ["ä", "ö"]
    assert data.nodes["movie"].names[3] == "Übung 3"


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes("id,name\np0,“A”\n".encode("cp1252"))
    with pytest.raises(HanmeError, match=r"people\.csv: .*; save it as UTF-8"):
        write_draft(tmp_path)
    (tmp_path / "people.csv").write_bytes("\ufeffid,name\n".encode("utf-16-be"))
    with pytest.raises(HanmeError, match=r"people\.csv line 1: the text is not in the encoding"):
        write_draft(tmp_path)
    (tmp_path / "people.csv").unlink()
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(b"id,name\np0,A\n")[:-9])
    with pytest.raises(HanmeError, match=r"people\.csv\.gz: it cannot be read"):
        write_draft(tmp_path)


def test_names_with_other_letters_and_words_of_the_file(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'ab'[i % 2]},{'xy'[i % 2]}\n" for i in range(12))
    (tmp_path / "фильмы.csv").write_text(f"id,réalisateur,genre\n{rows}")
    (tmp_path / "targets.csv").write_text("id,name\na,Ann\nb,Bo\n")
    found = guessed(tmp_path)
    assert set(found["nodes"]) == {"фильмы", "target"}
    assert load_tables(tmp_path).sizes == {"target": 2, "фильмы": 12}


def test_without_a_label_it_says_so(tmp_path: Path) -> None:
    guessed(tmp_path, a_csv="a_id,b_id\nx,u\ny,v\n", b_csv="b_id\nu\nv\n")
    assert "no column looks like a label" in (tmp_path / "graph.toml").read_text()
    with pytest.raises(HanmeError, match="the target has no labels"):
        load_tables(tmp_path)


CELL = st.text(
    st.characters(exclude_characters='\r\n\0,"\ufffd', exclude_categories=["Cs"]), max_size=8
)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(CELL, min_size=1, max_size=3, unique=True), st.lists(CELL, min_size=6, max_size=6))
def test_what_it_writes_can_be_read_whatever_is_in_the_table(
    tmp_path: Path, headers: list[str], cells: list[str]
) -> None:
    quoted = ['"' + cell + '"' for cell in cells]
    lines = ["id," + ",".join(f'"{h}"' for h in headers) + ",link_id,label"]
    lines += [
        ",".join([str(i), *quoted[i % 3 : i % 3 + len(headers)], f"k{i % 2}", "uv"[i % 2]])
        for i in range(8)
    ]
    (tmp_path / "nodes.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "links.csv").write_text("link_id\nk0\nk1\n")
    (tmp_path / "graph.toml").unlink(missing_ok=True)
    if not {"id", "link_id", "label"} & set(headers):
        write_draft(tmp_path)
        load_tables(tmp_path)


def test_a_list_of_ids_of_its_own_table_links_the_table_to_itself(tmp_path: Path) -> None:
    lines = ["package,copy,section,depends"]
    lines += [f"p{i},p{i},s{i % 3},p{(i + 1) % 40}|p{(i * 7) % 40}" for i in range(40)]
    (tmp_path / "packages.csv").write_text("\n".join(lines) + "\n")
    write_draft(tmp_path, label="section")
    found = tomllib.loads((tmp_path / "graph.toml").read_text())["relations"]
    assert [(r["columns"], r.get("type")) for r in found.values()] == [(["depends"], "package")]


def features_of(found: dict, kind: str) -> dict:
    return found["nodes"][kind].get("features", {})


def test_numbers_of_rows_are_no_feature_and_lists_of_numbers_no_keys(tmp_path: Path) -> None:
    lines = ["atom,rownames,states,size,species"]
    lines += [f'{i},{i + 7},"{i % 3 + 1}, {i % 2 + 1}",{i * i},s{i % 7}' for i in range(1, 71)]
    found = guessed(tmp_path, atoms_csv="\n".join(lines) + "\n")
    assert found["nodes"]["atom"]["id"] == "atom"
    assert found["nodes"]["atom"]["label"] == "species"
    assert features_of(found, "atom")["size"] == "number"
    assert "rownames" not in features_of(found, "atom")
    assert features_of(found, "atom")["states"] == {"kind": "list", "separator": ","}
    assert "relations" not in found


def test_the_key_that_other_tables_use_is_the_id(tmp_path: Path) -> None:
    states = "".join(f"{i + 100},S{i:02},Name {i}\n" for i in range(10))
    ports = "".join(f"{i},Port {i},S{i % 10:02},{'ab'[i % 2]}\n" for i in range(60))
    found = guessed(
        tmp_path, states_csv=f"id,code,name\n{states}", ports_csv=f"id,name,iso_state,type\n{ports}"
    )
    assert (found["nodes"]["state"]["id"], found["nodes"]["port"]["id"]) == ("code", "id")
    assert found["relations"] == {"iso_state": {"columns": ["iso_state"], "type": "state"}}


def test_tables_with_the_same_ids_are_linked(tmp_path: Path) -> None:
    films = "".join(f"{i * 3},{'xy'[i % 2]}\n" for i in range(60))
    scores = "".join(f"{i * 3},{i / 7:.2f}\n" for i in range(60))
    found = guessed(tmp_path, films_csv=f"ID,class\n{films}", scores_csv=f"ID,score\n{scores}")
    assert found["relations"] == {
        "score_id": {"columns": ["ID"], "source": "score", "type": "film"}
    }
    assert load_tables(tmp_path).links


@pytest.mark.parametrize(
    ("header", "row", "label"),
    [
        (
            "area_code,plan,churn",
            lambda i: f"c{i % 3},p{i % 2},{'yn'[i % 2]}",
            "churn",
        ),  # the file's
        ("sex,species", lambda i: f"{'mf'[i % 2] if i > 2 else ''},s{i % 3}", "species"),
        ("status,region", lambda i: f"{'ab'[i == 4]},r{i % 4}", "region"),  # one row has another
        ("airport name,damage", lambda i: f"n{i % 9},d{i % 3}", "damage"),
        ("survived,sex", lambda i: f"{i % 2},{'mf'[i % 3 > 0]}", "survived"),
    ],
)
def test_the_label_is_what_people_would_predict(header, row, label, tmp_path: Path) -> None:
    text = f"{header}\n" + "".join(f"{row(i)}\n" for i in range(100))
    found = guessed(tmp_path, phone_churn_csv=text)
    assert found["nodes"]["phone_churn"]["label"] == label


def test_a_small_table_is_not_the_target(tmp_path: Path) -> None:
    plots = "".join(f"{i},{'xy'[i % 2]}\n" for i in range(1, 13))
    finds = "".join(f"{i},{i % 12 + 1},{'mf'[i % 2]},{i / 3:.1f}\n" for i in range(100))
    found = guessed(
        tmp_path, plots_csv=f"plot_id,plot_type\n{plots}", finds_csv=f"id,plot_id,sex,kg\n{finds}"
    )
    assert (found["target"], found["nodes"]["find"]["label"]) == ("find", "sex")


def test_what_is_a_list_and_what_is_text(tmp_path: Path) -> None:
    titles = [f"Thing{i}, The" if i % 5 == 0 else f"Thing{i}" for i in range(30)]
    tongues = ["English", "English, French", "French"] + ["English"] * 47
    lines = ["title,tongue,nick,kind,at"]
    lines += [
        f'"{titles[i % 30]}","{tongues[i % 50]}",red fox {i},{"abcdefg"[i % 7]},{i}.5|-{i % 7}.5'
        for i in range(300)
    ]
    found = guessed(tmp_path, things_csv="\n".join(lines) + "\n")
    assert features_of(found, "thing")["nick"] == "text"  # words that other rows have
    assert features_of(found, "thing")["at"] == "vector"
    assert "separator" not in found["relations"]["title"]


def test_objects_in_json_are_not_split(tmp_path: Path) -> None:
    rows = [{"name": {"a": f"x{i % 30}", "b": i % 4}, "kind": "ab"[i % 2]} for i in range(60)]
    (tmp_path / "things.json").write_text(json.dumps(rows))
    found = guessed(tmp_path)
    assert "relations" not in found
    assert "name" not in found["nodes"]["thing"]
    keyed = {f"k{i}": row for i, row in enumerate(rows)}
    for size in (3, 60):
        (tmp_path / "keyed.json").write_text(json.dumps(dict(list(keyed.items())[:size])))
        (tmp_path / "graph.toml").unlink(missing_ok=True)
        with pytest.raises(HanmeError, match=r"expected rows .* jq"):
            write_draft(tmp_path / "keyed.json")


def test_text_of_windows(tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_bytes("id,title\n1,\u201cA\u201d\n2,B\n".encode("cp1252"))
    with pytest.raises(HanmeError, match=r"save it as UTF-8, .* iconv -f cp1252"):
        write_draft(tmp_path)


def test_lists_of_mostly_one_value_are_lists(tmp_path: Path) -> None:
    rows = [
        {"id": f"c{i}", "by": [f"a{i % 40}"], "of": [1 + i % 4], "kind": ["xyz"[i % 3]]}
        for i in range(120)
    ]
    rows[0]["by"], rows[1]["kind"] = ["a1", "a2"], ["x", "y"]
    (tmp_path / "cards.json").write_text(json.dumps(rows))
    text = write_draft(tmp_path, label="kind").read_text()
    assert 'label_separator = "|"' in text
    graph = load_tables(tmp_path / "graph.toml")
    assert graph.multilabel
    assert [
        graph.nodes["by"].identity(int(end))
        for start, end in graph.links["card", "by", "by"].t()
        if int(start) == 0
    ] == ["a1", "a2"]


def test_an_id_with_a_separator_in_it_is_one_id(tmp_path: Path) -> None:
    tags = [f"({i // 6:04},{i % 6:04})" for i in range(36)]
    rows = "".join(f'"{tag}",{"xyz"[i % 3]}\n' for i, tag in enumerate(tags))
    parts = "".join(f'"{tag}","{tags[i // k]}"\n' for i, tag in enumerate(tags) for k in (4, 7))
    found = guessed(tmp_path, attributes_csv=f"tag,kind\n{rows}", nesting_csv=f"tag,in\n{parts}")
    assert set(found["nodes"]) == {"attribute"}
    ends = found["relations"]["nesting"]
    assert (ends["source"]["type"], ends["target"]["type"]) == ("attribute", "attribute")
    assert load_tables(tmp_path).links["attribute", "nesting", "attribute"].size(1) == 72


def test_a_list_of_ids_is_split_although_most_cells_are_one_id(tmp_path: Path) -> None:
    lines = ["package,section,depends"]
    lines += [f"p{i},s{i % 3},p{i * 7 % 40}{';p3' if i % 8 == 0 else ''}" for i in range(40)]
    (tmp_path / "packages.csv").write_text("\n".join(lines) + "\n")
    write_draft(tmp_path, label="section")
    (found,) = tomllib.loads((tmp_path / "graph.toml").read_text())["relations"].values()
    assert found == {"columns": ["depends"], "separator": ";", "type": "package"}


def test_rows_of_facts_refer_by_a_number_of_the_same_general_name(tmp_path: Path) -> None:
    workers = "".join(f"{13 * i + 7},{'xyz'[i % 3]}\n" for i in range(40))
    years = "".join(f"{13 * (i % 40) + 7},{i // 40},{i * 7 % 11}.5\n" for i in range(160))
    files = {"workers_csv": f"nr,union\n{workers}", "years_csv": f"nr,year,wage\n{years}"}
    (relation,) = guessed(tmp_path, **files)["relations"].values()
    assert (relation["columns"], relation["type"]) == (["nr"], "worker")


def test_a_column_called_id_that_repeats_holds_the_ids_of_another_table(tmp_path: Path) -> None:
    recipes = "".join(f"{i},Dish {i},{'xyz'[i % 3]}\n" for i in range(40))
    parts = "".join(f"thing{i % 17},{i % 40}\n" for i in range(120))
    files = {
        "recipes_csv": f"id,title,type\n{recipes}",
        "ingredients_csv": f"ingredient,id\n{parts}",
    }
    found = guessed(tmp_path, **files)["relations"]
    assert found["ingredient"]["source"] == {"type": "recipe", "column": "id"}
    assert found["ingredient"]["target"]["column"] == "ingredient"
    (tmp_path / "graph.toml").unlink()
    others = "".join(f"{i},{i * 7 % 11}\n" for i in range(40))  # the numbers fit two tables
    found = guessed(tmp_path, stars_csv=f"id,size\n{others}", **files)
    assert "ingredient" in found["nodes"]


def test_cells_whose_parts_are_cells_by_themselves_are_lists_however_few(tmp_path: Path) -> None:
    fields = ["art", "law", "art; law"] + [
        ("art", "law", "food, cooking")[i % 3] for i in range(97)
    ]
    sites = [("Transport, Inner Membrane", "Transport", "Sun, Moon")[i % 3] for i in range(100)]
    kinds = ["Land", "Artifact; Creature"] + [("Artifact", "Creature")[i % 2] for i in range(98)]
    prices = ["1,234", "1", "234"] + [f"{i * 7},5" for i in range(97)]
    rows = "".join(
        f'"{field}","{site}","{kind}","{price}"\n'
        for field, site, kind, price in zip(fields, sites, kinds, prices, strict=True)
    )
    (tmp_path / "words.csv").write_text(f"field,site,kinds,price\n{rows}")
    found = tomllib.loads(write_draft(tmp_path, label="field").read_text())
    word = found["nodes"]["word"]
    assert (word["label"], word["label_separator"]) == ("field", ";")
    assert word["features"]["kinds"] == {"kind": "list", "separator": ";"}
    assert word["features"]["site"] == "category"
    assert "separator" not in str(word["features"].get("price"))
    assert load_tables(tmp_path).labels == ["art", "food, cooking", "law"]


def test_prose_with_commas_is_text_and_a_list_of_names_is_none(tmp_path: Path) -> None:
    draw = random.Random(1)
    words = [f"w{i}" for i in range(300)]

    def meaning() -> str:
        said = [" ".join(draw.choices(words, k=draw.randrange(3, 5))) for _ in range(3)]
        return ", ".join([*said, *draw.choices(words[:9], k=2)])

    def cast() -> str:
        return ", ".join(f"{draw.choice(words)} {draw.choice(words[:3])}" for _ in range(3))

    rows = "".join(f'{i},"{meaning()}","{cast()}",{"xyz"[i % 3]}\n' for i in range(900))
    found = guessed(tmp_path, words_csv=f"id,meaning,cast,kind\n{rows}")
    assert features_of(found, "word")["meaning"] == "text"
    assert found["relations"] == {"cast": {"columns": ["cast"], "separator": ","}}


def test_a_third_column_of_ids_makes_a_relation_and_one_of_few_values_a_comment(
    tmp_path: Path,
) -> None:
    draw = random.Random(0)
    cards = "".join(f"c{i},{draw.choice('xyz')}\n" for i in range(60))
    sets = "".join(f"S{i},{i % 4}\n" for i in range(6))
    rows = "".join(f"S{i % 6},c{i % 60},r{i % 12},Artist {i * 7 % 31}\n" for i in range(240))
    found = guessed(
        tmp_path, cards_csv=f"card_id,color\n{cards}", sets_csv=f"code,size\n{sets}",
        printings_csv=f"set_code,card_id,rarity,artist\n{rows}",
    )  # fmt: skip
    ends = {
        name: (relation["source"]["type"], relation["target"]["type"])
        for name, relation in found["relations"].items()
    }
    assert ends == {"printing": ("set", "card"), "printing_artist": ("card", "artist")}
    assert '# each = "rarity": would make' in (tmp_path / "graph.toml").read_text()
    assert load_tables(tmp_path).sizes["artist"] == 31


@pytest.mark.parametrize(("name", "said"), [("Tooth Code {} Sequence", True), ("Bulba{}", False)])
def test_a_name_whose_words_repeat_is_a_text_beside_others(name, said, tmp_path: Path) -> None:
    rows = "".join(f"{i},{name.format(i)},a long text {i} of it,{'xy'[i % 2]}\n" for i in range(60))
    features = features_of(guessed(tmp_path, a_csv=f"id,name,about,kind\n{rows}"), "a")
    assert features["about"] == "text"
    assert ("name" in features) == said


@pytest.mark.parametrize(("different", "how"), [(4, "add"), (20, "drop")])
def test_unknown_ids_become_nodes_where_they_repeat(different, how, tmp_path: Path) -> None:
    draw, planes = random.Random(0), "".join(f"N{i},{i * 9}\n" for i in range(20))
    flights = "".join(
        f"{i},{f'N{i % 20}' if i % 5 else f'X{i % (5 * different)}'},{draw.choice('xy')}\n"
        for i in range(200)
    )
    text = {"planes_csv": f"tail,seats\n{planes}", "flights_csv": f"id,tail,late\n{flights}"}
    found = guessed(tmp_path, **text)["relations"]["tail"]
    assert found == {"columns": ["tail"], "type": "plane", "unknown": how}
    graph = load_tables(tmp_path)
    assert graph.sizes["plane"] == 20 + different * (how == "add")
    assert graph.nodes["plane"].x.shape[0] == graph.sizes["plane"]
    assert graph.provenance.dropped_links == {"tail": 0 if how == "add" else 40}


def test_unknown_ids_of_the_target_become_no_nodes(tmp_path: Path) -> None:
    films = "".join(f"f{i},{'xyz'[i % 3]}\n" for i in range(60))
    roles = "".join(f"{'f' if i % 9 else 'g'}{i % 60},p{i % 7}\n" for i in range(900))
    people = "".join(f"p{i},{i * 3}\n" for i in range(7))
    found = guessed(
        tmp_path, films_csv=f"film_id,genre\n{films}", people_csv=f"person_id,age\n{people}",
        roles_csv=f"film_id,person_id\n{roles}",
    )  # fmt: skip
    assert found["relations"]["role"]["unknown"] == "drop"


def test_nan_is_empty_among_numbers_and_a_word_among_words(tmp_path: Path) -> None:
    words = "".join(f"{w},{i % 3},{'xy'[i % 2]}\n" for i, w in enumerate(["nan", "gran"] * 20))
    sizes = "".join(f"{i},{'nan' if i % 4 else i * i},{'xy'[i % 2]}\n" for i in range(40))
    found = guessed(tmp_path, a_csv=f"word,n,kind\n{words}", b_csv=f"id,size,kind\n{sizes}")
    assert "empty" not in found["nodes"]["a"]
    assert found["nodes"]["b"]["empty"] == ["nan"]
    assert found["nodes"]["b"]["features"]["size"] == "number"


def test_comments_show_labels_one_by_one(tmp_path: Path) -> None:
    labels = ["art; law", "art; law", "sea", "art", "law; art", "sea; law"] * 10 + ["odd"]
    rows = "".join(f"{i},{label}\n" for i, label in enumerate(labels))
    guessed(tmp_path, a_csv=f"id,kind\n{rows}")
    text = (tmp_path / "graph.toml").read_text()
    assert 'label = "kind"  # art, law, sea, ...\n' in text
    assert "# 1 label has fewer rows\n" in text


def ends_of(found: dict) -> dict[str, tuple[str, str]]:
    return {
        name: (relation["source"]["type"], relation["target"]["type"])
        for name, relation in found["relations"].items()
        if "table" in relation
    }


def test_links_between_several_tables_make_a_relation_for_each_pair(tmp_path: Path) -> None:
    """Ids of techniques, groups and software in one column, as in MITRE ATT&CK's spreadsheets."""
    draw = random.Random(0)
    techniques = "".join(f"T{i:03},{'xyz'[i % 3]}\n" for i in range(80))
    groups = "".join(f"G{i:03},Group {i}\n" for i in range(30))
    software = "".join(f"S{i:03},Tool {i}\n" for i in range(30))
    links = "".join(
        f"{draw.choice('TGS')}{draw.randrange(30):03},uses,T{draw.randrange(80):03},"
        f"https://x.org/{i},relationship--{i},2020-01-0{1 + i % 9}\n"
        for i in range(400)
    )
    header = "source ID,mapping type,target ID,url,STIX ID,created"
    found = guessed(
        tmp_path, techniques_csv=f"ID,tactics\n{techniques}", groups_csv=f"ID,name\n{groups}",
        software_csv=f"ID,name\n{software}", relationships_csv=f"{header}\n{links}",
    )  # fmt: skip
    assert sorted(ends_of(found).values()) == [
        ("group", "technique"), ("software", "technique"), ("technique", "technique")
    ]  # fmt: skip
    graph = load_tables(tmp_path)
    assert sum(graph.links[a, name, b].size(1) for name, (a, b) in ends_of(found).items()) == 400


def test_a_column_of_types_says_whose_ids_numbers_are(tmp_path: Path) -> None:
    films = "".join(f"{i},{'xyz'[i % 3]}\n" for i in range(1, 61))
    people = "".join(f"{i},Person {i}\n" for i in range(1, 61))
    kinds, draw = ("Film", "Person"), random.Random(0)
    likes = "".join(
        f"{draw.randint(1, 60)},{kinds[i % 2]},{draw.randint(1, 60)},{kinds[i % 3 > 0]}\n"
        for i in range(240)
    )
    found = guessed(
        tmp_path, films_csv=f"id,genre\n{films}", people_csv=f"id,name\n{people}",
        links_csv=f"source_id,source_type,target_id,target_type\n{likes}",
    )  # fmt: skip
    assert len(ends_of(found)) == 4
    assert found["relations"]["link_film_film"]["where"] == {
        "source_type": "Film", "target_type": "Film"
    }  # fmt: skip
    assert load_tables(tmp_path).links["film", "link_film_person", "person"].size(1) == 80


def test_numbers_are_ids_by_their_name_and_not_by_accident(tmp_path: Path) -> None:
    """Tables as those of the Tate: year, width and counts are valid ids, artistId nearly always."""
    artists = "".join(f"{i},Artist {i}\n" for i in range(1, 3001))
    works = "".join(
        f"{i},{i * 37 % 3000 + 1 if i % 500 else 99999},{1800 + i % 200},{i * 13 % 2000 + 1},"
        f"{i % 4 + 1},{'' if i % 150 else 'no date'}{'' if i % 150 == 0 else i % 2900 + 1},"
        f"{'xyz'[i % 3]}\n"
        for i in range(2000)
    )
    found = guessed(
        tmp_path, artist_data_csv=f"id,name\n{artists}",
        artwork_data_csv=f"id,artistId,year,width,artist_count,depth,class\n{works}",
    )  # fmt: skip
    assert found["relations"] == {"artist": {"columns": ["artistId"], "unknown": "add"}}
    numbers = {"year", "width", "artist_count", "depth"}
    assert {k for k, v in features_of(found, "artwork").items() if v == "number"} == numbers


def test_few_values_are_features_and_many_in_small_groups_relations(tmp_path: Path) -> None:
    rows = "".join(
        f"c{i},{'ab'[i % 7 > 3]},{['card', 'bank', 'cash', 'cheque'][i % 4]},{'yn'[i % 3 > 0]},"
        f"{'yn'[i % 5 > 0]},s{i % 150},{' ' if i % 97 == 0 else i / 8},{i % 24}\n"
        for i in range(1, 1500)
    )
    header = "id,churn,payment,option_1,option_2,seller,charges,month"
    found = guessed(tmp_path, customers_csv=f"{header}\n{rows}")
    assert found["relations"] == {"seller": {"columns": ["seller"]}}
    assert features_of(found, "customer") == {
        "payment": "category", "option_1": "category", "option_2": "category",
        "charges": "number", "month": "number",
    }  # fmt: skip


def test_declared_keys_are_used_and_labels_shown_by_name(tmp_path: Path) -> None:
    tables = """
        CREATE TABLE Genre (GenreId INTEGER PRIMARY KEY, Name TEXT);
        CREATE TABLE Person (PersonNo INTEGER PRIMARY KEY, Name TEXT);
        CREATE TABLE Track (TrackId INTEGER PRIMARY KEY, Length INTEGER,
        GenreId INTEGER REFERENCES Genre, Author INTEGER REFERENCES Person);
    """
    with sqlite_file(tmp_path / "shop.db", tables) as opened:
        opened.executemany("INSERT INTO Genre VALUES (?, ?)", [(1, "Rock"), (2, "Jazz")])
        opened.executemany("INSERT INTO Person VALUES (?, ?)", [(i, f"P{i}") for i in range(400)])
        rows = [(i, i * 7, 1 + i % 2, i % 30) for i in range(90)]
        opened.executemany("INSERT INTO Track VALUES (?, ?, ?, ?)", rows)
    found = guessed(tmp_path)
    track = found["nodes"]["track"]
    assert (track["id"], track["label"], track["label_type"]) == ("TrackId", "GenreId", "genre")
    assert found["relations"] == {"author": {"columns": ["Author"], "type": "person"}}
    graph = load_tables(tmp_path)
    assert graph.labels == ["Jazz", "Rock"]
    assert graph.y[:4].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_each_of_several_labels_is_shown_by_its_name(form: str, tmp_path: Path) -> None:
    names = {"g1": "Drama", "g2": "Comedy", "g3": "War | peace"}
    chosen = [list(names)[: 1 + i % 3] for i in range(60)] + [[]]
    (tmp_path / "genres.csv").write_text(csv_text("genre_id,name", 3, lambda i: ",".join(
        list(names.items())[i])))  # fmt: skip
    rows = [{"film_id": f"f{i}", "genres": ids} for i, ids in enumerate(chosen)]
    if form == "json":
        (tmp_path / "films.json").write_text(json.dumps(rows))
    else:
        cells = [f"{row['film_id']},{'|'.join(row['genres'])}" for row in rows]
        (tmp_path / "films.csv").write_text("\n".join(["film_id,genres", *cells]) + "\n")
    film = tomllib.loads(write_draft(tmp_path, label="genres").read_text())["nodes"]["film"]
    assert (film["label_type"], film["label_separator"]) == ("genre", "|")
    graph = load_tables(tmp_path)
    assert graph.labels == sorted(names.values())
    rows = [{graph.labels[i] for i in row.nonzero()[:, 0]} for row in graph.y]
    assert rows == [{names[id_] for id_ in ids} for ids in chosen]


def test_addresses_that_contain_ids_are_no_text(tmp_path: Path) -> None:
    works = csv_text(
        "id,url,thumb,mail,about,class", 90,
        lambda i: f"{i},https://x.org/art/a-work-of-art-{i},/img/{i}/small.jpg,joe.{i}@mail.org,"
        f"work of art {i % 40} in oil,{'xyz'[i % 3]}",
    )  # fmt: skip
    found = guessed(tmp_path, works_csv=works)
    assert list(features_of(found, "work")) == ["about"]
    assert "# url: left out (addresses)" in (tmp_path / "graph.toml").read_text()


def test_rows_about_the_target_are_nodes_with_numbers_and_dates(tmp_path: Path) -> None:
    baskets = "".join(f"b{i},{int(i % 9 == 0)}\n" for i in range(90))
    items = "".join(
        f"b{i % 90},{['tv', 'pc', 'pen'][i % 3]},{i * 7 % 200}.5,2020-02-{1 + i % 28}\n"
        for i in range(300)
    )
    visits = "".join(f"b{i % 90},u{i % 17},{i % 5},{i * 7}\n" for i in range(200))
    found = guessed(
        tmp_path, baskets_csv=f"ID,fraud_flag\n{baskets}",
        products_csv=f"basket_ID,item,cash_price,bought\n{items}",
        visits_csv=f"basket_ID,user_id,stars,seconds\n{visits}",
    )  # fmt: skip
    assert (found["target"], found["nodes"]["basket"]["label"]) == ("basket", "fraud_flag")
    assert features_of(found, "product") == {
        "item": "category", "cash_price": "number", "bought": "date"
    }  # fmt: skip
    assert features_of(found, "visit") == {"stars": "number", "seconds": "number"}
    assert ends_of(found) == {"visit": ("basket", "user")}
    graph = load_tables(tmp_path)
    assert graph.sizes == {"basket": 90, "product": 300, "visit": 200, "user": 17}
    assert graph.links["product", "product_basket", "basket"].size(1) == 300


def test_dates_with_a_few_other_cells_are_dates(tmp_path: Path) -> None:
    text = csv_text(
        "id,seen,size,kind", 200,
        lambda i: f"{i},{1 + i % 12}/{1 + i % 28}/2020 {i % 24}:15,"
        f"{'?' if i == 7 else i * 1.5},{'xy'[i % 2]}",
    )  # fmt: skip
    found = guessed(tmp_path, a_csv=text)
    assert features_of(found, "a") == {
        "seen": {"kind": "date", "format": "%m/%d/%Y %H:%M"}, "size": "number"
    }  # fmt: skip
    text += "".join(f"{i},unknown,low,x\n" for i in range(200, 202))
    (tmp_path / "graph.toml").unlink()
    assert features_of(guessed(tmp_path, a_csv=text), "a") == {
        "seen": {"kind": "date", "format": "%m/%d/%Y %H:%M"}, "size": "number"
    }  # fmt: skip
    assert sum("count as empty" in note for note in load_tables(tmp_path).provenance.notes) == 2


def leaky(folder: Path, cell: Callable[[int, bool], str]) -> tuple[dict, str, Path]:
    """Write cases with one suspicious column; return the draft and its text."""
    draw = random.Random(3)
    labels = [draw.random() < 0.3 for _ in range(400)]
    rows = "".join(
        f"{i},{draw.gauss(0, 1):.5f},{cell(i, y)},{'yes' if y else 'no'}\n"
        for i, y in enumerate(labels)
    )
    found = guessed(folder, cases_csv=f"id,size,extra,churn\n{rows}")
    return found, (folder / "graph.toml").read_text(), folder / "graph.toml"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        (lambda i, y: f"2020-01-{i % 28 + 1:02}" if y and i % 3 else "", "filled only where"),
        (lambda i, y: "" if y else str(i * 7 % 50), "empty only where the label is yes"),
        (lambda i, y: "lost" if y else ["won", "open"][i % 2], "a copy of the label"),
        (lambda i, y: f"{(i * 7 % 100) / 100 + y:.3f}", "its numbers tell the labels apart"),
    ],
)
def test_columns_that_give_the_label_away_are_left_out(cell, why: str, tmp_path: Path) -> None:
    found, text, path = leaky(tmp_path, cell)
    assert features_of(found, "case") == {"size": "number"}
    assert why in text
    kind = (
        "date" if "2020" in cell(1, True) else "category" if cell(0, True) == "lost" else "number"
    )
    path.write_text(text.replace('size = "number"', f'size = "number"\nextra = "{kind}"'))
    (note,) = [note for note in load_tables(path).provenance.notes if "extra" in note]
    assert why in note
    assert 'add keep = ["extra"] to [nodes.case]' in note
    width = load_tables(path).nodes["case"].width
    path.write_text(
        path.read_text().replace('label = "churn"', 'label = "churn"\nkeep = ["extra"]')
    )
    graph = load_tables(path)
    assert not graph.provenance.notes
    assert (graph.nodes["case"].width or 0) > (width or 0)


def test_a_column_that_is_filled_only_in_labelled_rows_is_left_out(tmp_path: Path) -> None:
    draw = random.Random(4)
    rows = []
    for i in range(400):
        label = "" if i % 4 == 0 else draw.choice("xyz")
        score = f"{draw.random():.3f}"
        rows.append(f"{i},{draw.gauss(0, 1):.5f},{score if label else ''},{score},{label}\n")
    found = guessed(tmp_path, cases_csv=f"id,size,review,score,class\n{''.join(rows)}")
    assert features_of(found, "case") == {"size": "number", "score": "number"}
    path = tmp_path / "graph.toml"
    assert "review: left out (filled only in rows with a label)" in path.read_text()
    assert not load_tables(path).provenance.notes  # the others are clean
    both = 'size = "number"\nreview = "number"'
    path.write_text(path.read_text().replace('size = "number"', both))
    (note,) = load_tables(path).provenance.notes
    assert "review is not used: filled only in rows with a label" in note


def test_a_column_of_a_row_that_belongs_to_one_target_may_give_the_label_away(
    tmp_path: Path,
) -> None:
    draw = random.Random(5)
    labels = [draw.random() < 0.3 for _ in range(300)]
    clients = "".join(f"c{i},{i * 7 % 50},{'yn'[y]}\n" for i, y in enumerate(labels))
    closures = "".join(
        f"c{i},{['open', 'kept', 'gone'][2 * y + (i % 2) * (not y)]},{draw.random():.4f}\n"
        for i, y in enumerate(labels)
    )
    guessed(
        tmp_path, clients_csv=f"client_id,age,churn\n{clients}",
        closures_csv=f"client_id,state,amount\n{closures}",
    )  # fmt: skip
    path = tmp_path / "graph.toml"
    text = path.read_text()
    assert "# state: left out (each of its values has only one label" in text
    features = "[nodes.closure.features]\n"
    path.write_text(text.replace(features, f'{features}state = "category"\n'))
    graph = load_tables(path)
    (note,) = graph.provenance.notes
    assert note.startswith("closure.state is not used: each of its values has only one label")
    assert list(graph.provenance.fitted["features"]["closure"]) == ["amount"]
    fitted = FittedGraph.make(graph.provenance.fitted, "test")
    assert load_tables(path, fitted=fitted).nodes["closure"].width == graph.nodes["closure"].width
    keep = 'label = "churn"\nkeep = ["closure.state"]'
    path.write_text(path.read_text().replace('label = "churn"', keep))
    kept = load_tables(path)
    assert not kept.provenance.notes
    assert list(kept.provenance.fitted["features"]["closure"]) == ["state", "amount"]


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = "".join(
        f'{i},"${i * 37:,}.50",{i % 40} %,"{i},{i % 7}",{["n/a", "free"][i % 2] if i < 3 else i},'
        f"{draw.choice('xy')}\n"
        for i in range(400)
    )
    found = guessed(tmp_path, a_csv=f"id,price,discount,version,size,kind\n{rows}")
    features = features_of(found, "a")
    assert {key: features[key] for key in ("price", "discount", "size")} == dict.fromkeys(
        ("price", "discount", "size"), "number"
    )
    assert features.get("version") != "number"
    text = (tmp_path / "graph.toml").read_text()
    assert 'price = "number"  # numbers as people write them, such as $0.50' in text
    assert 'size = "number"\n' in text
    graph = load_tables(tmp_path)
    numbers = graph.provenance.fitted["features"]["a"]
    assert numbers["price"]["mean"] == pytest.approx(37 * 199.5 + 0.5)
    assert numbers["discount"]["mean"] == pytest.approx(19.5)


def test_cells_that_are_empty_by_chance_or_in_many_rows_are_no_leak(tmp_path: Path) -> None:
    found, *_ = leaky(tmp_path, lambda i, y: "" if i % 5 == 0 or (y and i % 2) else str(i % 90))
    assert features_of(found, "case") == {"size": "number", "extra": "number"}
    assert not load_tables(tmp_path).provenance.notes


def test_near_duplicates_are_in_the_same_part(tmp_path: Path) -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choices([f"w{i}" for i in range(200)], k=9)) for _ in range(300)]
    rows = [(texts[i], "xyz"[i % 3]) for i in range(300)]
    rows += [(f"{text.upper()}!", label) for text, label in rows[:60]]
    (tmp_path / "posts.csv").write_text(
        "id,text,kind\n" + "".join(f"{i},{text},{label}\n" for i, (text, label) in enumerate(rows))
    )
    path = write_draft(tmp_path)
    assert "60 rows nearly repeat others" in path.read_text()
    graph = load_tables(path)
    parts = torch.stack(list(graph.split)).int().argmax(0)
    assert torch.equal(parts[:60], parts[300:])
    assert [n for n in graph.provenance.notes if '[split] duplicates = "apart"' in n]
    path.write_text(path.read_text() + '[split]\nduplicates = "apart"\n')
    parts = torch.stack(list(load_tables(path).split)).int().argmax(0)
    assert not torch.equal(parts[:60], parts[300:])


@pytest.mark.parametrize("name", ["films", "telco", "fraud", "chinook"])
def test_clean_tables_raise_no_suspicion(name: str, tmp_path: Path) -> None:
    given = Path(os.environ.get("HANME_DATA", "-")) / "relational" / name
    folder = FILMS if name == "films" else given
    if not folder.exists():
        pytest.skip("no such data here")
    shutil.copytree(folder, tmp_path / name)
    text = write_draft(tmp_path / name).read_text()
    graph = load_tables(tmp_path / name)
    for said in (text, *graph.provenance.notes):
        assert not re.search("only where|may be|repeat others", said)


def test_what_may_be_a_link_is_a_comment(tmp_path: Path) -> None:
    clubs = "".join(f"club{i},{i * 3}\n" for i in range(40))
    rows = "".join(
        f"{i},{f'club{i % 40}' if i % 2 else f'other {i % 90}'},t{i % 25},{'xy'[i % 7 > 3]}\n"
        for i in range(4000)
    )
    guessed(tmp_path, clubs_csv=f"name,size\n{clubs}", games_csv=f"id,played at,town,kind\n{rows}")
    text = (tmp_path / "graph.toml").read_text()
    assert "# played at: 50% are ids of club; to link them, write [relations.NAME]" in text
    assert 'town = "category"  # 25 values; or a relation: [relations.NAME]' in text


def test_equal_rows_without_an_id_are_all_kept(tmp_path: Path) -> None:
    """Two passengers may have the same sex, age and class: they are not one passenger."""
    draw = random.Random(6)
    rows = "".join(
        f"{draw.choice('yn')},{draw.choice('fm')},{draw.randrange(20, 40)},{draw.randrange(1, 4)}\n"
        for _ in range(400)
    )
    found = guessed(tmp_path, people_csv=f"survived,sex,age,class\n{rows}")
    assert "duplicates" not in found["nodes"]["person"]
    assert load_tables(tmp_path).targets.num_nodes == 400


def test_numbers_with_a_decimal_comma(tmp_path: Path) -> None:
    cells = [
        (f"{60 + i % 45},{i % 10}5", f"1.{200 + i}{',5' * (i % 2)}", f"{1.5 * i}", f"2.{100 + j}")
        for i, j in ((i, i * 7 % 60) for i in range(60))
    ]
    lines = [f"{i};{'xy'[i % 2]};{';'.join(row)};{i * 7 % 31}\n" for i, row in enumerate(cells)]
    found = guessed(tmp_path, flats_csv="id;class;size;rent;factor;price;rooms\n" + "".join(lines))
    comma = {"kind": "number", "decimal": ","}
    assert found["nodes"]["flat"]["features"] == {
        "size": comma, "rent": comma, "factor": "number", "price": comma, "rooms": "number",
    }  # fmt: skip
    fitted = load_tables(tmp_path).provenance.fitted
    assert fitted is not None
    means = {column: one["mean"] for column, one in fitted["features"]["flat"].items()}
    for place, column in ((0, "size"), (1, "rent"), (3, "price")):
        numbers = [float(row[place].replace(".", "").replace(",", ".")) for row in cells]
        assert means[column] == pytest.approx(sum(numbers) / 60)
    assert means["factor"] == pytest.approx(1.5 * 29.5)


def test_thousands_are_no_decimals(tmp_path: Path) -> None:
    rows = "".join(f'{i},{"xy"[i % 2]},"{i},{i + 100}",<{i / 8}\n' for i in range(1, 61))
    found = guessed(tmp_path, a_csv=f"id,class,people,limit\n{rows}")
    assert found["nodes"]["a"]["features"] == {"people": "number", "limit": "number"}


def test_columns_without_a_name_and_stray_bytes_are_mentioned(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        ",class,x\n" + "".join(f"{i},{'xy'[i % 2]},{i * 7 % 31}\n" for i in range(60))
    )
    write_draft(tmp_path)
    assert "1 column has no name in the header: left out" in (tmp_path / "graph.toml").read_text()
    body = "".join(f"{i},{'xy'[i % 2]},K\u00f6ln\n" for i in range(60)).encode()
    (tmp_path / "a.csv").write_bytes(b"id,class,city\n" + body + b"61,x,K\xf6ln\n")
    with pytest.raises(HanmeError, match=r"a\.csv line 62: a byte that is not UTF-8"):
        infer(tmp_path)
    (tmp_path / "a.csv").write_bytes(b"id,class,city\n" + body.replace("\u00f6".encode(), b"\xf6"))
    assert "latin-1" in render(infer(tmp_path))


def test_a_label_of_many_numbers_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i * 7 % 997}\n" for i in range(200))
    (tmp_path / "a.csv").write_text(f"id,price\n{rows}")
    with pytest.raises(HanmeError, match="price: 200 different numbers, but hanme predicts class"):
        infer(tmp_path, label="price")
