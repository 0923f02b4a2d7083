"""Graphs from tables in memory, of pandas, polars and Arrow."""

import pandas as pd
import polars
import pyarrow
import pytest

from hanme import Classifier, Graph
from hanme.errors import HanmeError

CONFIG = {
    "target": "film",
    "nodes": {
        "film": {
            "table": "films",
            "id": "id",
            "label": "genre",
            "features": {"year": "number", "embedding": "vector"},
        }
    },
    "relations": {
        "director": {"columns": ["director"]},
        "actor": {"columns": ["actors"], "separator": "|"},
    },
}


def columns() -> dict[str, list]:
    size = 40
    return {
        "id": list(range(size)),
        "genre": [("Drama", "War", None)[i % 3] for i in range(size)],
        "year": [None if i % 7 == 0 else 1990 + i for i in range(size)],
        "director": [f"d{i % 6}" for i in range(size)],
        "actors": [[f"a{i % 9}", f"a{i % 5}"] for i in range(size)],
        "embedding": [[i / 3, 0.5, -i / 7, 1.25] for i in range(size)],
    }


def films() -> pd.DataFrame:
    return pd.DataFrame(columns())


def made(kind: str) -> object:
    if kind == "pandas":
        return films()
    if kind == "arrow":
        return pyarrow.table(columns())
    return polars.DataFrame(columns())


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_frames_become_a_graph(kind: str) -> None:
    graph = Graph.from_frames({"films": made(kind)}, CONFIG)
    assert graph.sizes == {"film": 40, "actor": 9, "director": 6}
    assert list(graph.nodes["film"].ids)[:2] == ["0", "1"]
    assert graph.labels == ["Drama", "War"]
    assert graph.nodes["film"].x.shape == (40, 5)
    links = sum(len({i % 9, i % 5}) for i in range(40))
    assert graph.links["film", "actor", "actor"].size(1) == links
    options = {"hidden_channels": 8, "heads": 2}
    classifier = Classifier(options=options, training={"epochs": 2}).fit(graph)
    assert len(classifier.predict(nodes=["2", "5"])) == 2
    assert classifier.explain("2").predicted


def test_whole_numbers_with_a_gap_are_ids(tmp_path) -> None:
    people = pd.DataFrame({"id": [1, 2], "name": ["Ann", "Bo"]})
    table = films().assign(director=[1.0 if i % 2 else None for i in range(40)])
    config = CONFIG | {
        "nodes": CONFIG["nodes"] | {"director": {"table": "people", "id": "id", "name": "name"}}
    }
    graph = Graph.from_frames({"films": table, "people": people}, config)
    assert graph.links["film", "director", "director"].size(1) == 20
    query = {"query": "SELECT id, 1 AS who FROM films WHERE id < 3"}
    ends = {
        "source": {"type": "film", "column": "id"},
        "target": {"type": "director", "column": "who"},
    }
    config = config | {"relations": {"r": query | ends}}
    assert Graph.from_frames({"films": table, "people": people}, config).links[
        "film", "r", "director"
    ].tolist() == [[0, 1, 2], [0, 0, 0]]


def test_a_number_that_means_empty_is_empty_in_a_frame_too() -> None:
    frame = films().assign(studio=[-1.0, None, 2.0, 3.5] * 10)
    nodes = CONFIG["nodes"]["film"] | {"features": {"studio": "category"}, "empty": ["-1", "3.5"]}
    graph = Graph.from_frames({"films": frame}, CONFIG | {"nodes": {"film": nodes}})
    assert graph.provenance.fitted["features"]["film"]["studio"]["values"] == ["2"]


def test_a_guess_and_mistakes() -> None:
    graph = Graph.from_frames({"films": films()}, label="genre")
    assert graph.labels == ["Drama", "War"]
    for frames, config, message in (
        ({"films": films()}, CONFIG | {"target": "x"}, "config: target: no node type"),
        ({"other": films()}, CONFIG, r"nodes\.film: no table 'films'; expected one of other"),
        ({"films": 3}, CONFIG, "films: expected a table of pandas, polars or Arrow, but got int"),
        ({}, CONFIG, "Expected `frames`"),
    ):
        with pytest.raises(HanmeError, match=message):
            Graph.from_frames(frames, config)
