"""Find the files of a table: by name, by a pattern, or in quotes in a query."""

from __future__ import annotations

import glob
import gzip
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, cast

import duckdb

from hanme.datasets.tables.config import Source
from hanme.errors import HanmeError

FORMATS = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip

# A quoted text where a file may stand: after FROM or JOIN, or among a function's arguments.
_SQL = re.compile(r"""--[^\n]*|/\*.*?\*/|"(?:[^"]|"")*"|'(?:[^']|'')*'""", re.DOTALL)
_BEFORE_FILE = re.compile(r"(\b(from|join)|[(\[,])\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class ResolvedSource:
    """A table or query of ``graph.toml``, with its files found on disk.

    Args:
        title: What messages call it.
        files: The files it reads.
        query: The query, with the whole paths of its files; None for a table.
        spec: What ``graph.toml`` says.
    """

    title: str
    files: tuple[Path, ...]
    query: str | None
    spec: Source

    @classmethod
    def find(cls, spec: Source, folder: Path, where: str) -> ResolvedSource:
        """Find the files of a table or query, relative to the folder of ``graph.toml``."""
        if spec.table is not None:
            files = _files(spec.table, folder)
            if not files:
                raise HanmeError(f"{where}: no file {spec.table} in {folder}")
            for path in files:
                _check_file(path, folder)
            return cls(spec.table, files, None, spec)
        query, found = _with_whole_paths(spec, folder, where)
        _check_query(query, where)
        return cls(f"{where} query", tuple(found), query, spec)


def fingerprint(sources: Iterable[ResolvedSource], *texts: str) -> str:
    """Hash texts, and the names, sizes and times of files: a change in any changes the hash."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass"))
    for source in sources:
        digest.update(f"\0{source.spec!r}".encode("utf-8", "surrogatepass"))
        for path in source.files:
            stat = path.stat()
            digest.update(f"\0{path} {stat.st_size} {stat.st_mtime_ns}".encode(errors="replace"))
    return digest.hexdigest()


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
    real = path.resolve()
    return real if suffix(real.name) in FORMATS else path.parent.resolve() / path.name


def _check_file(path: Path, folder: Path) -> None:
    title = file_title(path, folder)
    if path.is_dir():
        raise HanmeError(f"{title}: it is a folder; name a file, or {path.name}/*.csv")
    if not path.is_file():
        raise HanmeError(f"{title}: it is not a file")
    table_format(path, title)
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise HanmeError(f"{title}: it cannot be read ({error.strerror})") from None
    if empty:
        raise HanmeError(f"{title}: the file is empty")


def suffix(name: str) -> str:
    """Return the ending that says what kind of table a file is, in front of any .gz."""
    return Path(name.lower().removesuffix(".gz")).suffix


def table_format(path: Path, title: str | None = None) -> str:
    """Return how a file is read: as csv, parquet or json."""
    kind = FORMATS.get(suffix(path.name))
    if kind is None:
        known = ", ".join(FORMATS)
        raise HanmeError(f"{title or path}: what kind of table is it? Known are {known}")
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
        files = _files(text, folder) if suffix(text) in FORMATS else ()
        table = re.search(r"\b(from|join)\s*$", query[: match.start()], re.IGNORECASE)
        if not files and table and mark == "'" and suffix(text) in FORMATS:
            raise HanmeError(f"{where} query: no file {text} in {folder}")
        if not files:
            return whole
        for path in files:
            _check_file(path, folder)
        found.extend(files)
        paths = [quoted(glob.escape(str(path))) for path in files]
        if table:
            form = table_format(files[0])
            options = _csv_options(spec, files[0]) if form == "csv" else ""
            return f"read_{form}([{', '.join(paths)}]{options})"
        return paths[0] if len(paths) == 1 else f"[{', '.join(paths)}]"

    return _SQL.sub(replace, query), found


def _csv_options(spec: Source, path: Path) -> str:
    """Return options to read a CSV file in a query: numbers are numbers, all else is text.

    No other type is guessed, so that dates and the like stay as they are written.
    """
    return (
        f", header = true, delim = {quoted(separator(path, spec))}, quote = '\"', "
        f"escape = '\"', encoding = '{spec.encoding}', strict_mode = true, sample_size = -1, "
        "auto_type_candidates = ['BIGINT', 'DOUBLE', 'VARCHAR'], hive_partitioning = false"
    )


def separator(path: Path, spec: Source) -> str:
    """Return the character between the cells of a CSV file."""
    return spec.separator or ("\t" if suffix(path.name) == ".tsv" else ",")


def open_text(path: Path, encoding: str, errors: str = "replace") -> TextIO:
    """Open the text of a CSV file, compressed or not."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    return cast(TextIO, opener(path, "rt", encoding=encoding, errors=errors, newline=""))


def _check_query(query: str, where: str) -> None:
    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise HanmeError(translate(str(error), f"{where} query", "query")) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise HanmeError(f"{where} query: it must be one SELECT statement")


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
    if "unterminated quote" in flat:
        return f"{place}: a quote is opened and never closed"
    if "Cannot access file" in flat or "external access" in flat:
        return f"{place}: a query reads only the files that it names in quotes ({flat[:120]})"
    if file := re.search(r'Error when sniffing file "([^"]*)"', flat):
        return (
            f"{place}: {Path(file[1]).name} is no CSV with the separator and encoding that "
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
