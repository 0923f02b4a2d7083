"""Find where a table is: in files, in a database file, in a frame in memory."""

from __future__ import annotations

import glob
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import duckdb

from hanme.common.files import whole
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

ALLOW = "HANME_ALLOW"
"""The environment variable with the files and folders that any ``graph.toml`` may read."""

FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip

LONGEST = 2_000_000
"""How many bytes a line of CSV may have, DuckDB's limit."""

Database = Literal["duckdb", "sqlite"]

# A quoted text where a file may stand: after FROM or JOIN, or among a function's arguments.
_SQL = re.compile(r"""--[^\n]*|/\*.*?\*/|"(?:[^"]|"")*"|'(?:[^']|'')*'""", re.DOTALL)
_BEFORE_FILE = re.compile(r"(\b(from|join)|[(\[,])\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class ResolvedSource:
    """A table or query of ``graph.toml``, with its files found on disk."""

    title: str  # what messages call it
    files: tuple[Path, ...]  # the files it reads; for a database, that file
    query: str | None  # the query, with the whole paths of its files; None for a table
    spec: Source  # what ``graph.toml`` says of where the rows are
    database: Database | None = None  # what kind of database file it is in, if it is in one
    frame: Any = None  # the rows, if they are in memory

    @classmethod
    def find(
        cls, spec: Source, folder: Path, where: str, frames: Mapping[str, Any] | None = None
    ) -> ResolvedSource:
        """Find a table or query, relative to the folder of ``graph.toml``.

        Messages are about ``where``. Tables in memory, ``frames`` by name, go before files.
        """
        spec = Source(**{key: getattr(spec, key) for key in Source.model_fields})
        title = f"{where} query" if spec.table is None else spec.table
        if spec.database is not None:
            path = whole(folder / spec.database)
            refuse_outside(path, folder, where)
            if not path.is_file():
                raise HanmeError(f"{where}: no file {spec.database} in {folder}")
            if (kind := database_kind(path)) is None:
                raise HanmeError(f"{spec.database}: neither a DuckDB nor an SQLite file")
            if spec.query and kind == "duckdb":
                check_query(spec.query, title)
            title = title if spec.table is None else f"{spec.database} table {spec.table}"
            return cls(title, (path,), spec.query, spec, kind)
        if spec.table is not None and spec.table in (frames or {}):
            return cls(title, (), None, spec, frame=(frames or {})[spec.table])
        if spec.table is not None:
            files = _files(spec.table, folder)
            if not files and frames is not None:
                raise HanmeError(f"{where}: no table {spec.table!r}; there are {', '.join(frames)}")
            if not files:
                raise HanmeError(f"{where}: no file {spec.table} in {folder}")
            for path in files:
                refuse_outside(path, folder, where)
                _check_file(path, folder, spec)
            return cls(title, files, None, spec)
        query, found = _with_whole_paths(spec, folder, where)
        check_query(query, title)
        return cls(title, tuple(found), query, spec)


def data_files(sources: Iterable[ResolvedSource]) -> Iterator[Path]:
    """Yield the files of sources; of a database also its log, with what is not yet in it."""
    for source in sources:
        for path in source.files:
            yield path
            for end in (".wal", "-wal") if source.database else ():
                if (log := path.with_name(f"{path.name}{end}")).exists():
                    yield log


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


def _files(table: str, folder: Path) -> tuple[Path, ...]:
    if "\0" in table:
        return ()
    path = folder / table
    try:
        if path.exists():
            return (_real(path),)
        found = glob.glob(
            str(folder / table) if path.is_absolute() else table, root_dir=folder, recursive=True
        )
    except (OSError, ValueError, re.error):
        return ()
    return tuple(sorted(_real(folder / file) for file in found))


def _real(path: Path) -> Path:
    """Follow a symbolic link, unless only the link's own name says what kind of table it is."""
    real = whole(path)
    return real if suffix(real.name) in FORMATS else whole(path.parent) / path.name


def refuse_outside(path: Path, folder: Path, where: str) -> None:
    """Refuse a file outside of the folder of ``graph.toml``, unless ``HANME_ALLOW`` names it."""
    allowed = [text for text in os.environ.get(ALLOW, "").split(os.pathsep) if text]
    real = whole(path)
    if not any(real.is_relative_to(whole(place)) for place in [str(folder), *allowed]):
        raise HanmeError(
            f"{where}: {path} is outside of {folder}, and a graph.toml reads nothing else unless "
            f"you say so: --allow {path.parent}, or {ALLOW} in the environment"
        )


def _check_file(path: Path, folder: Path, spec: Source) -> None:
    title = file_title(path, folder)
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
    """Refuse what DuckDB would read in part or wrong: a giant last line, a packed file's damage."""
    end = b""
    try:
        if path.suffix.lower() == ".gz":
            with gzip.open(path) as packed:
                while block := packed.read(LONGEST):
                    end = (end + block)[-LONGEST:]
        elif form == "csv":
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST))
                end = file.read()
    except (EOFError, OSError, zlib.error) as error:
        raise HanmeError(f"{title}: it cannot be read ({error})") from None
    last = end.rstrip(b"\r\n\0")
    if form == "csv" and len(end) == LONGEST and b"\n" not in last and b"\r" not in last:
        raise HanmeError(f"{title}: its last line is longer than {LONGEST:,} bytes")


def suffix(name: str) -> str:
    """Return the ending that says what kind of table a file is, in front of any .gz."""
    return Path(name.lower().removesuffix(".gz")).suffix


def table_format(path: Path, spec: Source, title: str | None = None) -> str:
    """Return how a file is read: as csv, parquet or json."""
    if spec.format is not None:
        return "csv" if spec.format == "tsv" else spec.format
    kind = FORMATS.get(suffix(path.name))
    if kind is None and database_kind(path):
        raise HanmeError(
            f"{title or path}: a database; write database = {path.name!r}, and table = for a table "
            "in it"
        )
    if kind is None:
        known = ", ".join(FORMATS)
        raise HanmeError(
            f"{title or path}: what kind of table is it? Known are {known}; for another ending, "
            'name it with format = "tsv", "csv", "parquet" or "json"'
        )
    return kind


def _with_whole_paths(spec: Source, folder: Path, where: str) -> tuple[str, list[Path]]:
    """Return a query with the whole paths of the files it names, and these files."""
    query = spec.query or ""
    found: list[Path] = []

    def replace(match: re.Match[str]) -> str:
        whole = match[0]
        mark = whole[0]
        if mark not in "'\"" or not _BEFORE_FILE.search(query, 0, match.start()):
            return whole
        text = whole[1:-1].replace(mark * 2, mark)
        known = suffix(text) in FORMATS or (spec.format is not None and "." in text)
        files = _files(text, folder) if known else ()
        table = re.search(r"\b(from|join)\s*$", query[: match.start()], re.IGNORECASE)
        if not files and table and mark == "'" and suffix(text) in FORMATS:
            raise HanmeError(f"{where} query: no file {text} in {folder}")
        if not files:
            return whole
        for path in files:
            refuse_outside(path, folder, where)
            _check_file(path, folder, spec)
        found.extend(files)
        paths = [quoted(glob.escape(str(path))) for path in files]
        if table:
            form = table_format(files[0], spec)
            options = csv_options(spec, files[0]) if form == "csv" else ""
            return f"read_{form}([{', '.join(paths)}]{options})"
        return paths[0] if len(paths) == 1 else f"[{', '.join(paths)}]"

    return _SQL.sub(replace, query), found


def csv_options(spec: Source, path: Path) -> str:
    """Return options to read a CSV file in a query: numbers are numbers, all else is text.

    No other type is guessed, so that dates and the like stay as they are written.
    """
    nulls = ", ".join(map(quoted, ["", *spec.empty]))
    return (
        f", header = true, nullstr = [{nulls}], delim = {quoted(separator(path, spec))}, "
        f"quote = '\"', escape = '\"', encoding = '{spec.encoding}', strict_mode = true, "
        "sample_size = -1, auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR'], "
        "hive_partitioning = false"
    )


def separator(path: Path, spec: Source) -> str:
    """Return the character between the cells of a CSV file."""
    tabs = spec.format == "tsv" or (spec.format is None and suffix(path.name) == ".tsv")
    return spec.separator or ("\t" if tabs else ",")


def open_text(path: Path, encoding: str, errors: str = "replace") -> TextIO:
    """Open the text of a CSV file, compressed or not."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return cast(TextIO, opener(path, "rt", encoding=encoding, errors=errors, newline=""))


def check_query(query: str, where: str, what: str = "one SELECT statement") -> None:
    """Refuse what is not one SELECT."""
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise HanmeError(translate(str(error), where, "query")) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise HanmeError(f"{where}: it must be {what}")


def translate(message: str, title: str, form: str) -> str:
    """Turn a message of DuckDB into one line that names the place."""
    flat = re.sub(r" LINE \d+: .*", "", " ".join(message.split()))
    line = re.search(r"CSV Error on Line: (\d+)", flat)
    place = f"{title} line {line[1]}" if line else title
    if "Invalid unicode" in flat or re.search(r"not [\w-]+ encoded", flat):
        return (
            f"{place}: the text is not in the encoding it is read in (default: utf-8); "
            "saved as UTF-8 it can be read"
        )
    if counts := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", flat):
        return f"{place}: {counts[2]} cells, but the header has {counts[1]}"
    if "does not support a full read" in flat:
        return f"{place}: a line is longer than {LONGEST:,} bytes"
    if "state machine" in flat:
        return f"{place}: not CSV: are lines ended in two ways, by CR LF and by LF? Choose one"
    if format_ := re.search(r"Failed to parse format specifier (.*?):", flat):
        return f"{place}: no dates are written as {format_[1]!r}; a format is such as %Y-%m-%d"
    if "unterminated quote" in flat:
        return f"{place}: a quote is opened and never closed"
    if "Cannot access file" in flat or "external access" in flat:
        return f"{place}: a query reads only the files that it names in quotes ({flat[:120]})"
    if file := re.search(r'Error when sniffing file "([^"]*)"', flat):
        return (
            f"{place}: {Path(file[1]).name} is not CSV with the separator and encoding that "
            "graph.toml gives, each row with as many cells as the header"
        )
    if size := re.search(r"Maximum line size of (\d+) bytes exceeded", flat):
        return f"{place}: longer than {int(size[1]):,} bytes"
    if line:
        flat = re.sub(r"^.*?Original Line: ", "", flat)
        return f"{place}: not CSV ({flat.split('Possible')[0].strip()[:160]})"
    return f"{place}: {'DuckDB' if form == 'query' else f'not {form}'} ({flat[:240]})"


def file_title(path: Path, folder: Path) -> str:
    """Return what messages call a file: its path within the folder, or its whole path."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def quoted(text: str) -> str:
    """Return a text as a string of SQL."""
    return "'" + text.replace("'", "''") + "'"
