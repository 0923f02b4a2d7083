"""The command line as a module: ``python -m hanme``, ``torchrun -m hanme``, and as ``hanme``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from hanme.errors import INTERRUPTED

if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun may be killed; its processes end with it
    os.environ.pop("HANME_PARENT", None)  # what started torchrun is not the parent
    import hanme.common.orphan  # noqa: F401


def _stop(_: int, frame: FrameType | None) -> None:
    """Take Ctrl-C; in the middle of an import, which libraries may not survive, end at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            print(f"hanme: {INTERRUPTED}", file=sys.stderr, flush=True)
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def run() -> None:
    """Run a command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from hanme.cli import main

    main()


if __name__ == "__main__":
    run()
