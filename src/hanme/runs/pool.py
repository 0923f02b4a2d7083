"""Train many runs, a few at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from hanme.errors import HanmeError
from hanme.runs.config import RunConfig
from hanme.runs.folder import Run
from hanme.runs.train import train

Job = tuple[RunConfig, Path]
"""What to train and where to write it."""


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    """Return the runs that are still to be trained, or to be trained to the end."""
    found = [(job, Run.find(job[1], job[0], resume=True)) for job in jobs]
    return [job for job, run in found if run is None or not run.finished]


def train_all(
    jobs: Sequence[Job], processes: int, on_done: Callable[[Path], None] = lambda folder: None
) -> dict[Path, str]:
    """Train every configuration into its folder; skip finished runs.

    Each run has its own process with one thread, so its result and its peak memory do not depend on
    other runs. The processes end with this one, however it ends.

    Returns:
        Error messages by folder. A run that fails does not stop the others.
    """
    waiting = unfinished(jobs)
    for folder in {folder for _, folder in jobs} - {folder for _, folder in waiting}:
        on_done(folder)
    failed, working = {}, dict[Connection, tuple[BaseProcess, Path]]()
    try:
        while waiting or working:
            while waiting and len(working) < processes:
                config, folder = waiting.pop(0)
                said, process = _start(config, folder)
                working[said] = process, folder
            heard = wait(list(working))
            for said in [said for said in working if said in heard]:
                process, folder = working.pop(said)
                if message := _hear(said):
                    failed[folder] = message
                process.join()
                on_done(folder)
    finally:
        for process, _ in working.values():
            process.kill()
    return failed


def _start(config: RunConfig, folder: Path) -> tuple[Connection, BaseProcess]:
    """Start a process that trains a run; return where it will say how that ended."""
    # The fork server imports libraries once; a process forked from it is fresh and starts at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hanme.common.orphan", __name__])
    said, say = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(config, folder, say))
    os.environ["HANME_PARENT"] = str(os.getpid())  # for `orphan`, in the fork server
    process.start()
    say.close()
    return said, process


def _hear(said: Connection) -> str:
    """Return why a run failed; nothing if it did not."""
    with said:
        try:
            return str(said.recv())
        except EOFError:
            return "its process was killed, perhaps because memory ran out"


def work(config: RunConfig, folder: Path, say: Connection) -> None:
    """Train a run in this process and say why it failed, or nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C, `train_all` kills it
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        train(config, folder, resume=True)
        say.send("")
    except HanmeError as error:
        say.send(str(error))
    except Exception as error:  # whatever it is, the other runs continue
        say.send(f"{type(error).__name__}: {error}")


def _exit_with_parent() -> None:
    """End this process when its parent ends, even if the parent is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
