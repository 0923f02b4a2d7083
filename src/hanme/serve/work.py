"""Run explanations in threads: bounded in number and time, stopped if the client is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from hanme.errors import HanmeError

T = TypeVar("T")
Job = Callable[[Callable[[], None]], T]


class QueueFull(HanmeError):
    """Raised if the queue of explanations is full."""


class TooLong(HanmeError):
    """Raised if an explanation takes too long."""


class Stopped(Exception):
    """Raised inside a job whose client is gone."""


class Pool:
    """Threads that run jobs, with a bounded queue and a time limit per job."""

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self._threads, self._waiting, self._seconds = threads, waiting, seconds
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="explain")
        self._closed = threading.Event()
        self._taken = self._done = self._stopped = 0

    async def run(self, request: Request, job: Job[T]) -> T:
        """Run a job for a client; if the client goes away, stop it.

        A job is given a function to call now and then, which raises to end it.
        """
        if self._taken >= self._threads + self._waiting:
            raise QueueFull("too many explanations are waiting; try again in a second")
        stop = threading.Event()
        self._taken += 1
        future = self._pool.submit(self._job, job, stop)
        gone = asyncio.ensure_future(_gone(request))
        work = asyncio.wrap_future(future)
        both: set[asyncio.Future[Any]] = {work, gone}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._stopped += 1
                raise Stopped
            self._done += 1
            return work.result()
        finally:
            stop.set()
            gone.cancel()
            work.cancel()
            _when_over(future, self._release)

    def _release(self) -> None:
        self._taken -= 1

    def _job(self, job: Job[T], stop: threading.Event) -> T:
        until = time.monotonic() + self._seconds

        def pause() -> None:
            if stop.is_set() or self._closed.is_set():
                raise Stopped
            if time.monotonic() > until:
                raise TooLong(f"this takes longer than {self._seconds:g} seconds")

        pause()
        return job(pause)

    def state(self) -> dict[str, int]:
        """Return the number of jobs that run, wait, are done or were stopped."""
        running = min(self._taken, self._threads)
        waiting = self._taken - running
        return {
            "running": running,
            "waiting": waiting,
            "done": self._done,
            "stopped": self._stopped,
        }

    def close(self) -> None:
        """Stop all jobs."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _when_over(future: Future[T], call: Callable[[], None]) -> None:
    """Call back in the event loop once a job is over, however it ends."""
    loop = asyncio.get_running_loop()

    def over(_: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(call)

    future.add_done_callback(over)


async def _gone(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
