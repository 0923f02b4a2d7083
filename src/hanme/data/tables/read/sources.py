"""Find where a table is: in files, in a database file, in a frame in memory."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.read.formats import (
    FORMATS,
    Database,
    check_file,
    database_kind,
    file_title,
    suffix,
    table_format,
    typed_csv_options,
)
from hanme.data.tables.read.sql import check_query, quoted
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

ALLOW = "HANME_ALLOW"
"""The environment variable with the files and folders that any ``graph.toml`` may read."""

# A quoted text where a file may stand: after FROM or JOIN, or among a function's arguments.
_QUOTED = re.compile(r"""--[^\n]*|/\*.*?\*/|"(?:[^"]|"")*"|'(?:[^']|'')*'""", re.DOTALL)
_BEFORE_FILE = re.compile(r"(\b(from|join)|[(\[,])\s*$", re.IGNORECASE)
_BEFORE_TABLE = re.compile(r"\b(from|join)\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class ResolvedSource:
    """A table or query of ``graph.toml`` and the files that it reads."""

    title: str  # what messages call it
    files: tuple[Path, ...]  # the files it reads; for a database, that file
    query: str | None  # the query, with the absolute paths of its files; None for a table
    spec: Source  # the keys of ``graph.toml``
    database: Database | None = None  # the kind of database file it is in
    frame: Any = None  # the rows, if they are in memory

    @classmethod
    def find(
        cls, spec: Source, folder: Path, where: str, frames: Mapping[str, Any] | None = None
    ) -> ResolvedSource:
        """Find a table or query, relative to the folder of ``graph.toml``.

        Messages are about `where`. Tables in memory, `frames` by name, take precedence over files.
        """
        spec = Source(**{key: getattr(spec, key) for key in Source.model_fields})
        if spec.database is not None:
            return cls._in_database(spec, folder, where)
        if spec.table is None:
            title = f"{where} query"
            query, files = _with_absolute_paths(spec, folder, where)
            check_query(query, title)
            return cls(title, tuple(files), query, spec)
        if frames is not None and spec.table in frames:
            return cls(spec.table, (), None, spec, frame=frames[spec.table])
        found = _files(spec.table, folder, spec, where)
        if not found and frames is not None:
            known = ", ".join(frames)
            raise HanmeError(f"{where}: no table {spec.table!r}; expected one of {known}")
        if not found:
            raise HanmeError(f"{where}: no file {spec.table} in {folder}")
        return cls(spec.table, found, None, spec)

    @classmethod
    def _in_database(cls, spec: Source, folder: Path, where: str) -> ResolvedSource:
        path = whole(folder / (spec.database or ""))
        refuse_outside(path, folder, where)
        if not path.is_file():
            raise HanmeError(f"{where}: no file {spec.database} in {folder}")
        kind = database_kind(path)
        if kind is None:
            raise HanmeError(f"{spec.database}: neither a DuckDB nor an SQLite file")
        title = f"{spec.database} table {spec.table}" if spec.table else f"{where} query"
        if spec.query and kind == "duckdb":
            check_query(spec.query, title)
        return cls(title, (path,), spec.query, spec, kind)


def data_files(sources: Iterable[ResolvedSource]) -> Iterator[Path]:
    """Yield the files of sources; of a database also its log, with what is not yet in it."""
    for source in sources:
        for path in source.files:
            yield path
            for end in (".wal", "-wal") if source.database else ():
                if (log := path.with_name(f"{path.name}{end}")).exists():
                    yield log


def refuse_outside(path: Path, folder: Path, where: str) -> None:
    """Refuse a file outside of the folder of ``graph.toml``, unless ``HANME_ALLOW`` names it."""
    allowed = [text for text in os.environ.get(ALLOW, "").split(os.pathsep) if text]
    real = whole(path)
    if not any(real.is_relative_to(whole(place)) for place in [str(folder), *allowed]):
        raise HanmeError(
            f"{where}: {path} is outside of {folder}; a graph.toml reads other folders only with "
            f"--allow {path.parent}, or {ALLOW} in the environment"
        )


def _files(table: str, folder: Path, spec: Source, where: str) -> tuple[Path, ...]:
    """Return the files that a name or pattern means, after checking each."""
    if "\0" in table:
        return ()
    path = folder / table
    try:
        if path.exists():
            found = [table]
        else:
            pattern = str(path) if path.is_absolute() else table
            found = glob.glob(pattern, root_dir=folder, recursive=True)
    except (OSError, ValueError, re.error):
        return ()
    files = tuple(sorted(_real(folder / file) for file in found))
    for file in files:
        refuse_outside(file, folder, where)
        check_file(file, file_title(file, folder), spec)
    return files


def _real(path: Path) -> Path:
    """Follow a symbolic link, unless only the link's own name tells the format."""
    real = whole(path)
    return real if suffix(real.name) in FORMATS else whole(path.parent) / path.name


def _with_absolute_paths(spec: Source, folder: Path, where: str) -> tuple[str, list[Path]]:
    """Return a query with the absolute paths of the files it names, and these files."""
    query = spec.query or ""
    found: list[Path] = []

    def replace(match: re.Match[str]) -> str:
        literal, mark = match[0], match[0][0]
        if mark not in "'\"" or not _BEFORE_FILE.search(query, 0, match.start()):
            return literal
        text = literal[1:-1].replace(mark * 2, mark)
        is_table = _BEFORE_TABLE.search(query, 0, match.start())
        known = suffix(text) in FORMATS
        files: tuple[Path, ...] = ()
        if known or (spec.format is not None and "." in text):
            files = _files(text, folder, spec, where)
        if not files and is_table and mark == "'" and known:
            raise HanmeError(f"{where} query: no file {text} in {folder}")
        if not files:
            return literal
        found.extend(files)
        paths = [quoted(glob.escape(str(path))) for path in files]
        if is_table:
            form = table_format(files[0], spec)
            options = f", {typed_csv_options(files[0], spec)}" if form == "csv" else ""
            return f"read_{form}([{', '.join(paths)}]{options})"
        return paths[0] if len(paths) == 1 else f"[{', '.join(paths)}]"

    return _QUOTED.sub(replace, query), found
