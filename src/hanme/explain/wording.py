"""Names of links and columns, and numbers, as people write them."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence

from hanme.explain.sources import Columns
from hanme.graph import Graph, display
from hanme.graph.metapath import EdgeType
from hanme.linear import Column
from hanme.linear.rows import Field

AGGREGATES = {
    "count": "number of {rows}",
    "mean": "average {title} of {rows}",
    "sum": "total {title} of {rows}",
    "std": "spread of {title} among {rows}",
    "max": "{largest} {title} of {rows}",
    "min": "{smallest} {title} of {rows}",
    "latest": "latest {title} of {rows}",
    "first": "first {title} of {rows}",
    "change": "change of {title} over {rows}",
    "difference": "its {title} minus the average of {rows}",
    "ratio": "its {title} divided by the average of {rows}",
    "share": "share of {title} among {rows}",
    "node": "share of {title} among {rows}",
    "distinct": "number of different values of {title} among {rows}",
    "at_max": "{title} where {by} is largest, of {rows}",
}
"""How numbers about linked rows are titled, by function."""

RARITY = {
    "mean": "how rare the {title} of {rows} is on average",
    "sum": "how rare the {title} of {rows} is, added up",
    "std": "how much the rarity of {title} differs among {rows}",
    "max": "how rare the rarest {title} of {rows} is",
    "min": "how rare the most common {title} of {rows} is",
    "latest": "how rare the latest {title} of {rows} is",
    "first": "how rare the first {title} of {rows} is",
    "change": "how much rarer the {title} became over {rows}",
    "difference": "how much rarer its {title} is than the average of {rows}",
    "at_max": "how rare the {title} is where {by} is largest, of {rows}",
}
"""The same for ranks of categories by frequency."""

RANK = "(0 = the most common value)"
"""What a rarity counts; for differences of rarities, it says nothing."""

BARE = re.compile(r"[-+\d.,]+|yes|no|true|false|[yntf]", re.IGNORECASE)
"""Labels that say nothing without the name of their column."""

SUMMARY = re.compile("(mean|average|total|number|sum|share|largest|smallest|latest|first) ")
"""How titles begin that are summaries already: "average mean age" would say little."""


class Wording:
    """What people call the types, links and columns of a graph."""

    def __init__(self, graph: Graph, columns: Columns) -> None:
        self.graph, self.columns, self.names = graph, columns, display(graph)
        self.one = self.names[graph.target].singular
        self.many = self.names[graph.target].plural

    def label(self, name: str, verb: str = "") -> str:
        """Name a label, one that says nothing by itself with its column: ``churned = 1``.

        A ``verb``, ``are`` or ``is``, is put before it, or what stands for it before a column.
        """
        column = self.names[self.graph.target].label
        if column and BARE.fullmatch(name):
            verb = {"are": "have ", "is": "has "}.get(verb, "")
            return f"{verb}{column} = {name}"
        return f"{verb} {name}".strip()

    def title(self, column: str) -> str:
        """Return what people call a column of the target nodes."""
        return self.names[self.graph.target].title(column)

    def relations(self, kind: str, number: int, node: int) -> list[EdgeType]:
        """Return the relations by which a neighbour is linked to a node."""
        graph = self.graph
        known = [e for e in graph.links if (e[0], e[2]) == (graph.target, kind)]
        return [e for e in known if number in graph.adjacency(e).of_node(node)]

    def role(self, kind: str, relations: Sequence[EdgeType]) -> str:
        """Return what a neighbour is to a node: its type or, if several lead there, relations."""
        if sum((e[0], e[2]) == (self.graph.target, kind) for e in self.graph.links) > 1:
            return ", ".join(e[1].replace("_", " ") for e in relations)
        return self.names[kind].singular

    def aggregate(self, column: Column) -> str:
        """Title a number about linked rows: ``total amount of its orders``."""
        end = column.walk[-1][2]
        title = self.names[end].singular if column.feature < 0 else self._title(end, column.feature)
        if column.node:
            title = self.linked(column)
        by = self._title(end, column.by) if column.by >= 0 else ""
        rows = self._rows(*column.walk)
        largest, smallest = (
            ("latest", "earliest") if self.is_date(column) else ("largest", "smallest")
        )
        text = AGGREGATES[column.function]
        if self._is_rarity(end, column.feature):
            text = RARITY[column.function]
            if column.function not in ("std", "change", "difference"):
                text = f"{text} {RANK}"
        elif column.function in ("mean", "sum", "max", "min") and SUMMARY.match(title):
            text = f"{text.split(' ')[0]} over {{rows}} of the {{title}}"
        return text.format(title=title, rows=rows, by=by, largest=largest, smallest=smallest)

    def _is_rarity(self, kind: str, feature: int) -> bool:
        """Return whether a feature of linked rows is the rank of a category by frequency."""
        field = self.columns.rows(kind).derived.get(feature)
        return field is not None and field.kind == "category"

    def is_date(self, column: Column) -> bool:
        """Return whether the values of a number about linked rows are dates."""
        field = self.columns.of_feature(column.walk[-1][2], column.feature)
        dates = field is not None and field.fitted.get("kind") == "date"
        return dates and column.function in ("mean", "max", "min", "latest", "first", "at_max")

    def linked(self, column: Column) -> str:
        """Name the linked node that a column is about: ``person Leila Holm``."""
        kind = column.walk[-1][2]
        number = self.columns.rows(kind).places.get(column.node)
        name = column.node if number is None else self.graph.nodes[kind].title(number)
        return f"{self.names[kind].singular} {name}"

    def _rows(self, first: EdgeType, *others: EdgeType) -> str:
        """Name the rows at the end of a walk."""
        near, end = self.names[first[2]], self.names[(first, *others)[-1][2]]
        if not others:
            return f"its {end.plural}"
        if others[-1][2] == self.graph.target:
            return f"other {end.plural} with the same {near.singular}"
        return f"{end.plural} of its {near.plural}"

    def _title(self, kind: str, feature: int) -> str:
        """Title a feature of linked rows."""
        rows, field = self.columns.rows(kind), self.columns.of_feature(kind, feature)
        if field is None:
            return rows.names.get(feature, f"feature {feature}")
        title = self.names[kind].title(field.name)
        if feature in rows.derived:
            counted = {"category": "", "list": "number of values in "}
            return f"{counted.get(field.kind, 'number of words in ')}{title}"
        names = field.fitted.get("values", field.fitted.get("words"))
        return title if names is None else f"{title} {names[feature - field.start]}"

    def number(self, field: Field, value: float) -> str:
        """Write a number of a column of the target nodes, with its unit."""
        unit = self.names[self.graph.target].unit(field.name)
        text = in_words(value, date=field.fitted.get("kind") == "date")
        return f"{text} {unit}".strip()


def in_words(value: float, *, date: bool = False) -> str:
    """Write a number as people do: 1977, 12,345, 107 million, 0.25; or a date."""
    if date:
        year = math.floor(value)
        if not datetime.MINYEAR <= year < datetime.MAXYEAR:
            return f"{value:.4g}"
        day = datetime.date(year, 1, 1) + datetime.timedelta(round((value - year) * 366))
        return day.isoformat()
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(value) >= 0.9995 * limit:
            return f"{value / limit:.3g} {word}"
    if abs(value) >= 100 or abs(value - round(value)) < 1e-3:
        return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:.3g}"
