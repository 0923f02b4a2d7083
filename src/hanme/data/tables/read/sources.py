"""Find where a table is: in files, in a database file, in a frame in memory."""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanme.common.files import whole
from hanme.data.tables.read.formats import (
    FORMATS,
    Database,
    database_kind,
    file_title,
    suffix,
    table_format,
)
from hanme.data.tables.read.sql import check_query
from hanme.data.tables.schema.sections import Source
from hanme.errors import HanmeError

ALLOW = "HANME_ALLOW"
"""The environment variable with the files and folders that any ``graph.toml`` may read."""

_QUOTED = re.compile(r"""'((?:[^']|'')*)'|"((?:[^"]|"")*)\"""")


@dataclass(frozen=True)
class ResolvedSource:
    """A table or query of ``graph.toml`` and the files that it reads."""

    title: str  # what messages call it
    files: tuple[Path, ...]  # the files it reads; for a database, that file
    query: str | None  # the query; None for a table
    spec: Source  # the keys of ``graph.toml``
    database: Database | None = None  # the kind of database file it is in
    frame: Any = None  # the rows, if they are in memory
    # the files that a query calls by a name or pattern
    named: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @classmethod
    def find(
        cls, spec: Source, folder: Path, where: str, frames: Mapping[str, Any] | None = None
    ) -> ResolvedSource:
        """Find a table or query, relative to the folder of ``graph.toml``.

        Messages are about `where`. Tables in memory, `frames` by name, take precedence over files.
        """
        spec = Source(**{key: getattr(spec, key) for key in Source.model_fields})
        title = spec.table or f"{where} query"
        if spec.database is not None:
            path = whole(folder / spec.database)
            refuse_outside(path, folder, where)
            if not path.is_file():
                raise HanmeError(f"{where}: no file {spec.database} in {folder}")
            kind = database_kind(path)
            if kind is None:
                raise HanmeError(f"{spec.database}: neither a DuckDB nor an SQLite file")
            title = f"{spec.database} table {spec.table}" if spec.table else title
            if spec.query and kind == "duckdb":
                check_query(spec.query, title)
            return cls(title, (path,), spec.query, spec, kind)
        if spec.query is not None:
            check_query(spec.query, title)
            texts = {(a or b).replace("''", "'") for a, b in _QUOTED.findall(spec.query)}
            tables = sorted(t for t in texts if suffix(t) in FORMATS or (spec.format and "." in t))
            named = {text: _files(text, folder, spec, where) for text in tables}
            files = tuple(file for some in named.values() for file in some)
            return cls(title, files, spec.query, spec, named={t: f for t, f in named.items() if f})
        if frames is not None and title in frames:
            return cls(title, (), None, spec, frame=frames[title])
        if files := _files(title, folder, spec, where):
            return cls(title, files, None, spec)
        if frames is not None:
            raise HanmeError(f"{where}: no table {title!r}; expected one of {', '.join(frames)}")
        raise HanmeError(f"{where}: no file {title} in {folder}")


def data_files(sources: Iterable[ResolvedSource]) -> Iterator[Path]:
    """Yield the files of sources; of a database also its log, with what is not yet in it."""
    for source in sources:
        yield from source.files
        ends = (".wal", "-wal") if source.database else ()
        logs = (path.with_name(f"{path.name}{end}") for path in source.files for end in ends)
        yield from filter(Path.exists, logs)


def refuse_outside(path: Path, folder: Path, where: str) -> None:
    """Refuse a file outside of the folder of ``graph.toml``, unless ``HANME_ALLOW`` names it."""
    real = whole(path)
    if not any(real.is_relative_to(whole(place)) for place in [folder, *_allowed()]):
        raise HanmeError(
            f"{where}: {path} is outside of {folder}; a graph.toml reads other folders only with "
            f"--allow {path.parent}, or {ALLOW} in the environment"
        )


def _allowed() -> list[Path]:
    return [Path(text) for text in os.environ.get(ALLOW, "").split(os.pathsep) if text]


def _files(table: str, folder: Path, spec: Source, where: str) -> tuple[Path, ...]:
    """Return the files that a name or pattern means, after checking each.

    A pattern is refused before it is searched if its matches are outside of the folder.
    """
    path, parts = folder / table, Path(table).parts
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    try:
        found: Iterable[str] = [table]
        if not path.exists():
            if fixed != list(parts):
                up = [part for part in parts[len(fixed) :] if part == ".."]
                root = whole(folder.joinpath(*fixed, *up))
                if not any(whole(place).is_relative_to(root) for place in _allowed()):
                    refuse_outside(root / "*", folder, where)
            found = glob.iglob(table, root_dir=folder, recursive=True)
        files = []
        for file in (Path(os.path.abspath(folder / file)) for file in found):
            refuse_outside(file, folder, where)
            files.append(file)
    except HanmeError:
        raise
    except (OSError, ValueError, re.error):
        return ()
    for file in sorted(files):
        if not file.is_file():
            what = f"a folder; name a file, or {file.name}/*.csv" if file.is_dir() else "not a file"
            raise HanmeError(f"{file_title(file, folder)}: it is {what}")
        table_format(file, spec, file_title(file, folder))
    return tuple(sorted(files))
