"""The rows of a user's tables behind the nodes, with all of their columns; and new rows."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, vstack
from torch import Tensor

from hanme.data import is_store, is_tables
from hanme.data.tables.build.features import Fitted, cell_sql, fit, request
from hanme.data.tables.build.graph import GraphSource
from hanme.data.tables.build.load import open_source
from hanme.data.tables.build.nodes import feature_aliases
from hanme.data.tables.read.reader import ColumnRequest, Reader, Table
from hanme.data.tables.read.sql import EXACT
from hanme.data.tables.schema.sections import ColumnLinks, Source
from hanme.errors import HanmeError
from hanme.graph import EdgeType, Graph, Split
from hanme.graph.features import to_scipy, to_torch

MOST_VALUES = 30
"""Maximum number of values of a facet: a list of more is not read."""

MOST_NEW, MOST_COLUMNS, LONGEST = 100, 200, 10_000
"""Maximum number of new rows at a time, of their columns, and of characters in a cell."""

MOST_COMMON = 3
"""Number of common values of a category that are tried in its place."""

NEW = "new rows"
"""What messages call rows that are in no table."""

MOST_FACETS = 8
"""Maximum number of facets, in the order of the columns: more do not fit beside a table."""


@dataclass(frozen=True)
class Facet:
    """A column of few different values, and the place of each node's value among them, or -1."""

    column: str
    values: list[str]
    codes: NDArray[np.int64]


class TableRows:
    """The rows of node types as they are in the user's tables, read when first requested.

    Cells are text without the blanks around it, None if empty. A node that no table has, but links
    name, has no row. Of a graph that was not made from tables, no node has one.
    """

    def __init__(self, source: GraphSource | None) -> None:
        self.source = source
        self._lock, self._tables = Lock(), dict[str, Table]()
        self._reader: Reader | None = None
        if source is not None:
            self._reader = Reader(source.sources.values(), source.path.parent)
            self._reader.__enter__()  # its files are removed when the process exits

    @classmethod
    def of(cls, name: str | Path) -> TableRows:
        """Find the tables of a data set, given the path of its ``graph.toml``."""
        return cls(open_source(name) if is_tables(name) and not is_store(name) else None)

    def row(self, kind: str, number: int) -> dict[str, str | None]:
        """Return the cells of a node by column."""
        with self._lock:
            table = self._table(kind)
            if table is None or number >= table.size:
                return {}
            ((*cells,),) = table.reader.rows(
                f"SELECT {', '.join(table.columns)} FROM {table.sql} WHERE rowid = ?", number
            )
            return dict(zip(table.columns.values(), cells, strict=True))

    def columns(self, kind: str) -> list[str]:
        """Return the columns of a node type."""
        with self._lock:
            table = self._table(kind)
            return [] if table is None else list(table.columns.values())

    def common(self, kind: str, column: str, fitted: Fitted) -> list[str | None]:
        """Return common values of a column: of numbers and dates a small, middle and large one."""
        if fitted.kind in ("category", "list"):
            return list(fitted.values[:MOST_COMMON])
        if fitted.kind not in ("number", "date"):
            return [None]
        with self._lock:
            table = self._table(kind)
            assert table is not None
            alias = next(a for a, name in table.columns.items() if name == column)
            assert self.source is not None
            spec = self.source.config.nodes[kind].features[column]
            cell = cell_sql(alias, spec) if fitted.kind == "number" else alias
            quantiles = f"SELECT quantile_disc({cell}, [0.1, 0.5, 0.9]) FROM {table.sql}"
            ((values,),) = table.reader.rows(quantiles)
        return list(
            dict.fromkeys(
                v if isinstance(v, str) else self.written(kind, column, v) for v in values or []
            )
        )

    def written(self, kind: str, column: str, number: float) -> str:
        """Write a number as a cell of a column: 3, not 3.0, and with the column's decimal sign."""
        whole = float(number).is_integer() and abs(number) <= EXACT  # may be an id
        text = f"{number:.0f}" if whole else f"{number:.15g}"
        nodes = self.source.config.nodes[kind] if self.source else None
        spec = nodes.features.get(column) if nodes else None
        return text.replace(".", spec.decimal) if spec else text

    def name_of(self, kind: str, cells: Mapping[str, str | None]) -> str | None:
        """Return the name that a row of a node type gives its node."""
        column = self.source.config.nodes[kind].name if self.source else None
        return cells.get(column) if column else None

    def id_of(self, kind: str, cells: Mapping[str, str | None]) -> str | None:
        """Return the id that a row of a node type gives its node."""
        column = self.source.config.nodes[kind].id if self.source else None
        return cells.get(column) if column else None

    def column_relation(self, column: str) -> str | None:
        """Return the relation that a column of the target makes, if it makes one."""
        relations = self.source.config.relations if self.source else {}
        for name, spec in relations.items():
            if isinstance(spec, ColumnLinks) and column in spec.columns and not spec.source:
                return name
        return None

    def encode(
        self, kind: str, fitted: Mapping[str, Fitted], rows: Sequence[Mapping[str, str | None]]
    ) -> csr_array:
        """Encode the cells of new rows of a node type as in training, ``[rows, features]``."""
        if self.source is None or not fitted:
            return csr_array((len(rows), 0), dtype=np.float32)
        spec, table = self.source.config.nodes[kind], Source(table=NEW)
        empty = self.source.sources[f"nodes.{kind}"].spec.empty
        frame = {c: np.array([*(row.get(c) for row in rows), None], object)[:-1] for c in fitted}
        source = replace(
            self.source.sources[f"nodes.{kind}"],
            title=NEW,
            files=(),
            query=None,
            database=None,
            spec=table.model_copy(update={"empty": empty}),
            frame=frame,
        )
        aliases = {c: feature_aliases(spec)[c] for c in fitted}
        with Reader([source], self.source.path.parent) as reader:
            read = reader.read(
                source, {a: request(c, spec.features[c]) for c, a in aliases.items()}
            )
            blocks = [
                fit(read, aliases[c], spec.features[c], one).encode(
                    read, aliases[c], spec.features[c]
                )
                for c, one in fitted.items()
            ]
        return csr_array(hstack(blocks, format="csr", dtype=np.float32))

    def unknown(
        self, kind: str, fitted: Mapping[str, Fitted], cells: Mapping[str, str | None]
    ) -> list[tuple[str, str]]:
        """Return the categories of a new row that the model does not know: column and value."""
        if self.source is None:
            return []
        spec, found = self.source.config.nodes[kind], []
        empty = {"", *self.source.sources[f"nodes.{kind}"].spec.empty}
        for column, one in fitted.items():
            cell = (cells.get(column) or "").strip()
            if one.kind in ("category", "list") and cell not in empty:
                listed = one.kind == "list"
                items = cell.split(spec.features[column].separator) if listed else [cell]
                known = {"", *one.values}
                found += [(column, item) for item in map(str.strip, items) if item not in known]
        return found

    def facets(self, kind: str, size: int) -> list[Facet]:
        """Return the facets of the ``size`` nodes of a type; not its id, name, label or split."""
        with self._lock:
            table = self._table(kind)
            if table is None or self.source is None:
                return []
            spec, found = self.source.config.nodes[kind], []
            known = (spec.id, spec.name, spec.label, spec.split)
            for alias, column in table.columns.items():
                item = f"list_filter([{alias}], lambda item: item IS NOT NULL)"
                values = list(table.most_frequent(item, MOST_VALUES + 1))
                if column in known or not 2 <= len(values) <= MOST_VALUES:
                    continue
                row, place = table.counts(item, values).nonzero()
                codes = np.full(size, -1, np.int64)
                codes[row] = place
                found.append(Facet(column, values, codes))
            return found[:MOST_FACETS]

    def _table(self, kind: str) -> Table | None:
        """Read all columns of a node type; rows have the numbers of their nodes."""
        if self.source is None or self._reader is None or kind in self._tables:
            return self._tables.get(kind)
        source = self.source.sources.get(f"nodes.{kind}")
        if source is None:
            return None
        names = self._reader.columns(source)
        columns = {f"c{i}": ColumnRequest(n) for i, n in enumerate(names) if names.count(n) == 1}
        spec, table = self.source.config.nodes[kind], self._reader.read(source, columns)
        if spec.duplicates == "first":
            keys = ", ".join(a for a, c in table.columns.items() if spec.id in (None, c))
            first = f"SELECT min(rowid) FROM {table.sql} GROUP BY {keys}"
            table = self._reader.keep(table, f"rowid IN ({first})")
        self._tables[kind] = table
        return table


def read_upload(body: bytes) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of an uploaded CSV file, or refuse it in one line.

    Cells are text, whatever a spreadsheet would make of them.
    """
    try:
        lines = csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        head, *rows = itertools.islice(lines, MOST_NEW + 2)
    except UnicodeDecodeError as error:
        raise HanmeError(f"the file is not UTF-8: byte {error.start + 1} is wrong") from None
    except (csv.Error, ValueError) as error:
        why = "it is empty" if isinstance(error, ValueError) else str(error)
        raise HanmeError(f"the file is not CSV: {why}") from None
    if len(head) > MOST_COLUMNS:
        raise HanmeError(f"the file has {len(head):,} columns; at most {MOST_COLUMNS} are read")
    if len(set(head)) < len(head):
        raise HanmeError("the file has two columns of the same name")
    rows = [row for row in rows if row]  # the last line may be blank
    if not 0 < len(rows) <= MOST_NEW:
        raise HanmeError(f"the file has {f'over {MOST_NEW}' if rows else 'no'} rows")
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise HanmeError(f"row {number}: {len(row)} cells, but the header has {len(head)}")
        if any("\0" in cell or len(cell) > LONGEST for cell in row):
            raise HanmeError(f"row {number}: a cell is longer than {LONGEST:,} or has a NUL")
    return head, rows


def with_nodes(
    graph: Graph,
    x: csr_array,
    ids: Sequence[str],
    names: Sequence[str],
    links: Mapping[EdgeType, Sequence[tuple[int, int]]],
) -> Graph:
    """Return a graph with more target nodes, without labels; the others stay as they are.

    Args:
        graph: The graph, in memory.
        x: The features of the new nodes; of width 0, they get the mean features of the others.
        ids: Their ids.
        names: Their names.
        links: The links to add by relation: the numbers of both nodes.
    """
    targets, more = graph.targets, len(ids)
    nodes = replace(
        targets,
        num_nodes=targets.num_nodes + more,
        x=None if targets.x is None else _stacked(targets.x, x, more),
        names=None if targets.names is None else [*targets.names, *names],
        ids=None if targets.ids is None else [*targets.ids, *ids],
        extra={},
    )
    none = torch.zeros(more, dtype=torch.bool)
    unlabelled = (
        graph.y.new_zeros(more, graph.y.size(1)) if graph.multilabel else -graph.y.new_ones(more)
    )
    added = {e: torch.tensor(pairs, dtype=torch.long).t() for e, pairs in links.items() if pairs}
    return replace(
        graph,
        nodes=graph.nodes | {graph.target: nodes},
        links={
            e: torch.cat([own, added[e]], 1) if e in added else own
            for e, own in graph.links.items()
        },
        edge_attr={},
        y=torch.cat([graph.y, unlabelled]),
        split=Split(*(torch.cat([mask, none]) for mask in graph.split)),
        visible=None if graph.visible is None else torch.cat([graph.visible, none]),
    )


def _stacked(x: Tensor, new: csr_array, more: int) -> Tensor:
    """Append the features of new nodes, or the mean features where they have none."""
    dense = x.layout == torch.strided
    own = csr_array(x.numpy()) if dense else to_scipy(x)
    if not new.shape[1]:
        new = csr_array(np.tile(own.mean(axis=0), (more, 1)).astype(np.float32))
    rows = csr_array(vstack([own, new], format="csr"))
    return torch.from_numpy(rows.toarray()) if dense else to_torch(rows)
