"""Predictions as a table: Parquet, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.errors import HanmeError
from hanme.files import replacing
from hanme.training.metrics import as_matrix, decide

FORMATS = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv, HEADER true",
    ".json": "FORMAT json, ARRAY true",
}
SPLITS = ("train", "val", "test")


def write_predictions(
    data: HeteroData,
    logits: Tensor,
    path: Path,
    *,
    fallback: bool,
    nodes: Sequence[int] | None = None,
    split: bool = True,
) -> None:
    """A row per target node: ``node`` (its number), ``id`` where the graph has ids of the user's
    own, ``name``, ``split``, ``labels``, ``predicted``, and the probability of each label as
    ``p_LABEL`` (see :func:`probability_columns`).

    Args:
        path: A file ``.parquet``, ``.csv`` (several labels as ``Drama|Comedy``) or ``.json``.
        fallback: See :func:`~hanme.training.metrics.decide`.
        nodes: The nodes to write, in this order (default: all).
        split: Whether to say what a node was used for.
    """
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise HanmeError(f"{path}: name a file that ends in {', '.join(FORMATS)}")
    with _table(data, logits, fallback, nodes, split) as (connection, select, labels):
        if path.suffix.lower() == ".csv":
            joined = ", ".join(f"array_to_string({c}, '|') AS {c}" for c in ("labels", "predicted"))
            select = f"SELECT * REPLACE ({joined}) FROM ({select})"
        with replacing(path) as temporary:
            file = str(temporary).replace("'", "''")
            try:
                connection.execute(f"COPY ({select}) TO '{file}' ({form})", labels)
            except duckdb.IOException as error:
                raise HanmeError(f"{path}: it cannot be written ({error})") from None


def predictions(
    data: HeteroData,
    logits: Tensor,
    *,
    fallback: bool,
    nodes: Sequence[int] | None = None,
    split: bool = True,
) -> list[dict[str, Any]]:
    """The same as dictionaries."""
    with _table(data, logits, fallback, nodes, split) as (connection, select, labels):
        found = connection.execute(select, labels)
        columns = [column[0] for column in found.description]
        return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def probability_columns(labels: Sequence[str]) -> list[str]:
    """The column of each label's probability, ``p_LABEL``.

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


@contextmanager
def _table(
    data: HeteroData, logits: Tensor, fallback: bool, nodes: Sequence[int] | None, split: bool
) -> Iterator[tuple[Any, str, list[list[str]]]]:
    """A connection that knows the columns, a SELECT of them, and its parameters."""
    store = data[data.target]
    names: list[str] = list(store.label_names)
    chosen = torch.arange(logits.size(0)) if nodes is None else torch.tensor(nodes).long()
    logits = logits[chosen].float().cpu()
    labels = as_matrix(store.y[chosen], len(names))
    frame: dict[str, Any] = {"node": chosen.numpy().astype(np.int32)}
    columns = ["node"]
    for column in ("id", "name"):
        if column in store:
            frame[column] = _texts(store[column], chosen, whole=nodes is None)
            columns.append(column)
    if split:
        used = np.where(labels.any(1).numpy(), "unused", "unlabelled").astype(object)
        for part in SPLITS:
            used[store[f"{part}_mask"][chosen].numpy()] = part
        frame["split"] = used
        columns.append("split")
    matrices = {
        "labels": labels,
        "predicted": decide(logits, multilabel=data.multilabel, fallback=fallback),
    }
    for column, matrix in matrices.items():
        flags = {f"{column}{i}": matrix[:, i].numpy() for i in range(len(names))}
        frame |= flags
        # The numbers of the labels a node has, then their names, which are no part of the SQL.
        given = ", ".join(f"CASE WHEN {flag} THEN {i + 1} END" for i, flag in enumerate(flags))
        which = f"list_filter([{given}], lambda i: i IS NOT NULL)"
        columns.append(f"list_select(CAST(? AS VARCHAR[]), {which}) AS {column}")
    probability = torch.sigmoid(logits) if data.multilabel else torch.softmax(logits, 1)
    for i, column in enumerate(probability_columns(names)):
        frame[f"p{i}"] = probability[:, i].contiguous().numpy()
        columns.append(f"p{i} AS {_quoted(column)}")
    with duckdb.connect() as connection:
        connection.register("frame", frame)
        yield connection, f"SELECT {', '.join(columns)} FROM frame", [names, names]


def _texts(texts: Sequence[str], chosen: Tensor, *, whole: bool) -> Any:
    found = list(texts) if whole else [texts[i] for i in chosen.tolist()]
    return np.array([*found, None], dtype=object)[:-1]  # None: never an array of characters


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
