"""Read and write TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from hanme.common.files import regular
from hanme.common.options import refuse_deep
from hanme.errors import HanmeError

LONGEST_LINE = 20_000
"""Maximum number of characters of a line. The parser takes quadratic time in a dotted key."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a file; a mistake in it is reported with its line."""
    regular(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        for number, line in enumerate(text.splitlines(), start=1):
            if len(line) > LONGEST_LINE:
                raise ValueError(f"line {number}: more than {LONGEST_LINE} characters")
        values = tomllib.loads(text)
    except OSError as error:
        raise HanmeError(f"{path}: it cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise HanmeError(f"{path}: not a TOML file: {error}") from None
    refuse_deep(values, str(path))
    return values


def to_toml(values: Mapping[str, Any]) -> str:
    """Write values as TOML; keys whose value is None are left out, as TOML has no word for it."""
    try:
        return tomli_w.dumps(_without_none(values), indent=2)
    except TypeError as error:
        raise HanmeError(f"a TOML file cannot hold these values: {error}") from None


def toml_text(text: str) -> str:
    """Return a string in quotes, as TOML writes it."""
    return to_toml({"key": text}).removeprefix("key = ").removesuffix("\n")


def toml_key(key: str) -> str:
    """Return a key as TOML writes it, in quotes where it needs them."""
    return to_toml({key: 0}).removesuffix(" = 0\n")


def _without_none(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {key: _without_none(value) for key, value in values.items() if value is not None}
    return [_without_none(x) for x in values] if isinstance(values, list | tuple) else values
