"""A metapath: a chain of typed relations, written ``movie-actor-movie``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from hanme.errors import HanmeError

EdgeType = tuple[str, str, str]
Walk = tuple[EdgeType, ...]
"""Relations to walk from a root, in order: the steps of a metapath."""
Metadata = tuple[Sequence[str], Sequence[EdgeType]]


@dataclass(frozen=True)
class Metapath:
    r"""A chain of relations :math:`T_0 \to T_1 \to \dots \to T_L` that starts at its root type.

    Args:
        steps: The relations in walking order, each an edge type ``(source, relation, target)``.
        text: The metapath as a text, see :meth:`parse`. Two are equal if their steps are.
    """

    steps: tuple[EdgeType, ...]
    text: str = field(compare=False)

    @property
    def node_types(self) -> tuple[str, ...]:
        """The types of the L + 1 positions, root first."""
        return (self.steps[0][0], *(target for _, _, target in self.steps))

    @property
    def root(self) -> str:
        """The type of the nodes whose instances are gathered."""
        return self.steps[0][0]

    def __len__(self) -> int:
        """Return the number of hops, L."""
        return len(self.steps)

    def __str__(self) -> str:
        return self.text

    def in_one_step(self) -> Metapath:
        """Return the relation from its root to its end as a metapath of one hop."""
        return Metapath(((self.root, self.text, self.steps[-1][2]),), self.text)

    @classmethod
    def parse(cls, text: str, metadata: Metadata) -> Metapath:
        """Read ``movie-actor-movie``, with ``relation:`` before a type where two would fit.

        ``paper-cite:paper-author-paper`` goes from a paper to the papers it cites and on to the
        papers of their authors. The name of a type may contain a hyphen.
        """
        text = text.strip()
        types = sorted(metadata[0], key=len, reverse=True)
        start = next((t for t in types if f"{text}-".startswith(f"{t}-")), None)
        if start is None:
            raise HanmeError(
                f"metapath {text!r}: it starts at no node type of the graph; "
                f"the types are {', '.join(metadata[0])}"
            )
        steps: list[EdgeType] = []
        here, rest = start, text[len(start) + 1 :]
        while rest or not steps or text.endswith("-"):
            step, rest = _read_step(text, here, rest, metadata)
            steps.append(step)
            here = step[2]
        return cls.of(steps, metadata)

    @classmethod
    def of(cls, spec: str | Metapath | Sequence[EdgeType], metadata: Metadata) -> Metapath:
        """Make a metapath from its text, or from edge types as PyG's ``AddMetaPaths`` takes."""
        if isinstance(spec, str):
            return cls.parse(spec, metadata)
        given = spec.steps if isinstance(spec, Metapath) else spec
        steps = tuple((*step,) for step in given)
        if not steps:
            raise HanmeError("Expected a metapath of at least one step, but got none")
        edge_types = list(metadata[1])
        for step in steps:
            if step not in edge_types:
                known = ", ".join(map(str, edge_types)) or "none"
                raise HanmeError(f"metapath step {step}: no such relation; the graph has {known}")
        for (_, _, here), (there, _, _) in pairwise(steps):
            if here != there:
                raise HanmeError(
                    f"metapath {list(steps)}: a step ends at {here}, the next starts at {there}"
                )
        words = [_word(step, edge_types) for step in steps]
        return cls(steps, "-".join([steps[0][0], *words]))


def metapaths_between(metadata: Metadata, target: str, max_hops: int) -> Iterator[Metapath]:
    """Yield all metapaths of at most ``max_hops`` hops that start and end at ``target``.

    The shortest come first. There can be millions: each is made when it is read.
    """
    ways = _ways_to(target, metadata, max_hops)

    def walks(here: str, hops: int) -> Iterator[Walk]:
        if not hops:
            yield ()
            return
        for step in metadata[1]:
            if step[0] == here and ways[hops - 1][step[2]]:
                yield from ((step, *rest) for rest in walks(step[2], hops - 1))

    for hops in range(1, max_hops + 1):
        for path in walks(target, hops):
            yield Metapath.of(path, metadata)


def count_between(metadata: Metadata, target: str, max_hops: int) -> int:
    """Count what :func:`metapaths_between` yields, without making any."""
    return sum(of_length[target] for of_length in _ways_to(target, metadata, max_hops)[1:])


def _ways_to(target: str, metadata: Metadata, max_hops: int) -> list[Counter[str]]:
    """Count, for each number of hops from 0 on, the ways from each node type to ``target``."""
    ways = [Counter({target: 1})]
    for _ in range(max_hops):
        onward = Counter[str]()
        for source, _, end in metadata[1]:
            onward[source] += ways[-1][end]
        ways.append(onward)
    return ways


def _word(step: EdgeType, edge_types: Sequence[EdgeType]) -> str:
    """Write a step: its target type, after the relation where another relation would fit too."""
    twins = [e for e in edge_types if (e[0], e[2]) == (step[0], step[2])]
    return step[2] if len(twins) == 1 else f"{step[1]}:{step[2]}"


def _read_step(text: str, here: str, rest: str, metadata: Metadata) -> tuple[EdgeType, str]:
    """Take one step off ``rest``, preferring the longest type name that matches."""
    fitting = [step for step in metadata[1] if step[0] == here]
    found = [
        (len(word), step)
        for step in fitting
        for word in (step[2], f"{step[1]}:{step[2]}")
        if f"{rest}-".startswith(f"{word}-")
    ]
    words = ", ".join(_word(step, metadata[1]) for step in fitting)
    if not found:
        fits = f"what fits after {here} is {words}" if words else f"no relation starts at {here}"
        raise HanmeError(
            f"metapath {text!r}: from {here} there is no step to {rest.split('-')[0]!r}; {fits}"
        )
    longest = max(length for length, _ in found)
    steps = [step for length, step in found if length == longest]
    if len(steps) > 1:
        options = ", ".join(f"{here}-{_word(step, metadata[1])}" for step in steps)
        raise HanmeError(
            f"metapath {text!r}: {len(steps)} relations go from {here} to {steps[0][2]}; "
            f"name one of {options}"
        )
    return steps[0], rest[longest + 1 :]
