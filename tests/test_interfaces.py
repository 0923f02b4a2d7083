"""All interfaces give the same labels and probabilities for the same run."""

import asyncio
import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import hanme
from hanme import Classifier, Graph
from hanme.data import load, store_graph
from hanme.nn import MODELS
from hanme.runs import Prediction
from hanme.serve.app import make_app
from hanme.serve.report import write_report
from hanme.serve.served import load_runs

pytest.importorskip("fastapi")

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"recipe": "paper"},
    "default": {"recipe": "default"},
}
SIZES: dict[str, dict[str, Any]] = {
    "linear": {},
    "sehgnn": {"hidden_channels": 8},
    "gat": {"hidden_channels": 8, "heads": 2},
    "magna": {"hidden_channels": 8, "heads": 2},
}
QUICK = [
    ("hanme", "default", "memory"),
    ("hanme", "paper", "stored"),
    ("hanme", "default", "batched"),
    ("sehgnn", "default", "memory"),
    ("linear", "default", "memory"),
]
"""What is checked every time: a graph on disk, batches, and models that read labels."""


def cases() -> list[Any]:
    """Return all models x recipes x ways to read the graph; most of them are slow."""
    every = [
        (model, recipe, source)
        for model in MODELS
        for recipe in RECIPES
        for source in ("memory", "stored", "batched")
        if (model, source) != ("sehgnn", "batched")  # it normalises over all nodes
    ]
    slow = pytest.mark.slow
    return [pytest.param(*case, marks=[] if case in QUICK else slow) for case in every]


@dataclass(frozen=True)
class Output:
    """The output of an interface: the predicted labels and the probabilities, by node."""

    labels: list[list[str]]
    probabilities: np.ndarray

    @classmethod
    def of(cls, table: Prediction) -> "Output":
        rows = table.rows()
        columns = [f"p_{label}" for label in table.graph.labels]
        return cls(
            [row["predicted"] for row in rows], np.array([[r[c] for c in columns] for r in rows])
        )


def through_commands(folder: Path, labels: list[str], out: Path) -> Output:
    """Read the file that ``hanme predict`` writes."""
    done = hanme("predict", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    p = np.array([[float(row[f"p_{label}"]) for label in labels] for row in rows])
    return Output([row["predicted"].split("|") if row["predicted"] else [] for row in rows], p)


def through_server(app: Any, run: str, nodes: int) -> Output:
    """Ask the API for a page of all predictions."""
    answer = get(app, f"/api/v1/runs/{run}/predictions", f"sort=number&limit={nodes}")
    rows = answer["rows"]
    return Output(
        [row["predicted"] for row in rows], np.array([row["probabilities"] for row in rows])
    )


def get(app: Any, path: str, query: str) -> Any:
    """Send a request to an application in this process."""
    body: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        assert message.get("status", 200) == 200
        body.append(message.get("body", b""))

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": query.encode(), "headers": [], "http_version": "1.1"}
    asyncio.run(app(scope, receive, send))
    return json.loads(b"".join(body))


def through_report(served: Any, out: Path, nodes: list[int]) -> Output:
    """Read the data in a report."""
    write_report(served, out, nodes)
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', out.read_text()
    )
    rows = [node["prediction"] for node in json.loads(text)["nodes"]]
    return Output(
        [row["predicted"] for row in rows], np.array([row["probabilities"] for row in rows])
    )


def same(one: Output, other: Output) -> None:
    assert one.labels == other.labels
    np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("model", "recipe", "source"), cases())
def test_interfaces_agree(model: str, recipe: str, source: str, tmp_path: Path) -> None:
    options = {"movies": 60}
    if source == "stored":
        store_graph("planted", tmp_path / "store", options=options)
        graph: Graph = load(str(tmp_path / "store"))
    else:
        graph = load("planted", options=options)
    training = RECIPES[recipe] | {"epochs": 3}
    if source == "batched":
        training["batch_size"] = 16
    sizes = SIZES.get(model, {"hidden_channels": 8, "heads": 2})
    fresh = Classifier(model, options=sizes, training=training).fit(graph)
    wanted = Output.of(fresh.predictions())
    np.testing.assert_allclose(fresh.predict_proba(), wanted.probabilities, rtol=0, atol=1e-6)

    folder = tmp_path / "run"
    fresh.save(folder)
    same(Output.of(Classifier.load(folder).predictions()), wanted)
    same(through_commands(folder, graph.labels, tmp_path / "out.csv"), wanted)
    served = load_runs([folder])
    same(through_server(make_app(served), "run", 60), wanted)
    some = [7, 3]
    part = Output([wanted.labels[node] for node in some], wanted.probabilities[some])
    same(through_report(served["run"], tmp_path / "report.html", some), part)
    same(Output.of(Classifier.load(folder).predictions(nodes=some)), part)
