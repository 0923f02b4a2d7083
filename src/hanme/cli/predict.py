"""The command ``hanme predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hanme.cli.options import Allow, Device, Grown, Json, RunFolder, Source, the_run
from hanme.cli.show import print_table, printable

if TYPE_CHECKING:
    from hanme.runs import Prediction
    from hanme.runs.prediction import Order

SHOWN, LIKELIEST = 20, 3


def predict(
    run: RunFolder = None,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            "-n",
            help="Id or name of a node to classify. Repeat it for several (default: all).",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a file: .csv, .parquet or .json.")] = None,
    order: Annotated[
        str | None,
        typer.Option(
            help="Which nodes come first. uncertain: those whose labels the model knows least. "
            "surprising: of the nodes with a label, those whose label it believes least."
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Keep only the first nodes, this many.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Only nodes that were used for this: train, val, test, unlabelled (those without "
            "a label) or unused."
        ),
    ] = None,
    graph: Grown = None,
    data: Source = None,
    allow: Allow = None,
    device: Device = None,
    json_: Json = False,
) -> None:
    """Predict labels with their probabilities, under the ids and names of your tables.

    hanme predict --out predictions.csv

    hanme predict runs/films --order uncertain --split unlabelled --top 100
    """
    from hanme.runs import OpenedRun

    found = OpenedRun.open(the_run(run), graph=graph, source=data).predict(node)
    found = found if split is None else found.only(split)
    if order or top:
        found = found.ranked(cast("Order | None", order), top=top)
    if out is not None:
        found.write(out)
    if json_:
        print(json.dumps(found.rows()))
    elif out is None:
        by = {"uncertain": "uncertainty", "surprising": "surprise"}.get(order or "")
        _show(found, top or SHOWN, by)
    else:
        print(f"{len(found):,} predictions are in {out}.")


def _show(found: Prediction, limit: int, by: str | None) -> None:
    """Print ids, names, the labels given, what nodes are ranked by and the likeliest labels."""
    from hanme.runs.prediction import probability_columns

    rows, labels = found.rows(limit), found.graph.labels
    wanted = ["id", "name", *["labels"] * any(row["labels"] for row in rows)]
    wanted += ["predicted"] * found.graph.multilabel
    keys = [key for key in wanted if rows and key in rows[0]] or ["node"]
    columns = probability_columns(labels)

    def likeliest(row: dict[str, Any]) -> list[str]:
        ranked = sorted(zip(labels, (row[c] for c in columns), strict=True), key=lambda x: -x[1])
        return [printable(f"{label} {p:.0%}") for label, p in ranked[:LIKELIEST]]

    cells = [
        [
            *(printable(_text(row[key])) for key in keys),
            *([f"{row[by]:.2f}"] if by else []),
            *likeliest(row),
        ]
        for row in rows
    ]
    heads = ["most likely", "second", "third"][: len(labels)]
    print_table([*keys, *([by] if by else []), *heads], cells, width=120, left=len(keys))
    if len(found) > len(rows):
        print(
            f"{len(rows)} of {len(found):,} nodes. Write all with --out FILE, or choose with "
            "--node or --order."
        )


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
