"""Read ``info.dat`` of the benchmark: what the numbers in its other files mean."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from hanme.common.files import parse_json
from hanme.errors import HanmeError
from hanme.graph import EdgeType


@dataclass(frozen=True)
class Info:
    """Node types and relations by their numbers, and the labels in the order of theirs."""

    types: dict[int, str]
    relations: dict[int, tuple[int, int, str]]  # node types at both ends, meaning in words
    target: int  # the node type that has labels
    labels: list[str]


def read_info(content: bytes, where: str) -> Info:
    """Parse the content of ``info.dat``; messages start with `where`."""
    try:
        text = content.decode()
        # Freebase alone describes itself in tables instead of JSON.
        tables = re.search(r"^LINK\tSTART\tEND\tMEANING", text, re.MULTILINE)
        values = _info_tables(text) if tables else parse_json(text)
        types = {int(n): str(name) for n, name in values["node.dat"]["node type"].items()}
        relations = {
            int(n): (int(link["start"]), int(link["end"]), str(link["meaning"]))
            for n, link in values["link.dat"]["link type"].items()
        }
        ((target, classes),) = values["label.dat"]["node type"].items()
        labels = [str(classes[str(i)]) for i in range(len(classes))]
        ends = {end for start, end, _ in relations.values() for end in (start, end)}
        if not labels or not ends or not ends | {int(target)} <= types.keys():
            raise ValueError("no labels, no links, or node types that do not exist")
        if len(set(types.values())) < len(types):
            raise ValueError("two node types have the same name")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise HanmeError(f"{where}: not in the layout of the benchmark: {why}") from None
    return Info(types, relations, int(target), labels)


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
    named: dict[int, EdgeType] = {}
    for number, (start, end, meaning) in info.relations.items():
        source, target = info.types[start], info.types[end]
        pattern = rf"(?:{re.escape(source)})?(.*?)(?:{re.escape(target)})?"
        match = re.fullmatch(pattern, meaning.strip(), re.IGNORECASE | re.DOTALL)
        named[number] = source, re.sub(r"\W+", "_", match[1] if match else "").strip("_"), target
    pairs = Counter((source, target) for source, _, target in named.values())
    uses = Counter(named.values())
    for number, (source, verb, target) in named.items():
        if pairs[source, target] == 1:
            verb = "to"
        elif not verb or uses[named[number]] > 1:
            verb = f"link{number}"
        named[number] = source, verb, target
    return named
