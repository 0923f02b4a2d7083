"""Write HTML tables for notebooks; every cell is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], below: str) -> str:
    """Return a table with a line of text below it."""
    body = "".join(_row("td", map(_cell, row)) for row in rows)
    return f"<table>{_row('th', head)}{body}</table><p>{escape(below)}</p>"


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
