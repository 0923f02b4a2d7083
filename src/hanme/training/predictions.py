"""Predictions as a Parquet table."""

from __future__ import annotations

from pathlib import Path

import duckdb
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.files import replacing
from hanme.training.metrics import as_matrix, decide


def write_predictions(data: HeteroData, logits: Tensor, path: Path, *, fallback: bool) -> None:
    """A row per target node: ``node``, ``name``, ``split``, ``labels``, ``predicted``, and the
    probability of each label as ``p_LABEL``."""
    store = data[data.target]
    labels: list[str] = list(store.label_names)
    predicted = decide(logits, multilabel=data.multilabel, fallback=fallback)
    probability = torch.sigmoid(logits) if data.multilabel else torch.softmax(logits, 1)
    split = ["unlabelled"] * logits.size(0)
    for name in ("train", "val", "test"):
        for node in store[f"{name}_mask"].nonzero().flatten().tolist():
            split[node] = name
    columns: dict[str, tuple[str, list[object]]] = {
        "node": ("INTEGER", list(range(logits.size(0)))),
        "name": ("VARCHAR", list(store.name)),
        "split": ("VARCHAR", list(split)),
        "labels": ("VARCHAR[]", _named(as_matrix(store.y, len(labels)), labels)),
        "predicted": ("VARCHAR[]", _named(predicted, labels)),
    }
    for i, label in enumerate(labels):
        columns[f"p_{label}"] = ("FLOAT", probability[:, i].tolist())
    with duckdb.connect() as connection, replacing(path) as temporary:
        # The columns go in as lists, unnested side by side: no row-by-row insert, no pandas.
        selected = ", ".join(
            f"unnest(CAST(? AS {kind}[])) AS {_quoted(name)}" for name, (kind, _) in columns.items()
        )
        rows = connection.sql(f"SELECT {selected}", params=[v for _, v in columns.values()])
        rows.write_parquet(str(temporary))


def _named(matrix: Tensor, labels: list[str]) -> list[object]:
    return [[labels[i] for i, given in enumerate(row) if given] for row in matrix.tolist()]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
