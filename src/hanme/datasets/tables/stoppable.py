"""Let Ctrl-C stop a database, which does not look for it while it computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

T = TypeVar("T")


def stoppable(connection: Any, work: Callable[[], T]) -> T:
    """Return what work on a connection of DuckDB or SQLite returns; an exception here stops it."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            return done.result()
        finally:
            while not done.done():
                connection.interrupt()
                wait([done], 0.1)
