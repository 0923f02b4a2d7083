"""Find nodes by name or id: exactly, by how they begin, by a part, or misspelt.

Texts are compared in lower case, without accents, with blanks for underscores. For every three
bytes in a row (*trigram*) an index lists the texts that hold them. A text with a typo still shares
most of its trigrams with the right one, so only the texts that share most are compared: a few
hundred of a million. A filter must miss none and add none: it reads all texts of a type.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hanme.explain.change import reverses
from hanme.graph import Graph, Nodes, display
from hanme.serve.rows import TableRows

LONGEST = 120
"""Number of characters of a text that are indexed: longer names differ before."""

SHARED = 0.4
"""Minimum share of the trigrams of a query, without its first, that a text must hold."""

MOST_READ = 2_000_000
"""Maximum number of index entries that a search reads, rare trigrams first: some milliseconds."""

COMPARED = 400
"""Maximum number of texts that are compared with the query one by one."""


class Search:
    """An index of the names and ids of all nodes; a node without an id is found by its number."""

    def __init__(self, nodes: Mapping[str, Nodes]) -> None:
        self.types = list(nodes)
        self._texts: list[Sequence[object]] = []  # the names or ids of a type
        owners = []
        for kind, some in enumerate(nodes.values()):
            ids = range(some.num_nodes) if some.ids is None else some.ids
            for texts in [ids] if some.names is None else [some.names, ids]:
                owners.append((kind, len(texts)))
                self._texts.append(texts)
        sizes = [size for _, size in owners]
        self._begin = np.concatenate([[0], np.cumsum(sizes)])  # of each sequence of texts
        self._type = np.repeat([kind for kind, _ in owners], sizes)
        parts = [plain(str(text)).encode("utf-8", "replace") for t in self._texts for text in t]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        self.trigrams = lengths - 2  # a text begins with two blanks
        self._start = np.concatenate([[0], lengths.cumsum()])  # of each text in all bytes
        self._bytes = np.frombuffer(b"".join(parts), np.uint8)
        ends = np.repeat(lengths.cumsum() - self.trigrams.cumsum(), self.trigrams)
        codes = _codes(self._bytes)[ends - 2 + np.arange(len(ends))]
        order = np.argsort(codes, kind="stable")  # of 16 bits: a radix sort
        self._holders = np.repeat(np.arange(len(parts), dtype=np.int32), self.trigrams)[order]
        self._first = np.concatenate([[0], np.bincount(codes, minlength=1 << 16).cumsum()])

    def containing(self, query: str, kind: str) -> NDArray[np.int64]:
        """Return the numbers of all nodes of a type whose name or id holds a text, best first."""
        sought = plain(query)[2:].encode("utf-8", "replace")
        first, last = np.searchsorted(self._type, self.types.index(kind) + np.arange(2))
        begin, end = self._start[[first, last]]
        if not sought:
            return np.zeros(0, np.int64)
        at = np.arange(begin, max(begin, end - len(sought) + 1))
        for i, byte in enumerate(sought):
            at = at[self._bytes[at + i] == byte]
        place = np.searchsorted(self._start, at, "right") - 1
        prefix = at == self._start[place] + 2
        how = np.where(prefix, 1 - (self.trigrams[place] == len(sought)), 3)
        how[~prefix & (self._bytes[at - 1] == ord(" "))] = 2
        number = place - self._begin[np.searchsorted(self._begin, place, "right") - 1]
        number = number[np.lexsort((number, self.trigrams[place], how))]
        found: NDArray[np.int64] = number[np.sort(np.unique(number, return_index=True)[1])]
        return found

    def find(self, query: str, types: Sequence[str], limit: int) -> list[tuple[str, int]]:
        """Return the types and numbers of the nodes that fit best, best first."""
        sought = plain(query)
        sequence = np.frombuffer(sought.encode("utf-8", "replace"), np.uint8)
        codes = np.unique(_codes(sequence)).astype(np.int64)
        if not len(codes):
            return []
        sizes = self._first[codes + 1] - self._first[codes]
        rare = codes[np.argsort(sizes, kind="stable")]
        rare = rare[: max(1, int(np.searchsorted(np.sort(sizes).cumsum(), MOST_READ, "right")))]
        holders = [self._holders[self._first[c] : self._first[c + 1]] for c in rare]
        shared = np.bincount(np.concatenate(holders), minlength=len(self.trigrams))
        places = np.flatnonzero(shared >= max(1.0, SHARED * (len(rare) - 1)))
        places = places[np.isin(self._type[places], [self.types.index(kind) for kind in types])]
        shared = np.minimum(shared[places], len(rare))
        if len(places) > COMPARED:  # the most shared first, then the shortest
            best = np.argpartition(self.trigrams[places] - shared * 4096, COMPARED)[:COMPARED]
            places, shared = places[best], shared[best]
        dice = 2 * shared / (len(rare) + self.trigrams[places])
        ranked = []
        for place, near in zip(places.tolist(), dice.tolist(), strict=True):
            which = int(np.searchsorted(self._begin, place, "right")) - 1
            number = place - int(self._begin[which])
            how, near = _compare(sought, plain(str(self._texts[which][number])), near)
            ranked.append((how, -near, int(self.trigrams[place]), number, int(self._type[place])))
        found = dict.fromkeys((self.types[kind], number) for *_, number, kind in sorted(ranked))
        return list(found)[:limit]


def plain(text: str) -> str:
    """Write a text as it is compared, after two blanks: the first letter makes a trigram."""
    text = text[:LONGEST]
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text.casefold())[: 4 * LONGEST]
        text = "".join(c for c in parts if not unicodedata.combining(c))
    return "  " + " ".join(text.lower().replace("_", " ").split())


def _codes(text: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return a number for every three bytes in a row; few different ones get the same."""
    size = max(0, len(text) - 2)
    a, b, c = (text[i : size + i].astype(np.uint16) for i in range(3))
    codes: NDArray[np.uint16] = a * np.uint16(40503) + b * np.uint16(1021) + c * np.uint16(31)
    return codes


def _compare(sought: str, text: str, near: float) -> tuple[int, float]:
    """Return how well a text fits: equal, prefix, word, part or similar; and how similar."""
    fits = [text == sought, text.startswith(sought), sought[1:] in text, sought[2:] in text]
    return (fits.index(True), 1.0) if any(fits) else (4, near)


class GraphIndex:
    """A graph with an index of names, links and degrees; runs on the same graph share it."""

    def __init__(self, graph: Graph, rows: TableRows) -> None:
        self.graph, self.search, self.reverse = graph, Search(graph.nodes), reverses(graph)
        self.rows, self.facets = rows, rows.facets(graph.target, graph.targets.num_nodes)
        self.relations = {"-".join(e): e for e in graph.links}
        self.names = display(graph)
        self.degree: NDArray[np.int64] = np.zeros(
            graph.targets.num_nodes, np.int64
        )  # of target nodes
        for e in graph.links:
            links = graph.adjacency(e)  # sorts them now, not while a request waits
            if e[0] == graph.target:
                self.degree += links.indptr.diff().numpy()
