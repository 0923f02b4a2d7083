"""What links and columns are, in words, and what known labels say about them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.text import printable
from hanme.explain.change import reverses
from hanme.explain.explanation import percent
from hanme.explain.sources import OWN, Columns, Source
from hanme.explain.wording import Wording, in_words
from hanme.graph import Graph
from hanme.graph.metapath import EdgeType
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
        self.words = Wording(graph, self.columns)

    @cached_property
    def labelled(self) -> Tensor:
        """The target nodes with a known label, ``[N]``."""
        return self.graph.split.train | self.graph.split.val

    @cached_property
    def reverse(self) -> dict[EdgeType, EdgeType]:
        """The relations that are each other's reverse."""
        return reverses(self.graph)

    @cached_property
    def base_rate(self) -> Tensor:
        """The share of each label among the known ones, ``[C]``."""
        known = self.labelled.nonzero().flatten()
        return self.graph.labels_given(known).double().sum(0) / max(known.numel(), 1)

    def of(self, source: Source, node: int, label: int) -> Evidence:
        """Describe a source of a node, and count the known labels of nodes that share it."""
        if len(source.numbers) > 1:
            rows = self.words.names[source.kind].plural
            return Evidence(f"its {len(source.numbers):,} {rows} together")
        if source.kind:
            return self._of_link(source.kind, source.numbers[0], node, label)
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
        have, has = (self.words.label(labels[label], verb) for verb in ("are", "is"))
        said = f"{same} of {known} other {self.words.many} {have}" if known else ""
        if known == 1 and same:
            said = f"the only other {self.words.one} {has}"
        return Evidence(text, said, (same, known), shared, sharing)

    def sentence(
        self, node: int, label: int, p: float, leads: Sequence[Evidence], why: str = ""
    ) -> str:
        """Say what is predicted, and lead with the main reason.

        Args:
            node: The node.
            label: The label.
            p: Its probability.
            leads: The reasons in favour, those whose removal changes the probability most first.
            why: Why the label is predicted although its probability is low.
        """
        name, base = self.graph.labels[label], float(self.base_rate[label])
        called = self.words.label(name)
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
        return printable(f"{title}: {called}, {percent(p)}{why}. {said}.")

    def _said(self, lead: Evidence, label: str) -> str:
        """Return the known labels of the nodes that share a reason, as a sentence."""
        same, known = lead.counts
        if lead.shared.startswith("linked"):
            return f"It is {lead.shared}, which {self.words.label(label, 'is')}"
        if known == 1:
            only = f"The only other {self.words.one} {lead.shared} with a known label"
            return f"{only} {self.words.label(label, 'is')}"
        amount = f"{same} of {known}"
        if same == known:
            amount = "Both" if known == 2 else f"All {known}"
        return f"{amount} other {self.words.many} {lead.shared} {self.words.label(label, 'are')}"

    def _of_link(self, kind: str, number: int, node: int, label: int) -> Evidence:
        graph, title = self.graph, self.graph.nodes[kind].title(number)
        relations = self.words.relations(kind, number, node)
        role = self.words.role(kind, relations)
        text = f"{role}: {title}"
        if kind == graph.target:
            given = graph.labels_given(torch.tensor([number]))[0].nonzero().flatten().tolist()
            if not self.labelled[number] or not given:
                return Evidence(text, "its label is not known")
            names = tuple(graph.labels[i] for i in given)
            counts, sharing = (int(label in given), 1), ((number, title, names),)
            said = self.words.label(", ".join(names), "is")
            return Evidence(text, said, counts, f"linked to {title}", sharing)
        named = title if role == self.words.names[kind].singular else f"{role} {title}"
        return self._shared(text, f"with {named}", self._linked_to(number, relations), node, label)

    def _linked_to(self, number: int, relations: Sequence[EdgeType]) -> Tensor:
        """Return the target nodes that are linked to a node by some relations."""
        ends = [torch.empty(0, dtype=torch.long)]
        for e in relations:
            if e in self.reverse:
                ends.append(self.graph.adjacency(self.reverse[e]).of_node(number).long())
            else:
                links = self.graph.links[e]
                ends.append(links[0][links[1] == number])
        return torch.cat(ends)

    def _of_column(self, source: Source, field: Field, node: int, label: int) -> Evidence:
        row = self.graph.targets.rows(torch.tensor([node]))
        if field.name == OWN or row is None:
            return Evidence(field.name)
        values = row.to_dense()[0].numpy()[field.start : field.start + field.width]
        title = self.words.title(field.name)
        if field.fitted.get("kind") == "vector":
            return Evidence(title)
        if field.kind == "number":
            return self._of_number(field, title, values)
        names: Sequence[str] = field.fitted.get("values", field.fitted.get("words", ()))
        present = np.flatnonzero(values)
        if not len(present):
            return Evidence(f"{title}: missing")
        zero = np.zeros(len(self.graph.labels))
        added = [abs(source.parts.get(field.start + i, zero)[label]) for i in present]
        top = [int(present[i]) for i in np.argsort(added, kind="stable")[::-1]]
        words = ", ".join(names[i] for i in top[:WORDS])
        if field.kind not in ("category", "list"):
            more = ", ..." if len(top) > WORDS else ""
            return Evidence(f"{title}: {words}{more}", "its most important words")
        if self.graph.stored:
            return Evidence(f"{title}: {words}")
        x = self.columns.rows(self.graph.target).x
        column = field.start + top[0]
        same = x.indices[x.indptr[column] : x.indptr[column + 1]]
        shared = f"with {title} {names[top[0]]}"
        return self._shared(f"{title}: {words}", shared, same, node, label)

    def _of_number(self, field: Field, title: str, values: NDArray[np.floating]) -> Evidence:
        fitted = field.fitted
        if fitted.get("gaps") and values[-1]:
            return Evidence(f"{title}: missing")
        value = float(values[0]) * fitted["std"] + fitted["mean"]
        text = f"{title}: {self.words.number(field, value)}"
        if self.graph.stored:
            return Evidence(text)
        every = self.columns.rows(self.graph.target).values(field.start)
        date = fitted.get("kind") == "date"
        return Evidence(text, self._percentile(value, every, 1e-4 * fitted["std"], date=date))

    def _percentile(
        self, value: float, every: NDArray[np.floating], slack: float = 0, *, date: bool = False
    ) -> str:
        """Compare a number with those of all rows; ``slack`` is the rounding of encoded numbers."""
        every = every[~np.isnan(every)]
        lower, higher = (every < value - slack).mean(), (every > value + slack).mean()
        words = ("later", "earlier") if date else ("higher", "lower")
        share, word = (lower, words[0]) if lower >= higher else (higher, words[1])
        if share < 1 - lower - higher:
            return f"the same as for {percent(1 - lower - higher)} of {self.words.many}"
        return f"{word} than {percent(share)} of {self.words.many}"

    def _of_aggregate(self, source: Source, node: int, label: int) -> Evidence:
        column = max(source.aggregates, key=lambda one: abs(source.parts[one][label]))
        (value,) = column_values(self.graph, [column], torch.tensor([node]))[0]
        title = self.words.aggregate(column)
        if column.function == "node" and not value and len(column.walk) == 1:
            return Evidence(f"no link to {self.words.linked(column)}")
        if np.isnan(value):
            return Evidence(f"{title}: none")
        date = self.words.is_date(column)
        text = f"{title}: {in_words(float(value), date=date)}"
        if self.graph.stored:
            return Evidence(text)
        every = column_values(self.graph, [column])[:, 0]
        return Evidence(text, self._percentile(float(value), every, date=date))
