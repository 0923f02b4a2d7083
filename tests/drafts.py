"""Write tables, and a graph.toml as ``hanme init`` does."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from hanme.data.tables.draft.draft import output_path, write
from hanme.data.tables.draft.infer import infer


def write_draft(path: Path, target: str | None = None, label: str | None = None) -> Path:
    """Infer the schema of a folder or file, write it and return its path."""
    file = output_path(path)
    write(infer(path, target, label), file)
    return file


def csv_text(header: str, size: int, row: Callable[[int], str]) -> str:
    """Return the text of a CSV file with a row for each number below `size`."""
    return "\n".join([header, *map(row, range(size))]) + "\n"


def sqlite_file(path: Path, script: str) -> sqlite3.Connection:
    """Make an SQLite file with the tables of a script."""
    opened = sqlite3.connect(path)
    opened.executescript(script)
    return opened
