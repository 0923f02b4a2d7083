"""What links and columns are, in words, and what known labels say about them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.text import printable
from hanme.explain.explanation import percent
from hanme.explain.sources import OWN, Columns, Source
from hanme.graph import Graph
from hanme.linear import Column
from hanme.linear.aggregates import column_values
from hanme.linear.rows import Field

SHARING = 12
"""Number of nodes that share a link or a value to name."""

WORDS = 3
"""Number of words of a text, or values of a list, to name."""


class Evidence(NamedTuple):
    """What a source is, what is known about it, and how the sentence says so.

    ``counts`` are the nodes that share it and have the label, and those with a known label;
    ``sharing`` are the first of these: number, name and labels.
    """

    text: str
    evidence: str = ""
    counts: tuple[int, ...] = ()
    shared: str = ""  # how the sentence names what they share: "with Tove Petrov"
    sharing: tuple[tuple[int, str, tuple[str, ...]], ...] = ()


class Known:
    """The known labels of a graph, those of training and validation nodes, and its columns."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.columns = graph, Columns(graph)
        self.kind, self.kinds = graph.target, plural(graph.target)

    @cached_property
    def labelled(self) -> Tensor:
        """The target nodes with a known label, ``[N]``."""
        return self.graph.split.train | self.graph.split.val

    @cached_property
    def base_rate(self) -> Tensor:
        """The share of each label among the known ones, ``[C]``."""
        known = self.labelled.nonzero().flatten()
        return self.graph.labels_given(known).double().sum(0) / max(known.numel(), 1)

    def of(self, source: Source, node: int, label: int) -> Evidence:
        """Describe a source of a node, and count the known labels of nodes that share it."""
        if source.node is not None:
            return self._of_link(*source.node, node, label)
        if source.own is not None:
            return self._of_column(source, source.own, node, label)
        if source.channel:
            return Evidence(source.channel)
        return self._of_aggregate(source, node, label)

    def _shared(
        self, text: str, shared: str, nodes: Tensor | NDArray[Any], node: int, label: int
    ) -> Evidence:
        """Count the known labels of nodes that share a link or a value, but for one node."""
        others = torch.unique(torch.as_tensor(nodes, dtype=torch.long))
        others = others[self.labelled[others] & (others != node)]
        given, labels, titles = (
            self.graph.labels_given(others),
            self.graph.labels,
            self.graph.targets,
        )
        same, known = int(given[:, label].sum()), others.numel()
        sharing = tuple(
            (n, titles.title(n), tuple(labels[i] for i in row.nonzero().flatten().tolist()))
            for n, row in zip(others[:SHARING].tolist(), given[:SHARING], strict=True)
        )
        said = f"{same} of {known} other {self.kinds} {be(known)} {labels[label]}" if known else ""
        return Evidence(text, said, (same, known), shared, sharing)

    def sentence(self, node: int, label: int, p: float, leads: Sequence[Evidence]) -> str:
        """Say what is predicted, and lead with the main reason.

        Args:
            node: The node.
            label: The label.
            p: Its probability.
            leads: The reasons in favour, those whose removal changes the probability most first.
        """
        name, base = self.graph.labels[label], float(self.base_rate[label])
        counted = [one for one in leads if one.shared and one.counts[1]]
        favourable = [one for one in counted if one.counts[0] > base * one.counts[1]]
        rate = f"base rate {percent(base)}"
        if favourable:
            said = f"{self._said(favourable[0], name)} ({rate})"
        elif leads:
            known = f" ({leads[0].evidence})" if leads[0].evidence else ""
            said = f"The main reason is {leads[0].text}{known}; {rate}"
        else:
            said = f"No single link or column supports it ({rate})"
        title = self.graph.targets.title(node)
        return printable(f"{title}: {name}, {percent(p)}. {said}.")

    def _said(self, lead: Evidence, label: str) -> str:
        """Return the known labels of the nodes that share a reason, as a sentence."""
        same, known = lead.counts
        if lead.shared.startswith("linked"):
            return f"It is {lead.shared}, which is {label}"
        if known == 1:
            return f"The only other {self.kind} {lead.shared} with a known label is {label}"
        amount = f"All {known}" if same == known else f"{same} of {known}"
        return f"{amount} other {self.kinds} {lead.shared} are {label}"

    def _of_link(self, kind: str, number: int, node: int, label: int) -> Evidence:
        graph, title = self.graph, self.graph.nodes[kind].title(number)
        relations = [e for e in graph.links if (e[0], e[2]) == (graph.target, kind)]
        role = kind
        if len(relations) > 1:
            linked = [e[1] for e in relations if number in graph.adjacency(e).of_node(node)]
            role = ", ".join(linked) or kind
        text = f"{role}: {title}"
        if kind == graph.target:
            given = graph.labels_given(torch.tensor([number]))[0].nonzero().flatten().tolist()
            if not self.labelled[number] or not given:
                return Evidence(text, "its label is not known")
            names = tuple(graph.labels[i] for i in given)
            counts, sharing = (int(label in given), 1), ((number, title, names),)
            return Evidence(text, f"is {', '.join(names)}", counts, f"linked to {title}", sharing)
        return self._shared(text, f"with {title}", self._linked_to(kind, number), node, label)

    def _linked_to(self, kind: str, number: int) -> Tensor:
        """Return the target nodes that are linked to a node."""
        graph, ends = self.graph, [torch.empty(0, dtype=torch.long)]
        back = [e for e in graph.links if (e[0], e[2]) == (kind, graph.target)]
        for e in back:
            ends.append(graph.adjacency(e).of_node(number).long())
        for e in graph.links if not back else ():
            if (e[0], e[2]) == (graph.target, kind):
                ends.append(graph.links[e][0][graph.links[e][1] == number])
        return torch.cat(ends)

    def _of_column(self, source: Source, field: Field, node: int, label: int) -> Evidence:
        row = self.graph.targets.rows(torch.tensor([node]))
        if field.name == OWN or row is None:
            return Evidence(field.name)
        values = row.to_dense()[0].numpy()[field.start : field.start + field.width]
        if field.kind == "number":
            if "kind" in field.fitted and field.fitted["kind"] == "vector":
                return Evidence(field.name)
            return self._of_number(field, values)
        names: Sequence[str] = field.fitted.get("values", field.fitted.get("words", ()))
        present = np.flatnonzero(values)
        if not len(present):
            return Evidence(f"{field.name}: missing")
        zero = np.zeros(len(self.graph.labels))
        added = [abs(source.parts.get(field.start + i, zero)[label]) for i in present]
        top = [int(present[i]) for i in np.argsort(added, kind="stable")[::-1]]
        words = ", ".join(names[i] for i in top[:WORDS])
        if field.kind not in ("category", "list"):
            more = ", ..." if len(top) > WORDS else ""
            return Evidence(f"{field.name}: {words}{more}", "its most important words")
        if self.graph.stored:
            return Evidence(f"{field.name}: {words}")
        x = self.columns.rows(self.graph.target).x
        column = field.start + top[0]
        same = x.indices[x.indptr[column] : x.indptr[column + 1]]
        shared = f"with {field.name} {names[top[0]]}"
        return self._shared(f"{field.name}: {words}", shared, same, node, label)

    def _of_number(self, field: Field, values: NDArray[np.floating]) -> Evidence:
        fitted = field.fitted
        if fitted.get("gaps") and values[-1]:
            return Evidence(f"{field.name}: missing")
        value = float(values[0]) * fitted["std"] + fitted["mean"]
        text = f"{field.name}: {in_words(value, date=fitted.get('kind') == 'date')}"
        if self.graph.stored:
            return Evidence(text)
        every = self.columns.rows(self.graph.target).values(field.start)
        return Evidence(text, self._percentile(value, every))

    def _percentile(self, value: float, every: NDArray[np.floating]) -> str:
        every = every[~np.isnan(every)]
        slack = 1e-4 * max(abs(value), 1)
        lower, higher = (every < value - slack).mean(), (every > value + slack).mean()
        if lower >= higher:
            return f"higher than {lower:.0%} of {self.kinds}".replace("%", " %")
        return f"lower than {higher:.0%} of {self.kinds}".replace("%", " %")

    def _of_aggregate(self, source: Source, node: int, label: int) -> Evidence:
        column = max(source.aggregates, key=lambda one: abs(source.parts[one][label]))
        (value,) = column_values(self.graph, [column], torch.tensor([node]))[0]
        if np.isnan(value):
            return Evidence(f"{column.phrase}: none")
        text = f"{column.phrase}: {in_words(float(value))}"
        if self.graph.stored:
            return Evidence(text)
        return Evidence(text, self._percentile(float(value), self._every(column)))

    def _every(self, column: Column) -> NDArray[np.floating]:
        return column_values(self.graph, [column])[:, 0]


def plural(word: str) -> str:
    """Return the plural of an English word."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def be(count: int) -> str:
    """Return ``is`` or ``are``."""
    return "is" if count == 1 else "are"


def in_words(value: float, *, date: bool = False) -> str:
    """Write a number as people do: 1977, 12,345, 107 million, 0.25; or a date."""
    if date:
        year = int(np.floor(value))
        day = datetime.date(year, 1, 1) + datetime.timedelta(round((value - year) * 366))
        return day.isoformat()
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(value) >= 0.9995 * limit:
            return f"{value / limit:.3g} {word}"
    if abs(value) >= 100 or abs(value - round(value)) < 1e-3:
        return f"{value:.0f}" if abs(value) < 10_000 else f"{value:,.0f}"
    return f"{value:.3g}"
