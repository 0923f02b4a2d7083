"""Let Ctrl-C stop a database, which does not look for it while it computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def stoppable(connection: Any, work: Callable[[], T]) -> T:
    """Return what work on a connection of DuckDB or SQLite returns; an exception here stops it."""
    done: Future[T] = Future()
    thread = Thread(target=_do, args=[work, done], daemon=True)
    try:
        thread.start()
        return done.result()
    finally:
        while thread.is_alive() and not done.done():
            connection.interrupt()
            wait([done], 0.1)


def _do(work: Callable[[], T], done: Future[T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)
