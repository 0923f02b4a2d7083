"""The prediction table: one row per node, as Parquet, CSV, JSON, dictionaries or a data frame."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import duckdb
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.common import ranks
from hanme.common.files import replacing, temporary_folder
from hanme.common.memory import blocks
from hanme.common.text import html_table
from hanme.data.tables.read.sql import identifier, quoted
from hanme.decision import Decision
from hanme.errors import HanmeError, check_choice
from hanme.graph import Graph, Texts
from hanme.graph.graph import label_matrix
from hanme.runs.folder import RUN_FILES

SHOWN = 10
"""Rows that a notebook shows of a prediction: about half a screen."""

FORMATS = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv, HEADER true",
    ".json": "FORMAT json, ARRAY true",
}

CSV_ROWS = 1000
"""Rows of a CSV file that are sent at a time: some 100 kB."""

FORMULA = r"^[=+\-@\t\r]"
"""Matches a cell that a spreadsheet would evaluate as a formula, unless it is a number."""
NUMBER = r"^[+\-]?[0-9]+([.][0-9]+)?$"

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

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """The ids and names of all target nodes, where the graph has them."""
        texts = {"id": self.graph.targets.ids, "name": self.graph.targets.names}
        return {column: values for column, values in texts.items() if values is not None}

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

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON, by the file's suffix.

        CSV joins several labels as ``Drama|Comedy`` and puts ``'`` before texts that a spreadsheet
        would evaluate as a formula. Several processes write a folder of Parquet files,
        ``part-0.parquet`` and so on, each its share of the rows.
        """
        path = Path(path)
        if ranks.count() > 1:
            folder = ranks.from_first(lambda: _empty_folder(path))
            rows = ranks.share(self.nodes.new_tensor(range(len(self))))
            write_table(self.take(rows), folder / f"part-{ranks.rank()}.parquet")
        else:
            write_table(self, path)

    def csv(self) -> Iterator[str]:
        """Yield the CSV file that :meth:`write` writes, a part at a time."""
        with _table(self) as (connection, select, labels):
            select = _escaped(self.texts, select)
            head = connection.execute(f"{select} LIMIT 0", labels).description
            yield _csv_lines([[column[0] for column in head]])
            result = connection.execute(
                f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({select})", labels
            )
            while rows := result.fetchmany(CSV_ROWS):
                yield _csv_lines(rows)

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a dictionary per row, of the first ``limit`` rows (default: all)."""
        with _table(self.take(slice(limit))) as (connection, *select):
            result = connection.execute(*select)
            columns = [column[0] for column in result.description]
            return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]

    def frame(self) -> Any:
        """Return a pandas data frame; pandas must be installed."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise HanmeError("a data frame needs pandas: pip install pandas") from None
        with _table(self) as (connection, *select):
            return connection.execute(*select).df()

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
    columns: list[str] = []
    used: set[str] = set()
    for label in labels:
        column = base = f"p_{label}"
        number = 2
        while column.casefold() in used:
            column, number = f"{base}_{number}", number + 1
        used.add(column.casefold())
        columns.append(column)
    return columns


def write_table(table: Prediction, path: Path) -> None:
    """Write a prediction from this process, see :meth:`Prediction.write`."""
    options = FORMATS.get(path.suffix.lower())
    if options is None:
        raise HanmeError(f"{path}: expected a file name that ends in {', '.join(FORMATS)}")
    if path.name in RUN_FILES and (path.parent / "config.json").exists():
        raise HanmeError(f"{path}: a file of a run; write the table to another file")
    with replacing(path) as temporary:
        try:
            with _table_in_parts(table, path.parent) as (connection, select, labels):
                if path.suffix.lower() == ".csv":
                    select = _escaped(table.texts, select)
                # DuckDB's own temporary file would survive a kill.
                options += ", USE_TMP_FILE false"
                target = quoted(str(temporary))
                connection.execute(f"COPY ({select}) TO {target} ({options})", labels)
        except duckdb.IOException as error:
            raise HanmeError(f"{path}: cannot be written ({error})") from None


def _escaped(texts: Sequence[str] | dict[str, Sequence[str]], select: str) -> str:
    """Join several labels of a SELECT, and escape texts that a spreadsheet would evaluate."""
    cells = {column: column for column in texts}
    cells |= {column: f"array_to_string({column}, '|')" for column in ("labels", "predicted")}
    replaced = ", ".join(
        f"CASE WHEN regexp_matches({cell}, '{FORMULA}') AND NOT regexp_matches({cell}, '{NUMBER}') "
        f"THEN chr(39) || {cell} ELSE {cell} END AS {column}"
        for column, cell in cells.items()
    )
    return f"SELECT * REPLACE ({replaced}) FROM ({select})"


def _csv_lines(rows: Sequence[Sequence[str | None]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


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


_Select = tuple[Any, str, list[list[str]]]
"""A connection in which the columns are registered, a SELECT of them, and its parameters."""


@contextmanager
def _table_in_parts(table: Prediction, folder: Path) -> Iterator[_Select]:
    """Yield a table; a large one is first written to Parquet files in a folder, part by part."""
    parts = [table.take(rows) for rows in blocks(len(table), len(table.graph.labels))]
    if len(parts) < 2:
        with _table(table) as select:
            yield select
        return
    with temporary_folder(folder) as work:
        files = [quoted(f"{work}/{i}.parquet") for i in range(len(parts))]
        for part, file in zip(parts, files, strict=True):
            with _table(part) as (connection, text, labels):
                connection.execute(f"COPY ({text}) TO {file} (FORMAT parquet)", labels)
        # Each thread would hold groups of rows, of as many columns as there are labels.
        with duckdb.connect(config={"threads": 1}) as connection:
            yield connection, f"SELECT * FROM read_parquet([{', '.join(files)}])", []


@contextmanager
def _table(table: Prediction) -> Iterator[_Select]:
    """Yield the table of a prediction."""
    names, nodes = table.graph.labels, table.nodes
    frame: dict[str, Any] = {"node": nodes.numpy().astype(np.int32)}
    frame |= {column: _text_column(texts, nodes) for column, texts in table.texts.items()}
    if not table.differs_from_training:
        frame["split"] = table.split
    columns = list(frame)
    for column, matrix in (("labels", table.labels), ("predicted", table.predicted)):
        flags = {f"{column}{i}": matrix[:, i].numpy() for i in range(len(names))}
        frame |= flags
        # The numbers of a node's labels, then their names, which are parameters of the SQL.
        chosen = ", ".join(f"CASE WHEN {flag} THEN {i + 1} END" for i, flag in enumerate(flags))
        which = f"list_filter([{chosen}], lambda i: i IS NOT NULL)"
        columns.append(f"list_select(CAST(? AS VARCHAR[]), {which}) AS {column}")
    frame |= {"uncertainty": table.uncertainty.numpy(), "surprise": table.surprise.numpy()}
    columns += ["uncertainty", "CASE WHEN NOT isnan(surprise) THEN surprise END AS surprise"]
    for i, column in enumerate(probability_columns(names)):
        frame[f"p{i}"] = table.probabilities[:, i].contiguous().numpy()
        columns.append(f"p{i} AS {identifier(column)}")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")  # it goes to standard output
        connection.register("frame", frame)
        yield connection, f"SELECT {', '.join(columns)} FROM frame", [names, names]


def _text_column(texts: Sequence[str], nodes: Tensor) -> NDArray[Any]:
    values = texts.some(nodes) if isinstance(texts, Texts) else [texts[i] for i in nodes.tolist()]
    return np.array([*values, None], dtype=object)[:-1]  # None: never an array of characters
