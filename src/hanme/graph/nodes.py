"""The nodes of one type: their features, names and ids."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hanme.common.arrays import take_rows
from hanme.common.text import plural, spoken
from hanme.errors import HanmeError

if TYPE_CHECKING:
    from hanme.graph.graph import Graph


class UnknownNode(HanmeError):
    """Raised for a text that is no id and no name of a node."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind} {text!r}: no node has that id or name")
        self.text = text


@dataclass
class Nodes:
    """The nodes of one type, numbered from 0.

    Args:
        kind: The node type.
        num_nodes: How many there are.
        x: Features, ``[N, F]``, dense or sparse CSR.
        names: What people call them.
        ids: What the user's tables call them.
        extra: Other tensors with a row per node that no model sees, such as a ground truth.
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
        if isinstance(node, str):
            for what, texts in (("id", self.ids), ("name", self.names)):
                found = [] if texts is None else Texts.of(texts).find(node)
                if len(found) > 1:
                    those = ", ".join(self.identity(place) for place in found[:8])
                    raise HanmeError(
                        f"{self.kind} {node!r}: {len(found)} nodes have that {what}; choose one by "
                        f"{'number' if self.ids is None else 'id'}: {those}"
                        f"{', ...' if len(found) > 8 else ''}"
                    )
                if found:
                    return found[0]
            if self.ids is not None or not (node.isascii() and node.isdigit()):
                raise UnknownNode(self.kind, node)
        number = int(node) if isinstance(node, str) else operator.index(node)
        if not 0 <= number < self.num_nodes:
            raise HanmeError(f"{self.kind} {number}: there are {self.num_nodes:,}, numbered from 0")
        return number

    def title(self, number: int) -> str:
        """Return a node's name, else its id, else its type and number."""
        texts = self.ids if self.names is None else self.names
        return f"{self.kind} {self.original(number)}" if texts is None else str(texts[number])

    def original(self, number: int) -> int:
        """Return a node's number in the original graph."""
        return number if self.original_ids is None else int(self.original_ids[number])

    def identity(self, number: int) -> str:
        """Return a node's id in the user's tables, or its number in a graph without ids."""
        return str(self.original(number)) if self.ids is None else str(self.ids[number])


@dataclass(frozen=True)
class TypeNames:
    """What people call the nodes of a type and its columns."""

    singular: str
    plural: str
    titles: Mapping[str, str]  # of columns that the user named
    units: Mapping[str, str]
    links: Mapping[str, str]  # of columns that are features and links as well: their relations
    label: str = ""  # of the target: the title of the column of labels, if it is known

    def title(self, column: str) -> str:
        """Return what people call a column: the user's title, or its name as words."""
        return self.titles.get(column, spoken(column))

    def unit(self, column: str) -> str:
        """Return the unit of a column, empty if the user gave none."""
        return self.units.get(column, "")


def display(graph: Graph) -> dict[str, TypeNames]:
    """Return what people call each node type and its columns, as in ``graph.toml`` or derived."""
    names = {}
    for kind in graph.nodes:
        own = graph.provenance.display.get(kind, {})
        one = own.get("singular") or spoken(kind)
        many = own.get("plural") or plural(one)
        titles, units, links = (own.get(key, {}) for key in ("titles", "units", "links"))
        names[kind] = TypeNames(one, many, titles, units, links, spoken(own.get("label", "")))
    return names


class Texts(Sequence[str]):
    """A sequence of texts kept as one array of UTF-8 bytes and where each begins.

    A million names take tens of megabytes and no time to open; a text is decoded when it is read.
    """

    def __init__(self, text: NDArray[np.uint8], offsets: NDArray[np.integer]) -> None:
        self.text, self.offsets = text, offsets

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Encode texts, unless they are encoded already."""
        if isinstance(texts, Texts):
            return texts
        parts = [str(text).encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
        return cls(np.frombuffer(b"".join(parts), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Texts: ...
    def __getitem__(self, index: int | slice) -> str | Texts:
        if isinstance(index, slice):
            return Texts.of(self[i] for i in range(*index.indices(len(self))))
        return self._decode(range(len(self))[index])

    def _decode(self, index: int) -> str:
        text = self.text[self.offsets[index] : self.offsets[index + 1]]
        return text.tobytes().decode("utf-8", "surrogatepass")

    def some(self, numbers: Tensor) -> list[str]:
        """Return the texts with these numbers."""
        return [self._decode(number) for number in numbers.tolist()]

    def __iter__(self) -> Iterator[str]:
        text, offsets = self.text.tobytes(), self.offsets.tolist()
        for start, end in pairwise(offsets):
            yield text[start:end].decode("utf-8", "surrogatepass")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            same = np.array_equal(self.offsets, other.offsets)
            return same and np.array_equal(self.text, other.text)
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def find(self, text: str) -> list[int]:
        """Return the places of a text, without decoding the others."""
        sought = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        places = np.flatnonzero(np.diff(self.offsets) == len(sought))
        for i, byte in enumerate(sought if len(places) else ()):
            places = places[self.text[self.offsets[places] + i] == byte]
        return places.tolist()


class Picked(Sequence[str]):
    """The texts of some nodes, by number; decoded when they are read."""

    def __init__(self, texts: Sequence[str], numbers: Tensor) -> None:
        self.texts, self.numbers = texts, numbers

    def __len__(self) -> int:
        return self.numbers.numel()

    def __getitem__(self, index: Any) -> Any:
        return self.texts[int(self.numbers[index])]
