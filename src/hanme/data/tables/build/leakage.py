"""Find columns that give the label away, and rows that nearly repeat others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hanme.common.toml import toml_text
from hanme.data.tables.build.links import LinkRows
from hanme.data.tables.build.nodes import feature_aliases
from hanme.data.tables.read.reader import Table
from hanme.data.tables.read.sql import number_sql
from hanme.data.tables.schema.config import GraphConfig

CHECKED = ("number", "date", "category")
"""Kinds of features that are checked; other cells are hardly ever equal."""

WRONG = 0.01
"""A column gives the label away if it makes at most this share of the errors of chance."""

MIN_ERRORS = 20
"""Errors of chance that are needed to tell: with fewer, a column may fit by accident."""

MIN_NUMBERS = 50
"""The same for numbers, which can be divided in many ways."""

VALUES_PER_LABEL = 3
"""Maximum number of values per label of a copy of the label; more are groups of the same label."""

MIN_ROWS = 5
"""Mean number of rows that a value of a copy has; a rarer one is an accident."""

OFTEN = 0.5
"""Share of a label's rows in which a column that is known only afterwards is filled, or empty."""

REPEATED = 0.01
"""Share of rows that repeat others from which on they are no accident."""

DISTINCT = 0.4
"""Share of different values that a column needs to tell rows apart."""


def find_leak(table: Table, column: str, label: str) -> str | None:
    """Return why a column should not be a feature, or None; both are aliases in the table."""
    return _by_empty_cells(table, column, label) or _by_values(table, column, label)


def _by_empty_cells(table: Table, column: str, label: str) -> str | None:
    """Compare the cells that are filled with the labels of their rows."""
    rows = table.reader.rows(
        f"SELECT CAST({label} AS VARCHAR) AS y, count(*), count({column}) FROM {table.sql} "
        "GROUP BY y"
    )
    known = [(label, n, filled) for label, n, filled in rows if label is not None]
    size, total = (sum(row[i] for row in known) for i in (1, 2))
    for _, n, filled in (row for row in rows if row[0] is None):
        if n >= MIN_ERRORS and filled <= WRONG * n and total >= OFTEN * size:
            return "filled only in rows with a label"
    for name, n, filled in known:
        chance = 1 - n / size
        for what, here, all_ in (("filled", filled, total), ("empty", n - filled, size - total)):
            wrong = all_ - here
            if wrong <= WRONG * all_ * chance and here >= OFTEN * n and all_ * chance >= MIN_ERRORS:
                return f"{what} only where the label is {name[:40]}"
    return None


def _by_values(table: Table, column: str, label: str) -> str | None:
    """Predict the label by the value, or by the segment that a number is in.

    In the order of the numbers, a wrong label makes two more segments of rows with one label.
    """
    number = f"coalesce({number_sql(column)}, epoch(TRY_CAST({column} AS TIMESTAMP)))"
    cells = f"SELECT {column} AS cell, {number} AS x, CAST({label} AS VARCHAR) AS y"
    ((rows, labels, most, values, numbers, wrong, segments),) = table.reader.rows(
        f"WITH cells AS ({cells} FROM {table.sql} WHERE {label} IS NOT NULL AND {column} IS NOT "
        "NULL), counts AS (SELECT cell, any_value(x) AS x, y, count(*) AS n FROM cells GROUP BY "
        "cell, y), best AS (SELECT cell, any_value(x) AS x, arg_max(y, n) AS y, sum(n) - max(n) "
        "AS wrong FROM counts GROUP BY cell), steps AS (SELECT y IS DISTINCT FROM lag(y) OVER "
        "(ORDER BY x, cell) AS step FROM best) SELECT (SELECT count(*) FROM cells), (SELECT "
        "count(DISTINCT y) FROM cells), (SELECT max(n) FROM (SELECT sum(n) AS n FROM counts GROUP "
        "BY y)), count(*), count(x), coalesce(sum(wrong), 0), (SELECT count(*) FILTER (step) FROM "
        "steps) FROM best"
    )
    chance = rows - (most or 0)
    allowed = WRONG * chance
    if labels < 2 or chance < MIN_ERRORS or wrong > allowed:
        return None
    if values <= VALUES_PER_LABEL * labels and rows >= MIN_ROWS * values:
        return "each of its values has only one label, so it may be a copy of the label"
    if numbers == values and chance >= MIN_NUMBERS and wrong + (segments - labels) / 2 <= allowed:
        return "its numbers tell the labels apart, so it may be known only afterwards"
    return None


def find_leaks(
    config: GraphConfig, tables: Mapping[str, Table], relations: Iterable[LinkRows]
) -> list[str]:
    """Return the features that give the label away, and note why.

    Features of rows that belong to the target's rows one to one are checked as its own are.
    """
    target, leaks = config.nodes[config.target], list[str]()
    if target.label is None:
        return leaks
    own = {config.target: tables[config.target]}
    for kind, table in (own | _one_to_one(config.target, tables, relations)).items():
        for column, alias in feature_aliases(config.nodes[kind]).items():
            name, checked = config.column_name(kind, column), config.nodes[kind].features[column]
            if checked.kind not in CHECKED or name in target.keep:
                continue
            if why := find_leak(table, alias, "label"):
                leaks.append(name)
                table.reader.notes.append(
                    f"{name} is not used: {why}. To use it, add keep = [{toml_text(name)}] to "
                    f"[nodes.{config.target}]"
                )
    return leaks


def _one_to_one(
    target: str, tables: Mapping[str, Table], relations: Iterable[LinkRows]
) -> dict[str, Table]:
    """Join the target's labels with the rows that belong to them one to one, by node type."""
    joined, table = dict[str, Table](), tables[target]
    for links in relations:
        sides = {links.edge_type[0]: "source", links.edge_type[2]: "target"}
        kind = next((kind for kind in sides if kind != target), target)
        if target not in sides or kind == target or kind not in tables:
            continue
        ((rows, sources, targets),) = table.reader.rows(
            f"SELECT count(*), count(DISTINCT source), count(DISTINCT target) FROM "
            f"({links.select}) WHERE source IS NOT NULL AND target IS NOT NULL",
            *links.values,
        )
        if rows == sources == targets:
            sql = table.reader.new_name()
            table.reader.rows(
                f"CREATE TEMP TABLE {sql} AS SELECT t.label, o.* FROM {table.sql} AS t LEFT JOIN "
                f"({links.select}) AS l ON t.id = l.{sides[target]} LEFT JOIN "
                f"{tables[kind].sql} AS o ON o.id = l.{sides[kind]}",
                *links.values,
            )
            joined[kind] = replace(table, sql=sql)
    return joined


def group_duplicates(config: GraphConfig, table: Table) -> NDArray[np.int64] | None:
    """Return the groups of near-duplicates of the target for a random split, and note them."""
    nodes, rule = config.nodes[config.target], config.split
    if nodes.split or (rule and ((rule.val and rule.test) or rule.duplicates == "apart")):
        return None
    columns = [alias for alias in table.columns if alias not in ("id", "label", "split")]
    groups = near_duplicates(table, columns)
    if groups is not None:
        table.reader.notes.append(
            f"{table.size - len(np.unique(groups)):,} rows of {config.target} nearly repeat others "
            "and are in the same part of the split as these. To draw each row by itself, write "
            '[split] duplicates = "apart"'
        )
    return groups


def near_duplicates(table: Table, columns: Iterable[str]) -> NDArray[np.int64] | None:
    """Return a number per row, the same for rows that nearly repeat each other.

    Texts are compared without case and punctuation, numbers to six digits. None if too few rows
    repeat others, or if no column tells rows apart.
    """
    texts = [f"CAST({column} AS VARCHAR)" for column in columns]
    cells = [
        f"coalesce(printf('%.5e', TRY_CAST({text} AS DOUBLE)), "
        rf"trim(regexp_replace(lower({text}), '[^\p{{L}}\p{{N}}]+', ' ', 'g')))"
        for text in texts
    ]
    if not cells:
        return None
    counts = ", ".join(f"count(DISTINCT {cell})" for cell in cells)
    ((*distinct,),) = table.reader.rows(f"SELECT {counts} FROM {table.sql}")
    if max(distinct) < DISTINCT * table.size:
        return None
    (group,) = table.reader.arrays(
        f"SELECT dense_rank() OVER (ORDER BY hash({', '.join(cells)})) FROM {table.sql} "
        "ORDER BY rowid"
    )
    repeated = table.size - len(np.unique(group))
    return group.astype(np.int64) if repeated >= max(2, REPEATED * table.size) else None
