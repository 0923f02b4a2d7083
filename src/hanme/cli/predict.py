"""The command ``hanme predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hanme.cli.options import Allow, Device, GraphOption, Json, Node, RunArgument, Source, find_run
from hanme.cli.show import print_table, printable

if TYPE_CHECKING:
    from hanme.runs import Prediction
    from hanme.runs.prediction import Order

SHOWN = 20
"""Rows shown unless --top says otherwise: a screenful."""
LIKELIEST = 3
"""Labels shown per row: more do not fit beside ids and names."""
RANKS = {"uncertain": "uncertainty", "surprising": "surprise"}


def predict(
    run: RunArgument = None,
    node: Node = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a .csv, .parquet or .json file.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="uncertain|surprising",
            help="Sort by uncertainty, or by how improbable the known label is.",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Keep only this number of nodes, from the first.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="train|val|test|unlabelled|unused", help="Keep only nodes of this part."
        ),
    ] = None,
    graph: GraphOption = None,
    data: Source = None,
    allow: Allow = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Predict labels and probabilities, for all nodes or for some, by their ids and names.

    hanme predict --out predictions.csv

    hanme predict runs/films --order uncertain --split unlabelled --top 100
    """
    from hanme.runs import OpenedRun

    prediction = OpenedRun.open(find_run(run), graph=graph, source=data).predict(node)
    prediction = prediction if split is None else prediction.only(split)
    if order or top:
        prediction = prediction.ranked(cast("Order | None", order), top=top)
    if out is not None:
        prediction.write(out)
    if json_:
        print(json.dumps(prediction.rows()))
    elif out is not None:
        print(f"{len(prediction):,} predictions are in {out}.")
    else:
        _show(prediction, top or SHOWN, RANKS.get(order or ""))


def _show(prediction: Prediction, limit: int, rank: str | None) -> None:
    """Print ids, names, known labels, the column that nodes are ranked by and likely labels."""
    from hanme.runs.prediction import probability_columns

    rows, labels = prediction.rows(limit), prediction.graph.labels
    keys = ["id", "name", *["labels"] * any(row["labels"] for row in rows)]
    keys += ["predicted"] * prediction.graph.multilabel
    keys = [key for key in keys if rows and key in rows[0]] or ["node"]
    columns = probability_columns(labels)

    def likeliest(row: dict[str, Any]) -> list[str]:
        ranked = sorted(zip(labels, (row[c] for c in columns), strict=True), key=lambda x: -x[1])
        return [printable(f"{label} {p:.0%}") for label, p in ranked[:LIKELIEST]]

    cells = [
        [
            *(printable(_text(row[key])) for key in keys),
            *([f"{row[rank]:.2f}"] if rank else []),
            *likeliest(row),
        ]
        for row in rows
    ]
    heads = ["most likely", "second", "third"][: len(labels)]
    print_table([*keys, *([rank] if rank else []), *heads], cells, width=120, left=len(keys))
    if len(prediction) > len(rows):
        print(f"{len(rows)} of {len(prediction):,} nodes. See --out, --node, --order and --top.")


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
