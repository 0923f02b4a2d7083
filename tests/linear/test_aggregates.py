"""Aggregates of linked rows against pandas, and where they must agree with themselves."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hanme.data.store.open import open_store
from hanme.data.store.write import write_store
from hanme.graph import Graph
from hanme.linear.aggregates import Aggregates, Column, column_values, walks_of
from hanme.linear.blocks import AggregatedRows, Standardised
from hanme.linear.matrices import GraphMatrices
from hanme.linear.rows import Rows
from hanme.linear.trees import screen_columns
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
    kept = [column.phrase for column in screen_columns(made, 0, limit=3).columns]
    assert "total amount over order" in kept


def test_training_says_how_many_candidates_were_screened(graph: Graph) -> None:
    screened = screen_columns(graph, 0, limit=3)
    assert screened.note == (
        f"Trees and aggregates: 3 of {screened.candidates} candidate columns, chosen on training "
        "rows."
    )
    assert screen_columns(graph, 0).note is None
    assert fit_base_learners(graph, TrainingConfig()).notes == []


def test_linear_model_and_trees_on_aggregates_add_up_and_are_the_same_on_a_subgraph() -> None:
    people, orders = tables(customers=400)
    total = orders.groupby("customer")["amount"].sum().reindex(people["id"], fill_value=0)
    people["label"] = np.where(total.to_numpy() > total.median(), "yes", "no")
    graph = Graph.from_frames({"people": people, "orders": orders}, CONFIG)
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
    graph = Graph.from_frames({"people": people, "orders": orders}, CONFIG)
    write_store(graph, tmp_path / "store", features="given")
    stored = open_store(tmp_path / "store")
    whole = fit_base(graph, TrainingConfig(smoothing=False))
    for some in (
        fit_base(stored, TrainingConfig(smoothing=False)),
        fit_base(graph, TrainingConfig(batch_size=64)),
    ):
        torch.testing.assert_close(some.outputs.logits, whole.outputs.logits, rtol=1e-3, atol=1e-3)
        nodes = torch.tensor([3, 77, 250])
        found = some.fit.final.predict(stored, nodes)
        torch.testing.assert_close(found, some.outputs.logits[nodes], rtol=1e-3, atol=1e-3)
    monkeypatch.setattr(final, "MAX_IN_MEMORY", 100)
    large = fit_base(stored, TrainingConfig())
    assert large.fit.notes == [
        "Trees and aggregates are left out: the stored graph is too large for them."
    ]
    assert not torch.allclose(large.outputs.logits, whole.outputs.logits, atol=0.1)
