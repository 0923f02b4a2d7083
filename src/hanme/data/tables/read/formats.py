"""Tell the format of a file, and how its text is written."""

from __future__ import annotations

import csv
import glob
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, TextIO, cast

from hanme.data.tables.read.sql import quoted
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip

LONGEST_LINE = 2_000_000
"""Maximum number of bytes in a line of CSV, DuckDB's limit."""

UNREADABLE = (ValueError, csv.Error, EOFError, OSError, zlib.error)
"""Errors of a damaged or badly encoded text file."""

Database = Literal["duckdb", "sqlite"]


def suffix(name: str) -> str:
    """Return the ending that tells the format of a file, without .gz."""
    return Path(name.lower().removesuffix(".gz")).suffix


def table_format(path: Path, spec: Source, title: str | None = None) -> str:
    """Return how to read a file: csv, parquet or json."""
    if spec.format is not None:
        return "csv" if spec.format == "tsv" else spec.format
    if (form := FORMATS.get(suffix(path.name))) is not None:
        return form
    if database_kind(path):
        raise HanmeError(f"{title or path}: a database; write database = {path.name!r} and table =")
    raise HanmeError(
        f"{title or path}: unknown format; expected one of {', '.join(FORMATS)}, or "
        'format = "tsv", "csv", "parquet" or "json" in graph.toml'
    )


def database_kind(path: Path) -> Database | None:
    """Return what kind of database a file is, by its first bytes."""
    with path.open("rb") as file:
        start = file.read(16)
    if start == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else None


def open_text(path: Path, encoding: str, errors: str = "replace") -> TextIO:
    """Open a text file, compressed or not."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    encoding = "utf-8-sig" if encoding == "utf-8" else encoding
    return cast(TextIO, opener(path, "rt", encoding=encoding, errors=errors, newline=""))


def read_lines(text: TextIO) -> Iterator[str]:
    """Yield the lines of a text; refuse a longer one than DuckDB reads, as of a bomb in a .gz."""
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise ValueError(f"a line is longer than {LONGEST_LINE:,} bytes")
        yield line


def skip_comments(lines: Iterator[str]) -> tuple[int, str]:
    """Return the number of comment lines above the header, and the header's first line."""
    for number, line in enumerate(lines):
        if not re.match(r"#(#|\s|$)", line):
            return number, line
    return 0, ""


def csv_header(path: Path, spec: Source, title: str) -> tuple[list[str], str]:
    """Return the column names of a CSV file, and options of ``read_csv``.

    DuckDB would rename repeated columns. It finds mistakes below the header, and knows the line.
    """
    tabs = spec.format == "tsv" or (spec.format is None and suffix(path.name) == ".tsv")
    separator = spec.separator or ("\t" if tabs else ",")
    try:
        with open_text(path, spec.encoding) as text:
            skip, first = skip_comments(lines := read_lines(text))
            columns = next(csv.reader(chain([first], lines), delimiter=separator, strict=True), [])
    except UNREADABLE as error:
        raise HanmeError(f"{title} line 1: no header ({error})") from None
    if not any(columns):
        raise HanmeError(f"{title} line 1: no header")
    if any(odd in column for odd in "\ufffd\0" for column in columns):
        raise HanmeError(f"{title} line 1: the text is not in the encoding {spec.encoding}")
    return columns, (
        f"header = true, skip = {skip}, delim = {quoted(separator)}, quote = '\"', escape = '\"', "
        f"encoding = '{spec.encoding}', strict_mode = true, hive_partitioning = false"
    )


def check_end(path: Path, form: str, title: str) -> None:
    """Refuse what DuckDB reads incompletely: a damaged .gz file, a last line beyond its limit."""
    packed, end = path.suffix.lower() == ".gz", b""
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            if not packed:
                file.seek(max(0, path.stat().st_size - LONGEST_LINE))
            while (packed or form == "csv") and (block := file.read(LONGEST_LINE)):
                end = (end + block)[-LONGEST_LINE:]
    except UNREADABLE as error:
        raise HanmeError(f"{title}: it cannot be read ({error})") from None
    if form == "csv" and len(end) == LONGEST_LINE and len(end.rstrip(b"\r\n\0").splitlines()) == 1:
        raise HanmeError(f"{title}: its last line is longer than {LONGEST_LINE:,} bytes")


def typed_rows(files: Sequence[Path], spec: Source, title: str) -> str:
    """Return SQL for the rows of files in one format, with columns as queries see them.

    A column of numbers in CSV is numbers. No other type is guessed, so that dates and the like stay
    as they are written.
    """
    form, options = table_format(files[0], spec, title), "hive_partitioning = false"
    if form == "csv":
        nulls = ", ".join(map(quoted, ["", *spec.empty]))
        _, options = csv_header(files[0], spec, title)
        options += f", nullstr = [{nulls}], auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR']"
    if form != "parquet":
        options += ", sample_size = -1"
    paths = ", ".join(quoted(glob.escape(str(path))) for path in files)
    return f"read_{form}([{paths}], {options})"


def file_title(path: Path, folder: Path) -> str:
    """Return what messages call a file: its path within the folder, or its absolute path."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
