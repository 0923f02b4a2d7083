"""Find and end the processes that a command has started, by a mark in their environment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MARK = "HANME_DISTURBED"
"""The variable of the environment; a process has it from those that started it."""


def alive(mark: str) -> list[int]:
    """Return the processes of a mark that have not ended."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile, or is another user's
            if f"{MARK}={mark}".encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def end(processes: Iterable[int]) -> None:
    """Kill processes."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
