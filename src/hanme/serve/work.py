"""Work that takes longer than a request should: explanations, and training.

Explanations run in threads: bounded in number and time, stopped if the client is gone. Training
runs in a process of its own, one at a time.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request

from hanme.common.text import unused_name
from hanme.errors import HanmeError
from hanme.runs import RunConfig

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


class Training:
    """Trains a run again with reviewed labels, with the same settings, in another process.

    The process ends with the server; the run can then be resumed by ``hanme train --resume``.

    Args:
        on_finish: Called in a thread with the folder of a run that was trained.
    """

    def __init__(self, on_finish: Callable[[Path], None]) -> None:
        self.on_finish, self.folder, self.error = on_finish, None, ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    folder: Path | None  # the run that is being trained, or was last

    @property
    def running(self) -> bool:
        """Whether a run is being trained."""
        return self._process is not None

    def start(self, folder: Path, config: RunConfig, reviewed: Path) -> Path:
        """Train the run in a folder again; return the folder of the new run."""
        with self._lock:
            if self._process is not None:
                raise QueueFull(f"{self.folder} is being trained; wait until it is finished")
            taken = {path.name for path in folder.parent.iterdir()}
            self.folder = folder.parent / unused_name(folder.name, taken, "-")
            settings = config.model_dump(mode="json", exclude={"data": {"reviewed", "name"}})
            changes = [
                f"--set={table}.{field}={json.dumps(value)}"
                for table, fields in settings.items()
                for field, value in fields.items()
                if value is not None
            ]
            name = [config.data.name, "--with", str(reviewed), "--out", str(self.folder)]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hanme", "train", *name, *changes],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
            threading.Thread(target=self._wait, args=(self._process,), daemon=True).start()
            return self.folder

    def _wait(self, process: subprocess.Popen[str]) -> None:
        lines = process.communicate()[1].strip().splitlines()
        self.error = "" if process.returncode == 0 else (lines or ["it was stopped"])[-1]
        try:
            if not self.error and self.folder is not None:
                self.on_finish(self.folder)
        except HanmeError as error:
            self.error = str(error)
        finally:
            self._process = None

    def stop(self) -> None:
        """End the process."""
        if (process := self._process) is not None:
            process.terminate()
