"""hanme predict"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hanme.cli.options import Grown, Json, Source
from hanme.cli.show import printable

SHOWN = 20


def predict(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            "-n",
            help="A node of the target type by id or name; may be given several times "
            "(default: all).",
        ),
    ] = None,
    graph: Grown = None,
    out: Annotated[Path | None, typer.Option(help="Write a file: .csv, .parquet or .json.")] = None,
    data: Source = None,
    json_: Json = False,
) -> None:
    """Predicts labels, with a probability for each, under the ids and names of your tables.

    hanme predict runs/films --out predictions.csv
    """
    from hanme import training

    found = training.predict(run, nodes=node, graph=graph, source=data)
    if out is not None:
        found.write(out)
    if json_:
        print(json.dumps(found.rows()))
    elif out is None:
        _show(found.rows(SHOWN), len(found), found.data[found.data.target].label_names)
    else:
        print(f"{len(found):,} predictions are in {out}.")


def _show(rows: list[dict[str, Any]], size: int, labels: list[str]) -> None:
    from hanme.training.predictions import probability_columns

    keys = [key for key in ("id", "node", "name", "predicted") if rows and key in rows[0]]
    if "id" in keys:
        keys.remove("node")
    table = Table(*keys, *map(printable, labels))
    probabilities = probability_columns(labels)
    for row in rows:
        cells = [", ".join(row[k]) if k == "predicted" else str(row[k]) for k in keys]
        table.add_row(*map(printable, cells), *(f"{row[column]:.0%}" for column in probabilities))
    Console(width=None if Console().is_terminal else 120, markup=False, emoji=False).print(table)
    if size > len(rows):
        print(f"{len(rows)} of {size:,} nodes; --out FILE writes all, --node chooses.")
