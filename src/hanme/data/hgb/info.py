"""Read ``info.dat`` of the benchmark: what the numbers in its other files mean."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

from pydantic import AliasPath, BaseModel, Field, ValidationError

from hanme.errors import HanmeError

FILES = ("info.dat", "node.dat", "link.dat", "label.dat", "label.dat.test")


class TextFiles(Protocol):
    """A source of lines: an archive, a folder, or strings in a test."""

    title: str

    def lines(self, file: str) -> Iterator[bytes]:
        """Yield the lines of one of :data:`FILES`, with their line ends."""


class LinkType(BaseModel):
    """A link type: the node types it joins, and its meaning in words."""

    start: int
    end: int
    meaning: str


class Info(BaseModel):
    """Node types, relations and labels by their numbers."""

    types: dict[int, str] = Field(validation_alias=AliasPath("node.dat", "node type"), min_length=1)
    relations: dict[int, LinkType] = Field(
        validation_alias=AliasPath("link.dat", "link type"), min_length=1
    )
    label: dict[int, dict[int, str]] = Field(
        validation_alias=AliasPath("label.dat", "node type"), min_length=1, max_length=1
    )

    @property
    def target_number(self) -> int:
        """The number of the node type that has labels."""
        return next(iter(self.label))

    @property
    def target(self) -> str:
        """The node type that has labels."""
        return self.types[self.target_number]

    @property
    def classes(self) -> list[str]:
        """The names of the labels, in the order of their numbers."""
        classes = self.label[self.target_number]
        return [classes[label] for label in sorted(classes)]


def read_info(files: TextFiles) -> Info:
    """Read and check ``info.dat``."""
    place = f"{files.title}: info.dat"
    try:
        text = b"".join(files.lines("info.dat")).decode()
    except UnicodeDecodeError as error:
        raise HanmeError(f"{place}: not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise HanmeError(f"{place}: the file is empty")
    try:
        # Freebase alone describes itself in tables instead of JSON.
        tables = re.search(r"^LINK\tSTART\tEND\tMEANING", text, re.MULTILINE)
        content = _info_tables(text) if tables else json.loads(text)
        info = Info.model_validate(content)
    except json.JSONDecodeError as error:
        raise HanmeError(f"{place} line {error.lineno}: not JSON ({error.msg})") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = " > ".join(str(part) for part in first["loc"])
        raise HanmeError(f"{place}: {key or 'top level'}: {first['msg']}") from None

    if len(set(info.types.values())) < len(info.types):
        raise HanmeError(f"{place}: two node types have the same name")
    if info.target_number not in info.types:
        raise HanmeError(f"{place}: there is no node type {info.target_number}, which has labels")
    classes = info.label[info.target_number]
    if not classes or set(classes) != set(range(len(classes))):
        raise HanmeError(f"{place}: label numbers must be 0, 1, 2, ..., but are {sorted(classes)}")
    for number, relation in info.relations.items():
        for end in (relation.start, relation.end):
            if end not in info.types:
                raise HanmeError(
                    f"{place}: there is no node type {end}, which link type {number} joins"
                )
    return info


def _info_tables(text: str) -> dict[str, Any]:
    """Read Freebase's info.dat: tables of node types, relations and labels, each with a header."""
    types: dict[str, str] = {}
    relations: dict[str, dict[str, str]] = {}
    classes: dict[str, dict[str, str]] = {}
    header: list[str] = []
    for line in text.splitlines():
        cells = line.split()
        if not cells or cells[0] in ("TYPE", "LINK"):
            header = cells
            continue
        match header, cells:
            case ["TYPE", "MEANING"], [number, *words]:
                types[number] = " ".join(words)
            case ["LINK", "START", "END", "MEANING"], [number, start, end, *words]:
                relations[number] = {"start": start, "end": end, "meaning": " ".join(words)}
            case ["TYPE", "CLASS", "MEANING"], [number, label, *words]:
                classes.setdefault(number, {})[label] = " ".join(words)
    return {
        "node.dat": {"node type": types},
        "link.dat": {"link type": relations},
        "label.dat": {"node type": classes},
    }


def relation_names(info: Info) -> dict[int, tuple[str, str, str]]:
    """Name every link type, so that no two between the same node types share a name.

    The only relation between two types is called ``to``. Of several, each is called by its meaning
    without the types (``paper-cite-paper`` is ``cite``), or by its number (``link3``) where that
    leaves nothing or the same twice.
    """
    ends = {n: (info.types[r.start], info.types[r.end]) for n, r in info.relations.items()}
    verbs = {n: _verb(r.meaning, *ends[n]) for n, r in info.relations.items()}
    pairs = Counter(ends.values())
    uses = Counter((ends[n], verb) for n, verb in verbs.items())

    def name(number: int) -> str:
        if pairs[ends[number]] == 1:
            return "to"
        verb = verbs[number]
        return verb if verb and uses[ends[number], verb] == 1 else f"link{number}"

    return {n: (start, name(n), end) for n, (start, end) in ends.items()}


def _verb(meaning: str, start: str, end: str) -> str:
    pattern = rf"(?:{re.escape(start)})?(.*?)(?:{re.escape(end)})?"
    match = re.fullmatch(pattern, meaning.strip(), re.IGNORECASE | re.DOTALL)
    return re.sub(r"\W+", "_", match[1]).strip("_") if match else ""
