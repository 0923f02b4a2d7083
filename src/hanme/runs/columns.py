"""Columns of a table of predictions: what nodes were used for, probabilities, harmless texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.graph import Graph

UNLABELLED = "unlabelled"
"""What a node without a label was used for."""

FORMULA = r"^[=+\-@\t\r]"
"""How a cell begins that a spreadsheet runs."""
NUMBER = r"^[+\-]?[0-9]+([.][0-9]+)?$"


def uses(graph: Graph, nodes: Tensor | slice = slice(None)) -> NDArray[Any]:
    """Return what target nodes were used for: train, val, test, unused or unlabelled."""
    y = graph.y[nodes]
    labelled = (y > 0).any(1) if graph.multilabel else y >= 0
    used = np.where(labelled.numpy(), "unused", UNLABELLED).astype(object)
    for part, mask in graph.split.parts().items():
        used[mask[nodes].numpy()] = part
    return used


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the column of each label's probability, ``p_LABEL``.

    To DuckDB columns that differ in case alone are the same, and it would rename the second in
    files, but not elsewhere. So it gets a number here: ``p_Drama``, ``p_drama_2``.
    """
    columns: list[str] = []
    taken: set[str] = set()
    for label in labels:
        column = base = f"p_{label}"
        number = 2
        while column.casefold() in taken:
            column, number = f"{base}_{number}", number + 1
        taken.add(column.casefold())
        columns.append(column)
    return columns


def harmless(text: str) -> str:
    """Put ``'`` before a text that a spreadsheet would run as a formula."""
    runs = re.match(FORMULA, text) and not re.match(NUMBER, text)
    return f"'{text}" if runs else text


def for_spreadsheets(texts: Iterable[str], select: str) -> str:
    """Join several labels of a SELECT; mark texts that a spreadsheet would run as a formula."""
    cells = {column: column for column in texts}
    cells |= {column: f"array_to_string({column}, '|')" for column in ("labels", "predicted")}
    replaced = ", ".join(
        f"CASE WHEN regexp_matches({cell}, '{FORMULA}') AND NOT regexp_matches({cell}, '{NUMBER}') "
        f"THEN chr(39) || {cell} ELSE {cell} END AS {column}"
        for column, cell in cells.items()
    )
    return f"SELECT * REPLACE ({replaced}) FROM ({select})"
