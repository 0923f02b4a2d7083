"""Run a command of hanme in this process and judge how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from hanme.cli import main

SECONDS = 20
"""A command that takes longer on the small inputs here hangs."""


class Hang(BaseException):
    """Raised where a command takes too long; nothing in hanme catches it."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Args:
        kind: ``"accepted"``, ``"refused"`` in one line with status 2, or ``"defect"``.
        said: The line, or what is wrong.
        out: What it printed.
    """

    kind: Literal["accepted", "refused", "defect"]
    said: str
    out: str = ""


@dataclass
class Case:
    """An input to try.

    Args:
        name: What it is.
        commands: The commands to run one after the other; the first that is refused is the last.
        check: Says what is silently wrong with what accepted commands printed, or nothing.
        by: Runs a command (default: the command line) and judges its end.
    """

    name: str
    commands: list[list[str]]
    check: Callable[[list[str]], str] = field(default=lambda outs: "")
    by: Callable[[list[str]], Outcome] = field(default=lambda command: run(command))

    def run(self) -> Outcome:
        """Run the commands."""
        outs = []
        for command in self.commands:
            found = self.by(command)
            if found.kind != "accepted":
                return found
            outs.append(found.out)
        wrong = self.check(outs)
        return Outcome("defect", f"silently wrong: {wrong}") if wrong else found


def run(command: list[str], **environment: str) -> Outcome:
    """Run a command and judge its end."""
    out, err = io.StringIO(), io.StringIO()

    def call() -> Outcome:
        try:
            main()
        except SystemExit as left:
            return _ended(left.code, out.getvalue(), err.getvalue())
        return Outcome("defect", "it did not exit")

    arguments, folder = ["hanme", *command], Path.cwd()
    with (
        patch.object(sys, "argv", arguments),
        patch.dict(os.environ, environment),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return judged(call)
        finally:
            os.chdir(folder)


def _ended(status: object, out: str, err: str) -> Outcome:
    lines = [line for line in err.splitlines() if line.startswith("hanme: ")]
    if status == 0:
        return Outcome("accepted", err, out)
    if status == 2 and len(lines) == 1 and err.endswith(f"{lines[0]}\n"):
        return Outcome("refused", lines[0])
    return Outcome("defect", f"status {status}: {err}")


def judged(call: Callable[[], Outcome]) -> Outcome:
    """Call what gives an outcome; that it raises or takes too long is a defect."""
    try:
        with _limit(SECONDS):
            return call()
    except Hang:
        return Outcome("defect", f"no end after {SECONDS} s")
    except BaseException:
        return Outcome("defect", traceback.format_exc())


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise after so many seconds of work, or after thirty times as many of waiting."""

    def stop(*_: object) -> None:
        raise Hang

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, 30 * seconds),
    )
    before = [signal.signal(number, stop) for number, _, _ in timers]
    for _, timer, size in timers:
        signal.setitimer(timer, size)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


@dataclass
class Tally:
    """Counts of outcomes, and the defects."""

    counts: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)

    def add(self, name: str, found: Outcome) -> None:
        """Count an outcome."""
        self.counts[found.kind] += 1
        if found.kind == "defect":
            self.defects.append(f"{name}\n{found.said}")

    def __str__(self) -> str:
        kinds = ("accepted", "refused", "defect")
        return ", ".join(f"{self.counts[kind]} {kind}" for kind in kinds)
