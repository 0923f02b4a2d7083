"""What an explanation says: as text, for a program, and in a notebook."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Instance:
    """A metapath instance and what it did to a node's logits.

    Args:
        metapath: Its metapath.
        types: The types of its nodes, root first.
        nodes: Their names.
        ids: Their ids in the user's tables; their numbers where the graph has no ids.
        numbers: Their numbers among the nodes of their types.
        attention: Its share of the node's attention over all metapaths: β times α, mean over heads.
        hops: The share of each position in its encoding: c_l, mean over heads; sums to 1.
        parts: By label, its part of the logit; the parts of all instances and the explanation's
            ``others`` add up to the logit.
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
        later = (
            ITSELF if self.returns(position) else shown(name)
            for position, name in enumerate(self.nodes)
            if position
        )
        return " <- ".join([shown(self.nodes[0]), *later])

    def returns(self, position: int) -> bool:
        """Return whether the node at a later position is the root again."""
        return (self.types[position], self.ids[position]) == (self.types[0], self.ids[0])


ITSELF = "itself (its own features)"
"""What an instance that comes back to its root is said to reach."""


@dataclass(frozen=True)
class Reason:
    """A linked node or a feature, and its contribution to the logits."""

    block: str  # the block of rows that it is in, such as ``movie-actor:ids``
    what: str  # the node's name, or the feature
    parts: dict[str, float]  # by label, its part of the logit
    node: tuple[str, int] | None = None  # the type and number of the node; None for a feature

    def __str__(self) -> str:
        return f"{shown(self.what)} ({shown(self.block)})"


@dataclass(frozen=True)
class Explanation:
    """Why a model gives one node its labels.

    Args:
        node: Its name.
        id: Its id in the user's tables; its number where the graph has no ids.
        number: Its number among the nodes of its type.
        predicted: The labels predicted.
        given: The labels that it has in the data; none for a node without a label.
        probabilities: The probability of each label.
        logits: The logit of each label.
        label: The label by which instances are ranked.
        by: What they are ranked by: part, move or attention.
        metapaths: The weight β of each metapath.
        counts: How many instances the node has along each metapath.
        instances: The top ones.
        others: What else is added to the logit of each label: the bias and, by name, each channel
            that does not come from instances.
        reasons: The columns of linear model, trees and smoothing that count most.
        parts: What all instances of each metapath together add to the logit of each label.
    """

    node: str
    id: str
    number: int
    predicted: tuple[str, ...]
    given: tuple[str, ...]
    probabilities: dict[str, float]
    logits: dict[str, float]
    label: str
    by: str
    metapaths: dict[str, float]
    counts: dict[str, int]
    instances: tuple[Instance, ...]
    others: dict[str, dict[str, float]]
    reasons: tuple[Reason, ...] = ()
    parts: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The node, its predicted labels and, where it has some, those given."""
        given = f" (given: {', '.join(map(shown, self.given))})" if self.given else ""
        predicted = ", ".join(map(shown, self.predicted)) or "no label"
        return f"{shown(self.node)}: predicted {predicted}{given}"

    @property
    def chosen(self) -> list[str]:
        """The labels that matter: the one ranked by, those predicted or given, and the next."""
        likeliest = sorted(self.probabilities, key=lambda label: -self.probabilities[label])
        return list(dict.fromkeys([self.label, *self.predicted, *self.given, *likeliest[:2]]))

    def role(self, label: str) -> str:
        """Say whether a label is predicted, given or both; else nothing."""
        roles = (("predicted", self.predicted), ("given", self.given))
        return ", ".join(role for role, labels in roles if label in labels)

    def __str__(self) -> str:
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])
        label, total = shown(self.label), self.logits[self.label]
        lines = [
            self.title,
            "  " + ", ".join(f"{shown(name)} {p:.0%}" for name, p in ranked),
            f"Logit of {label}: {total:+.3f}, the sum of these parts and of other instances",
            *(f"  {parts[self.label]:+.4f}  {name}" for name, parts in self.others.items()),
        ]
        if self.reasons:
            lines.append("Largest contributions within the linear part")
            lines += [f"  {reason.parts[self.label]:+.4f}  {reason}" for reason in self.reasons]
        if self.instances:
            lines.append(f"Top {len(self.instances)} instances by {self.by}")
        for instance in self.instances:
            part, move = instance.parts[self.label], instance.moves[self.label]
            lines.append(
                f"  {part:+.4f}  {instance} (removed: {-move:+.4f}, attention "
                f"{instance.attention:.2%}, hops {hops(instance)})"
            )
        if self.metapaths:
            lines.append("Metapaths by weight")
        for metapath, beta in self.metapaths.items():
            lines.append(f"  {beta:6.1%}  {metapath}, {self.counts[metapath]:,} instances")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)

    def show(self) -> None:
        """Show the picture and the tables: below the cell of a notebook, else in a browser."""
        from hanme.explain.picture import show

        show(self)

    def _repr_html_(self) -> str:
        from hanme.explain.picture import fragment

        return fragment(self)


ENOUGH = 5
"""Fidelity counts nodes with more instances than this: with fewer, removing that many
instances removes all of them, whichever are chosen."""


@dataclass(frozen=True)
class Step:
    """What removing ``k`` instances does: how far the most likely label's logit moves, a mean."""

    k: int
    nodes: int  # over how many nodes the means are taken, those with more than k
    top: float  # without the top ones
    random: float  # without random ones
    alike: float  # without random ones that are spread over the metapaths as the top ones are
    fewer: int = 0  # how many nodes have at most k; they lose all, whichever are chosen
    all: float = 0.0  # how far the logit of these moves

    @property
    def ratio(self) -> float:
        """How many times as far as random ones the top ones move it."""
        return self.top / self.random if self.random else float("nan")

    @property
    def ratio_of_every(self) -> float:
        """The same with the nodes that have fewer."""
        fewer = self.fewer * self.all
        random = self.nodes * self.random + fewer
        return (self.nodes * self.top + fewer) / random if random else float("nan")


@dataclass(frozen=True)
class Fidelity:
    """How far explanations can be trusted: top instances removed, against as many random ones.

    Args:
        by: What instances are ranked by.
        nodes: How many nodes were drawn that have more than ``ENOUGH`` instances.
        fewer: How many came up on the way that have not.
        draws: Over how many random sets the mean is taken.
        seed: What drew both.
        steps: The curve over k.
    """

    by: str
    nodes: int
    fewer: int
    draws: int
    seed: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [
            f"How far the most likely label's logit moves without k instances, top by {self.by}, "
            f"{self.nodes} nodes with more than {ENOUGH} instances and {self.fewer} without:"
        ]
        for step in self.steps:
            lines.append(
                f"  k {step.k:2}, {step.nodes} nodes: top {step.top:.4f}, "
                f"random {step.random:.4f}, ratio {step.ratio:.2f} "
                f"({step.ratio_of_every:.2f} with the {step.fewer} that have fewer); "
                f"random of the same metapaths {step.alike:.4f}"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        steps = [
            asdict(step)
            | {
                name: None if math.isnan(value) else value
                for name, value in (("ratio", step.ratio), ("ratio_of_every", step.ratio_of_every))
            }
            for step in self.steps
        ]
        return asdict(self) | {"steps": steps}

    def show(self) -> None:
        """Show the curve: below the cell of a notebook, else in a browser."""
        from hanme.explain.picture import show

        show(self)

    def _repr_html_(self) -> str:
        from hanme.explain.picture import fragment

        return fragment(self)


def hops(instance: Instance) -> str:
    """Write the shares of an instance's positions as text."""
    return " ".join(f"{share:.0%}" for share in instance.hops)


_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def shown(text: str) -> str:
    """Replace what would steer a terminal, break XML or turn the direction of writing."""
    return "".join(
        " " if c in "\t\n\r" else "\ufffd" if c in _DIRECTIONS or _unfit(c) else c for c in text
    )


def _unfit(c: str) -> bool:
    """Return whether it is a control character, surrogate, separator or no character at all."""
    return unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") or ord(c) & 0xFFFE == 0xFFFE
