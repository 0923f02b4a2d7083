"""Read the links of a user's tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.datasets.tables.config import LinkTable
from hanme.datasets.tables.features import numbers
from hanme.datasets.tables.read import Kind, Reader, Table, column
from hanme.datasets.tables.sources import ResolvedSource
from hanme.errors import HanmeError


def read_links(
    reader: Reader,
    source: ResolvedSource,
    name: str,
    relation: LinkTable,
    tables: Mapping[str, Table],
) -> tuple[Tensor, Tensor | None, int]:
    """Read the links of one relation.

    Args:
        reader: Reads the table.
        source: The table of links.
        name: The name of the relation, for messages.
        relation: What ``graph.toml`` says of it.
        tables: The tables of nodes by type.

    Returns:
        Node numbers ``[2, E]``, the weights ``[E]`` if there are some, and how many links to
        unknown ids were dropped.
    """
    wanted: dict[str, tuple[str, Kind]] = {
        "source": (relation.source.column, "text"),
        "target": (relation.target.column, "text"),
    }
    if relation.weight is not None:
        wanted["weight"] = (relation.weight, "number")
    table = reader.read(source, wanted)
    found = reader.arrays(
        f"SELECT s.rowid AS source, t.rowid AS target FROM {table.sql} AS link "
        f"LEFT JOIN {tables[relation.source.type].sql} AS s ON link.source = s.id "
        f"LEFT JOIN {tables[relation.target.type].sql} AS t ON link.target = t.id "
        "ORDER BY link.rowid"
    )
    ends = np.stack([column(found, end, -1) for end in ("source", "target")]).astype(np.int64)
    known = (ends >= 0).all(axis=0)
    dropped = int((~known).sum())
    if dropped and relation.unknown == "refuse":
        _refuse(reader, table, name, relation, ends, int(np.flatnonzero(~known)[0]))
    weights = None
    if relation.weight is not None:
        given = _weights(reader, table)
        known &= given > 0
        weights = torch.from_numpy(given[known].astype(np.float32))
    reader.connection.execute(f"DROP TABLE {table.sql}")
    return torch.from_numpy(ends if known.all() else ends[:, known]), weights, dropped


def _refuse(
    reader: Reader, table: Table, name: str, relation: LinkTable, ends: NDArray[Any], row: int
) -> None:
    end, kind = (
        ("source", relation.source.type) if ends[0, row] < 0 else ("target", relation.target.type)
    )
    value = reader.rows(f"SELECT {end} FROM {table.sql} WHERE rowid = ?", row)[0][0]
    what = "the id is empty" if value is None else f"no {kind} has the id {value[:60]!r}"
    raise HanmeError(
        f"{table.place(row, end)}: {what}; "
        f'unknown = "drop" in relations.{name} leaves such links out'
    )


def _weights(reader: Reader, table: Table) -> NDArray[np.float64]:
    values = numbers(reader, table, "weight")
    wrong = np.flatnonzero(~(values >= 0) | (values > np.finfo(np.float32).max))
    if wrong.size:
        row = int(wrong[0])
        what = "empty" if np.isnan(values[row]) else f"{values[row]:g}"
        raise HanmeError(
            f"{table.place(row, 'weight')}: the weight is {what}; expected a number from 0 on"
        )
    return values
