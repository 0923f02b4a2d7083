"""Reviews: what is asked first, what is kept, and what a crash leaves."""

from __future__ import annotations

import csv
import os
import shutil
import threading
import time
from pathlib import Path
from stat import S_ISDIR

import numpy as np
import pytest
import requests
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hanme.errors import HanmeError
from hanme.graph import Graph, Nodes, Split
from hanme.runs.reviewed import ReviewedLabel, read_reviewed, with_reviewed
from hanme.serve.review import COLUMNS, SHARED, Reviews, to_review
from hanme.serve.served import ServedRun, load_runs
from serving import GENRES, Server, serving


@pytest.fixture(scope="module")
def run(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reviewed") / "hostile"
    shutil.copytree(runs / "hostile", folder)
    return folder


@pytest.fixture(scope="module")
def served(run: Path) -> ServedRun:
    return load_runs([run])["hostile"]


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_most_uncertain_come_first_and_neighbours_of_answered_ones_later(
    served: ServedRun,
) -> None:
    graph, table = served.graph, served.table
    none = np.zeros(0, np.int64)
    order, left = to_review(graph, table, none, 50)
    new = np.flatnonzero(~table.labelled)
    assert left == len(new)
    assert sorted(order.tolist()) == new.tolist()
    assert order[0] == new[table.uncertainty[new].argmax()]
    again, left = to_review(graph, table, order[:1], 50)
    assert left == len(new) - 1
    assert order[0] not in again

    def people(node: int) -> set[int]:
        return set(graph.adjacency(("film", "played", "person")).of_node(int(node)).tolist())

    beside = [node for node in again if people(node) & people(order[0])]
    apart = [node for node in again if not people(node) & people(order[0])]
    assert beside
    assert apart
    less = SHARED * table.uncertainty[beside].max()
    assert any(again.tolist().index(n) < again.tolist().index(beside[0]) for n in apart) or (
        less > table.uncertainty[apart].max()
    )


def test_answers_are_kept_as_training_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    reviews = Reviews(path, {"f0": ReviewedLabel(label="Drama", row=2)})
    assert reviews.text() == ""
    reviews.add("f1", ["Drama"], "confirm")
    reviews.add("=f2", ["-Comedy", "Drama"], "correct")
    reviews.add("f3", [], "skip")
    reviews.add("f1", ["Comedy"], "correct")
    assert path.read_text().startswith(",".join(COLUMNS))
    assert lines(path)[2]["id"] == "'=f2"  # no formula for a spreadsheet
    found = {node: one.label for node, one in read_reviewed(path).items()}
    assert found == {"f0": "Drama", "f1": "Comedy", "=f2": "-Comedy|Drama"}
    again = Reviews(path, {})
    assert again.actions == {"f0": "confirm", "f1": "correct", "=f2": "correct", "f3": "skip"}


def test_a_new_file_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = list[bool](), os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda f: synced.append(S_ISDIR(os.fstat(f).st_mode)) or fsync(f)
    )
    reviews = Reviews(tmp_path / "reviewed.csv", {})
    for node in ("a", "b"):
        reviews.add(node, ["x"], "confirm")
    assert synced == [False, True, False]


def test_a_line_that_was_cut_off_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    reviews = Reviews(path, {})
    reviews.add("f1", ["Drama"], "confirm")
    whole = path.read_text()
    path.write_text(f"{whole}f2,Dra")
    reviews = Reviews(path, {})
    assert reviews.actions == {"f1": "confirm"}
    reviews.add("f3", ["Drama"], "confirm")
    assert path.read_text().startswith(whole)
    assert [row["id"] for row in lines(path)] == ["f1", "f3"]


def test_servers_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    servers = [Reviews(path, {}), Reviews(path, {})]
    threads = [
        threading.Thread(target=reviews.add, args=(f"{i}-{number}", ["Drama"], "confirm"))
        for number, reviews in enumerate(servers)
        for i in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({line["id"] for line in lines(path)}) == 80


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip(" ")
) | st.sampled_from(
    ["'=x", "''=x", "=x", "-f", " f ", "a|b", '"a"|b', "a\nb", "a\r\nb", "f\r", "\t"]
)


@given(
    node=TEXTS,
    labels=st.lists(TEXTS, min_size=1, max_size=3, unique=True),
    others=st.sets(TEXTS, max_size=3),
    multilabel=st.booleans(),
    has_ids=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_ids_and_labels_survive_whatever_they_contain(
    node: str,
    labels: list[str],
    others: set[str],
    multilabel: bool,
    has_ids: bool,
    tmp_path: Path,
) -> None:
    path, labels = tmp_path / "reviewed.csv", labels if multilabel else labels[:1]
    path.unlink(missing_ok=True)
    reviews = Reviews(path, {})
    ids = [node, f"{node}2"] if has_ids else None
    nodes = Nodes("film", 2, None, [f"{node}3", "0"], ids=ids)  # without ids, a name like a number
    reviews.add("other", [], "skip")
    reviews.add(nodes.identity(0), labels, "correct")
    assert Reviews(path, {}).actions[nodes.identity(0)] == "correct"
    known = sorted({*labels, *others, "Drama"})
    y = torch.zeros(2, len(known)) if multilabel else torch.full((2,), -1)
    none = torch.zeros(2, dtype=torch.bool)
    graph = Graph({"film": nodes}, {}, "film", y, known, Split(none, none, none))
    reviewed = with_reviewed(graph, read_reviewed(path), skip_unknown=True)
    found = {known[i] for i in reviewed.label_matrix[0].nonzero()[:, 0]}
    assert found == set(labels)
    assert not reviewed.label_matrix[1].any()


@pytest.mark.parametrize("head", ["id,label\n", "\ufeffid,label\n"])
def test_a_file_that_was_edited(head: str, tmp_path: Path) -> None:
    path = tmp_path / "reviewed.csv"
    path.write_text(head + "f1,Drama\n", encoding="utf-8")
    assert Reviews(path, {}).actions == {"f1": "confirm"}
    path.write_text("id,label,action\nf1,Drama,\n\nf2,War,delete\n")
    for read in (read_reviewed, lambda path: Reviews(path, {})):
        with pytest.raises(HanmeError, match=r"row 4, column action: .* got 'delete'"):
            read(path)
    path.write_text("id,label,action\nf1,Drama,\n\n")  # an empty action, and a blank line
    assert read_reviewed(path) == {"f1": ReviewedLabel(label="Drama", row=2)}
    assert Reviews(path, {}).actions == {"f1": "confirm"}
    path.write_bytes(b"id,label\nf\xe9,Drama\n")
    with pytest.raises(HanmeError, match="UTF-8"):
        Reviews(path, {})


def test_a_skip_withdraws_an_answer(tmp_path: Path) -> None:
    reviews = Reviews(tmp_path / "reviewed.csv", {})
    for action in ("correct", "skip"):
        reviews.add("f1", ["Drama"], action)
    assert not read_reviewed(reviews.path)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    reviews = Reviews(tmp_path / "gone" / "reviewed.csv", {})
    with pytest.raises(HanmeError, match="cannot be written"):
        reviews.add("f1", [], "skip")
    assert reviews.actions == {}


def test_answers_by_the_api(run: Path) -> None:
    with serving(run) as server:
        state = server.get("runs/hostile/reviews?limit=3")
        assert state["answered"] == {}
        first = state["rows"][0]
        path = "runs/hostile/reviews"
        now = server.get(path, json={"node": first["node"], "action": "confirm"})
        assert now["left"] == state["left"] - 1
        assert first["node"] not in [row["node"] for row in now["rows"]]
        other = {"node": now["rows"][0]["node"], "action": "correct", "labels": [GENRES[2]]}
        server.get(path, json=other)
        for wrong in ({"labels": []}, {"labels": list(GENRES)}, {"action": "guess"}):
            assert server.ask(path, json=other | wrong).status_code == 422
        assert server.ask(path, json=other | {"labels": ["Western"]}).status_code == 404
        table = server.ask(path, headers={"Accept": "text/csv"}).text
        assert table == (run / "reviewed.csv").read_text()
        assert [row["action"] for row in lines(run / "reviewed.csv")] == ["confirm", "correct"]
        assert str(run / "reviewed.csv") in state["command"]


def test_data_is_sent_with_token_and_origin(run: Path) -> None:
    body = {"node": 10, "action": "skip"}
    with serving(run) as server:
        url = f"{server.api}/runs/hostile/reviews"
        with requests.Session() as session:
            session.trust_env = False
            own = server.url.rstrip("/")
            entrance = session.get(f"{own}/?token={server.token}", allow_redirects=False)
            cookies = entrance.cookies.get_dict()
            session.cookies.clear()
            for headers, jar, status in (
                ({}, {}, 401),
                ({"Origin": own}, {}, 401),
                ({}, cookies, 403),
                ({"Origin": "http://evil.example"}, cookies, 403),
                ({"Origin": own}, cookies, 200),
            ):
                answer = session.post(url, json=body, headers=headers, cookies=jar, timeout=60)
                assert answer.status_code == status
                assert status == 200 or list(answer.json()) == ["error"]


@pytest.mark.slow
def test_no_saved_answer_is_lost_when_the_server_is_killed(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    shutil.copytree(runs / "planted", folder)
    saved: list[int] = []

    def answer(server: Server, begin: int) -> None:
        try:
            for node in range(begin, 150, 4):
                server.get("runs/planted/reviews", json={"node": node, "action": "confirm"})
                saved.append(node)
        except (requests.RequestException, AssertionError):
            return  # the server is gone

    with serving(folder) as server:
        clients = [threading.Thread(target=answer, args=(server, i)) for i in range(4)]
        for client in clients:
            client.start()
        while len(saved) < 25:
            time.sleep(0.005)
        server.process.kill()
        for client in clients:
            client.join()
        server.process.wait()
    kept = read_reviewed(folder / "reviewed.csv")
    assert set(map(str, saved)) <= set(kept)
    with serving(folder) as server:
        assert server.get("runs/planted/reviews")["answered"]["confirm"] >= len(saved) >= 25


@pytest.mark.slow
def test_a_run_is_trained_with_the_answers(run: Path) -> None:
    with serving(run) as server:
        rows = server.get("runs/hostile/reviews?limit=3")["rows"]
        for row in rows:
            server.get("runs/hostile/reviews", json={"node": row["node"], "action": "confirm"})
        started = server.ask("runs/hostile/train", json={})
        assert (started.status_code, started.json()) == (202, {"folder": "hostile-2"})
        assert server.ask("runs/hostile/train", json={}).status_code == 429
        while (now := server.get("listing?run=hostile"))["training"]:
            time.sleep(0.5)
        assert now["error"] == ""
        new, old = now["runs"]
        assert (new["folder"], new["served"], new["state"]) == (
            "hostile-2",
            "hostile-2",
            "finished",
        )
        assert (new["differences"], old["reviewed"]) == ([], 0)
        assert new["reviewed"] >= 3
        page = server.get(f"runs/hostile-2/predictions/{rows[0]['node']}")
        assert (page["split"], page["labels"]) == ("train", rows[0]["predicted"])
        assert server.get("compare/hostile/hostile-2")["nodes"] > 0
