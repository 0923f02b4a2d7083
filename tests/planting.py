"""Tables of customers and what belongs to them, whose label one source or none gives away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from hanme import Graph

SIZE = 600
Frames = dict[str, pd.DataFrame]


def graph_of(frames: Frames, features: dict[str, Any], **changes: Any) -> Graph:
    """Make a graph of customers and, if they are there, of orders, shops and other tables.

    Columns that end with ``_id`` are references; ``features`` has the columns of each type, and
    ``changes`` other keys of ``[nodes.customer]``.
    """
    nodes, relations = dict[str, Any](), dict[str, Any]()
    for name, frame in frames.items():
        nodes[name] = {"table": name, "id": "id", "features": features.get(name, {})}
        for column in frame.columns:
            if column.endswith("_id"):
                other = column.removesuffix("_id")
                relations[f"{name}_{other}"] = {
                    "source": name,
                    "columns": column,
                    "separator": "|",
                    "type": "customer" if other == "next" else other,
                }
    keep = [
        name for kind in nodes for name in (nodes[kind]["features"] if kind == "customer" else ())
    ]
    keep += [
        f"{kind}.{name}" for kind in nodes if kind != "customer" for name in nodes[kind]["features"]
    ]
    keep += [f"relations.{name}" for name in relations]
    nodes["customer"] |= {"label": "label", "keep": keep, "shares": SHARES} | changes
    return Graph.from_frames(frames, {"target": "customer", "nodes": nodes, "relations": relations})


SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}


def customers(random: np.random.Generator, size: int = SIZE) -> tuple[pd.DataFrame, np.ndarray]:
    """Return customers with columns that say a little of the label, and the label, 0 or 1."""
    y = random.integers(2, size=size)
    frame = pd.DataFrame(
        {
            "id": [f"c{i}" for i in range(size)],
            "label": np.where(y, "yes", "no"),
            "age": random.normal(size=size) + 0.5 * y,
            "place": random.choice(list("abcdef"), size),
        }
    )
    return frame, y


def orders(random: np.random.Generator, counts: np.ndarray) -> pd.DataFrame:
    """Return some orders of each customer."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return pd.DataFrame(
        {
            "id": [f"o{i}" for i in range(len(owner))],
            "customer_id": [f"c{i}" for i in owner],
            "amount": random.gamma(2.0, size=len(owner)),
        }
    )


OWN = {"age": "number", "place": "category"}
WORDS = [f"word{i}" for i in range(200)]


def _column(values: Callable[..., Any], kind: str) -> Callable[..., Graph]:
    def leak(random: np.random.Generator) -> Graph:
        frame, y = customers(random)
        frame["leak"] = values(random, y)
        return graph_of({"customer": frame}, {"customer": OWN | {"leak": kind}})

    return leak


def _notes(random: np.random.Generator, y: np.ndarray) -> list[str]:
    final = ["cancelled", "refunded", "returned", "repaid"]  # frequent words are no features
    words = [[*random.choice(WORDS, 12), *random.choice(final, int(one))] for one in y]
    return [" ".join(random.permutation(some)) for some in words]


def _closed(random: np.random.Generator, y: np.ndarray) -> list[float | None]:
    return [float(random.normal()) if one else None for one in y]


def _days(random: np.random.Generator, y: np.ndarray) -> list[str]:
    days = np.datetime64("2020-01-01") + random.integers(300, size=len(y)) + 310 * y
    return [str(day) for day in days]


def _reference(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    shop = random.integers(30, size=SIZE) + 30 * y
    frame["shop_id"] = [f"s{i}" for i in shop]
    shops = pd.DataFrame({"id": [f"s{i}" for i in range(60)], "rooms": random.normal(size=60)})
    return graph_of(
        {"customer": frame, "shop": shops}, {"customer": OWN, "shop": {"rooms": "number"}}
    )


def _ends(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    made = orders(random, np.full(SIZE, 3))
    made["event_id"] = [f"e{random.integers(20) + 20 * one}" for one in np.repeat(y, 3)]
    events = pd.DataFrame({"id": [f"e{i}" for i in range(40)]})
    return graph_of({"customer": frame, "order": made, "event": events}, {"customer": OWN})


def _one_hop(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    frame["contract_id"] = [f"k{i}" for i in random.permutation(SIZE)]
    state = pd.DataFrame(
        {"id": frame["contract_id"], "state": random.integers(4, size=SIZE) + 4 * y}
    )
    state["state"] = [f"z{i}" for i in state["state"]]
    return graph_of(
        {"customer": frame, "contract": state}, {"customer": OWN, "contract": {"state": "category"}}
    )


def _two_hops(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    made = orders(random, np.full(SIZE, 2))
    made["invoice_id"] = [f"i{i}" for i in range(len(made))]
    reminders = random.poisson(0.3, len(made)) + 5 * np.repeat(y, 2)
    invoices = pd.DataFrame({"id": made["invoice_id"], "reminders": reminders})
    features = {"customer": OWN, "order": {"amount": "number"}, "invoice": {"reminders": "number"}}
    return graph_of({"customer": frame, "order": made, "invoice": invoices}, features)


def _aggregate(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    made = orders(random, np.full(SIZE, 4))
    made["amount"] += (
        np.repeat(np.where(y, 3.0, -3.0), 4)
        * random.permuted(np.tile([0, 0, 1, 3], (SIZE, 1)), axis=1).ravel()
    )
    features = {"customer": OWN, "order": {"amount": "number"}}
    return graph_of({"customer": frame, "order": made}, features)


def _count(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    made = orders(random, 1 + random.integers(3, size=SIZE) + 3 * y)
    return graph_of(
        {"customer": frame, "order": made}, {"customer": OWN, "order": {"amount": "number"}}
    )


def _same_label(random: np.random.Generator) -> Graph:
    frame, y = customers(random)
    some = [random.choice(np.flatnonzero(y == one), 6) for one in y]
    frame["next_id"] = ["|".join(f"c{i}" for i in row) for row in some]
    return graph_of({"customer": frame}, {"customer": OWN})


LEAKS: dict[str, tuple[Callable[..., Graph], str]] = {
    "number": (_column(lambda r, y: y + r.normal(0, 0.1, len(y)), "number"), "delete leak from"),
    "category": (
        _column(lambda r, y: [f"v{i}" for i in 6 * y + r.integers(6, size=len(y))], "category"),
        "delete leak from",
    ),
    "word": (_column(_notes, "text"), "delete leak from"),
    "empty cells": (_column(_closed, "number"), "delete leak from"),
    "date": (_column(_days, "date"), "delete leak from"),
    "reference": (_reference, "delete [relations.customer_shop]"),
    "end of a link": (_ends, "delete [relations.order_event]"),
    "column at one hop": (_one_hop, "delete state from [nodes.contract.features]"),
    "column at two hops": (_two_hops, "delete reminders from [nodes.invoice.features]"),
    "aggregate": (_aggregate, "delete amount from [nodes.order.features]"),
    "number of links": (_count, "delete [relations.order_customer]"),
    "label of a neighbour": (_same_label, "delete [relations.customer_next]"),
}
"""Graphs with one leak each, and how the remedy for it begins."""


def _easy(size: int, rule: Callable[..., Any], width: int) -> Callable[..., Graph]:
    def graph(random: np.random.Generator) -> Graph:
        x = random.normal(size=(size, width))
        frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(width)})
        frame.insert(0, "id", [f"c{i}" for i in range(size)])
        frame["label"] = rule(x)
        several = (
            {"label_separator": "|"} if frame["label"].str.contains("|", regex=False).any() else {}
        )
        features = {f"x{i}": "number" for i in range(width)}
        return graph_of({"customer": frame}, {"customer": features}, **several)

    return graph


def _said(flags: np.ndarray) -> np.ndarray:
    return np.where(flags, "yes", "no")


def _sets(x: np.ndarray) -> list[str]:
    flags = [x[:, 2 * i] + x[:, 2 * i + 1] > 0 for i in range(3)]
    return [
        "|".join(["all", *(n for n, one in zip("abc", row, strict=True) if one)])
        for row in zip(*flags, strict=True)
    ]


def _two_categories(random: np.random.Generator) -> Graph:
    a, b = random.integers(4, size=(2, SIZE))
    frame = pd.DataFrame({"id": [f"c{i}" for i in range(SIZE)], "a": a, "b": b})
    frame[["a", "b"]] = frame[["a", "b"]].map(lambda i: f"v{i}")
    frame["label"] = _said((a + b) % 2 == 0)
    return graph_of({"customer": frame}, {"customer": {"a": "category", "b": "category"}})


def _by_category(random: np.random.Generator) -> Graph:
    x, place = random.normal(size=2 * SIZE), random.integers(5, size=2 * SIZE)
    frame = pd.DataFrame({"id": [f"c{i}" for i in range(2 * SIZE)], "x": x})
    frame["place"] = [f"p{i}" for i in place]
    frame["label"] = _said(x > np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[place])
    return graph_of({"customer": frame}, {"customer": {"x": "number", "place": "category"}})


def _references(random: np.random.Generator) -> Graph:
    size, total = 2 * SIZE, np.zeros(2 * SIZE)
    frame, frames = pd.DataFrame({"id": [f"c{i}" for i in range(size)]}), Frames()
    for kind in ("shop", "firm", "team", "road"):
        effect = random.choice([-1.0, 1.0], 12)
        end = random.integers(12, size=size)
        total += effect[end]
        frame[f"{kind}_id"] = [f"{kind}{i}" for i in end]
        frames[kind] = pd.DataFrame({"id": [f"{kind}{i}" for i in range(12)]})
    frame["label"] = _said(total > 0)
    return graph_of({"customer": frame} | frames, {})


def _linked_row(random: np.random.Generator) -> Graph:
    size = 2 * SIZE
    x, z = random.normal(size=size), random.normal(size=200)
    shop = random.integers(200, size=size)
    frame = pd.DataFrame({"id": [f"c{i}" for i in range(size)], "x": x})
    frame["shop_id"] = [f"s{i}" for i in shop]
    frame["label"] = _said(x + z[shop] > 0)
    shops = pd.DataFrame({"id": [f"s{i}" for i in range(200)], "z": z})
    features = {"customer": {"x": "number"}, "shop": {"z": "number"}}
    return graph_of({"customer": frame, "shop": shops}, features)


def _aggregates(random: np.random.Generator) -> Graph:
    size = 2 * SIZE
    frame = pd.DataFrame({"id": [f"c{i}" for i in range(size)], "x": random.normal(size=size)})
    made = orders(random, random.integers(1, 6, size=size))
    totals = made.groupby("customer_id")["amount"].sum()[frame["id"]].to_numpy()
    frame["label"] = _said(frame["x"].to_numpy() * totals.std() + totals > totals.mean())
    features = {"customer": {"x": "number"}, "order": {"amount": "number"}}
    return graph_of({"customer": frame, "order": made}, features)


EASY: dict[str, Callable[..., Graph]] = {
    "exclusive or": _easy(1200, lambda x: _said(x[:, 0] * x[:, 1] > 0), 2),
    "sum of three": _easy(SIZE, lambda x: _said(x.sum(1) > 0), 3),
    "sum of six": _easy(SIZE, lambda x: _said(x.sum(1) > 0), 6),
    "three labels": _easy(1200, lambda x: np.array(list("abc"))[x.argmax(1)], 3),
    "label sets": _easy(1200, _sets, 6),
    "two categories": _two_categories,
    "threshold by category": _by_category,
    "four references": _references,
    "own and linked column": _linked_row,
    "own column and aggregate": _aggregates,
}
"""Graphs whose label several sources tell together, and none of them alone."""
