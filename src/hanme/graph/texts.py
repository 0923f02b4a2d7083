"""Hold many short texts without a Python object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class Texts(Sequence[str]):
    """A sequence of texts kept as one array of UTF-8 bytes and where each begins.

    A million names take tens of megabytes and no time to open; a text is decoded when it is asked
    for.
    """

    def __init__(self, text: NDArray[np.uint8], offsets: NDArray[np.integer]) -> None:
        self.text = text
        self.offsets = offsets

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Encode texts, unless they are encoded already."""
        if isinstance(texts, Texts):
            return texts
        parts = [text.encode("utf-8", "surrogatepass") for text in texts]
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
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self._decode(index % len(self))

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

    def __repr__(self) -> str:
        return f"Texts({len(self):,})"


class Picked(Sequence[str]):
    """The texts of some nodes of many, by their numbers, made when they are asked for."""

    def __init__(self, texts: Sequence[str], numbers: Tensor) -> None:
        self.texts, self.numbers = texts, numbers

    def __len__(self) -> int:
        return self.numbers.numel()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Picked: ...
    def __getitem__(self, index: int | slice) -> str | Picked:
        if isinstance(index, slice):
            return Picked(self.texts, self.numbers[index])
        return self.texts[int(self.numbers[index])]
