"""Report the stage that a long computation has reached to those who listen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Stage:
    """A part of a computation, such as ``"trees"``.

    Args:
        name: What is computed.
        done: The share that is done, from 0 to 1; None where that is unknown.
        text: Intermediate results, such as scores.
    """

    name: str
    done: float | None = None
    text: str = ""
    _began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._first = self.done or 0.0  # a resumed run does not begin at 0

    @property
    def seconds_left(self) -> float | None:
        """The time that the rest takes at the same speed; None where that is unknown.

        The first tenth is no measure: it includes the loading of compiled code.
        """
        if self.done is None or self.done - self._first < 0.1:
            return None
        return (time.monotonic() - self._began) * (1 - self.done) / (self.done - self._first)


Listener = Callable[[Stage], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())
_stage: ContextVar[Stage] = ContextVar("stage")


def begin_stage(name: str, done: float | None = None) -> None:
    """Begin the next stage."""
    _stage.set(Stage(name, done))
    _tell()


def update_stage(done: float, text: str | None = None) -> None:
    """Report how much of the stage is done."""
    stage = _stage.get(None)
    if stage is not None:
        stage.done, stage.text = done, stage.text if text is None else text
        _tell()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with the stage whenever one begins or proceeds."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


def _tell() -> None:
    for listener in _listeners.get():
        listener(_stage.get())
