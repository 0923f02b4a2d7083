"""Sources that give the label away by themselves are found, and others are not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from hanme import Classifier
from hanme.data import planted
from hanme.graph.splits import GROUPS
from hanme.linear.alone import alone, roc_auc
from hanme.runs.results import result_of
from hanme.runs.suspicion import (
    NEARLY,
    PERFECT,
    remedy,
    suspects,
    suspicion,
    suspicion_lines,
    without,
)
from hanme.training import TrainingConfig, finalize
from planting import EASY, LEAKS, OWN, customers, graph_of, orders


@pytest.mark.parametrize("kind", LEAKS)
def test_a_planted_leak_is_found(kind: str) -> None:
    plant, begin = LEAKS[kind]
    graph = plant(np.random.default_rng(0))
    (found,) = suspects(graph, alone(graph), PERFECT)
    assert remedy(found.source, graph).startswith(begin)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("word", "leak"),
        ("reference", "which shop it is linked to (customer_shop)"),
        ("column at one hop", "state of contract"),
        ("column at two hops", "reminders over invoice via order"),
        ("number of links", "number of order"),
    ],
)
def test_a_source_is_named_as_people_call_it(kind: str, name: str) -> None:
    graph = LEAKS[kind][0](np.random.default_rng(0))
    (found,) = suspects(graph, alone(graph), PERFECT)
    assert found.name.endswith(name)


@pytest.mark.parametrize("kind", EASY)
def test_no_source_of_an_easy_graph_is_enough(kind: str) -> None:
    found = alone(EASY[kind](np.random.default_rng(0)))
    assert found[0].roc_auc < PERFECT - NEARLY


@pytest.mark.slow
@pytest.mark.parametrize("kind", EASY)
def test_nothing_is_said_of_an_easy_graph(kind: str) -> None:
    graph = EASY[kind](np.random.default_rng(0))
    result = result_of(graph, finalize(None, graph, TrainingConfig()))
    (scored,) = {"val", "oof"} & set(result["probabilities"])
    assert result["probabilities"][scored]["roc_auc"] > PERFECT  # it is easy
    assert suspicion(graph, TrainingConfig(), result) == {}


def test_the_area_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    scores, y = random.integers(5, size=(200, 3)).astype(float), random.random((200, 3)) < 0.3
    assert roc_auc(scores, y) == pytest.approx(roc_auc_score(y, scores, average="macro"))


def test_ids_that_no_other_row_has_tell_nothing() -> None:
    random = np.random.default_rng(0)
    frame, _ = customers(random)
    made = orders(random, 1 + random.integers(4, size=len(frame)))
    graph = graph_of({"customer": frame, "order": made}, {"customer": OWN})
    (ids,) = (one for one in alone(graph) if one.name.startswith("which order"))
    assert ids.roc_auc == 0.5


def test_rows_that_repeat_others_do_not_make_their_ids_tell() -> None:
    frame, _ = customers(np.random.default_rng(0))
    frame["leak"] = [f"v{i}" for i in range(len(frame))]
    twice = pd.concat([frame, frame.assign(id="again" + frame["id"])], ignore_index=True)
    graph = graph_of({"customer": twice}, {"customer": {"leak": "category"}})
    found = dict.fromkeys((False, True), 0.0)
    for grouped in found:
        extra = {GROUPS: torch.arange(1200) % 600} if grouped else {}
        graph.targets.extra.clear()
        graph.targets.extra.update(extra)
        found[grouped] = alone(graph)[0].roc_auc
    assert found[True] < 0.6 < 0.8 < found[False]


def test_labels_of_validation_and_test_rows_are_not_read() -> None:
    graph = LEAKS["reference"][0](np.random.default_rng(0))
    y = torch.where(graph.split.train, graph.y, 1 - graph.y)
    assert alone(replace(graph, y=y)) == alone(graph)


@pytest.mark.parametrize("several", [False, True])
def test_a_leak_of_many_labels_is_found(several: bool) -> None:
    random = np.random.default_rng(0)
    frame, _ = customers(random)
    chosen = [sorted(random.choice(list("abcd"), 1 + several, False)) for _ in range(len(frame))]
    frame["label"] = ["|".join(some) for some in chosen]
    frame["leak"] = ["|".join(f"{one}{random.integers(3)}" for one in some) for some in chosen]
    options = {"label_separator": "|"} if several else {}
    graph = graph_of({"customer": frame}, {"customer": OWN | {"leak": "list"}}, **options)
    (found,) = suspects(graph, alone(graph), PERFECT)
    assert found.name.startswith("leak")


def test_a_leak_in_a_graph_without_tables_is_found() -> None:
    graph = planted(movies=800)
    there = graph.label_matrix[:, 0]
    words = torch.cat([graph.targets.x.to_dense(), there[:, None].float()], 1)
    y = there.long().where(graph.y.sum(1) > 0, -1)
    nodes = graph.nodes | {"movie": replace(graph.targets, x=words.to_sparse_csr())}
    graph = replace(graph, nodes=nodes, y=y, labels=["no", "yes"])
    (found,) = suspects(graph, alone(graph), PERFECT)
    name = f"feature {words.size(1) - 1}"
    assert remedy(found.source, graph) == f"leave {name} out of x of node type movie"
    rest = without(graph, [found.source])
    assert torch.equal(rest.targets.x.to_dense()[:, :-1], words[:, :-1])
    assert not rest.targets.x.to_dense()[:, -1].any()


@pytest.mark.parametrize("kind", ["word", "end of a link", "column at two hops"])
def test_without_its_source_a_leak_is_gone(kind: str) -> None:
    graph = LEAKS[kind][0](np.random.default_rng(0))
    found = suspects(graph, alone(graph), PERFECT)
    before = {e: ends.clone() for e, ends in graph.links.items()}
    rest = without(graph, [one.source for one in found])
    assert alone(rest)[0].roc_auc < 0.8
    assert all(torch.equal(graph.links[e], ends) for e, ends in before.items())


@pytest.mark.slow
def test_it_is_said_with_the_score_without_the_source() -> None:
    graph = LEAKS["category"][0](np.random.default_rng(0))
    with pytest.warns(UserWarning, match="leak alone reaches 1.000: is it known when you predict"):
        run = Classifier("linear", training={"trees": False}).fit(graph).run_
    found = run.result["suspicion"]
    assert [one["name"] for one in found["sources"]] == ["leak"]
    assert found["roc_auc"] > PERFECT
    assert found["without"]["roc_auc"] < 0.8
    first, second = suspicion_lines(found)
    assert "leak alone reaches 1.000: is it known when you predict?" in first
    assert second.endswith(
        "To leave it out: delete leak from [nodes.customer.features] in graph.toml."
    )


def test_few_validation_rows_are_not_enough_to_suspect() -> None:
    graph = LEAKS["category"][0](np.random.default_rng(0))
    found = {"probabilities": {"val": {"roc_auc": 1.0}}, "counts": {"model": {"val": {"nodes": 9}}}}
    assert suspicion(graph, TrainingConfig(), found) == {}
