"""Render an inferred configuration as TOML, with the reason for each field as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hanme.common.files import replacing
from hanme.common.toml import toml_key, toml_text
from hanme.data.tables.draft.draft import Draft, Field
from hanme.data.tables.schema.config import FILE
from hanme.errors import HanmeError

WIDTH = 100
"""Maximum length of a line of comments, and of a reason behind a value."""

HEADER = (
    "Written by hanme init from the names and values of the columns. Check it and change what is "
    "wrong; docs/tables.md explains the keys."
)


def output_path(path: Path, *, force: bool = False) -> Path:
    """Return the ``graph.toml`` to write for a folder or a file; refuse to replace one."""
    file = (path if path.is_dir() or not path.exists() else path.parent) / FILE
    if file.exists() and not force:
        raise HanmeError(f"{file}: it exists; add --force to replace it")
    return file


def write(draft: Draft, file: Path) -> None:
    """Write a configuration to a file."""
    with replacing(file) as temporary:
        temporary.write_text(render(draft), encoding="utf-8")


def render(draft: Draft) -> str:
    """Return the text of a ``graph.toml``."""
    values = draft.config.model_dump(exclude_unset=True)
    nodes, relations = values.pop("nodes"), values.pop("relations", {})
    sections: dict[Field, dict[str, Any]] = {}
    for kind, section in nodes.items():
        features = section.pop("features", {})
        sections |= {("nodes", kind): section, ("nodes", kind, "features"): features}
    sections |= {("relations", name): section for name, section in relations.items()}
    lines = [*_comment(HEADER), *(f"# Skipped: {_plain(reason)}" for reason in draft.skipped), ""]
    lines += _fields((), values, draft.reasons)
    for place, section in sections.items():
        hints = [
            line
            for (*parent, key), reason in draft.reasons.items()
            if tuple(parent) == place and key not in section
            for line in _comment(f"{key}: {reason}")
        ]
        fields = _fields(place, section, draft.reasons) + hints
        if fields or len(place) == 2:
            header = f"[{'.'.join(map(toml_key, place))}]{_reason(place, draft.reasons)}"
            lines += ["", header, *fields]
    if not relations:
        lines += ["", *_comment(draft.reasons.get(("relations",), ""))]
    return "\n".join(lines) + "\n"


def _fields(place: Field, values: Mapping[str, Any], reasons: Mapping[Field, str]) -> list[str]:
    return [
        f"{toml_key(key)} = {_inline(value)}{_reason((*place, key), reasons)}"
        for key, value in values.items()
    ]


def _inline(value: Any) -> str:
    """Return a value on one line; a feature that has only a kind is written as this kind."""
    if isinstance(value, Mapping) and list(value) == ["kind"]:
        return _inline(value["kind"])
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(key)} = {_inline(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return toml_text(value) if isinstance(value, str) else str(value)


def _reason(place: Field, reasons: Mapping[Field, str]) -> str:
    reason = _plain(reasons.get(place, ""))
    return f"  # {textwrap.shorten(reason, WIDTH, placeholder=' ...')}" if reason else ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(_plain(text), WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _plain(text: str) -> str:
    """Return a text that may stand in a comment."""
    return "".join(c if c.isprintable() else " " for c in text)
