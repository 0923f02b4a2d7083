"""Run explanations in threads: bounded in number and time, stopped if the client is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from hanme.errors import HanmeError

T = TypeVar("T")


class QueueFull(HanmeError):
    """Raised if the queue of explanations is full."""


class Stopped(HanmeError):
    """Raised if an explanation takes too long, its client is gone or the server stops."""


class Pool:
    """Threads that run jobs, with a bounded queue and a time limit per job."""

    def __init__(self, threads: int, waiting: int, seconds: float) -> None:
        self.limiter, self.waiting, self.seconds = CapacityLimiter(threads), waiting, seconds

    def state(self) -> dict[str, int]:
        """Return the number of jobs that run and that wait."""
        now = self.limiter.statistics()
        return {"running": now.borrowed_tokens, "waiting": now.tasks_waiting}

    async def run(self, request: Request, job: Callable[[Callable[[], None]], T]) -> T:
        """Run a job; pass it a function to call now and then, which raises to end it."""
        if self.state()["waiting"] >= self.waiting:
            raise QueueFull("too many explanations are waiting; try again in a second")
        stop = threading.Event()

        def work() -> T:
            until = time.monotonic() + self.seconds

            def pause() -> None:
                if stop.is_set():
                    raise Stopped("the client is gone")
                if time.monotonic() > until:
                    raise Stopped(f"this takes longer than {self.seconds:g} seconds")

            pause()
            return job(pause)

        gone = asyncio.ensure_future(_disconnected(request, stop))
        try:
            return await to_thread.run_sync(work, limiter=self.limiter, abandon_on_cancel=True)
        except asyncio.CancelledError:
            raise Stopped("the server is stopping") from None
        finally:
            stop.set()
            gone.cancel()


async def _disconnected(request: Request, stop: threading.Event) -> None:
    """Set an event once the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    stop.set()
