"""Find what gives the label away, in rows and in rows linked to them, and near-duplicates.

A source is a column of the target, a relation (whether, how often and to which id a row is linked),
a column of linked rows, or a sum over them. Only training labels are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hanme.common.toml import toml_text
from hanme.data.tables.build.evidence import OFTEN, Evidence, Labels, thinned
from hanme.data.tables.build.features import cell_sql
from hanme.data.tables.build.links import LinkRows
from hanme.data.tables.build.nodes import feature_aliases
from hanme.data.tables.read.reader import Table
from hanme.data.tables.read.sql import number_sql, quoted
from hanme.data.tables.schema.config import GraphConfig
from hanme.data.tables.schema.sections import ColumnLinks

CHECKED = ("number", "date", "category")
"""Kinds of features that are checked; other cells are hardly ever equal."""

NEAR = 0.99
"""AUC of a column alone from which on it is a question whether the column is known in time.

On 30 public data sets, the strongest honest column reaches 0.95.
"""

BESIDE = 0.8
"""The same for a column beside columns of its table that give the label away: a results table has
several that are known only afterwards."""

LINKED_ROWS = 10_000
"""Maximum number of the target's rows whose linked rows are looked at."""

PAIRS = 300_000
"""Maximum number of pairs of such a row and a linked row; with more, fewer rows are looked at."""

VALUES = 20
"""Number of the most frequent values of a category that linked rows may have or not."""

MOST = 0.95
"""Share of a label's rows that such a value must have. An honest value may occur with one label
only, but hardly in all of its rows: an airline that flies planes of one maker."""

COLUMNS = 50
"""Number of columns per query."""

HASH = "(hash({}) >> 12)"
"""SQL for a number of a text, small enough to be exact as a float."""

REPEATED = 0.01
"""Share of rows that repeat others from which on they are no accident."""

DISTINCT = 0.4
"""Share of different values that a column needs to tell rows apart."""


class Leak(NamedTuple):
    """A source that tells the label, or nearly does."""

    name: str  # as ``keep`` calls it: COLUMN, TYPE.COLUMN or relations.NAME
    why: str | None  # why it gives the label away; None if it is a question
    auc: float = 0.0  # the AUC that it reaches alone
    how: str = ""  # in which form, if not as it is

    @property
    def question(self) -> str:
        """The fact and the question, if it does not quite give the label away."""
        form = f", {self.how}," if self.how else ""
        return f"{self.name}{form} reaches AUC {self.auc:.3f} alone: is it known when you predict?"


def own_leaks(table: Table, columns: Mapping[str, str], labels: Labels) -> list[Leak]:
    """Return the columns of the target that tell the label; `columns` has their aliases by name."""
    found = {name: _own_evidence(table, alias, labels) for name, alias in columns.items()}
    least = BESIDE if any(evidence.why for evidence in found.values()) else NEAR
    return [Leak(name, e.why, e.auc) for name, e in found.items() if e.why or e.auc >= least]


def _own_evidence(table: Table, alias: str, labels: Labels) -> Evidence:
    text = f"CAST({alias} AS VARCHAR)"
    number = f"coalesce({number_sql(text)}, epoch(TRY_CAST({text} AS TIMESTAMP)))"
    cell, numbers = table.reader.arrays(
        f"SELECT {_cell(alias)} AS cell, CAST({number} AS DOUBLE) AS number FROM {table.sql} "
        "ORDER BY rowid",
        missing=np.nan,
    )
    return labels.evidence(cell[labels.rows].astype(np.int64), numbers[labels.rows])


def _cell(value: str) -> str:
    """Return SQL for a number per different value, -1 for none."""
    return (
        f"CASE WHEN {value} IS NULL THEN -1 ELSE (hash(CAST({value} AS VARCHAR)) >> 1)::BIGINT END"
    )


def find_leaks(
    config: GraphConfig,
    tables: Mapping[str, Table],
    relations: Iterable[LinkRows],
    hidden: NDArray[np.bool_],
) -> list[str]:
    """Return what gives the label away, and note why; labels of `hidden` rows are not read."""
    target, table = config.nodes[config.target], tables[config.target]
    if target.label is None:
        return []
    labels, aliases = Labels.read(table, "label", hidden), feature_aliases(target)
    checked = {c: a for c, a in aliases.items() if target.features[c].kind in CHECKED}
    own = own_leaks(table, checked, labels)
    notes, leaks = table.reader.notes, list[str]()
    for leak in (*own, *linked_leaks(config, tables, relations, labels)):
        if leak.why and leak.name not in config.kept.union(leaks):
            leaks.append(leak.name)
            notes.append(
                f"{leak.name} is not used: {leak.why}. To use it, add keep = "
                f"[{toml_text(leak.name)}] to [nodes.{config.target}]"
            )
    return leaks


class _Path(NamedTuple):
    """Rows of the target, and the nodes that one or two relations lead to from each."""

    links: LinkRows  # the last relation
    kind: str  # the type of the nodes
    pairs: str  # a table of the database: t is the position of a row in `labels`, x the id
    labels: Labels
    chosen: NDArray[np.int64]  # the positions that are looked at

    @property
    def name(self) -> str:
        """What ``keep`` calls the relation."""
        return f"relations.{self.links.name}"

    def leaks(self, rows: str, sources: Sequence[_Source]) -> list[Leak]:
        """Return those of some sources that tell the label; `rows` is SQL with the column t."""
        labels, found = self.labels.some(self.chosen), list[Leak]()
        values = [f"CAST({source.value} AS DOUBLE) AS v{i}" for i, source in enumerate(sources)]
        t, *columns = self.links.table.reader.arrays(
            f"WITH rows AS MATERIALIZED ({rows}) SELECT t, {', '.join(values)} FROM rows "
            "GROUP BY t",
            missing=np.nan,
        )
        for source, column in zip(sources, columns, strict=True):
            number = np.full(len(self.labels.y), np.nan)
            number[t] = column
            number = number[self.chosen]
            _, cell = np.unique(number, return_inverse=True)
            cell[np.isnan(number)] = -1
            if not source.numeric:
                number[:] = np.nan
            evidence = labels.evidence(cell, number, source.often)
            if evidence.why or evidence.auc >= NEAR:
                found.append(source.leak(evidence))
        return found


class _Source(NamedTuple):
    """A column of linked rows, or an aggregate of it; the value is SQL for a number."""

    name: str  # as ``keep`` calls it
    value: str
    numeric: bool = False  # whether the order of its values means something
    how: str = ""  # in which form, such as its sum
    filled: str = "filled"  # what it is called if there is a value
    empty: str = "empty"  # and if there is none
    often: float = OFTEN  # the share of a label's rows in which it must be

    def leak(self, evidence: Evidence) -> Leak:
        """Return what the source tells, in words."""
        why = evidence.why
        if why and why.startswith("filled only where"):
            why = why.replace("filled", self.filled, 1)
        elif why and why.startswith("empty only where"):
            why = why.replace("empty", self.empty, 1)
        elif why and self.how:
            why = f"{self.how}: {why}"
        return Leak(self.name, why, evidence.auc, self.how)


def linked_leaks(
    config: GraphConfig, tables: Mapping[str, Table], relations: Iterable[LinkRows], labels: Labels
) -> list[Leak]:
    """Return the relations, and columns of rows linked by one or two, that tell the label.

    No path leads through a relation that gives the label away, unless it is kept.
    """
    target, table, every = config.target, tables[config.target], list(relations)
    some, rows = labels.labelled().thinned(LINKED_ROWS), table.reader.new_name()
    table.reader.rows(
        f"CREATE TEMP TABLE {rows} AS SELECT r.t, o.id AS x FROM (SELECT unnest(range(?)) AS t, "
        f"unnest(CAST(? AS BIGINT[])) AS row) AS r JOIN {table.sql} AS o ON o.rowid = r.row",
        len(some.rows),
        some.rows.tolist(),
    )
    leaks, through, start = list[Leak](), list[_Path](), np.arange(len(some.y))
    for path in _paths(target, rows, every, tables, some, start):
        found = _path_leaks(config, tables, path)
        leaks += found + _compared(config, table, rows, path)
        out = {leak.name for leak in found if leak.why} - config.kept
        if path.kind != target and path.name not in out:
            through.append(path)
    for path in through:
        others = [links for links in every if links.name != path.links.name]
        for further in _paths(path.kind, path.pairs, others, tables, some, path.chosen):
            leaks += _path_leaks(config, tables, further) if further.kind != target else []
            table.reader.rows(f"DROP TABLE {further.pairs}")
    strongest = dict[str, Leak]()
    for leak in sorted(leaks, key=lambda leak: (leak.why is None, -leak.auc)):
        strongest.setdefault(leak.name, leak)
    return list(strongest.values())


def _paths(
    kind: str,
    pairs: str,
    relations: Iterable[LinkRows],
    tables: Mapping[str, Table],
    labels: Labels,
    chosen: NDArray[np.int64],
) -> Iterator[_Path]:
    """Yield the paths that go on from nodes of a type; with too many pairs, from fewer rows."""
    for links in relations:
        for near, far, side in (("source", "target", 0), ("target", "source", 2)):
            reader, end = links.table.reader, links.edge_type[2 - side]
            if links.edge_type[side] != kind:
                continue
            joined = f"FROM {pairs} AS p JOIN ({links.select}) AS l ON p.x = l.{near}"
            where = f"WHERE l.{far} IS NOT NULL"
            if end in tables and links.spec.unknown != "add":
                where += f" AND l.{far} IN (SELECT id FROM {tables[end].sql})"
            ((count,),) = reader.rows(f"SELECT count(*) {joined}", *links.values)
            rows = thinned(chosen, len(chosen) * PAIRS // max(count, PAIRS))
            name = reader.new_name()
            reader.rows(
                f"CREATE TEMP TABLE {name} AS SELECT DISTINCT p.t, l.{far} AS x {joined} {where} "
                "AND p.t IN (SELECT unnest(CAST(? AS BIGINT[])))",
                *links.values,
                rows.tolist(),
            )
            yield _Path(links, end, name, labels, rows)


def _path_leaks(config: GraphConfig, tables: Mapping[str, Table], path: _Path) -> list[Leak]:
    """Return what tells the label at the end of a path: the relation, or else columns there."""
    ((most,),) = path.links.table.reader.rows(
        f"SELECT max(n) FROM (SELECT count(*) AS n FROM {path.pairs} GROUP BY t)"
    )
    if most is None:
        return []
    words = "rows have such links", "rows have no such link"
    found = path.leaks(
        f"SELECT t, {HASH.format('x')} AS x FROM {path.pairs}",
        [
            _Source(path.name, "count(*)", True, "the number of its links", *words),
            _Source(path.name, "min(x)", how="the id at its end"),
        ],
    )
    if found or path.kind == config.target or path.kind not in tables:
        return found
    table, features = tables[path.kind], config.nodes[path.kind].features
    aliases = feature_aliases(config.nodes[path.kind])
    checked = [column for column, feature in features.items() if feature.kind in CHECKED]
    for begin in range(0, len(checked), COLUMNS):
        columns, sources = list[str](), list[_Source]()
        for column in checked[begin : begin + COLUMNS]:
            alias, name = aliases[column], config.column_name(path.kind, column)
            if features[column].kind != "category":
                columns.append(f"{cell_sql(f'o.{alias}', features[column])} AS {alias}")
                sources += _number_sources(name, alias, most > 1)
                continue
            columns += [f"o.{alias}", f"{HASH.format(f'o.{alias}')} AS hash_{alias}"]
            sources.append(_Source(name, f"min(hash_{alias})"))
            if most > 1:
                common = table.most_frequent(table.items(alias, None), VALUES)
                sources += [_value_source(name, alias, value) for value in common]
        rows = f"SELECT p.t, {', '.join(columns)} FROM {path.pairs} AS p"
        found += path.leaks(f"{rows} JOIN {table.sql} AS o ON o.id = p.x", sources)
    return found


def _number_sources(name: str, alias: str, several: bool) -> Iterator[_Source]:
    """Yield a number of a linked row, or its aggregates if a row has several linked rows."""
    forms = {"sum": "its sum", "min": "its minimum", "max": "its maximum", "avg": "its mean"}
    for form, how in forms.items() if several else [("min", "")]:
        yield _Source(name, f"{form}({alias})", True, how)


def _value_source(name: str, alias: str, value: str) -> _Source:
    """Return whether a linked row has a value of a category."""
    text = f"{value[:40]!r}"
    words = f"rows are linked to {text}", f"rows are not linked to {text}"
    has = f"CASE WHEN bool_or({alias} = {quoted(value)}) THEN 1 END"
    return _Source(name, has, False, f"the value {text}", *words, MOST)


def _compared(config: GraphConfig, table: Table, rows: str, path: _Path) -> list[Leak]:
    """Return the numbers of the target that tell the label beside those of rows with the same id.

    Who drove as many laps as the first has finished the race.
    """
    if not isinstance(path.links.spec, ColumnLinks) or path.links.edge_type[0] != config.target:
        return []
    spec = config.nodes[config.target]
    numbers = {
        column: cell_sql(f"o.{alias}", spec.features[column])
        for column, alias in feature_aliases(spec).items()
        if spec.features[column].kind in ("number", "date")
    }
    if not numbers:
        return []
    forms, same = {"min": "smallest", "max": "largest"}, f"the same {path.kind}"
    own = ", ".join(f"{number} AS c{i}" for i, number in enumerate(numbers.values()))
    ends = ", ".join(f"{form}(c{i}) AS {form}{i}" for i in range(len(numbers)) for form in forms)
    rows = (
        f"WITH o AS (SELECT id, {own} FROM {table.sql} AS o), g AS (SELECT l.target, {ends} FROM "
        f"({path.links.select}) AS l JOIN o ON o.id = l.source GROUP BY l.target) SELECT p.t, o.*, "
        f"g.* FROM {path.pairs} AS p JOIN {rows} AS r ON r.t = p.t JOIN o ON o.id = r.x JOIN g ON "
        "g.target = p.x"
    )
    sources = [
        _Source(column, f"min(c{i} - {form}{i})", True, f"compared with the {word} of {same}")
        for i, column in enumerate(numbers)
        for form, word in forms.items()
    ]
    return path.leaks(rows, sources)


def repeated(groups: NDArray[np.int64] | None, size: int) -> NDArray[np.bool_]:
    """Return which of some rows repeat an earlier one: their labels are no further evidence."""
    first = np.zeros(size, bool)
    first[slice(None) if groups is None else np.unique(groups, return_index=True)[1]] = True
    return ~first


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
    # A column at a time: those of wide tables would not fit into memory together.
    queries = (f"SELECT count(DISTINCT {cell}) FROM {table.sql}" for cell in cells)
    distinct = (count for query in queries for (count,) in table.reader.rows(query))
    if not any(count >= DISTINCT * table.size for count in distinct):
        return None
    (group,) = table.reader.arrays(
        f"SELECT dense_rank() OVER (ORDER BY hash({', '.join(cells)})) FROM {table.sql} "
        "ORDER BY rowid"
    )
    repeated = table.size - len(np.unique(group))
    return group.astype(np.int64) if repeated >= max(2, REPEATED * table.size) else None
