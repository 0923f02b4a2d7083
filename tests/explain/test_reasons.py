"""Reasons add up to the logits, and their evidence can be counted in the tables."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pandas as pd
import pytest
import torch

from hanme import Classifier, Graph
from hanme.data import planted
from hanme.data.tables.draft.draft import write
from hanme.data.tables.draft.infer import infer
from hanme.explain import Explainer, Explanation
from hanme.explain.wording import AGGREGATES
from hanme.graph.metapath import Metapath
from hanme.linear import LinearModel, Smoothing, parse_block
from hanme.linear.aggregates import PHRASES
from hanme.linear.matrices import GraphMatrices
from hanme.linear.smoothing import SmoothingSpec
from hanme.nn import HAN, HANME, MAGNN
from hanme.training import Network, Stacked, build_seeded

FILMS = Path(__file__).parents[2] / "examples" / "films"


def check_sum(found: Explanation) -> None:
    for label, logit in found.logits.items():
        added = sum(one.contributions[label] for one in found.reasons)
        assert found.base[label] + added == pytest.approx(logit, abs=1e-5)
    assert len({(one.node, one.text) for one in found.reasons}) == len(found.reasons)
    assert found.steps[-1] == pytest.approx(found.probabilities[found.label], abs=1e-5)


@pytest.fixture(scope="module")
def movies() -> Graph:
    return planted(movies=60).with_features("given-onehot")


def linear(graph: Graph) -> LinearModel:
    blocks = [
        "features:plain", "features:unit", "movie-actor:ids:unit", "movie-actor:ids:plain",
        "movie-actor-movie:features:unit", "movie-director-movie:features:plain",
        "movie-actor-movie-actor-movie:features:unit",
    ]  # fmt: skip
    matrices, parsed = GraphMatrices(graph), [parse_block(b, graph.metadata()) for b in blocks]
    width = sum(block.on(matrices).width for block in parsed)
    generator = torch.Generator().manual_seed(1)
    return LinearModel.on(matrices, parsed, torch.randn(width + 1, 5, generator=generator))


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (HANME, {"encoder": "multihop"}),
        (HANME, {"encoder": "direct"}),
        (HANME, {"encoder": "direct", "values": "transformed"}),
        (HANME, {"encoder": "rotate"}),
        (HANME, {"channels": ["features"]}),
        (HANME, {"per_root": 4}),
        (HAN, {}),
        (MAGNN, {"encoder": "linear"}),
        (None, {}),
    ],
)
@pytest.mark.parametrize("smooth", [False, True])
def test_reasons_add_up_to_the_logits(
    movies: Graph, model: type | None, options: dict, smooth: bool
) -> None:
    base = linear(movies)
    if smooth:
        texts = ["movie-director-movie", "movie-actor-movie"]
        spec = SmoothingSpec(
            paths=texts, slopes=[2.0, 3.0], slope=1.5, bias=[1] * 5, prior=[0.2] * 5
        )
        base = Smoothing(base, [Metapath.parse(t, movies.metadata()) for t in texts], spec)
    stacked = Stacked({"linear": base}, {"linear": 0.7}, torch.ones(5))
    if model is not None:
        sizes = {"heads": 2, "hidden_channels": 16}
        network, _ = build_seeded(
            lambda: model(movies.metadata(), "movie", movies.metapaths, 5, **sizes, **options),
            movies,
            seed=1,
        )
        parts = {**stacked.parts, "network": Network(network)}
        stacked = Stacked(parts, {"linear": 0.7, "network": 1.3}, torch.ones(5))
    explainer = Explainer(stacked, movies)
    for node in (3, 7):
        found = explainer.explain(node)
        check_sum(found)
        cast = {
            (kind, end)
            for kind in ("actor", "director", "keyword")
            for end in movies.adjacency(("movie", "to", kind)).of_node(node).tolist()
        }
        assert {one.node[:2] for one in found.reasons if one.node} <= cast
        assert sum(one.kind == "column" for one in found.reasons) >= 1
    expected = stacked.predict(movies, torch.tensor([7]))[0]
    assert list(found.logits.values()) == pytest.approx(expected.tolist(), abs=1e-4)


def test_removal_is_that_of_the_model_on_a_graph_without_the_link(movies: Graph) -> None:
    stacked, node = Stacked({"linear": linear(movies)}), 7
    found = Explainer(stacked, movies).explain(node)
    tried = [one for one in found.reasons if one.without is not None]
    effects = [abs(one.without - found.probabilities[found.label]) for one in tried]
    assert effects == sorted(effects, reverse=True)
    assert not any(one.estimated for one in tried)
    for one in tried:
        links, nodes = dict(movies.links), dict(movies.nodes)
        if one.node:
            kind, number, _ = one.node
            pairs = links["movie", "to", kind]
            pairs = pairs[:, (pairs[0] != node) | (pairs[1] != number)]
            links["movie", "to", kind], links[kind, "to", "movie"] = pairs, pairs.flip(0)
        else:
            x = movies.targets.x.to_dense().clone()
            x[node] = 0
            nodes["movie"] = replace(movies.targets, x=x)
        logits = stacked.aligned_to(movies).predict(replace(movies, links=links, nodes=nodes))
        label = movies.labels.index(found.label)
        assert one.without == pytest.approx(float(logits[node].sigmoid()[label]), abs=1e-5)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    folder = tmp_path_factory.mktemp("films")
    copytree(FILMS, folder, dirs_exist_ok=True)
    write(infer(folder, label="genre"), folder / "graph.toml")
    return Classifier(training={"epochs": 4}).fit(Graph.from_tables(folder))


def test_the_counts_of_the_sentence_are_those_of_the_tables(films: Classifier) -> None:
    rows = {row["film_id"]: row for row in csv.DictReader((FILMS / "films.csv").open())}
    people = {
        row["person_id"]: row["name"] for row in csv.DictReader((FILMS / "people.csv").open())
    }
    cast = [
        (row["film_id"], row["person_id"]) for row in csv.DictReader((FILMS / "roles.csv").open())
    ]
    split = {row["id"]: row["split"] for row in films.predictions().rows()}
    known = {film for film, row in rows.items() if split[film] in ("train", "val")}
    sentences = 0
    for film in list(rows)[:12]:
        found = films.explain(film)
        check_sum(found)
        base = sum(rows[one]["genre"] == found.label for one in known) / len(known)
        assert found.base_rate[found.label] == pytest.approx(base)
        for reason in found.reasons:
            if not reason.counts:
                continue
            if reason.node:
                sharing = {one for one, person in cast if person == reason.node[2]}
                assert reason.text == f"person: {people[reason.node[2]]}"
            else:
                assert reason.column == "country"
                sharing = {one for one in rows if rows[one]["country"] == rows[film]["country"]}
            others = (sharing & known) - {film}
            same = sum(rows[one]["genre"] == found.label for one in others)
            assert reason.counts == (same, len(others))
        said = re.search(
            r"\. (?:All (\d+)|(\d+) of (\d+)) other films with (.+) are", found.sentence
        )
        if said:
            same, count = int(said[1] or said[2]), int(said[1] or said[3])
            who = {one.text.split(": ")[1]: one.counts for one in found.reasons if one.counts}
            assert who[said[4].removeprefix("country ")] == (same, count)
            assert same / count > base
            sentences += 1
    assert sentences > 6


def test_every_function_of_linked_rows_has_a_title() -> None:
    assert AGGREGATES.keys() == PHRASES.keys()


def test_columns_are_named_with_their_values(films: Classifier) -> None:
    found = films.explain("f011")
    columns = {one.column: one for one in found.reasons if one.kind == "column"}
    assert {"year", "country", "plot", "title"} <= columns.keys()
    year = next(
        row["year"]
        for row in csv.DictReader((FILMS / "films.csv").open())
        if row["film_id"] == "f011"
    )
    assert columns["year"].text == f"year: {year}"
    assert re.fullmatch(r"(lower|higher) than \d+ % of films", columns["year"].evidence)
    assert columns["plot"].evidence == "its most important words"


CUSTOMERS = {
    "target": "customer",
    "nodes": {
        "customer": {
            "table": "customers",
            "id": "id",
            "label": "label",
            "singular": "client",
            "features": {
                "age": "number",
                "income": {"kind": "number", "title": "yearly income", "unit": "USD"},
                "since": "date",
                "region": "category",
                "tags": {"kind": "list", "separator": "|"},
                "note": "text",
                "place": "vector",
            },
        },
        "order": {
            "table": "orders",
            "id": "id",
            "features": {"amount": "number", "item": "category"},
        },
        "shop": {"table": "orders", "id": "shop", "duplicates": "first"},
    },
    "relations": {
        "buyer": {
            "table": "orders",
            "source": {"type": "order", "column": "id"},
            "target": {"type": "customer", "column": "customer"},
        },
        "shop": {
            "table": "orders",
            "source": {"type": "order", "column": "id"},
            "target": {"type": "shop", "column": "shop"},
        },
    },
}


def customers(count: int = 600) -> Graph:
    """Customers with a column of every kind, and their orders in shops."""
    random = np.random.default_rng(0)
    age = random.integers(18, 90, count).astype(float)
    people = pd.DataFrame(
        {
            "id": [f"c{i}" for i in range(count)],
            "age": np.where(random.random(count) < 0.1, np.nan, age),
            "income": random.integers(1, 300, count) * 1e6,
            "since": [f"{random.integers(1990, 2020)}-05-07" for _ in range(count)],
            "region": random.choice(["north", "south", "west"], count),
            "tags": ["|".join(random.choice(list("abcd"), 2)) for _ in range(count)],
            "note": [
                " ".join(random.choice([f"word{i}" for i in range(12)], 3)) for _ in range(count)
            ],
            "place": [random.normal(size=2).tolist() for _ in range(count)],
        }
    )
    buyers = random.integers(0, count, 4 * count)
    orders = pd.DataFrame(
        {
            "id": [f"o{i}" for i in range(len(buyers))],
            "customer": [f"c{i}" for i in buyers],
            "amount": random.exponential(50, len(buyers)).round(2),
            "item": random.choice(["pen", "book", "ink"], len(buyers)),
            "shop": random.choice(["s1", "s2", "s3"], len(buyers)),
        }
    )
    spent = orders.groupby("customer")["amount"].sum().reindex(people["id"], fill_value=0)
    score = (
        spent.to_numpy() / 100 + (people["region"] == "north") + people["tags"].str.contains("a")
    )
    people["label"] = np.where(score > score.median(), "yes", "no")
    return Graph.from_frames({"customers": people, "orders": orders}, CUSTOMERS)


def test_columns_of_every_kind_and_linked_rows_add_up() -> None:
    graph = customers()
    classifier = Classifier(training={"epochs": 2}).fit(graph)
    texts = {}
    for node in (0, 1, 2, 3, 4, 5):
        found = classifier.explain(node)
        check_sum(found)
        assert not any(one.estimated for one in found.reasons)
        texts |= {one.column or one.kind: one for one in found.reasons}
        assert sum(one.kind == "link" for one in found.reasons) <= 1  # its orders, together
    assert {"age", "income", "since", "region", "tags", "note", "place", "link"} <= texts.keys()
    assert re.fullmatch(r"yearly income: \d+ million USD", texts["income"].text)
    assert re.fullmatch(r"since: \d{4}-05-0[678]", texts["since"].text)
    assert re.fullmatch(r"region: (north|south|west)", texts["region"].text)
    assert re.fullmatch(r"\d+ of \d+ other clients have label = (yes|no)", texts["region"].evidence)
    assert re.fullmatch(r"its \d+ orders together", texts["link"].text)
    aggregates = [one.text for one in texts.values() if one.text.startswith("total amount of its")]
    assert aggregates


MATCHES = {
    "target": "match",
    "nodes": {
        "match": {
            "table": "matches",
            "id": "id",
            "label": "result",
            "features": {"referee": "category", "sponsors": {"kind": "list", "separator": "|"}},
        }
    },
    "relations": {
        "home": {"columns": ["home"], "type": "team"},
        "away": {"columns": ["away"], "type": "team"},
        "referee": {"columns": ["referee"]},
        "sponsors": {"columns": ["sponsors"], "separator": "|", "type": "sponsor"},
    },
}


def matches(**changes: str) -> tuple[pd.DataFrame, Graph]:
    """Matches that the better team wins; some cells of the first one can be changed."""
    random = np.random.default_rng(0)
    home = random.integers(0, 8, 160)
    away = (home + random.integers(1, 8, 160)) % 8
    referee = random.integers(0, 5, 160)
    score = home - away + 2 * referee + random.normal(0, 1, 160)
    pairs = random.choice(["acme", "bolt", "core", "dyne"], (160, 2))
    frame = pd.DataFrame(
        {
            "id": [f"m{i}" for i in range(160)],
            "home": [f"team {i}" for i in home],
            "away": [f"team {i}" for i in away],
            "referee": [f"ref {i}" for i in referee],
            "sponsors": ["|".join(dict.fromkeys(pair)) for pair in pairs],
            "result": np.where(score > np.median(score), "home", "away"),
        }
    )
    for column, value in changes.items():
        frame.loc[0, column] = value
    return frame, Graph.from_frames({"matches": frame}, MATCHES)


def test_links_count_by_role_and_cells_that_are_links_are_one_reason() -> None:
    frame, graph = matches()
    options = {"linear": True, "trees": False, "epochs": 2}
    classifier = Classifier("linear", training=options).fit(graph)
    found = classifier.explain("m0")
    check_sum(found)
    reasons = {one.text: one for one in found.reasons}
    first, known = frame.iloc[0], (graph.split.train | graph.split.val).numpy()
    for role in ("home", "away"):
        others = frame[(frame[role] == first[role]) & known & (frame.id != "m0")]
        same = int((others.result == found.label).sum())
        assert reasons[f"{role}: {first[role]}"].counts == (same, len(others))
    assert sum(text.startswith("referee: ") for text in reasons) == 1
    sponsors = first.sponsors.split("|")
    assert {text for text in reasons if "sponsor" in text} == {f"sponsor: {s}" for s in sponsors}
    # Without a link, its cell is empty, too.
    rest = "|".join(sponsors[1:])
    for text, changes in (
        (f"referee: {first.referee}", {"referee": ""}),
        (f"sponsor: {sponsors[0]}", {"sponsors": rest}),
    ):
        _, changed = matches(**changes)
        p = classifier.predict_proba(changed)[0, graph.labels.index(found.label)]
        assert reasons[text].without == pytest.approx(p, abs=2e-3)
