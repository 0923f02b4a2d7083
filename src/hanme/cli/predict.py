"""The command ``hanme predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hanme.cli.options import Positive, find_run, suggest_names
from hanme.cli.show import print_table

if TYPE_CHECKING:
    from hanme.runs import Prediction

RANKS = {"uncertain": ["uncertainty"], "surprising": ["surprise"]}


def predict(
    run: Path | None = None,
    *,
    node: list[str] | None = None,
    out: Path | None = None,
    order: Literal["uncertain", "surprising"] | None = None,
    top: Positive | None = None,
    split: Literal["train", "val", "test", "unlabelled", "unused"] | None = None,
    graph: Path | None = None,
    data: Path | None = None,
    allow: list[str] | None = None,
    device: str | None = None,
    json_: bool = False,
) -> None:
    """Predict labels and probabilities, for all nodes or for some, by their ids and names.

    hanme predict --out predictions.csv

    hanme predict runs/films --order uncertain --split unlabelled --top 100

    Args:
        out: Write a .csv, .parquet or .json file.
        order: Sort by uncertainty, or by how improbable the known label is.
        top: Keep only this number of nodes, from the first.
        split: Keep only nodes of this part.
        graph: Another graph.toml of the same schema, such as one with new rows.
    """
    from hanme.runs import OpenedRun

    opened = OpenedRun.open(find_run(run), graph=graph, source=data)
    with suggest_names(opened.graph):
        prediction = opened.predict(node)
    prediction = prediction if split is None else prediction.only(split)
    if order or top:
        prediction = prediction.ranked(order, top=top)
    if out is not None:
        prediction.write(out)
    if json_:
        print(json.dumps(prediction.rows()))
    elif out is not None:
        print(f"{len(prediction):,} predictions are in {out}.")
    else:
        _show(prediction, top or 20, RANKS.get(order or "", []))


def _show(prediction: Prediction, limit: int, rank: list[str]) -> None:
    """Print ids, names, known labels, the column that nodes are ranked by and likely labels."""
    from hanme.runs.prediction import probability_columns

    rows, labels = prediction.rows(limit), prediction.graph.labels
    keys = ["id", "name", *["labels"] * any(row["labels"] for row in rows)]
    keys += ["predicted"] * (prediction.graph.multilabel or bool(prediction.decision.weights))
    keys = [key for key in keys if rows and key in rows[0]] or ["node"]
    columns = dict(zip(labels, probability_columns(labels), strict=True))
    shown = []
    for row in rows:
        likely = sorted(labels, key=lambda label: -row[columns[label]])
        texts = [f"{label} {row[columns[label]]:.0%}" for label in likely]
        shown.append({key: row[key] for key in [*keys, *rank]})
        shown[-1] |= dict(zip(("most likely", "second", "third"), texts, strict=False))
    print_table(shown, title="Predictions", width=120)
    if len(prediction) > len(rows):
        print(f"{len(rows)} of {len(prediction):,} nodes. See --out, --node, --order and --top.")
