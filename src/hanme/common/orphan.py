"""Make this process, and those that it forks, end with the one that started it.

Importing this module does it. The fork server does (see :mod:`hanme.runs.pool`), and the processes
of torchrun (see :mod:`hanme.__main__`), both before anything that takes time. A process left behind
would go on writing to a run folder while the command, started again, writes to it too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from contextlib import suppress

PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def _end_with(parent: int) -> None:
    """Exit as soon as this process has another parent than the one that started it."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def _be_killed_with(server: int) -> None:
    """Ask Linux to kill this process, forked a moment ago, when the one that forked it ends."""
    with suppress(AttributeError, OSError, TypeError):  # elsewhere `pool.work` watches its parent
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


# The parent says its number: it may have ended before this process could ask for it.
_parent = int(os.environ.get("HANME_PARENT", os.getppid()))
threading.Thread(target=_end_with, args=[_parent], daemon=True).start()
os.register_at_fork(after_in_child=lambda server=os.getpid(): _be_killed_with(server))
