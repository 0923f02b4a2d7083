"""Open database files read-only: DuckDB's by attaching them, SQLite's with Python's module."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from hanme.data.tables.read.sources import ResolvedSource
from hanme.data.tables.read.sql import EXACT, identifier
from hanme.errors import HanmeError, one_line

BLOCK = 100_000
"""Rows that are copied at a time: a few MB of Python objects."""

ALLOWED = {
    sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE,
}  # fmt: skip


def table_names(path: Path, kind: str) -> tuple[list[str], list[str]]:
    """Return the names of the tables in a database file, and those of its views."""
    if kind == "duckdb":
        with duckdb.connect(path, read_only=True) as connection:
            rows = connection.execute(
                "SELECT table_name, table_type = 'VIEW' FROM information_schema.tables "
                "WHERE table_schema = current_schema() ORDER BY table_name"
            ).fetchall()
    else:
        with closing(_open(path)) as opened:
            rows = opened.execute(
                "SELECT name, type = 'view' FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY name"
            ).fetchall()
    return [name for name, view in rows if not view], [name for name, view in rows if view]


class DeclaredKeys(NamedTuple):
    """The keys of a table that its database declares; keys of several columns are left out."""

    primary: str | None  # the column of ids
    foreign: dict[str, tuple[str, str]]  # column -> referred table and column


def declared_keys(source: ResolvedSource) -> DeclaredKeys:
    """Return the keys that an SQLite file declares for a table; none for other sources."""
    if source.database != "sqlite" or source.spec.table is None:
        return DeclaredKeys(None, {})
    with closing(_open(source.files[0])) as opened:
        keys = opened.execute(
            'SELECT min("from"), min("table"), min("to") FROM pragma_foreign_key_list(?) '
            "GROUP BY id HAVING count(*) = 1",
            [source.spec.table],
        ).fetchall()
        foreign = {
            column: (table, key)
            for column, table, to in keys
            if (key := to or _primary_key(opened, table)) is not None
        }
        return DeclaredKeys(_primary_key(opened, source.spec.table), foreign)


def _primary_key(opened: sqlite3.Connection, table: str) -> str | None:
    keys = opened.execute("SELECT name FROM pragma_table_info(?) WHERE pk", [table]).fetchall()
    return keys[0][0] if len(keys) == 1 else None


def copy_sqlite(connection: Any, source: ResolvedSource, name: str) -> None:
    """Copy a table of an SQLite file, or a query's result, into a temporary table, as text."""
    query = source.query or f"SELECT * FROM {identifier(source.spec.table or '')}"
    with closing(_open(source.files[0])) as opened:
        # The query can read tables and call functions: it can attach no file and change nothing.
        opened.set_authorizer(
            lambda action, _, function, *__: (
                sqlite3.SQLITE_OK
                if action in ALLOWED and function != "load_extension"
                else sqlite3.SQLITE_DENY
            )
        )
        opened.set_progress_handler(lambda: 0, 1_000_000)  # lets Ctrl-C interrupt the query
        try:
            rows = opened.execute(query)
            if rows.description is None:
                raise HanmeError(f"{source.title}: it must be one SELECT statement")
            typed = ", ".join(f"{identifier(column[0])} VARCHAR" for column in rows.description)
            connection.execute(f"CREATE TEMP TABLE {name} ({typed})")
            while block := rows.fetchmany(BLOCK):
                columns = enumerate(zip(*block, strict=True))
                texts = {f"c{i}": np.array([*map(_text, c)], dtype=object) for i, c in columns}
                connection.register("hanme_block", texts)
                connection.execute(f"INSERT INTO {name} SELECT * FROM hanme_block")
                connection.unregister("hanme_block")
        except (sqlite3.Error, sqlite3.Warning) as error:
            if str(error) == "interrupted":  # what SQLite makes of Ctrl-C in the handler
                raise KeyboardInterrupt from None
            raise HanmeError(f"{source.title}: SQLite ({error})") from None
        except duckdb.Error as error:
            raise HanmeError(f"{source.title}: it cannot be read ({one_line(error)})") from None


def _text(cell: Any) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= EXACT:
        return str(int(cell))
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def _open(path: Path) -> sqlite3.Connection:
    with path.open("rb") as file:
        page = int.from_bytes(file.read(18)[16:], "big")
        size = file.seek(0, os.SEEK_END)
    if size % (page if page > 1 else 65536):  # that is too large for its two bytes
        # SQLite would read the rest of the last page as zeros.
        raise HanmeError(f"{path}: the database is cut off: copy it again")
    opened = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    opened.text_factory = lambda text: text.decode("utf-8", "replace")
    return opened
