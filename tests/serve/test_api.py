"""What the server says equals what hanme says itself."""

from __future__ import annotations

import csv
import io
import shutil
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

from hanme.explain import Explainer
from hanme.graph import Graph
from hanme.nn import ChannelModel
from hanme.runs import OpenedRun, Run
from hanme.training import Stacked
from serving import GENRES, HOSTILE, Server


@pytest.fixture(scope="module")
def explainer(runs: Path) -> Explainer:
    return OpenedRun.open(runs / "planted").explainer


def test_the_runs_and_their_graphs(server: Server) -> None:
    found = {run["name"]: run for run in server.get("runs")["runs"]}
    assert list(found) == ["planted", "paper", "closed", "hostile", "numbers"]
    assert [label["name"] for label in found["hostile"]["labels"]] == sorted(GENRES)
    assert found["planted"]["explains"]
    assert found["planted"]["multilabel"]
    assert "closed" in found
    assert not found["closed"]["explains"]
    assert "cannot be explained" in found["closed"]["why_not"]
    graph = server.get("runs/planted/graph")
    assert graph["types"]["movie"] == 150
    relations = {row["relation"]: row for row in graph["relations"]}
    assert relations["movie-to-actor"]["target"] == "actor"
    assert relations["movie-to-actor"]["links"] == relations["actor-to-movie"]["links"] > 150
    assert server.get("health")["memory_mb"] > 50


def test_scores_stand_beside_the_baselines_with_intervals(server: Server, runs: Path) -> None:
    found, result = server.get("runs/planted/overview"), Run.open(runs / "planted").result()
    assert found["part"] == "test"
    assert [score["name"] for score in found["scores"]] == ["model", "linear", "majority"]
    assert found["scores"][0]["micro"] == result["scores"]["decided"]["test"]["micro"]
    for score in found["scores"]:
        low, high = score["intervals"]["micro"]
        assert low <= score["micro"] <= high
    # The diagonal of the confusion and the counts by label are the hits.
    hits = np.diag(found["confusion"]["counts"])
    rows = found["by_label"]
    assert [round(row["recall"] * row["nodes"]) for row in rows] == hits.tolist()
    assert [row["epoch"] for row in found["epochs"]] == [4, 8]


def test_predictions_are_those_of_hanme_predict(server: Server, runs: Path) -> None:
    expected = OpenedRun.open(runs / "planted").predict().rows()
    columns = [key for key in expected[0] if key.startswith("p_")]
    page = server.get("runs/planted/predictions?limit=500")
    assert page["total"] == len(expected) == 150
    for row, other in zip(page["rows"], expected, strict=True):
        assert [row[key] for key in ("node", "name", "split", "labels", "predicted")] == [
            other[key] for key in ("node", "name", "split", "labels", "predicted")
        ]
        assert row["uncertainty"] == pytest.approx(other["uncertainty"], abs=1e-5)
        assert row["surprise"] == pytest.approx(other["surprise"], abs=1e-5)
        assert row["probabilities"] == pytest.approx([other[key] for key in columns], abs=1e-6)
    answer = server.ask("runs/planted/predictions?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    same = server.ask("runs/planted/predictions", headers={"Accept": "text/csv"})
    assert same.text == answer.text
    table = list(csv.DictReader(io.StringIO(answer.text)))
    assert list(table[0]) == list(expected[0])
    assert [row["predicted"] for row in table] == ["|".join(row["predicted"]) for row in expected]
    assert float(table[7][columns[2]]) == pytest.approx(expected[7][columns[2]], abs=1e-6)


@pytest.mark.parametrize("order", ["uncertain", "surprising"])
def test_orders_are_those_of_hanme_predict(server: Server, runs: Path, order: str) -> None:
    expected = OpenedRun.open(runs / "planted").predict().ranked(order).nodes.tolist()  # type: ignore[arg-type]
    page = server.get(f"runs/planted/predictions?sort={order}&limit=500")["rows"]
    assert [row["node"] for row in page][: len(expected)] == expected


def test_filters_and_pages(server: Server) -> None:
    everything = server.get("runs/planted/predictions?limit=500")["rows"]

    def nodes(query: str) -> list[int]:
        return [row["node"] for row in server.get(f"runs/planted/predictions?{query}")["rows"]]

    wrong = [row["node"] for row in everything if row["labels"] not in ([], row["predicted"])]
    assert wrong
    assert nodes("filter=wrong&limit=500") == wrong
    pages = [nodes(f"filter=wrong&limit=3&offset={i}") for i in range(0, len(wrong), 3)]
    assert list(chain(*pages)) == wrong
    assert nodes(f"offset={2**52}") == []
    drama = [row["node"] for row in everything if "Drama" in row["predicted"]]
    assert nodes("predicted=Drama&limit=500") == drama
    given = [row["node"] for row in everything if "Drama" in row["labels"]]
    assert nodes("true=Drama&limit=500") == given
    test = [row["node"] for row in everything if row["split"] == "test"]
    assert nodes("split=test&limit=500") == test
    assert nodes("filter=unlabelled&limit=500&sort=name&descending=true") == [
        row["node"]
        for row in sorted(everything, key=lambda row: row["name"].casefold(), reverse=True)
        if not row["labels"]
    ]
    ranked = server.get("runs/planted/predictions?sort=probability&of=Comedy&limit=500")["rows"]
    comedy = [row["probabilities"][1] for row in ranked]
    assert comedy == sorted(comedy, reverse=True)
    name = everything[9]["name"]
    assert everything[9]["node"] in nodes(f"q={name}")
    held = [row["node"] for row in everything if "e" in f"{row['name']} {row['node']}".lower()]
    assert len(held) > 100
    page = server.get("runs/planted/predictions?q=e&limit=500&sort=number")
    assert [row["node"] for row in page["rows"]] == held
    assert page["total"] == len(held) == sum(v["count"] for v in page["facets"][2]["values"])
    table = server.ask("runs/planted/predictions?q=e&format=csv").text
    assert len(list(csv.DictReader(io.StringIO(table)))) == len(held)
    assert nodes(f"q={name[:4]}x{name[4:]}") == []  # a misspelt name is for the search


def test_facets_count_under_the_other_filters(server: Server) -> None:
    everything = server.get("runs/planted/predictions?limit=500")["rows"]
    page = server.get("runs/planted/predictions?split=test&predicted=Drama&limit=1")
    facets = {
        facet["key"]: {v["value"]: v["count"] for v in facet["values"]} for facet in page["facets"]
    }
    test = [row for row in everything if row["split"] == "test"]
    drama = [row for row in everything if "Drama" in row["predicted"]]
    assert facets["predicted"] == dict(Counter(label for row in test for label in row["predicted"]))
    assert facets["split"] == dict(Counter(row["split"] for row in drama))
    assert page["total"] == facets["predicted"]["Drama"] == facets["split"]["test"]
    assert server.ask("runs/planted/predictions?where=year=2000").status_code == 422


def test_new_predictions_are_counted_and_listed(server: Server) -> None:
    new = server.get("runs/planted/overview")["new"]
    for name, filter in (("nodes", "unlabelled"), ("confident", "confident"), ("review", "review")):
        assert server.get(f"runs/planted/predictions?filter={filter}")["total"] == new[name]
    assert new["nodes"] == new["confident"] + new["review"] > 0
    sure = server.get("runs/planted/predictions?sort=probability&limit=500")["rows"]
    likely = [max(row["probabilities"]) for row in sure]
    assert likely == sorted(likely, reverse=True)


def test_a_node_shows_its_row_and_known_labels(server: Server) -> None:
    film = server.get("runs/hostile/nodes/film/31")
    assert [(cell["column"], cell["value"]) for cell in film["columns"]] == [
        ("id", "f31"),
        ("title", film["name"].strip()),
        ("genre", GENRES[1]),
    ]
    (people,) = film["links"]
    person = server.get(f"runs/hostile/nodes/person/{people['nodes'][0]['number']}")
    (films,) = person["links"]
    others = [node["labels"] for node in films["nodes"] if node["id"] != "f31"]
    counted = Counter(label for labels in others for label in labels)
    assert people["nodes"][0]["known"] == dict(counted)
    assert server.get("runs/planted/nodes/movie/3")["columns"] == []


def test_nodes_are_found_by_id_and_name(server: Server) -> None:
    rows = server.get("runs/hostile/predictions", json={"nodes": ["f30", HOSTILE[0]]})["rows"]
    assert [row["id"] for row in rows] == ["f30", "f0"]
    assert server.get("runs/hostile/predictions/30")["id"] == "f30"
    assert server.ask("runs/hostile/predictions", json={"nodes": ["nobody"]}).status_code == 404
    assert server.ask("runs/hostile/predictions/90").status_code == 404


def test_search_finds_prefixes_parts_and_typos(server: Server) -> None:
    name = server.get("runs/planted/predictions/5")["name"]  # The Adjective Noun

    def first(text: str) -> int:
        hits = server.get("runs/planted/search", params={"q": text, "type": "movie"})["nodes"]
        number: int = hits[0]["number"]
        return number

    word = name.split()[-2]
    typo = name.replace(word, word[:2] + word[3] + word[2] + word[4:])
    for text in (name.upper(), name[:-3], name[4:], name[5:], typo):
        assert first(text) == 5
    assert first("5") == 5  # nodes without ids are found by number
    kinds = {hit["type"] for hit in server.get("runs/planted/search?q=a")["nodes"]}
    assert "actor" in kinds
    assert server.get("runs/planted/search", params={"q": "qqqqxxxx"})["nodes"] == []
    accents = server.get("runs/hostile/search", params={"q": "zoe angstrom"})["nodes"]
    assert accents[0]["name"] == HOSTILE[4]


def test_explanations_are_those_of_the_explainer(server: Server, explainer: Explainer) -> None:
    for node, label in ((3, None), (80, "Comedy"), (11, None)):
        expected = explainer.explain(node, instances=7, label=label)
        found = server.get(
            f"runs/planted/explanations/{node}", params={"instances": 7, "label": label}
        )
        assert (found["label"], found["sentence"]) == (expected.label, expected.sentence)
        for row, reason in zip(found["reasons"], expected.reasons, strict=True):
            assert (row["text"], row["evidence"]) == (reason.text, reason.evidence)
            assert row["without"] == pytest.approx(reason.without, abs=1e-6)
            assert row["node"] is None or row["text"].endswith(row["node"]["name"])
        details = found["details"]
        for row, instance in zip(details["instances"], expected.details.instances, strict=True):
            assert tuple(end["number"] for end in row["nodes"]) == instance.numbers
            assert row["move"] == pytest.approx(instance.moves[expected.label], abs=1e-9)
        parts = [*(row["part"] for row in details["metapaths"]), *details["others"].values()]
        assert sum(parts) == pytest.approx(details["logit"], abs=1e-3)
        sums = [found["base"], *(row["contribution"] for row in found["reasons"])]
        assert sum(sums) == pytest.approx(details["logit"], abs=1e-4)
        assert found["reasons"][-1]["step"] == pytest.approx(found["probability"], abs=1e-4)


def test_a_node_of_any_type_has_its_links(server: Server) -> None:
    actor = links_of(server, 3)["movie-to-actor"][0]
    (links,) = server.get(f"runs/planted/nodes/actor/{actor}")["links"]
    assert 3 in [node["number"] for node in links["nodes"]]
    for node in links["nodes"]:
        row = server.get(f"runs/planted/predictions/{node['number']}")
        assert (node["predicted"], node["wrong"]) == (row["predicted"], row["wrong"])


def test_an_explanation_can_be_stopped_between_blocks(explainer: Explainer) -> None:
    asked = []

    def stop() -> None:
        asked.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        explainer.explain(3, pause=stop)
    assert len(asked) == 1


def links_of(server: Server, node: int) -> dict[str, list[int]]:
    found = server.get(f"runs/planted/nodes/movie/{node}")
    return {row["relation"]: [end["number"] for end in row["nodes"]] for row in found["links"]}


def forward(graph: Graph, model: Stacked, node: int, beta: list[float]) -> list[float]:
    """The logits on a whole graph, computed anew, with β as it was."""
    assert isinstance(model.network, ChannelModel)
    fusion = model.network.fusion
    assert fusion is not None
    held = torch.tensor(beta)
    fusion.forward = lambda vectors: torch.einsum(  # type: ignore[method-assign]
        "p,pnc->nc", held, torch.stack(list(vectors))
    )
    try:
        with torch.no_grad():
            logits = model.predict(graph)
    finally:
        del fusion.forward
    found: list[float] = logits[node].tolist()
    return found


@pytest.mark.parametrize("node", [3, 80])
@pytest.mark.parametrize("run", ["planted", "paper"])
def test_what_if_equals_a_forward_on_the_changed_graph(
    server: Server, runs: Path, run: str, node: int
) -> None:
    opened = OpenedRun.open(runs / run)
    graph, model = opened.graph, opened.model
    beta = Explainer(model, graph).open.beta
    actors, (director,) = (
        links_of(server, node)[f"movie-to-{kind}"] for kind in ("actor", "director")
    )
    new = next(a for a in range(60) if a not in actors)
    changes = {
        "remove": [
            {"relation": "movie-to-actor", "source": node, "target": actors[0]},
            {"relation": "director-to-movie", "source": director, "target": node},
        ],
        "add": [{"relation": "movie-to-actor", "source": node, "target": new}],
    }
    found = server.get(f"runs/{run}/changes/{node}", json=changes)
    links = dict(graph.links)
    for kind, gone, more in (("actor", actors[0], [new]), ("director", director, [])):
        pair = links["movie", "to", kind]
        pair = pair[:, ~((pair[0] == node) & (pair[1] == gone))]
        pair = torch.cat([pair, torch.tensor([[node] * len(more), more]).long()], 1)
        links["movie", "to", kind], links[kind, "to", "movie"] = pair, pair.flip(0)
    expected = forward(replace(graph, links=links), model.frozen(graph), node, beta)
    assert found["after"]["logits"] == pytest.approx(expected, abs=2e-4)
    moved = np.subtract(found["after"]["logits"], found["before"]["logits"])
    assert np.abs(moved).max() > 0.01
    before = server.get(f"runs/{run}/predictions/{node}")
    assert found["before"]["probabilities"] == pytest.approx(before["probabilities"], abs=1e-5)
    nothing = server.get(f"runs/{run}/changes/{node}", json={})
    assert nothing["after"]["logits"] == pytest.approx(nothing["before"]["logits"], abs=1e-5)


def test_other_cells_are_what_another_row_would_have(server: Server) -> None:
    rows = [server.get(f"runs/numbers/nodes/customer/{i}") for i in range(2)]
    cells = [{c["column"]: c["value"] for c in row["columns"] if c["kind"]} for row in rows]
    assert cells[0].keys() == {"age", "income", "plan"}
    same = server.get("runs/numbers/changes/0", json={"columns": cells[0]})
    assert same["after"]["logits"] == pytest.approx(same["before"]["logits"], abs=1e-4)
    new = server.get("runs/numbers/changes/0", json={"columns": {"income": "9", "plan": None}})
    assert new["after"]["logits"] != pytest.approx(new["before"]["logits"], abs=1e-3)
    refused = server.ask("runs/numbers/changes/0", json={"columns": {"income": "much"}})
    assert (refused.status_code, "finite number" in refused.json()["error"]) == (422, True)
    for number in (1e39, "1e39", 3.39e38):
        refused = server.ask("runs/numbers/changes/0", json={"columns": {"income": number}})
        assert refused.status_code == 422
    assert server.ask("runs/numbers/changes/0", json={"columns": {"id": "x"}}).status_code == 404


def test_single_changes_have_the_effects_of_what_if(server: Server) -> None:
    names = [row["name"] for row in server.get("runs")["runs"][4]["labels"]]
    flipped = False
    for node in range(6):
        found = server.get(f"runs/numbers/changes/{node}")
        at = names.index(found["label"])
        effects = found["effects"]
        assert {one["column"] for one in effects} == {"age", "income", "plan", None}
        for one in effects[:2]:
            change = {"remove": [one["remove"]]} if one["remove"] else {}
            change |= {"columns": {one["column"]: one["value"]}} if one["column"] else {}
            after = server.get(f"runs/numbers/changes/{node}", json=change)["after"]
            assert after["probabilities"][at] == pytest.approx(one["probability"], abs=1e-5)
            assert (after["predicted"] != found["predicted"]) == one["flips"]
        flips = [one["flips"] for one in effects]
        assert flips == sorted(flips, reverse=True)
        moves = [abs(one["probability"] - found["probability"]) for one in effects]
        assert moves[: sum(flips)] == sorted(moves[: sum(flips)])
        flipped |= any(flips)
    assert flipped


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"remove": [{"relation": "x", "source": 0, "target": 0}]}, 404, "no relation"),
        (
            {"remove": [{"relation": "movie-to-actor", "source": 999, "target": 0}]},
            422,
            "there are",
        ),
        ({"add": [{"relation": "movie-to-actor", "source": 3, "target": 9999}]}, 422, "there are"),
        ({"columns": {"year": "2000"}}, 404, "no column that the model reads"),
        ({"removed": []}, 422, "removed"),
    ],
)
def test_changes_that_cannot_be_are_refused(
    server: Server, changes: dict[str, object], status: int, why: str
) -> None:
    answer = server.ask("runs/planted/changes/3", json=changes)
    assert answer.status_code == status
    assert why in answer.json()["error"]


def test_a_link_cannot_be_added_twice_or_removed_where_there_is_none(server: Server) -> None:
    actors = links_of(server, 3)["movie-to-actor"]
    other = next(a for a in range(60) if a not in actors)
    for key, actor in (("add", actors[0]), ("remove", other)):
        link = {"relation": "actor-to-movie", "source": actor, "target": 3}
        assert server.ask("runs/planted/changes/3", json={key: [link]}).status_code == 422


def test_two_runs_side_by_side(server: Server) -> None:
    found = server.get("compare/planted/paper?limit=500")
    rows = {
        run: server.get(f"runs/{run}/predictions?limit=500")["rows"] for run in ("planted", "paper")
    }
    pairs = list(zip(rows["planted"], rows["paper"], strict=True))
    differ = {a["node"] for a, b in pairs if a["predicted"] != b["predicted"]}
    assert differ
    assert {row["b"]["node"] for row in found["rows"]} == differ
    assert found["total"] == found["differ"] == len(differ)
    distance = [row["distance"] for row in found["rows"]]
    assert distance == sorted(distance, reverse=True)
    test = [(a, b) for a, b in pairs if a["split"] == "test"]
    only = [a["node"] for a, b in test if not a["wrong"] and b["wrong"]]
    assert found["a_right"] == len(only)
    parts = ("both_right", "a_right", "b_right", "both_wrong")
    assert sum(found[part] for part in parts) == found["nodes"] == len(test)
    assert all(row["a"] == rows["planted"][row["a"]["node"]] for row in found["rows"])
    assert server.ask("compare/planted/hostile").status_code == 409


def test_a_model_that_cannot_be_explained_says_why(server: Server) -> None:
    for answer in (
        server.ask("runs/closed/explanations/3"),
        server.ask("runs/closed/changes/3", json={}),
    ):
        assert answer.status_code == 409
        assert "cannot be explained" in answer.json()["error"]
    assert server.get("runs/closed/predictions?limit=1")["total"] == 150
    assert server.get("runs/closed/overview")["scores"][0]["name"] == "model"


def test_hostile_names_come_through_as_they_are(server: Server) -> None:
    rows = server.get("runs/hostile/predictions?limit=500")["rows"]
    assert [row["name"].strip() for row in rows[: len(HOSTILE)]] == [n.strip() for n in HOSTILE]
    answer = server.ask("runs/hostile/predictions?limit=1")
    assert answer.headers["content-type"] == "application/json"
    found = server.get("runs/hostile/explanations/1", params={"label": GENRES[1]})
    assert found["label"] == GENRES[1]
    node = server.get("runs/hostile/nodes/person/3")
    assert len(node["name"]) > 9_000
    table = list(
        csv.DictReader(io.StringIO(server.ask("runs/hostile/predictions?format=csv").text))
    )
    assert table[0]["name"] == HOSTILE[0]
    assert table[7]["name"] == HOSTILE[7]


def test_a_new_row_is_predicted_as_by_predict_graph(
    server: Server, runs: Path, tmp_path: Path
) -> None:
    """A row that is added to the tables gets the same features, and nearly the same answer."""
    shutil.copytree(runs / "numbers-tables", tmp_path / "tables")
    old = server.get("runs/numbers/nodes/customer/7")
    cells = {c["column"]: c["value"] for c in old["columns"] if c["kind"]}
    shops = [
        node["id"] for group in old["links"] for node in group["nodes"] if node["type"] == "shop"
    ]
    with (tmp_path / "tables" / "customers.csv").open("a") as file:
        file.write(f"c999,New,{cells['age']},{cells['income']},{cells['plan']},\n")
    with (tmp_path / "tables" / "visits.csv").open("a") as file:
        file.writelines(f"c999,{shop},10\n" for shop in shops)
    opened = OpenedRun.open(runs / "numbers", graph=tmp_path / "tables" / "graph.toml")
    expected = opened.predict(["c999"]).probabilities[0].tolist()
    row = {"columns": {**cells, "name": "New"}, "links": {"shop": shops}}
    (new,) = server.get("runs/numbers/rows", json={"rows": [row]})["rows"]
    assert new["prediction"]["name"] == "New"
    assert new["prediction"]["probabilities"] == pytest.approx(expected, abs=0.05)
    assert new["explanation"]["sentence"].startswith("New")
    text = (
        f"name,age,income,plan,shop\nNew,{cells['age']},{cells['income']},{cells['plan']},"
        + "|".join(shops)
    )
    (same,) = server.get("runs/numbers/rows.csv", data=text.encode())["rows"]
    assert same == new
    reasons = [one["text"] for one in new["explanation"]["reasons"] if "plan" in one["text"]]
    assert reasons == [f"plan: {cells['plan']}"]
    linked = {"columns": {**row["columns"], "plan": None}, "links": {**row["links"]}}
    linked["links"]["plan"] = [cells["plan"]]
    del linked["columns"]["plan"]
    (same,) = server.get("runs/numbers/rows", json={"rows": [linked]})["rows"]
    assert same == new
    (named,) = server.get("runs/numbers/rows.csv", data=b"id,shop\nx1,s1\n")["rows"]
    assert named["prediction"]["id"] == "x1"


def test_a_link_that_is_a_cell_as_well_goes_with_it(server: Server) -> None:
    node = server.get("runs/numbers/nodes/customer/7")
    (plan,) = (one for group in node["links"] for one in group["nodes"] if one["type"] == "plan")
    found = server.get("runs/numbers/explanations/7")
    (reason,) = (one for one in found["reasons"] if one["text"].startswith("plan: "))
    link = {"relation": "customer-plan-plan", "source": 7, "target": plan["number"]}
    outcome = server.get("runs/numbers/changes/7", json={"remove": [link]})
    both = server.get("runs/numbers/changes/7", json={"remove": [link], "columns": {"plan": None}})
    assert outcome == both
    after = outcome["after"]["probabilities"][["no", "yes"].index(found["label"])]
    assert after == pytest.approx(reason["without"], abs=1e-4)
    effects = server.get(f"runs/numbers/changes/7?label={found['label']}")["effects"]
    (effect,) = (one for one in effects if one["remove"] == link)
    assert effect["probability"] == pytest.approx(after, abs=1e-6)
    assert server.get("runs/numbers/changes/7", json={"columns": {"plan": None}}) == outcome


def test_new_rows_need_no_columns(server: Server) -> None:
    (new,) = server.get("runs/planted/rows", json={"rows": [{"links": {"actor": [1, 2]}}]})["rows"]
    assert new["prediction"]["node"] == 150
    assert any(one["node"] and one["node"]["number"] == 1 for one in new["explanation"]["reasons"])
    closed = server.get("runs/closed/rows", json={"rows": [{"links": {"actor": [1, 2]}}]})["rows"]
    assert closed[0]["explanation"] is None


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "it is empty"),
        (b"name\n", "no rows"),
        (b"\xff\xfen\x00a\x00", "not UTF-8"),
        (b"name\na\x00b\n", "NUL"),
        (b"name,name\na,b\n", "same name"),
        (b"name,age\na\n", "1 cells"),
        (b"name\n" + b"a\n" * 101, "over 100 rows"),
        (b"name\n" + b"a" * 10_001, "longer"),
        (b",".join(b"c%d" % i for i in range(10_000)) + b"\n", "10,000 columns"),
        (b"age\n=1+1\n", "not a finite number"),
        (b"age\n1e39\n", "not a finite number in float32"),
        (b"age\n3.39e38\n", "too far from the mean"),
        (b"age\n=HYPERLINK(1)\n", "not a finite number"),
        (b"nothing\na\n", "no relation"),
        (b"shop\nNobody\n", "no node"),
        (b'name\n"a', "not CSV"),
        (b"a" * ((1 << 20) + 1), "bytes"),
    ],
)
def test_hostile_files_are_refused_in_one_line(server: Server, body: bytes, why: str) -> None:
    answer = server.ask("runs/numbers/rows.csv", data=body)
    assert 400 <= answer.status_code < 500
    assert why in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def test_formulas_are_text(server: Server) -> None:
    body = b"name,shop\n=HYPERLINK(1),s1\n"
    (new,) = server.get("runs/numbers/rows.csv", data=body)["rows"]
    assert new["prediction"]["name"] == "=HYPERLINK(1)"


def test_unknown_categories_of_new_rows_are_named(server: Server) -> None:
    rows = [{"columns": {"plan": value}} for value in ("A", "Z", " ")]
    known, unknown, empty = server.get("runs/numbers/rows", json={"rows": rows})["rows"]
    assert known["notes"] == empty["notes"] == []
    (note,) = unknown["notes"]
    assert "plan" in note
    assert "'Z'" in note
    body = b"plan,shop\nZ,s1\n"
    (uploaded,) = server.get("runs/numbers/rows.csv", data=body)["rows"]
    assert uploaded["notes"] == [note]


def test_a_long_file_is_predicted_at_once_and_explained_row_by_row(server: Server) -> None:
    body = b"name,shop\n" + b"".join(b"N%d,s%d\n" % (i, i % 10) for i in range(100))
    rows = server.get("runs/numbers/rows.csv", data=body)["rows"]
    assert [row["explanation"] is not None for row in rows] == [True] * 10 + [False] * 90
    chosen = server.get("runs/numbers/rows.csv?explain=42", data=body)["rows"]
    assert [i for i, row in enumerate(chosen) if row["explanation"]] == [42]
    assert chosen[42]["explanation"]["sentence"].startswith("N42")
    assert [row["prediction"] for row in chosen] == [row["prediction"] for row in rows]
    assert server.ask("runs/numbers/rows.csv?explain=100", data=body).status_code == 404
