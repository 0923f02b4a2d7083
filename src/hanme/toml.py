"""TOML files: read with a mistake's place, and written (the standard library only reads)."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.errors import HanmeError


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HanmeError(f"{path}: it cannot be read ({error.strerror})") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise HanmeError(f"{path}: not a TOML file: {error}") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """Values as TOML: strings, numbers, booleans, lists of these, and tables of all that.

    ``None`` is left out; TOML has no word for it.
    """
    return "\n\n".join(_tables(values, ())) + "\n"


def _tables(values: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    """A block of text per table: its own values, then the tables in it."""
    own = {k: v for k, v in values.items() if v is not None and not isinstance(v, Mapping)}
    inner = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in own.items()]
    if path and (lines or not inner):
        lines.insert(0, f"[{'.'.join(map(_key, path))}]")
    blocks = ["\n".join(lines)] if lines else []
    return blocks + [block for k, v in inner.items() for block in _tables(v, (*path, k))]


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _string(key)


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_key(k)} = {_value(v)}' for k, v in value.items())} }}"
    raise HanmeError(f"a TOML file holds strings, numbers, booleans and lists, not {value!r}")


def _string(text: str) -> str:
    """JSON's strings are TOML's, but for the one control character JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
