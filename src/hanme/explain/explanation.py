"""An explanation: as text, for a program, and in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from hanme.common.text import printable

SHOWN = 10
"""Number of reasons that a text shows."""


@dataclass(frozen=True)
class Instance:
    """A metapath instance and its contribution to a node's logits.

    Args:
        metapath: Its metapath.
        types: The types of its nodes, root first.
        nodes: Their names.
        ids: Their ids in the user's tables; their numbers where the graph has no ids.
        numbers: Their numbers among the nodes of their types.
        attention: Its share of the node's attention over all metapaths: β times α, mean over heads.
        hops: The share of each position in its encoding: c_l, mean over heads; sums to 1.
        parts: By label, its part of the logit; the parts of all instances and ``others`` of the
            details add up to the logit.
        moves: By label, the logit with it minus the logit without it.
    """

    metapath: str
    types: tuple[str, ...]
    nodes: tuple[str, ...]
    ids: tuple[str, ...]
    numbers: tuple[int, ...]
    attention: float
    hops: tuple[float, ...]
    parts: dict[str, float]
    moves: dict[str, float]

    def __str__(self) -> str:
        names = [
            "itself (its own features)" if position and self.returns(position) else printable(name)
            for position, name in enumerate(self.nodes)
        ]
        return " <- ".join(names)

    def returns(self, position: int = -1) -> bool:
        """Return whether the node at a later position is the root again."""
        return (self.types[position], self.ids[position]) == (self.types[0], self.ids[0])


@dataclass(frozen=True)
class Details:
    """How the model computes the logits: by metapath and block, and its top instances.

    Args:
        metapaths: The weight β of each metapath.
        counts: The number of the node's instances along each metapath.
        parts: What all instances of each metapath together add to the logit of each label.
        others: What else is added to the logit of each label: the bias, blocks of the linear model
            and, by name, each channel that does not come from instances.
        instances: Those with the largest parts of the explained label's logit.
    """

    metapaths: dict[str, float]
    counts: dict[str, int]
    parts: dict[str, dict[str, float]]
    others: dict[str, dict[str, float]]
    instances: tuple[Instance, ...]

    def summands(self, label: str) -> list[tuple[str, float]]:
        """Return what adds up to the logit of a label, by name, largest first."""
        paths = [
            (f"{name}, weight {beta:.1%}, {self.counts[name]:,} instances", self.parts[name][label])
            for name, beta in self.metapaths.items()
        ]
        others = [(name, values[label]) for name, values in self.others.items()]
        return sorted(paths + others, key=lambda item: -abs(item[1]))

    def lines(self, label: str) -> list[str]:
        """Return the details of a label as lines of text."""
        lines = [f"  {value:+.4f}  {printable(name)}" for name, value in self.summands(label)]
        if self.instances:
            lines.append(f"Top {len(self.instances)} instances")
        for one in self.instances:
            hops = " ".join(f"{share:.0%}" for share in one.hops)
            lines.append(
                f"  {one.parts[label]:+.4f}  {one} (removed: {-one.moves[label]:+.4f}, attention "
                f"{one.attention:.2%}, hops {hops})"
            )
        return lines


@dataclass(frozen=True)
class Reason:
    """A link or a column of a node, and its contribution to the logits.

    Args:
        kind: ``"link"`` for a neighbour with everything that is read through it, ``"column"`` for
            a column of the node itself or for a number about linked rows.
        text: What it is: ``person: Tove Petrov``, ``year: 1977``.
        evidence: What known labels or other rows say about it; empty if nothing is known.
        contributions: By label, what it adds to the logit.
        without: The probability of the explained label without it; None if it was not tried.
        estimated: Whether ``without`` is computed from the contribution, because the model cannot
            be computed without it.
        node: Type, number and id of the neighbour; None for several linked rows.
        column: The column.
        counts: Number of other nodes with a known label that share it, those that have the
            explained label first: ``(4, 5)``; empty if ``evidence`` does not count labels.
        sharing: The first of these nodes: number, name and labels.
    """

    kind: Literal["link", "column"]
    text: str
    evidence: str
    contributions: dict[str, float]
    without: float | None = None
    estimated: bool = False
    node: tuple[str, int, str] | None = None
    column: str | None = None
    counts: tuple[int, ...] = ()
    sharing: tuple[tuple[int, str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a model gives one node its labels.

    The logit of each label is the sum of ``base`` and the contributions of all ``reasons``.

    Args:
        node: Its name.
        id: Its id in the user's tables; its number where the graph has no ids.
        number: Its number among the nodes of its type.
        predicted: The labels predicted.
        true: The labels that it has in the data; none for a node without a label.
        probabilities: The probability of each label.
        logits: The logit of each label.
        label: The label that is explained.
        sentence: The label, its probability and the main reason, in plain words.
        reasons: All links and columns, those whose removal changes the probability most first.
        base: By label, what is added to the logit of every node.
        base_rate: By label, its share of the nodes with a known label, those of training and
            validation.
        steps: The probability of the label after ``base`` alone, and after each reason is added.
        details: How the model computes the logits.
    """

    node: str
    id: str
    number: int
    predicted: tuple[str, ...]
    true: tuple[str, ...]
    probabilities: dict[str, float]
    logits: dict[str, float]
    label: str
    sentence: str
    reasons: tuple[Reason, ...]
    base: dict[str, float]
    base_rate: dict[str, float]
    steps: tuple[float, ...]
    details: Details = field(repr=False)

    @property
    def title(self) -> str:
        """The node, its predicted labels and, where it has some, the true ones."""
        true = f" (true: {', '.join(self.true)})" if self.true else ""
        return printable(f"{self.node}: predicted {', '.join(self.predicted) or 'no label'}{true}")

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The probabilities by label, largest first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])

    def rows(self, shown: int = SHOWN) -> list[tuple[str, str, str, str]]:
        """Return reason, evidence, contribution and probability without it, as texts.

        Reasons after the first ``shown`` are added up in one row; the base rate is the last row.
        """
        label, rows = self.label, []
        for one in self.reasons[:shown]:
            without = "" if one.without is None else percent(one.without)
            without = f"about {without}" if one.estimated else without
            value = signed(one.contributions[label])
            rows.append((printable(one.text), printable(one.evidence), value, without))
        if rest := self.reasons[shown:]:
            total = sum(one.contributions[label] for one in rest)
            rows.append((f"{len(rest):,} more", "", signed(total), ""))
        rate = f"{percent(self.base_rate[label])} of known labels"
        rows.append(("base rate", rate, signed(self.base[label]), ""))
        return rows

    def text(self, shown: int = SHOWN, *, details: bool = False) -> str:
        """Return the sentence and the first reasons; or the details, with --details."""
        label = self.label
        head = ("Reasons", "evidence", "contribution", f"{label} without it")
        lines = [self.sentence, "", *aligned([head, *self.rows(shown)])]
        if details:
            total = f"Logit of {printable(label)}: {self.logits[label]:+.3f}, the sum of"
            lines += ["", total, *self.details.lines(label)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        from hanme.explain.picture import fragment

        return fragment(self)


def percent(share: float) -> str:
    """Write a share: ``83 %``; near 0 and 1 with a decimal."""
    near = 0 < share < 0.01 or 0.99 < share < 1
    return f"{100 * share:.{1 if near else 0}f} %"


def signed(value: float) -> str:
    """Write a contribution: ``+0.25``; never ``-0.00``."""
    return f"{round(value, 2) + 0.0:+.2f}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of text as lines with columns; from the third on, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pairs = zip(row, widths, strict=True)
        cells = [
            text.ljust(width) if i < 2 else text.rjust(width)
            for i, (text, width) in enumerate(pairs)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
