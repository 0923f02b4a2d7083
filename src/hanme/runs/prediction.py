"""Predictions of a trained model, as a table: Parquet, CSV or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import duckdb
import numpy as np
import torch
from torch import Tensor

from hanme.common import ranks
from hanme.common.files import replacing, temporary_folder
from hanme.common.html import html_table
from hanme.common.memory import blocks
from hanme.data.tables.read.scan import identifier
from hanme.data.tables.read.sources import quoted
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.graph import Graph, Texts
from hanme.runs.columns import UNLABELLED, for_spreadsheets, probability_columns, uses
from hanme.runs.folder import BEGUN, ENDED

SHOWN = 10

FORMATS = {
    ".parquet": "FORMAT parquet",
    ".csv": "FORMAT csv, HEADER true",
    ".json": "FORMAT json, ARRAY true",
}

Order = Literal["uncertain", "surprising"]
"""Which nodes come first, see :meth:`Prediction.ranked`."""


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """What a model predicts.

    As a table, it has a row per node. Its columns are ``node`` (its number), ``id`` where the graph
    has the user's own ids, ``name``, ``split`` (what the node was used for), ``labels``,
    ``predicted``, ``uncertainty`` and ``surprise`` (see :class:`~hanme.decision.Decision`; a node
    without a label has no surprise), and the probability of each label as ``p_LABEL`` (see
    :func:`~hanme.runs.columns.probability_columns`).

    Args:
        graph: The graph.
        logits: Of all its target nodes, ``[N, C]``.
        nodes: Those asked for, None for all.
        decision: From logits to labels.
        grown: Whether the graph is not the one the model was trained on: nobody drew a split there,
            and none is shown.
    """

    graph: Graph
    logits: Tensor
    nodes: list[int] | None
    decision: Decision
    grown: bool = False

    def __len__(self) -> int:
        return self.logits.size(0) if self.nodes is None else len(self.nodes)

    @property
    def numbers(self) -> list[int]:
        """The numbers of the nodes asked for."""
        return list(range(len(self))) if self.nodes is None else self.nodes

    @property
    def chosen(self) -> Tensor:
        """The numbers of the nodes asked for, as a tensor."""
        return torch.arange(len(self)) if self.nodes is None else torch.tensor(self.nodes).long()

    @property
    def chosen_logits(self) -> Tensor:
        """The logits of the nodes asked for, ``[R, C]``."""
        return self.logits if self.nodes is None else self.logits[self.nodes]

    def only(self, use: str) -> Prediction:
        """Return those of the nodes that were used for ``train``, ``val`` or ``test``.

        Args:
            use: Or ``unlabelled``, for nodes without a label; or ``unused``, for nodes whose label
                is outside the split.
        """
        if use not in (*self.graph.split.parts(), "unused", UNLABELLED):
            parts = ", ".join(self.graph.split.parts())
            raise HanmeError(f"split {use!r}: there are {parts}, unused and {UNLABELLED}")
        if self.grown and use != UNLABELLED:
            raise HanmeError(
                f"split {use!r}: the tables have changed since training, so it is not known what "
                f"a row was used for; {UNLABELLED} can be asked for"
            )
        used = uses(self.graph)
        return replace(self, nodes=[node for node in self.numbers if used[node] == use])

    def ranked(self, order: Order | None = None, *, top: int | None = None) -> Prediction:
        """Return the nodes in another order, such as the first hundred that a person should check.

        Args:
            order: ``"uncertain"``: those first whose labels the model knows least (see
                :meth:`Decision.uncertainty <hanme.decision.Decision.uncertainty>`).
                ``"surprising"``: those with a label, first those whose label the model believes
                least (see :meth:`Decision.surprise <hanme.decision.Decision.surprise>`). None: as
                they are.
            top: How many (default: all).
        """
        nodes, logits, several = self.numbers, self.chosen_logits, self.graph.multilabel
        if order is not None:
            if order == "uncertain":
                by = self.decision.uncertainty(logits, multilabel=several)
            elif order == "surprising":
                given = self.graph.labels_given(self.chosen)
                by = self.decision.surprise(logits, given, multilabel=several)
            else:
                raise HanmeError(f"order {order!r}: there are {' and '.join(get_args(Order))}")
            places = by.argsort(descending=True, stable=True)
            nodes = [nodes[place] for place in places[~by[places].isnan()].tolist()]
        return replace(self, nodes=nodes[:top])

    def write(self, path: str | Path) -> None:
        """Write Parquet, CSV or JSON, by the file's ending.

        In CSV several labels are ``Drama|Comedy``, and ``'`` is before texts that a spreadsheet
        would run as a formula. Several processes write a folder of Parquet files,
        ``part-0.parquet`` and so on, each its share of the rows.
        """
        if ranks.count() > 1:
            part = ranks.from_first(lambda: _folder(Path(path))) / f"part-{ranks.rank()}.parquet"
            mine = ranks.share(self.chosen).tolist()
            write_table(replace(self, nodes=mine), part)
        else:
            write_table(self, Path(path))

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return a dictionary per node, of the first few or of all."""
        with _table(self, self.chosen[:limit]) as (connection, *select):
            found = connection.execute(*select)
            columns = [column[0] for column in found.description]
            return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]

    def frame(self) -> Any:
        """Return a pandas data frame with a row per node; pandas must be installed."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise HanmeError("a data frame needs pandas: pip install pandas") from None
        with _table(self, self.chosen) as (connection, *select):
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


def write_table(found: Prediction, path: Path) -> None:
    """Write the table of a prediction from this process, see :meth:`Prediction.write`."""
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise HanmeError(f"{path}: name a file that ends in {', '.join(FORMATS)}")
    if path.name in (*BEGUN, *ENDED, "result.json") and (path.parent / "config.json").exists():
        raise HanmeError(f"{path}: it is a file of a run; give the table another name")
    with replacing(path) as temporary:
        try:
            with _in_parts(found, path.parent) as (connection, select, labels):
                if path.suffix.lower() == ".csv":
                    select = for_spreadsheets(_texts(found.graph), select)
                # a second temporary file, of DuckDB, would outlive a kill
                form += ", USE_TMP_FILE false"
                connection.execute(f"COPY ({select}) TO {quoted(str(temporary))} ({form})", labels)
        except duckdb.IOException as error:
            raise HanmeError(f"{path}: it cannot be written ({error})") from None


def _folder(path: Path) -> Path:
    """Make the folder for the parts of a table, without parts that were there before."""
    if path.suffix.lower() != ".parquet":
        raise HanmeError(f"{path}: several processes write Parquet; name it .parquet")
    if path.is_file():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)
    for part in path.glob("part-*.parquet"):
        part.unlink()
    return path


_Select = tuple[Any, str, list[list[str]]]
"""A connection that knows the columns, a SELECT of them, and its parameters."""


@contextmanager
def _in_parts(found: Prediction, folder: Path) -> Iterator[_Select]:
    """Give the table of many nodes from Parquet files of some of them, made in a folder."""
    chosen = found.chosen
    parts = [chosen[rows] for rows in blocks(len(chosen), len(found.graph.labels))]
    if len(parts) < 2:
        with _table(found, chosen) as table:
            yield table
        return
    with temporary_folder(folder) as work:
        files = [quoted(f"{work}/{i}.parquet") for i in range(len(parts))]
        for part, file in zip(parts, files, strict=True):
            with _table(found, part) as (connection, select, labels):
                connection.execute(f"COPY ({select}) TO {file} (FORMAT parquet)", labels)
        # Each thread would hold groups of rows, of as many columns as there are labels.
        with duckdb.connect(config={"threads": 1}) as connection:
            yield connection, f"SELECT * FROM read_parquet([{', '.join(files)}])", []


@contextmanager
def _table(found: Prediction, chosen: Tensor) -> Iterator[_Select]:
    """Give the table of some nodes."""
    graph, decision = found.graph, found.decision
    names, several = graph.labels, graph.multilabel
    logits = found.logits[chosen].float().cpu()
    labels, numbers = graph.labels_given(chosen), graph.targets.original_ids
    node = chosen if numbers is None else numbers[chosen]
    frame: dict[str, Any] = {"node": node.numpy().astype(np.int32)}
    frame |= {column: _some(texts, chosen) for column, texts in _texts(graph).items()}
    if not found.grown:
        frame["split"] = uses(graph, chosen)
    columns = list(frame)
    matrices = {"labels": labels, "predicted": decision.labels(logits, multilabel=several)}
    for column, matrix in matrices.items():
        flags = {f"{column}{i}": matrix[:, i].numpy() for i in range(len(names))}
        frame |= flags
        # The numbers of the labels a node has, then their names, which are no part of the SQL.
        given = ", ".join(f"CASE WHEN {flag} THEN {i + 1} END" for i, flag in enumerate(flags))
        which = f"list_filter([{given}], lambda i: i IS NOT NULL)"
        columns.append(f"list_select(CAST(? AS VARCHAR[]), {which}) AS {column}")
    frame["uncertainty"] = decision.uncertainty(logits, multilabel=several).numpy()
    frame["surprise"] = decision.surprise(logits, labels, multilabel=several).numpy()
    columns += ["uncertainty", "CASE WHEN NOT isnan(surprise) THEN surprise END AS surprise"]
    probability = decision.probabilities(logits, multilabel=several)
    for i, column in enumerate(probability_columns(names)):
        frame[f"p{i}"] = probability[:, i].contiguous().numpy()
        columns.append(f"p{i} AS {identifier(column)}")
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")  # it goes to standard output
        connection.register("frame", frame)
        yield connection, f"SELECT {', '.join(columns)} FROM frame", [names, names]


def _texts(graph: Graph) -> dict[str, Sequence[str]]:
    """Return the ids and names of target nodes, where there are some."""
    given = {"id": graph.targets.ids, "name": graph.targets.names}
    return {column: texts for column, texts in given.items() if texts is not None}


def _some(texts: Sequence[str], chosen: Tensor) -> Any:
    found = texts.some(chosen) if isinstance(texts, Texts) else [texts[i] for i in chosen.tolist()]
    return np.array([*found, None], dtype=object)[:-1]  # None: never an array of characters
