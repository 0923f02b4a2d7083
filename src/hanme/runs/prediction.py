"""The prediction table: one row per node, as Parquet, CSV, JSON, dictionaries or a data frame."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args
from uuid import uuid4

import duckdb
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.common import ranks
from hanme.common.files import replacing
from hanme.common.memory import blocks
from hanme.common.text import csv_cell, csv_line, html_table
from hanme.data.tables.read.sql import quoted
from hanme.decision import Decision
from hanme.errors import HanmeError, check_choice
from hanme.graph import Graph, Texts
from hanme.graph.graph import label_matrix
from hanme.runs.folder import RUN_FILES
from hanme.runs.reviewed import label_cell

SHOWN = 10
"""Rows that a notebook shows of a prediction: about half a screen."""

FORMATS = (".parquet", ".csv", ".json")

CSV_ROWS = 1000
"""Rows of a CSV file that are sent at a time: some 100 kB."""

UNLABELLED = "unlabelled"
USES = ("train", "val", "test", "unused", UNLABELLED)
"""Values of the column ``split``: a part of the split, or a label outside of it, or no label."""

Order = Literal["uncertain", "surprising"]
"""Which nodes come first, see :meth:`Prediction.ranked`."""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Predictions for some target nodes of a graph.

    As a table, it has a row per node and the columns ``node`` (its number), ``id`` where the graph
    has ids, ``name``, ``split`` (see :data:`USES`), ``labels``, ``predicted``, ``uncertainty`` and
    ``surprise`` (see :class:`~hanme.decision.Decision`; empty for a node without a label), and the
    probability of each label as ``p_LABEL`` (see :func:`probability_columns`).

    Args:
        graph: The graph.
        nodes: Numbers of target nodes, ``[R]``.
        logits: Their logits, ``[R, C]``.
        decision: Turns logits into probabilities and labels.
        differs_from_training: Whether ids, labels or split of the graph differ from those the
            model was trained on; if so, the table has no column ``split``.
    """

    graph: Graph
    nodes: Tensor
    logits: Tensor
    decision: Decision
    differs_from_training: bool = False

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def probabilities(self) -> Tensor:
        """The calibrated probability of each label, ``[R, C]``."""
        return self.decision.probabilities(self.logits, multilabel=self.graph.multilabel)

    @cached_property
    def predicted(self) -> Tensor:
        """The predicted labels, bool, ``[R, C]``."""
        return self.decision.labels(self.logits, multilabel=self.graph.multilabel)

    @cached_property
    def labels(self) -> Tensor:
        """The known labels, bool, ``[R, C]``; all False for a node without a label."""
        return label_matrix(self.graph.labels_of(self.nodes)[0], len(self.graph.labels))

    @cached_property
    def uncertainty(self) -> Tensor:
        """The entropy of each prediction in bits, ``[R]``."""
        return self.decision.uncertainty(self.logits, multilabel=self.graph.multilabel)

    @cached_property
    def surprise(self) -> Tensor:
        """The surprise of each node's labels in bits, ``[R]``; NaN for a node without a label."""
        return self.decision.surprise(self.logits, self.labels, multilabel=self.graph.multilabel)

    @cached_property
    def split(self) -> NDArray[Any]:
        """What each node was used for, ``[R]``, see :data:`USES`."""
        split = self.graph.labels_of(self.nodes)[1]
        used = np.where(self.labels.any(1).numpy(), "unused", UNLABELLED).astype(object)
        for part, mask in split.parts().items():
            used[mask.numpy()] = part
        return used

    def take(self, rows: Tensor | slice) -> Prediction:
        """Return some of the rows, by their positions or a bool mask."""
        return replace(self, nodes=self.nodes[rows], logits=self.logits[rows])

    def only(self, use: str) -> Prediction:
        """Return the rows whose ``split`` is ``use``, one of :data:`USES`."""
        check_choice("split", use, USES)
        if self.differs_from_training and use != UNLABELLED:
            raise HanmeError(
                f"split {use!r}: the tables have changed since training, so the split is unknown; "
                f"only {UNLABELLED} is possible"
            )
        return self.take(self.nodes.new_tensor(np.flatnonzero(self.split == use)))

    def ranked(self, order: Order | None = None, *, top: int | None = None) -> Prediction:
        """Return the rows in another order, such as the first hundred that a person should check.

        Args:
            order: ``"uncertain"``: the least certain predictions first. ``"surprising"``: only
                nodes with a label, the least probable labels first. None: keep the order.
            top: Maximum number of rows (default: all).
        """
        if order is None:
            return self.take(slice(top))
        check_choice("order", order, get_args(Order))
        by = self.uncertainty if order == "uncertain" else self.surprise
        rows = by.argsort(descending=True, stable=True)
        return self.take(rows[~by[rows].isnan()][:top])

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of the table; labels are lists."""
        targets, names = self.graph.targets, self.graph.labels
        table = {"node": self.nodes.numpy().astype(np.int32)}
        for column, texts in (("id", targets.ids), ("name", targets.names)):
            if texts is not None:
                table[column] = _objects(
                    texts.some(self.nodes)
                    if isinstance(texts, Texts)
                    else [texts[i] for i in self.nodes.tolist()]
                )
        if not self.differs_from_training:
            table["split"] = self.split
        for column, matrix in (("labels", self.labels), ("predicted", self.predicted)):
            lists: list[list[str]] = [[] for _ in range(len(self))]
            for row, label in matrix.nonzero().tolist():
                lists[row].append(names[label])
            table[column] = _objects(lists)
        table["uncertainty"] = self.uncertainty.numpy()
        known = [None if math.isnan(bits) else bits for bits in self.surprise.tolist()]
        table["surprise"] = _objects(known)
        p = self.probabilities.numpy().T
        return table | dict(zip(probability_columns(names), p, strict=True))

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a dictionary per row, of the first ``limit`` rows (default: all)."""
        columns = self.take(slice(limit)).columns
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]

    def frame(self) -> Any:
        """Return a pandas data frame; pandas must be installed."""
        try:
            import pandas as pd
        except ImportError:
            raise HanmeError("a data frame needs pandas: pip install pandas") from None
        return pd.DataFrame(self.columns)

    def csv(self) -> Iterator[str]:
        """Yield the lines of a CSV file, some at a time.

        Several labels are joined as ``Drama|Comedy``. A ``'`` stands before texts that a
        spreadsheet would evaluate as a formula.
        """
        for begin in range(0, max(1, len(self)), CSV_ROWS):
            columns = self.take(slice(begin, begin + CSV_ROWS)).columns
            if begin == 0:
                yield f"{csv_line(columns)}\n"
            rows = zip(*columns.values(), strict=True)
            yield "".join(f"{csv_line(map(_cell, row))}\n" for row in rows)

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV (see :meth:`csv`) or JSON, by the file's suffix.

        Several processes write a folder of Parquet files, ``part-0.parquet`` and so on, each its
        share of the rows.
        """
        if ranks.count() == 1:
            self.write_here(Path(path))
            return
        folder = ranks.from_first(lambda: _empty_folder(Path(path)))
        rows = ranks.share(self.nodes.new_tensor(range(len(self))))
        self.take(rows).write_here(folder / f"part-{ranks.rank()}.parquet")

    def write_here(self, path: Path) -> None:
        """Write all rows from this process, see :meth:`write`."""
        suffix = path.suffix.lower()
        if suffix not in FORMATS:
            raise HanmeError(f"{path}: expected a file name that ends in {', '.join(FORMATS)}")
        if path.name in RUN_FILES and (path.parent / "config.json").exists():
            raise HanmeError(f"{path}: a file of a run; write the table to another file")
        with replacing(path) as temporary:
            if suffix == ".parquet":
                self._write_parquet(temporary)
                return
            with temporary.open("w", encoding="utf-8", newline="") as file:
                if suffix == ".csv":
                    file.writelines(self.csv())
                else:
                    json.dump(self.rows(), file)

    def _write_parquet(self, path: Path) -> None:
        """Write a table in parts, each of which fits into memory, and join them."""
        end = f".{uuid4().hex}"  # so that `remove_leftovers` finds what a kill leaves
        with (
            TemporaryDirectory(dir=path.parent, prefix=".parts.", suffix=end) as work,
            duckdb.connect() as connection,
        ):
            # Each thread would hold groups of rows, of as many columns as there are labels.
            connection.execute("SET threads = 1; SET enable_progress_bar = false")
            parts = list(blocks(len(self), len(self.graph.labels))) or [slice(0)]
            for i, part in enumerate(parts):
                columns = self.take(part).columns
                for name in ("labels", "predicted"):  # DuckDB would guess the type of lists
                    columns[name] = _objects([json.dumps(labels) for labels in columns[name]])
                connection.register("part", columns)
                lists = ", ".join(f"{x}::JSON::VARCHAR[] AS {x}" for x in ("labels", "predicted"))
                select = f"SELECT * REPLACE ({lists}, surprise::FLOAT AS surprise) FROM part"
                connection.execute(f"COPY ({select}) TO {quoted(f'{work}/{i}.parquet')}")
            # DuckDB's own temporary file would survive a kill.
            files = ", ".join(quoted(f"{work}/{i}.parquet") for i in range(len(parts)))
            target, options = quoted(str(path)), "FORMAT parquet, USE_TMP_FILE false"
            connection.execute(f"COPY (FROM read_parquet([{files}])) TO {target} ({options})")

    def __repr__(self) -> str:
        labels = self.graph.labels
        return f"Prediction({len(self):,} {self.graph.target}: {', '.join(labels)})"

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        rows = self.rows(SHOWN)
        head = list(rows[0]) if rows else []
        below = f"{len(rows)} of {len(self):,} {self.graph.target}"
        return html_table(head, (list(row.values()) for row in rows), below)


def probability_columns(labels: Sequence[str]) -> list[str]:
    """Return the column of each label's probability, ``p_LABEL``.

    DuckDB's column names are case-insensitive: a repeated one gets a number, as in ``p_Drama``,
    ``p_drama_2``.
    """
    columns: dict[str, str] = {}
    for label in labels:
        column, number = f"p_{label}", 2
        while column.casefold() in columns:
            column, number = f"p_{label}_{number}", number + 1
        columns[column.casefold()] = column
    return list(columns.values())


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    """Return an array of objects, one-dimensional even if all are lists of the same length."""
    return np.array([*values, None], dtype=object)[:-1]


def _cell(value: Any) -> Any:
    if isinstance(value, float):  # no more digits than were computed
        return np.float32(value)
    text = label_cell(value) if isinstance(value, list) else value
    return csv_cell(text) if isinstance(text, str) else text


def _empty_folder(path: Path) -> Path:
    """Create the folder for the parts of a table, and remove the parts of an earlier one."""
    if path.suffix.lower() != ".parquet":
        raise HanmeError(f"{path}: several processes write Parquet; name it .parquet")
    if path.is_file():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)
    for part in path.glob("part-*.parquet"):
        part.unlink()
    return path
