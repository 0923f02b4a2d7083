"""Read and write TOML files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from hanme.common.files import regular
from hanme.common.options import refuse_deep
from hanme.errors import HanmeError

LONGEST_KEY = 50
"""Maximum number of parts of a dotted key. The parser takes quadratic time in it."""

# Every alternative consumes what it begins with, so scanning takes linear time on any text.
_TOKENS = re.compile(
    r'''(?P<other>"""(?:\\.|[^\\])*?(?:"""|\Z)|\'{3}.*?(?:\'{3}|\Z)|\#[^\n]*)'''
    r"""|(?P<key>"(?:\\.|[^"\\\n])*"?|'[^'\n]*'?|[\w+-]+)|(?P<dot>\.)|[ \t]+|(?P<rest>.)""",
    re.DOTALL,
)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a file; a mistake in it is reported with its line."""
    regular(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        refuse_long_keys(text, str(path))
        values = tomllib.loads(text)
        refuse_deep(values, str(path))
        return values
    except OSError as error:
        raise HanmeError(f"{path}: it cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise HanmeError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise HanmeError(f"{path}: values are nested too deep") from None
    except ValueError as error:
        raise HanmeError(f"{path}: not a TOML file: {error}") from None


def refuse_long_keys(text: str, where: str) -> None:
    """Refuse a dotted key of more than ``LONGEST_KEY`` parts before the text is parsed."""
    dots = 0
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        if kind == "dot":
            dots += 1
        elif kind in ("other", "rest"):
            dots = 0
        if dots >= LONGEST_KEY:
            line = text.count("\n", 0, token.start()) + 1
            raise HanmeError(f"{where} line {line}: a key has more than {LONGEST_KEY} parts")


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
    return (
        [_without_none(value) for value in values] if isinstance(values, list | tuple) else values
    )
