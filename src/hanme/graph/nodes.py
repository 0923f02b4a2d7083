"""The nodes of one type: their features, and the words a user has for them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hanme.common.csr import take_rows
from hanme.errors import HanmeError
from hanme.graph.texts import Texts

MANY = 1_000_000
"""With more nodes than this nobody looks for a similar name."""


@dataclass
class Nodes:
    """The nodes of one type, numbered from 0.

    Args:
        kind: The node type.
        num_nodes: How many there are.
        x: Features, ``[N, F]``, dense or sparse CSR.
        names: What people call them.
        ids: What the user's tables call them.
        extra: Other tensors with a row per node, such as the ground truth of a planted graph. No
            model sees them.
        original_ids: In a subgraph, their numbers in the original graph, ``[N]``.
    """

    kind: str
    num_nodes: int
    x: Tensor | None = None
    names: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)
    original_ids: Tensor | None = None

    @property
    def width(self) -> int | None:
        """The number of features, None for nodes without any."""
        return None if self.x is None else self.x.size(1)

    def rows(self, numbers: Tensor) -> Tensor | None:
        """Return the features of some nodes, ``[R, F]``; only these are read."""
        return None if self.x is None else take_rows(self.x, numbers)

    def find(self, node: int | str) -> int:
        """Return the number of a node, given its number, id or name.

        A text is an id if a node has that id, else a name, else, in a graph without ids, a number.
        """
        if not isinstance(node, str):
            return self._checked(operator.index(node))
        for what, texts in (("id", self.ids), ("name", self.names)):
            found = _places(texts, node)
            if len(found) > 1:
                those = ", ".join(self.identity(place) for place in found[:8])
                raise HanmeError(
                    f"{self.kind} {node!r}: {len(found)} nodes have that {what}; choose one by "
                    f"{'number' if self.ids is None else 'id'}: {those}"
                    f"{', ...' if len(found) > 8 else ''}"
                )
            if found:
                return found[0]
        if self.ids is None and node.isascii() and node.isdigit():
            return self._checked(int(node))
        near = self._near(node)
        hint = f"; there is {near!r}" if near else ""
        raise HanmeError(f"{self.kind} {node!r}: no node has that id or name{hint}")

    def title(self, number: int) -> str:
        """Return a node's name, else its id, else its type and number."""
        for texts in (self.names, self.ids):
            if texts is not None:
                return str(texts[number])
        return f"{self.kind} {self.original(number)}"

    def original(self, number: int) -> int:
        """Return a node's number in the original graph."""
        return number if self.original_ids is None else int(self.original_ids[number])

    def identity(self, number: int) -> str:
        """Return a node's id in the user's tables, or its number in a graph without ids."""
        return str(self.original(number)) if self.ids is None else str(self.ids[number])

    def _checked(self, number: int) -> int:
        if not 0 <= number < self.num_nodes:
            raise HanmeError(f"{self.kind} {number}: there are {self.num_nodes:,}, numbered from 0")
        return number

    def _near(self, text: str) -> str | None:
        """Return a name that differs in case, blanks and underscores alone."""
        if self.num_nodes > MANY:
            return None
        plain = text.casefold().replace("_", " ")
        return next((n for n in self.names or () if n.casefold().replace("_", " ") == plain), None)


def _places(texts: Sequence[str] | None, text: str) -> list[int]:
    if isinstance(texts, Texts):
        return texts.find(text)
    return [place for place, other in enumerate(texts or ()) if str(other) == text]
