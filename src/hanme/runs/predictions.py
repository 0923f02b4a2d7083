"""Predictions as a table: Parquet, CSV or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.files import replacing
from hanme.common.memory import blocks
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.graph import Graph, Texts

FORMATS = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv, HEADER true",
    ".json": "FORMAT json, ARRAY true",
}

UNLABELLED = "unlabelled"
"""What a node without a label was used for."""

FORMULA = r"^[=+\-@\t\r]"
"""How a cell begins that a spreadsheet runs."""
NUMBER = r"^[+\-]?[0-9]+([.][0-9]+)?$"


def write_predictions(
    graph: Graph,
    logits: Tensor,
    path: Path,
    *,
    decision: Decision,
    nodes: Sequence[int] | None = None,
    split: bool = True,
) -> None:
    """Write a row per target node.

    Its columns are ``node`` (its number), ``id`` where the graph has the user's own ids, ``name``,
    ``split``, ``labels``, ``predicted``, ``uncertainty`` and ``surprise`` (see
    :class:`~hanme.decision.Decision`; a node without a label has no surprise), and the probability
    of each label as ``p_LABEL`` (see :func:`probability_columns`).

    Args:
        graph: The graph.
        logits: The logits of all target nodes.
        path: A file ``.parquet``, ``.csv`` (several labels as ``Drama|Comedy``, and ``'`` before
            texts that a spreadsheet would run as a formula) or ``.json``.
        decision: From logits to labels.
        nodes: The nodes to write, in this order (default: all).
        split: Whether to say what a node was used for.
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise HanmeError(f"{path}: name a file that ends in {', '.join(FORMATS)}")
    given = graph, logits, decision, _chosen(logits, nodes), split
    with replacing(path) as temporary:
        try:
            with _in_parts(*given, path.parent) as (connection, select, labels):
                if path.suffix.lower() == ".csv":
                    select = _for_spreadsheets(graph, select)
                connection.execute(f"COPY ({select}) TO {_text(temporary)} ({form})", labels)
        except duckdb.IOException as error:
            raise HanmeError(f"{path}: it cannot be written ({error})") from None


def harmless(text: str) -> str:
    """Put ``'`` before a text that a spreadsheet would run as a formula."""
    runs = re.match(FORMULA, text) and not re.match(NUMBER, text)
    return f"'{text}" if runs else text


def predictions(
    graph: Graph,
    logits: Tensor,
    *,
    decision: Decision,
    nodes: Sequence[int] | None = None,
    split: bool = True,
) -> list[dict[str, Any]]:
    """Return the same as dictionaries."""
    chosen = _chosen(logits, nodes)
    with _table(graph, logits, decision, chosen, split) as (connection, select, labels):
        found = connection.execute(select, labels)
        columns = [column[0] for column in found.description]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def frame(
    graph: Graph,
    logits: Tensor,
    *,
    decision: Decision,
    nodes: Sequence[int] | None = None,
    split: bool = True,
) -> Any:
    """Return the same as a pandas data frame."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise HanmeError("a data frame needs pandas: pip install pandas") from None
    chosen = _chosen(logits, nodes)
    with _table(graph, logits, decision, chosen, split) as (connection, select, labels):
        return connection.execute(select, labels).df()


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


def uses(graph: Graph, nodes: Tensor | slice = slice(None)) -> NDArray[Any]:
    """Return what target nodes were used for: train, val, test, unused or unlabelled."""
    y = graph.y[nodes]
    labelled = (y > 0).any(1) if graph.multilabel else y >= 0
    used = np.where(labelled.numpy(), "unused", UNLABELLED).astype(object)
    for part, mask in graph.split.parts().items():
        used[mask[nodes].numpy()] = part
    return used


_Select = tuple[Any, str, list[list[str]]]
"""A connection that knows the columns, a SELECT of them, and its parameters."""


@contextmanager
def _in_parts(
    graph: Graph, logits: Tensor, decision: Decision, chosen: Tensor, split: bool, folder: Path
) -> Iterator[_Select]:
    """Give the table of many nodes from Parquet files of some of them, made in a folder."""
    parts = [chosen[rows] for rows in blocks(len(chosen), len(graph.labels))]
    if len(parts) < 2:
        with _table(graph, logits, decision, chosen, split) as table:
            yield table
        return
    with TemporaryDirectory(prefix=".predictions-", dir=folder) as work:
        files = [_text(Path(work) / f"{i}.parquet") for i in range(len(parts))]
        for part, file in zip(parts, files, strict=True):
            with _table(graph, logits, decision, part, split) as (connection, select, labels):
                connection.execute(f"COPY ({select}) TO {file} (FORMAT parquet)", labels)
        with duckdb.connect() as connection:
            yield connection, f"SELECT * FROM read_parquet([{', '.join(files)}])", []


def _text(path: Path) -> str:
    """Return a path as a text of SQL."""
    return "'" + str(path).replace("'", "''") + "'"


def _chosen(logits: Tensor, nodes: Sequence[int] | None) -> Tensor:
    return torch.arange(logits.size(0)) if nodes is None else torch.tensor(nodes).long()


@contextmanager
def _table(
    graph: Graph, logits: Tensor, decision: Decision, chosen: Tensor, split: bool
) -> Iterator[_Select]:
    """Give the table of some nodes."""
    names, targets = graph.labels, graph.targets
    logits = logits[chosen].float().cpu()
    labels = graph.labels_given(chosen)
    numbers = chosen if targets.numbers is None else targets.numbers[chosen]
    frame: dict[str, Any] = {"node": numbers.numpy().astype(np.int32)}
    columns = ["node"]
    for column, texts in (("id", targets.ids), ("name", targets.names)):
        if texts is not None:
            frame[column] = _texts(texts, chosen)
            columns.append(column)
    if split:
        frame["split"] = uses(graph, chosen)
        columns.append("split")
    matrices = {
        "labels": labels,
        "predicted": decision.labels(logits, multilabel=graph.multilabel),
    }
    for column, matrix in matrices.items():
        flags = {f"{column}{i}": matrix[:, i].numpy() for i in range(len(names))}
        frame |= flags
        # The numbers of the labels a node has, then their names, which are no part of the SQL.
        given = ", ".join(f"CASE WHEN {flag} THEN {i + 1} END" for i, flag in enumerate(flags))
        which = f"list_filter([{given}], lambda i: i IS NOT NULL)"
        columns.append(f"list_select(CAST(? AS VARCHAR[]), {which}) AS {column}")
    several = graph.multilabel
    frame["uncertainty"] = decision.uncertainty(logits, multilabel=several).numpy()
    frame["surprise"] = decision.surprise(logits, labels, multilabel=several).numpy()
    columns += ["uncertainty", "CASE WHEN NOT isnan(surprise) THEN surprise END AS surprise"]
    probability = decision.probabilities(logits, multilabel=graph.multilabel)
    for i, column in enumerate(probability_columns(names)):
        frame[f"p{i}"] = probability[:, i].contiguous().numpy()
        columns.append(f"p{i} AS {_quoted(column)}")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")  # it goes to standard output
        connection.register("frame", frame)
        yield connection, f"SELECT {', '.join(columns)} FROM frame", [names, names]


def _for_spreadsheets(graph: Graph, select: str) -> str:
    """Join several labels, and mark with ``'`` what a spreadsheet would run as a formula."""
    cells = {column: f"array_to_string({column}, '|')" for column in ("labels", "predicted")}
    texts = (("id", graph.targets.ids), ("name", graph.targets.names))
    cells |= {column: column for column, found in texts if found is not None}
    replaced = ", ".join(
        f"CASE WHEN regexp_matches({cell}, '{FORMULA}') AND NOT regexp_matches({cell}, '{NUMBER}') "
        f"THEN chr(39) || {cell} ELSE {cell} END AS {column}"
        for column, cell in cells.items()
    )
    return f"SELECT * REPLACE ({replaced}) FROM ({select})"


def _texts(texts: Sequence[str], chosen: Tensor) -> Any:
    found = texts.some(chosen) if isinstance(texts, Texts) else [texts[i] for i in chosen.tolist()]
    return np.array([*found, None], dtype=object)[:-1]  # None: never an array of characters


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
