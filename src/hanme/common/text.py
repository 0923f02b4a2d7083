"""Numbers, names and tables as people read them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from html import escape
from itertools import chain, count

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that control a terminal or the direction of writing, or are invalid in XML."""

IRREGULAR = {
    "people": "person", "men": "man", "women": "woman", "children": "child", "movies": "movie",
    "series": "series", "species": "species",
}  # fmt: skip
"""Plurals that no rule of :func:`singular` or :func:`plural` makes."""


def singular(word: str) -> str:
    """Return the singular of an English plural."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    is_plural = word.endswith("s") and not word.endswith(("ss", "is", "us")) and len(word) > 3
    return word[:-1] if is_plural else word


def plural(words: str) -> str:
    """Return the plural of an English noun, whose last word changes."""
    *others, last = words.split(" ")
    irregular = next((many for many, one in IRREGULAR.items() if one == last.lower()), None)
    if irregular is not None:
        last = irregular
    elif re.search(r"[^aeiou]y$", last):
        last = f"{last[:-1]}ies"
    else:
        last += "es" if last.endswith(("s", "x", "z", "ch", "sh")) else "s"
    return " ".join([*others, last])


def spoken(name: str) -> str:
    """Return the name of a column or type as words: ``MonthlyCharges`` becomes monthly charges.

    Words of capitals alone stay as they are.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.replace("_", " ")).split()
    return " ".join(word if word.isupper() else word.lower() for word in words) or name


FORMULA = re.compile(r"'*([=@\t\r]|[+\-](?!\d+([.]\d+)?\Z))")
"""Matches a cell that a spreadsheet would evaluate as a formula, unless it is a number.

So does one with ``'`` before it: a text that begins like this must survive the way back.
"""


def csv_cell(text: str) -> str:
    """Return a text as a CSV file holds it: ``'`` stands before what looks like a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def from_csv_cell(cell: str) -> str:
    """Return the text of a cell, without the ``'`` of :func:`csv_cell`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def csv_line(cells: Iterable[object], separator: str = ",") -> str:
    """Return a line of CSV without its end; cells with line breaks of any kind are in quotes."""
    line = io.StringIO()
    csv.writer(line, delimiter=separator, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[:-2]


def unused_name(name: str, used: Collection[str], separator: str = "_") -> str:
    """Return a name, followed by a number from 2 on if it is used already."""
    names = chain([name], (f"{name}{separator}{number}" for number in count(2)))
    return next(name for name in names if name not in used)


def printable(text: str) -> str:
    """Return text of a user's data without characters that control what shows it."""
    return CONTROL.sub("\ufffd", re.sub("[\t\n\r]", " ", text))


def short(count: float) -> str:
    """Write a count as 12,345 or, from a million on, as 3.9 M or 394 M."""
    if count < 1e6:
        return f"{count:,.0f}"
    value, units = count / 1e6, "MGTPE"
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1e3, units[1:]
    return f"{value:,.{0 if value >= 9.95 else 1}f} {units[0]}"


def duration(seconds: float) -> str:
    """Write a time as 0.07 s, 1.2 s, 25 s, 3 min or 2 h."""
    if seconds >= 120:
        return f"{seconds / 3600:.0f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
    return f"{seconds:.{0 if seconds >= 9.95 else 1 if seconds >= 0.95 else 2}f} s"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """Return an HTML table for notebooks, with a line of text below it; all text is escaped."""
    lines = [("th", head), *(("td", row) for row in rows)]
    body = ("".join(f"<{tag}>{escape(_cell(c))}</{tag}>" for c in cells) for tag, cells in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in body)}</table><p>{escape(below)}</p>"


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
