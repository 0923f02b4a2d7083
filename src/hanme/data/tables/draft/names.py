"""Compare names of columns and tables: their words, and which table a column's name means."""

from __future__ import annotations

import re
from collections.abc import Collection

from hanme.common.text import singular

KEYS = frozenset(("id", "ids", "key", "code", "uuid", "fk", "ref"))
"""Words at the end of the name of a column that holds ids."""

GENERIC = KEYS | {"name", "title", "no", "nr", "number", "index"}
"""Names of ids that say nothing about the table."""

SIDES = frozenset((
    "home", "away", "source", "target", "from", "to", "start", "end", "first", "second", "parent",
    "child", "a", "b",
))  # fmt: skip
"""Words that tell two columns of ids of one table apart."""

NOISE = frozenset(("data", "dataset", "table", "tbl", "dim", "info", "raw", "csv"))
"""Words in the name of a table that do not say what its rows are."""


def words_of(name: str) -> list[str]:
    """Return the words of a name: ``director_id`` and ``directorId`` have two."""
    split = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return [word for word in split if word] or [""]


def type_name(title: str) -> str:
    """Return the name of a node type: ``artist_data.csv`` has rows of type artist."""
    return _noun(words_of(title.split(".")[0]), NOISE, "node")


def value_type(name: str, *, numbered: bool = False) -> str:
    """Return what a column's values are: ``actor_1_name`` are of type actor."""
    words = words_of(name)
    numbers = filter(str.isdigit, words if numbered else ())
    return _noun(words, {"id", "name", "key", *numbers}, "value")


def _noun(words: list[str], dropped: Collection[str], default: str) -> str:
    *others, last = [word for word in words if word not in dropped] or words
    name = "_".join([*others, singular(last)]) or default
    return f"{default}_{name}" if name[0].isdigit() else name


def is_key(name: str) -> bool:
    """Return whether a name says that a column holds ids."""
    words = [word for word in words_of(name) if not word.isdigit()]
    return bool(words) and (words[-1] in KEYS or words[0] == "id")


def mentions(name: str, kind: str, id_name: str) -> int:
    """Return whether a column's name means a table: 2 if it does, 1 if it means a part of it.

    ``home_team_id`` means the table team, and a part of the table nba_team.
    """
    if name.lower() == id_name.lower() and name.lower() not in GENERIC:
        return 2
    words = [singular(word) for word in words_of(name)]
    while words and (words[-1] in KEYS or words[-1] in SIDES or words[-1].isdigit()):
        words.pop()
    if words[:1] == ["id"]:
        words = words[1:]
    own = kind.split("_")
    if words[-len(own) :] == own:
        return 2
    return int(is_key(name) and bool(words) and words[-1] in (own[0], own[-1]))
