"""Let Ctrl-C interrupt a query."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


def interruptible(connection: Any, work: Callable[[], T]) -> T:
    """Run work on a connection of DuckDB or SQLite; an exception in this thread interrupts it.

    A database does not look for signals while it computes, so it runs in another thread.
    """
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
