"""Nodes and labels by the words a user has for them."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch import Tensor
from torch_geometric.data import HeteroData

from hanme.datasets.strings import Strings
from hanme.errors import HanmeError


def find(data: HeteroData, node_type: str, node: int | str) -> int:
    """A node's number, from its number, its id or its name.

    A text is taken as an id if there is one like it, else as a name, else, in a graph without
    ids, as a number.
    """
    store = data[node_type]
    size: int = store.num_nodes
    if not isinstance(node, str):
        return _numbered(operator.index(node), size, node_type)
    for field in ("id", "name"):
        found = _places(store.get(field), node)
        if len(found) > 1:
            those = [identity(data, node_type, place) for place in found[:8]]
            raise HanmeError(
                f"{node_type} {node!r}: {len(found)} nodes have that {field}; say which by "
                f"{'id' if 'id' in store else 'number'}: {', '.join(those)}"
                f"{', ...' if len(found) > 8 else ''}"
            )
        if found:
            return found[0]
    if "id" not in store and node.isascii() and node.isdigit():
        return _numbered(int(node), size, node_type)
    near = _near(store.get("name"), node)
    hint = f"; there is {near!r}" if near else ""
    raise HanmeError(f"{node_type} {node!r}: no node has that id or name{hint}")


def _places(texts: Sequence[str] | Tensor | None, text: str) -> list[int]:
    if isinstance(texts, Strings):
        return texts.find(text)
    if isinstance(texts, Tensor):
        texts = [str(number) for number in texts.tolist()]
    return [place for place, other in enumerate(texts or ()) if other == text]


def _numbered(number: int, size: int, node_type: str) -> int:
    if not 0 <= number < size:
        raise HanmeError(f"{node_type} {number}: there are {size:,}, numbered from 0")
    return number


def _near(names: Sequence[str] | None, text: str) -> str | None:
    """A name that differs in case, blanks and underscores alone."""
    plain = text.casefold().replace("_", " ")
    return next((n for n in names or () if n.casefold().replace("_", " ") == plain), None)


def name(data: HeteroData, node_type: str, number: int) -> str:
    """A node's name, or what comes closest where the graph has no names."""
    for field in ("name", "id"):
        if field in data[node_type]:
            return str(data[node_type][field][number])
    return f"{node_type} {number}"


def identity(data: HeteroData, node_type: str, number: int) -> str:
    """A node's id in the user's tables, or its number where the graph has no ids."""
    return str(data[node_type].id[number]) if "id" in data[node_type] else str(number)


def labels(data: HeteroData, node_type: str, count: int) -> list[str]:
    """The names of the labels, or numbers where the graph has no names."""
    return [str(label) for label in data[node_type].get("label_names") or range(count)]
