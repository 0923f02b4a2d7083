"""Tell the format of a file, and how its text is written."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
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

Database = Literal["duckdb", "sqlite"]


def suffix(name: str) -> str:
    """Return the ending that tells the format of a file, without .gz."""
    return Path(name.lower().removesuffix(".gz")).suffix


def table_format(path: Path, spec: Source, title: str | None = None) -> str:
    """Return how to read a file: csv, parquet or json."""
    if spec.format is not None:
        return "csv" if spec.format == "tsv" else spec.format
    form = FORMATS.get(suffix(path.name))
    if form is None and database_kind(path):
        raise HanmeError(
            f"{title or path}: a database; write database = {path.name!r}, and table = for a table "
            "in it"
        )
    if form is None:
        raise HanmeError(
            f"{title or path}: unknown format; expected one of {', '.join(FORMATS)}, or "
            'format = "tsv", "csv", "parquet" or "json" in graph.toml'
        )
    return form


def database_kind(path: Path) -> Database | None:
    """Return what kind of database a file is, by its first bytes."""
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        return None
    if start == b"SQLite format 3\0":
        return "sqlite"
    return "duckdb" if start[8:12] == b"DUCK" else None


def separator(path: Path, spec: Source) -> str:
    """Return the character between the cells of a CSV file."""
    tabs = spec.format == "tsv" or (spec.format is None and suffix(path.name) == ".tsv")
    return spec.separator or ("\t" if tabs else ",")


def csv_options(path: Path, spec: Source) -> str:
    """Return the options of ``read_csv`` that do not depend on the columns."""
    return (
        f"header = true, delim = {quoted(separator(path, spec))}, quote = '\"', escape = '\"', "
        f"encoding = '{spec.encoding}', strict_mode = true, hive_partitioning = false"
    )


def typed_csv_options(path: Path, spec: Source) -> str:
    """Return options with which numbers are numbers and all else is text.

    No other type is guessed, so that dates and the like stay as they are written.
    """
    nulls = ", ".join(map(quoted, ["", *spec.empty]))
    return (
        f"{csv_options(path, spec)}, nullstr = [{nulls}], sample_size = -1, "
        "auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR']"
    )


def csv_header(path: Path, spec: Source, title: str) -> list[str]:
    """Read the column names of a CSV file; DuckDB would rename repeated ones."""
    encoding = "utf-8-sig" if spec.encoding == "utf-8" else spec.encoding
    try:
        # DuckDB finds mistakes below the header, and knows the line.
        with open_text(path, encoding) as file:
            rows = csv.reader(file, delimiter=separator(path, spec), strict=True)
            columns = next(rows, [])
    except (ValueError, csv.Error, EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title} line 1: no header ({error})") from None
    if not any(columns):
        raise HanmeError(f"{title} line 1: no header")
    if any(odd in column for odd in "\ufffd\0" for column in columns):
        raise HanmeError(f"{title} line 1: the text is not in the encoding {spec.encoding}")
    return columns


def open_text(path: Path, encoding: str, errors: str = "replace") -> TextIO:
    """Open a text file, compressed or not."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return cast(TextIO, opener(path, "rt", encoding=encoding, errors=errors, newline=""))


def check_file(path: Path, title: str, spec: Source) -> None:
    """Refuse a path that is not a file in a known format with something in it."""
    if path.is_dir():
        raise HanmeError(f"{title}: it is a folder; name a file, or {path.name}/*.csv")
    if not path.is_file():
        raise HanmeError(f"{title}: it is not a file")
    table_format(path, spec, title)
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise HanmeError(f"{title}: it cannot be read ({error.strerror})") from None
    if empty:
        raise HanmeError(f"{title}: the file is empty")


def check_end(path: Path, form: str, title: str) -> None:
    """Refuse what DuckDB reads incompletely: a damaged .gz file, a last line beyond its limit."""
    end = b""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as packed:
                while block := packed.read(LONGEST_LINE):
                    end = (end + block)[-LONGEST_LINE:]
        elif form == "csv":
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE))
                end = file.read()
    except (EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title}: it cannot be read ({error})") from None
    last = end.rstrip(b"\r\n\0")
    if form == "csv" and len(end) == LONGEST_LINE and b"\n" not in last and b"\r" not in last:
        raise HanmeError(f"{title}: its last line is longer than {LONGEST_LINE:,} bytes")


def file_title(path: Path, folder: Path) -> str:
    """Return what messages call a file: its path within the folder, or its absolute path."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
