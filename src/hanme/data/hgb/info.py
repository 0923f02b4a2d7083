"""Read ``info.dat`` of the benchmark: what the numbers in its other files mean."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from pydantic import AliasPath, BaseModel, Field, ValidationError, model_validator

from hanme.common.files import parse_json
from hanme.errors import HanmeError
from hanme.graph import EdgeType


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

    @model_validator(mode="after")
    def _check(self) -> Info:
        if len(set(self.types.values())) < len(self.types):
            raise ValueError("two node types have the same name")
        if self.target_number not in self.types:
            raise ValueError(f"no node type {self.target_number}, which has labels")
        classes = self.label[self.target_number]
        if not classes or set(classes) != set(range(len(classes))):
            raise ValueError(f"label numbers must be 0, 1, 2, ..., but are {sorted(classes)}")
        for number, relation in self.relations.items():
            if not {relation.start, relation.end} <= self.types.keys():
                raise ValueError(f"link type {number} joins a node type that does not exist")
        return self


def read_info(content: bytes, where: str) -> Info:
    """Parse and check the content of ``info.dat``; messages start with `where`."""
    try:
        text = content.decode()
        # Freebase alone describes itself in tables instead of JSON.
        tables = re.search(r"^LINK\tSTART\tEND\tMEANING", text, re.MULTILINE)
        return Info.model_validate(_info_tables(text) if tables else parse_json(text))
    except ValidationError as error:
        first = error.errors()[0]
        key = " > ".join(str(part) for part in first["loc"])
        raise HanmeError(f"{where}: {key or 'top level'}: {first['msg']}") from None
    except ValueError as error:
        raise HanmeError(f"{where}: not JSON in UTF-8 ({error})") from None


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


def relation_names(info: Info) -> dict[int, EdgeType]:
    """Name every link type, so that no two between the same node types share a name.

    The only relation between two types is called ``to``. Of several, each is called by its meaning
    without the types (``paper-cite-paper`` is ``cite``), or by its number (``link3``) where that
    is empty or ambiguous.
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
