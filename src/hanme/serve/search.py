"""Find nodes by name or id: exactly, by how they begin, by a part, or nearly.

Texts are compared in lower case, without accents, with blanks for underscores. For every three
bytes in a row (*trigram*) an index lists the texts that hold them. A text with a typo still shares
most of its trigrams with the right one, so the texts that share most are looked at, a few hundred
of a million.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hanme.graph import Nodes

Match = Literal["exact", "prefix", "word", "within", "near"]
ORDER: tuple[Match, ...] = ("exact", "prefix", "word", "within", "near")

LONGEST = 120
"""Number of characters of a text that are indexed: longer names differ before."""

SHARED = 0.4
"""The least share of the trigrams of what was typed that a text must hold."""

MOST_READ = 2_000_000
"""Maximum number of index entries that a search reads, rare trigrams first: some milliseconds."""

LOOKED_AT = 400
"""Maximum number of texts that are compared with the query one by one."""


@dataclass(frozen=True)
class Found:
    """A node that was found, and how well: ``near`` is the share of trigrams, 1 for the others."""

    type: str
    number: int
    match: Match
    near: float
    length: int


class Search:
    """Names and ids of all nodes of a graph."""

    def __init__(self, nodes: Mapping[str, Nodes]) -> None:
        self.sizes = {kind: some.num_nodes for kind, some in nodes.items()}
        self._plain = [kind for kind, some in nodes.items() if some.ids is None]
        self._fields = {
            kind: [Field(texts) for texts in (some.names, some.ids) if texts is not None]
            for kind, some in nodes.items()
        }

    def find(self, text: str, types: Iterable[str], limit: int) -> list[Found]:
        """Return the nodes that fit best, best first."""
        sought = plain(text)
        best: dict[tuple[str, int], Found] = {}
        for kind in types:
            for field in self._fields[kind]:
                for place, match, near, length in field.find(sought, limit):
                    found = Found(kind, place, match, near, length)
                    key = (kind, place)
                    if key not in best or _rank(found) < _rank(best[key]):
                        best[key] = found
            number = _number(sought.strip())
            if kind in self._plain and number is not None and number < self.sizes[kind]:
                best[kind, number] = Found(kind, number, "exact", 1.0, 0)
        return sorted(best.values(), key=_rank)[:limit]


class Field:
    """Texts, one for each node of a type, with an index of their trigrams."""

    def __init__(self, texts: Sequence[str]) -> None:
        parts = [plain(text).encode("utf-8", "replace") for text in texts]
        self.lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        self.offsets = np.concatenate([[0], self.lengths.cumsum()])
        self.text = np.frombuffer(b"".join(parts), np.uint8)
        counts = np.maximum(self.lengths - 2, 0)
        begin = np.repeat(self.offsets[:-1] - (counts.cumsum() - counts), counts)
        codes = _codes(self.text)[begin + np.arange(len(begin))]
        order = np.argsort(codes, kind="stable")  # of 16 bits: a radix sort
        self.holders = np.repeat(np.arange(len(parts), dtype=np.int32), counts)[order]
        self.begin = np.concatenate([[0], np.bincount(codes, minlength=1 << 16).cumsum()])

    def find(self, sought: str, limit: int) -> list[tuple[int, Match, float, int]]:
        """Return the places of the texts that fit best, with how and how well they do."""
        key = sought.encode("utf-8", "replace")
        if len(key) < 3:
            return [(i, *_compare(sought, self[i], 1.0)) for i in self._starting(key, limit)]
        lists = self._lists(key)
        shared = np.bincount(np.concatenate(lists), minlength=len(self.lengths))
        places = np.flatnonzero(shared >= max(1.0, SHARED * len(lists)))
        if len(places) > LOOKED_AT:
            # The most shared first, then the shortest.
            rank = np.minimum(shared[places], len(lists)) * 4096 - self.lengths[places]
            places = places[np.argpartition(-rank, LOOKED_AT)[:LOOKED_AT]]
        both = np.minimum(shared[places], len(lists)) * 2
        near = both / (len(lists) + np.maximum(self.lengths[places] - 2, 1))
        pairs = zip(places.tolist(), near.tolist(), strict=True)
        found = [(i, *_compare(sought, self[i], share)) for i, share in pairs]
        found.sort(key=lambda row: (ORDER.index(row[1]), -row[2], row[3], row[0]))
        return found[:limit]

    def __getitem__(self, place: int) -> str:
        part = self.text[self.offsets[place] : self.offsets[place + 1]]
        return part.tobytes().decode("utf-8", "replace")

    def _lists(self, key: bytes) -> list[NDArray[np.int32]]:
        """Return which texts hold each trigram, rarest first, as far as they are read."""
        codes = np.unique(_codes(np.frombuffer(key, np.uint8))).astype(np.int64)
        begin, size = self.begin[codes], self.begin[codes + 1] - self.begin[codes]
        rare = np.argsort(size, kind="stable")
        few = max(1, int(np.searchsorted(size[rare].cumsum(), MOST_READ, "right")))
        return [self.holders[begin[i] : begin[i] + size[i]][:MOST_READ] for i in rare[:few]]

    def _starting(self, key: bytes, limit: int) -> list[int]:
        places = np.flatnonzero(self.lengths >= len(key))
        for i, byte in enumerate(key):
            places = places[self.text[self.offsets[places] + i] == byte]
        shortest = np.argsort(self.lengths[places], kind="stable")[:limit]
        found: list[int] = places[shortest].tolist()
        return found


def plain(text: str) -> str:
    """Write a text as it is compared, with a blank before it: a word's beginning is a trigram."""
    text = text[:LONGEST]
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text.casefold())[: 4 * LONGEST]
        text = "".join(c for c in parts if not unicodedata.combining(c))
    return " " + " ".join(text.lower().replace("_", " ").split())


def _codes(text: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return a number for every three bytes in a row; few different ones get the same."""
    if len(text) < 3:
        return np.empty(0, np.uint16)
    a, b, c = (text[i : len(text) - 2 + i].astype(np.uint16) for i in range(3))
    codes: NDArray[np.uint16] = a * np.uint16(40503) + b * np.uint16(1021) + c * np.uint16(31)
    return codes


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def _compare(sought: str, text: str, near: float) -> tuple[Match, float, int]:
    if text == sought:
        return "exact", 1.0, len(text)
    if text.startswith(sought):
        return "prefix", 1.0, len(text)
    if sought in text:
        return "word", 1.0, len(text)
    if sought[1:] in text:
        return "within", 1.0, len(text)
    return "near", near, len(text)


def _rank(found: Found) -> tuple[int, float, int, int]:
    return ORDER.index(found.match), -found.near, found.length, found.number
