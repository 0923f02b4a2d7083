"""An explanation: as text, for a program, and in a notebook."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hanme.common.text import printable


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
        names = [
            "itself (its own features)" if position and self.returns(position) else printable(name)
            for position, name in enumerate(self.nodes)
        ]
        return " <- ".join(names)

    def returns(self, position: int = -1) -> bool:
        """Return whether the node at a later position is the root again."""
        return (self.types[position], self.ids[position]) == (self.types[0], self.ids[0])


@dataclass(frozen=True)
class Reason:
    """A linked node or a feature, and its contribution to the logits."""

    block: str  # the block of columns that it is in, such as ``movie-actor:ids``
    what: str  # the node's name, or the feature
    parts: dict[str, float]  # by label, its part of the logit
    node: tuple[str, int] | None = None  # the type and number of the node; None for a feature

    def __str__(self) -> str:
        return printable(f"{self.what} ({self.block})")


@dataclass(frozen=True)
class Explanation:
    """Why a model gives one node its labels: each logit is the sum of ``parts`` and ``others``.

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
        counts: The number of the node's instances along each metapath.
        instances: The top ones.
        others: What else is added to the logit of each label: the bias, blocks of the linear model
            and, by name, each channel that does not come from instances.
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
        given = f" (given: {', '.join(self.given)})" if self.given else ""
        return printable(f"{self.node}: predicted {', '.join(self.predicted) or 'no label'}{given}")

    @property
    def summands(self) -> dict[str, dict[str, float]]:
        """What adds up to the logits, by name and label, largest first."""
        paths = {
            f"{name}, weight {beta:.1%}, {self.counts[name]:,} instances": self.parts[name]
            for name, beta in self.metapaths.items()
        }
        both = (paths | self.others).items()
        return dict(sorted(both, key=lambda item: -abs(item[1][self.label])))

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """The probabilities by label, largest first."""
        return sorted(self.probabilities.items(), key=lambda item: -item[1])

    def __str__(self) -> str:
        label = self.label
        lines = [
            self.title,
            "  " + ", ".join(f"{printable(name)} {p:.0%}" for name, p in self.ranked),
            f"Logit of {printable(label)}: {self.logits[label]:+.3f}, the sum of",
            *(f"  {parts[label]:+.4f}  {printable(name)}" for name, parts in self.summands.items()),
        ]
        if self.reasons:
            lines.append("Largest contributions within the linear part")
            lines += [f"  {reason.parts[label]:+.4f}  {reason}" for reason in self.reasons]
        if self.instances:
            lines.append(f"Top {len(self.instances)} instances by {self.by}")
        for one in self.instances:
            hops = " ".join(f"{share:.0%}" for share in one.hops)
            lines.append(
                f"  {one.parts[label]:+.4f}  {one} (removed: {-one.moves[label]:+.4f}, attention "
                f"{one.attention:.2%}, hops {hops})"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        from hanme.explain.picture import fragment

        return fragment(self)
