"""Find the tables in a folder, and how each is to be read."""

from __future__ import annotations

import sqlite3
from itertools import islice
from pathlib import Path

import duckdb

from hanme.common.toml import toml_text
from hanme.data.tables.read.databases import table_names
from hanme.data.tables.read.formats import (
    FORMATS,
    UNREADABLE,
    database_kind,
    open_text,
    read_lines,
    skip_comments,
    suffix,
)
from hanme.data.tables.schema.sections import Encoding, Format, Source
from hanme.errors import HanmeError, one_line

FIRST_LINES = 50
"""Lines from which the format of a file is inferred."""


def find_tables(
    folder: Path, only: str | None = None, *, views: bool = False
) -> tuple[list[Source], list[str]]:
    """Find the tables in a folder, or in one file of it.

    Views of a database repeat columns of its tables, perhaps the label: they count as tables only
    with `views`, or if there are no tables.

    Returns:
        The tables, and for each file that is none why it was skipped.
    """
    found: list[Source] = []
    skipped: list[str] = []
    for path in sorted(folder.iterdir()):
        hidden = path.name.startswith((".", "graph.toml")) or path.name.endswith((".wal", "-wal"))
        if not path.is_file() or (hidden if only is None else path.name != only):
            continue
        try:
            if (kind := database_kind(path)) is None:
                found.append(_source(path))
            else:
                names, others = table_names(path, kind)
                if others and names and not views:
                    skipped.append(_about_views(path.name, others))
                else:
                    names += others
                found += [Source(database=path.name, table=name) for name in names]
        except HanmeError as error:
            skipped.append(str(error).removeprefix(f"{path.parent}/"))
        except (*UNREADABLE, sqlite3.Error, duckdb.Error) as error:
            skipped.append(f"{path.name}: it cannot be read ({one_line(error)})")
    return found, skipped


def _about_views(database: str, views: list[str]) -> str:
    what = "1 view, as it" if len(views) == 1 else f"{len(views)} views, as they"
    first = f"table = {toml_text(views[0])} and database = {toml_text(database)}"
    return (
        f"{database}: {what} may repeat the label: {', '.join(views)}. To use all, add --views; "
        f"to use one, write {first} under [nodes.NAME], and its relations"
    )


def _source(path: Path) -> Source:
    """Guess how a file is to be read."""
    name, form, separator = path.name, FORMATS.get(suffix(path.name)), None
    if form is None:
        return Source(table=name, format=_sniff(path), encoding=_encoding(path))
    if form != "csv":
        return Source(table=name)
    encoding = _encoding(path)
    with open_text(path, encoding) as text:
        _, head = skip_comments(read_lines(text))
    if suffix(name) == ".csv" and "," not in head:
        separator = next((s for s in (";", "\t", "|") if s in head), None)
    return Source(table=name, separator=separator, encoding=encoding)


def _sniff(path: Path) -> Format:
    """Guess what a file of an unknown ending is: its rows must have as many cells each."""
    with open_text(path, "latin-1") as text:
        _, head = skip_comments(lines := read_lines(text))
        rows = [line for line in (head, *islice(lines, FIRST_LINES)) if line.strip()]
    guesses: tuple[tuple[str, Format], ...] = (("\t", "tsv"), (",", "csv"))
    for separator, name in guesses:
        counts = {line.count(separator) for line in rows}
        if len(rows) > 1 and len(counts) == 1 and 0 not in counts:
            return name
    raise HanmeError(
        f"{path}: its ending says no format; if it is a table, name it in graph.toml with "
        'format = "tsv", "csv", "parquet" or "json"'
    )


def _encoding(path: Path) -> Encoding:
    """Guess the encoding: UTF-16 begins with a mark, and all that is not UTF-8 is latin-1.

    A file with a few bytes that are not UTF-8 among many that are is refused: as latin-1, all
    others would be read wrongly.
    """
    with open_text(path, "latin-1") as text:
        if text.read(2) == "\xff\xfe":
            return "utf-16"
    try:
        with open_text(path, "utf-8", "strict") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        _refuse_stray_bytes(path)
        return "latin-1"
    return "utf-8"


def _refuse_stray_bytes(path: Path) -> None:
    good = bad = first = 0
    with open_text(path, "utf-8", "surrogateescape") as text:
        for number, line in enumerate(read_lines(text), 1):
            others = [c for c in line if c > "\x7f"]
            wrong = sum("\udc80" <= c <= "\udcff" for c in others)
            first = first or (number if wrong else 0)
            bad, good = bad + wrong, good + len(others) - wrong
    if good > 2 * bad:
        raise HanmeError(f"{path} line {first}: a byte that is not UTF-8, though the rest is")
