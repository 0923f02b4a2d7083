"""Aggregates of linked rows against pandas, and where they must agree with themselves."""

import re
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.graph import Graph
from hanme.linear import aggregates
from hanme.linear.aggregates import Aggregates, Column, column_values, walks_of
from hanme.linear.blocks import AggregatedRows, Standardised
from hanme.linear.matrices import GraphMatrices
from hanme.linear.rows import Rows
from hanme.linear.trees import TreesFit, screen_columns
from hanme.training import TrainingConfig, final, fit_base
from hanme.training.base_learners import fit_base_learners
from hanme.training.stacked import load_learner


def tables(seed: int = 0, customers: int = 120) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Customers with a city, and their orders; some amounts and dates are missing."""
    draw = np.random.default_rng(seed)
    city = draw.choice(["Oslo", "Rome", "Lima"], customers)
    people = pd.DataFrame({"id": [f"c{i}" for i in range(customers)], "city": city})
    people["age"] = draw.integers(18, 80, customers)
    people["label"] = draw.choice(["yes", "no"], customers)
    size = 700
    orders = pd.DataFrame({"customer": draw.choice(people["id"][:-5], size)})
    orders["amount"] = np.where(draw.random(size) < 0.1, np.nan, draw.gamma(2, 30, size).round(2))
    orders["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.permutation(size), "D")
    orders["product"] = draw.choice(["tea", "jam", "rye"], size)
    return people, orders


CONFIG = {
    "target": "person",
    "nodes": {
        "person": {
            "table": "people",
            "id": "id",
            "label": "label",
            "features": {"age": "number"},
        },
        "order": {
            "table": "orders",
            "features": {"amount": "number", "day": "date", "product": "category"},
        },
    },
    "relations": {
        "city": {"columns": ["city"]},
        "buyer": {"columns": ["customer"], "source": "order", "type": "person"},
    },
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    people, orders = tables()
    return Graph.from_frames({"people": people, "orders": orders}, CONFIG)


@pytest.fixture(scope="module")
def columns(graph: Graph) -> dict[str, Column]:
    found = Aggregates.on(graph).candidates(np.arange(graph.targets.num_nodes))
    return {column.phrase: column for some, _ in found for column in some}


def value(graph: Graph, column: Column) -> pd.Series:
    values = Aggregates.on(graph).values([column])[:, 0]
    return pd.Series(values.astype(float), index=list(graph.targets.ids))


def test_orders_are_aggregated_as_pandas_does(graph: Graph, columns: dict[str, Column]) -> None:
    people, orders = tables()
    by = orders.sort_values("day").groupby("customer")
    amount = by["amount"]
    expected = {
        "number of order": by.size(),
        "total amount over order": amount.sum(),
        "mean amount over order": amount.mean(),
        "largest amount over order": amount.max(),
        "smallest amount over order": amount.min(),
        "spread of amount over order": amount.std(ddof=0)[amount.count() > 1],
        "latest amount over order": amount.nth(-1).groupby(orders["customer"]).first(),
        "share of product: jam over order": by["product"].agg(lambda s: (s == "jam").mean()),
        "number of different product over order": by["product"].nunique(),
    }
    everyone = list(people["id"])
    for phrase, series in expected.items():
        filled = 0 if phrase.startswith(("number", "total")) else np.nan
        theirs = series.reindex(everyone, fill_value=filled)
        np.testing.assert_allclose(
            value(graph, columns[phrase])[everyone], theirs, rtol=1e-3, atol=1e-3, err_msg=phrase
        )
    latest = orders.loc[orders.groupby("customer")["day"].idxmax()].set_index("customer")
    theirs = latest["amount"].reindex(everyone)
    ours = value(graph, columns["latest amount over order"])[everyone]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    dear = orders.loc[orders.groupby("customer")["amount"].idxmax().dropna()].set_index("customer")
    theirs = (dear["product"] == "tea").astype(float).reindex(everyone)
    phrase = "product: tea at largest amount over order"
    np.testing.assert_allclose(value(graph, columns[phrase])[everyone], theirs)


def test_aggregates_of_the_largest_numbers_are_finite(graph: Graph) -> None:
    """Trees refuse infinite values, and float32 holds the numbers, but not their total."""
    people, orders = tables()
    orders["amount"] = np.where(np.arange(len(orders)) % 3, 3.3e38, -3.3e38)
    huge = Graph.from_frames({"people": people, "orders": orders}, CONFIG)
    nodes = np.arange(huge.targets.num_nodes)
    for columns, values in Aggregates(huge).candidates(nodes):
        assert not np.isinf(values).any()
        np.testing.assert_array_equal(Aggregates(huge).values(columns), values)
    total = orders["amount"].groupby(orders["customer"]).sum().abs()
    assert total.max() > np.finfo(np.float32).max


def test_a_node_is_compared_with_others_but_not_with_itself(
    graph: Graph, columns: dict[str, Column]
) -> None:
    people, _ = tables()
    people = people.set_index("id")
    total = people.groupby("city")["age"].transform("sum") - people["age"]
    count = people.groupby("city")["age"].transform("size") - 1
    expected = {
        "number of person via city": count,
        "mean age over person via city": total / count,
        "age less its mean over person via city": people["age"] - total / count,
        "age divided by its mean over person via city": people["age"] / (total / count),
        "share of city: Rome over city": (people["city"] == "Rome").astype(float),
    }
    for phrase, series in expected.items():
        ours = value(graph, columns[phrase])[series.index]
        np.testing.assert_allclose(ours, series, rtol=1e-4, atol=1e-3, err_msg=phrase)


def test_a_subgraph_gives_the_same_values(graph: Graph, columns: dict[str, Column]) -> None:
    every = list(columns.values())
    whole, nodes = column_values(graph, every), torch.tensor([7, 3, 119])
    part = graph.subgraph(nodes, walks_of(every))
    np.testing.assert_allclose(column_values(part, every, part.roots), whole[nodes], rtol=1e-4)


@pytest.mark.parametrize(
    ("names", "time"),
    [
        (["protime", "visit_day"], "visit_day"),
        (["day", "yearID"], "yearID"),
        (["MonthlyCharges", "lifetime"], None),
    ],
)
def test_numbers_that_order_rows_in_time_are_found_by_words(
    names: list[str], time: str | None
) -> None:
    people, orders = tables()
    orders = orders[["customer"]].assign(**dict.fromkeys(names, orders["amount"]))
    nodes = CONFIG["nodes"] | {
        "order": {"table": "orders", "features": dict.fromkeys(names, "number")}
    }
    graph = Graph.from_frames({"people": people, "orders": orders}, CONFIG | {"nodes": nodes})
    rows = Rows(graph, "order")
    assert (rows.names[rows.time] if rows.time >= 0 else None) == time


def test_the_linear_model_knows_which_aggregates_are_missing(
    graph: Graph, columns: dict[str, Column]
) -> None:
    phrases = ["mean amount over order", "largest amount over order", "number of order"]
    fitted = Standardised.fit(graph, [columns[phrase] for phrase in phrases])
    block = AggregatedRows(fitted)
    assert [(each.column.phrase, each.missing) for each in fitted] == [
        *((phrase, False) for phrase in phrases),
        (phrases[0], True),  # where the largest is missing as well
    ]
    nodes = np.arange(graph.targets.num_nodes)
    *_, gap = block.matrix(GraphMatrices(graph)).rows(nodes).toarray().T
    missing = np.isnan(column_values(graph, [columns[phrases[0]]])[:, 0])
    assert missing.any()
    assert ((gap > 0) == missing).all()


def test_screening_keeps_what_decides_the_label(graph: Graph) -> None:
    people, orders = tables()
    total = orders.groupby("customer")["amount"].sum().reindex(people["id"], fill_value=0)
    people["label"] = np.where(total.to_numpy() > total.median(), "yes", "no")
    made = Graph.from_frames({"people": people, "orders": orders}, CONFIG)
    kept = [
        column.phrase for column in screen_columns(made, [made.split.train], 0, limit=3)[0].columns
    ]
    assert "total amount over order" in kept


def test_training_says_how_many_candidates_were_screened(graph: Graph) -> None:
    masks = [graph.split.train]
    (screened,) = screen_columns(graph, masks, 0, limit=3)
    assert screened.note == (
        f"Trees and aggregates: 3 of {screened.candidates} candidate columns, chosen on training "
        "rows."
    )
    assert screen_columns(graph, masks, 0)[0].note is None
    assert fit_base_learners(graph, TrainingConfig()).notes == []


def test_linear_model_and_trees_on_aggregates_add_up_and_are_the_same_on_a_subgraph() -> None:
    people, orders = tables(customers=400)
    total = orders.groupby("customer")["amount"].sum().reindex(people["id"], fill_value=0)
    people["label"] = np.where(total.to_numpy() > total.median(), "yes", "no")
    kept = {"person": CONFIG["nodes"]["person"] | {"keep": ["order.amount"]}}
    config = CONFIG | {"nodes": CONFIG["nodes"] | kept}
    graph = Graph.from_frames({"people": people, "orders": orders}, config)
    model = fit_base_learners(graph, TrainingConfig(smoothing=False)).final
    logits, nodes = model.predict(graph).double().numpy(), torch.tensor([3, 77])
    for node in nodes.tolist():
        found = model.contributions(graph, node)
        assert found.logits == pytest.approx(logits[node], abs=1e-5)
    parts = {part.block: part for part in found.parts}
    assert "total amount over order" in [c.phrase for c in parts["aggregates:plain"].columns]
    assert "trees" in parts
    column = parts["trees"].columns[int(parts["trees"].numbers[0])]
    without = model.contributions(graph, node, [column])
    assert without.logits != pytest.approx(found.logits, abs=1e-3)
    part = graph.subgraph(nodes, model.walks())
    np.testing.assert_allclose(
        model.frozen(graph).predict(part, part.roots), logits[nodes], rtol=1e-3, atol=1e-4
    )
    again = load_learner(*model.state(), graph, None)
    np.testing.assert_allclose(again.predict(graph), logits, rtol=1e-5, atol=1e-5)
    right = (logits.argmax(1) == graph.y.numpy())[graph.split.test.numpy()]
    assert right.mean() > 0.85


@pytest.mark.slow
def test_a_store_and_batches_have_trees_and_aggregates_as_well(tmp_path: Path, monkeypatch) -> None:
    people, orders = tables(customers=400)
    total = orders.groupby("customer")["amount"].sum().reindex(people["id"], fill_value=0)
    people["label"] = np.where(total.to_numpy() > total.median(), "yes", "no")
    kept = {"person": CONFIG["nodes"]["person"] | {"keep": ["order.amount"]}}
    config = CONFIG | {"nodes": CONFIG["nodes"] | kept}
    graph = Graph.from_frames({"people": people, "orders": orders}, config)
    write_store(graph, tmp_path / "store", features="given")
    stored = open_store(tmp_path / "store")
    whole = fit_base(graph, TrainingConfig(smoothing=False))
    for some in (
        fit_base(stored, TrainingConfig(smoothing=False)),
        fit_base(graph, TrainingConfig(batch_size=64)),
    ):
        torch.testing.assert_close(some.logits, whole.logits, rtol=1e-3, atol=1e-3)
        nodes = torch.tensor([3, 77, 250])
        found = some.fit.final.predict(stored, nodes)
        torch.testing.assert_close(found, some.logits[nodes], rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(final, "MAX_IN_MEMORY", 100)
    large = fit_base(stored, TrainingConfig())
    assert large.fit.notes == [
        "Trees and aggregates are left out: the stored graph is too large for them."
    ]
    assert not torch.allclose(large.logits, whole.logits, atol=0.1)


def test_graphs_keep_aggregates_of_their_own_as_long_as_they_live() -> None:
    graphs = [
        Graph.from_frames(dict(zip(("people", "orders"), tables(i), strict=True)), CONFIG)
        for i in (1, 2)
    ]
    found = [Aggregates.on(graph) for graph in graphs]
    assert all(Aggregates.on(graph) is each for graph, each in zip(graphs, found, strict=True))
    copied = replace(graphs[0], split=graphs[1].split)  # as for a fold
    assert Aggregates.on(copied) is found[0]
    kept = weakref.ref(found[0])
    del graphs, found, copied
    assert kept() is None


def test_aggregates_follow_edits_in_place() -> None:
    people, orders = tables(3)
    graph = Graph.from_frames({"people": people, "orders": orders}, CONFIG)
    column = next(
        c
        for some, _ in Aggregates.on(graph).candidates(np.arange(5))
        for c in some
        if c.phrase == "mean amount over order"
    )
    before = column_values(graph, [column])
    x = graph.nodes["order"].x
    (x if x.layout == torch.strided else x.values()).mul_(2)
    nodes = {kind: replace(each) for kind, each in graph.nodes.items()}
    nodes["order"].x = x.clone()
    after = column_values(graph, [column])
    np.testing.assert_equal(after, column_values(replace(graph, nodes=nodes), [column]))
    assert not np.array_equal(after, before, equal_nan=True)


def test_columns_are_as_many_as_fit_into_memory_and_a_note_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = [graph.split.train]
    (whole,) = screen_columns(graph, masks, 0)
    assert len(whole.columns) > 12
    size = graph.targets.num_nodes
    monkeypatch.setattr(aggregates, "MAX_BYTES", 12 * size * aggregates.COPIES * 4)
    (some,) = screen_columns(graph, masks, 0)
    assert len(some.columns) == 12
    assert some.note is not None
    assert some.note.startswith(f"Trees and aggregates: 12 of {whole.candidates} candidate columns")
    assert some.note.endswith(f"on training rows, as many as fit into memory for {size:,} rows.")
    monkeypatch.setattr("hanme.linear.blocks.MAX_ENTRIES", 5 * size)
    block = AggregatedRows(Standardised.fit(graph, whole.columns))
    assert len(block.columns) == 5
    assert block.matrix(GraphMatrices(graph)).width == 5


def test_columns_are_computed_in_blocks_of_rows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = [graph.split.train]
    columns = screen_columns(graph, masks, 0)[0].columns
    trees = TreesFit(graph, [columns], masks, masks, 0).refit(graph.split.train, columns)
    block = AggregatedRows(Standardised.fit(graph, columns))
    logits, rows = trees.predict(graph), block.matrix(GraphMatrices(graph)).first.toarray()
    monkeypatch.setattr("hanme.common.memory.BLOCK", 7 * len(columns))
    assert torch.equal(trees.predict(graph), logits)
    np.testing.assert_array_equal(block.matrix(GraphMatrices(graph)).first.toarray(), rows)
    assert trees.predict(graph, torch.arange(0)).shape == (0, len(graph.labels))


def test_a_note_names_the_blocks_that_are_too_large(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig(trees=False, smoothing=False)
    assert not any("entries" in note for note in fit_base_learners(graph, config).notes)
    monkeypatch.setattr("hanme.linear.selection.MAX_ENTRIES", 200)
    monkeypatch.setattr("hanme.linear.matrices.MAX_ENTRIES", 200)
    note = fit_base_learners(graph, config).notes[-1]
    assert re.fullmatch(
        r"Linear model: \d+ of the candidate blocks left out, since they have more than 200 "
        r"entries: person-.*\.",
        note,
    )
