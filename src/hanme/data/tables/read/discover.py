"""Find the tables in a folder, and how each is to be read."""

from __future__ import annotations

import csv
import re
import zlib
from pathlib import Path

from hanme.data.tables.read.databases import table_names
from hanme.data.tables.read.formats import FORMATS, database_kind, open_text, suffix
from hanme.data.tables.schema.sections import Encoding, Format, Source
from hanme.errors import HanmeError

FIRST_LINES = 50
"""Lines from which the format of a file is inferred."""

WINDOWS = re.compile("[\x80-\x9f]")
"""Characters that Windows-1252 has where latin-1 has none."""


def find_tables(folder: Path, only: str | None = None) -> tuple[list[Source], list[str]]:
    """Find the tables in a folder, or in one file of it.

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
            found += _tables_in(path)
        except HanmeError as error:
            skipped.append(str(error).removeprefix(f"{path.parent}/"))
    return found, skipped


def _tables_in(path: Path) -> list[Source]:
    kind = database_kind(path)
    if kind is not None:
        return [Source(database=path.name, table=name) for name in table_names(path, kind)]
    try:
        return [_source(path)]
    except (EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{path}: it cannot be read ({error})") from None


def _source(path: Path) -> Source:
    """Guess how a file is to be read."""
    name, separator = path.name, None
    if suffix(name) not in FORMATS:
        return Source(table=name, format=_sniff(path), encoding=_encoding(path))
    if FORMATS[suffix(name)] != "csv":
        return Source(table=name)
    encoding = _encoding(path)
    with open_text(path, encoding) as text:
        head = text.readline(100_000)
    if suffix(name) == ".csv" and "," not in head:
        separator = next((s for s in (";", "\t", "|") if s in head), None)
    return Source(table=name, separator=separator, encoding=encoding)


def _sniff(path: Path) -> Format:
    """Guess what a file of an unknown ending is: its rows must have as many cells each."""
    with open_text(path, "latin-1") as text:
        lines = [text.readline(100_000) for _ in range(FIRST_LINES)]
    rows = [line for line in lines if line.strip()]
    guesses: tuple[tuple[str, Format], ...] = (("\t", "tsv"), (",", "csv"))
    for separator, name in guesses:
        try:
            sizes = {len(row) for row in csv.reader(rows, delimiter=separator, strict=True)}
        except csv.Error:
            continue
        if len(rows) > 1 and len(sizes) == 1 and min(sizes) > 1:
            return name
    raise HanmeError(
        f"{path}: its ending says no format; if it is a table, name it in graph.toml with "
        'format = "tsv", "csv", "parquet" or "json"'
    )


def _encoding(path: Path) -> Encoding:
    """Guess the encoding: UTF-16 begins with a mark, and all that is not UTF-8 is latin-1."""
    with open_text(path, "latin-1") as text:
        mark = text.read(2)
    if mark == "\xff\xfe":
        return "utf-16"
    if mark == "\xfe\xff":
        raise HanmeError(f"{path}: UTF-16 with the high byte first; saved as UTF-8 it can be read")
    try:
        with open_text(path, "utf-8", "strict") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        pass
    else:
        return "utf-8"
    with open_text(path, "latin-1") as text:
        while part := text.read(1 << 20):
            if WINDOWS.search(part):
                raise HanmeError(
                    f"{path}: its text is neither UTF-8 nor latin-1 but, by its quotes and dashes, "
                    f"Windows-1252; saved as UTF-8 it can be read: iconv -f cp1252 -t utf-8"
                )
    return "latin-1"
