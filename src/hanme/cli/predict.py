"""The command ``hanme predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hanme.cli.options import Grown, Json, RunFolder, Source
from hanme.cli.show import print_table, printable

SHOWN = 20


def predict(
    run: RunFolder,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            "-n",
            help="Id or name of a node to classify. Repeat it for several (default: all).",
        ),
    ] = None,
    graph: Grown = None,
    out: Annotated[Path | None, typer.Option(help="Write a file: .csv, .parquet or .json.")] = None,
    data: Source = None,
    json_: Json = False,
) -> None:
    """Predict labels with their probabilities, under the ids and names of your tables.

    hanme predict runs/films --out predictions.csv
    """
    from hanme import runs

    found = runs.predict(run, nodes=node, graph=graph, source=data)
    if out is not None:
        found.write(out)
    if json_:
        print(json.dumps(found.rows()))
    elif out is None:
        _show(found.rows(SHOWN), len(found), found.graph.labels)
    else:
        print(f"{len(found):,} predictions are in {out}.")


def _show(rows: list[dict[str, Any]], size: int, labels: list[str]) -> None:
    from hanme.runs.predictions import probability_columns

    keys = [key for key in ("id", "node", "name", "predicted") if rows and key in rows[0]]
    if "id" in keys:
        keys.remove("node")
    columns = probability_columns(labels)
    cells = []
    for row in rows:
        texts = [", ".join(row[key]) if key == "predicted" else str(row[key]) for key in keys]
        cells.append([*map(printable, texts), *(f"{row[column]:.0%}" for column in columns)])
    print_table([*keys, *map(printable, labels)], cells, width=120, left=len(keys))
    if size > len(rows):
        print(f"{len(rows)} of {size:,} nodes. Write all with --out FILE, or choose with --node.")
