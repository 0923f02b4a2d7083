"""Train many runs, a few at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from hanme import runs
from hanme.errors import HanmeError
from hanme.runs import Run, RunConfig

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
    other runs.

    Returns:
        Error messages by folder. A run that fails does not stop the others.
    """
    waiting = unfinished(jobs)
    for folder in {folder for _, folder in jobs} - {folder for _, folder in waiting}:
        on_done(folder)
    failed = {}
    with ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(_in_own_process, *job): job[1] for job in waiting}
        try:
            for future in as_completed(futures):
                folder = futures[future]
                try:
                    future.result()
                except HanmeError as error:
                    failed[folder] = str(error)
                except Exception as error:  # whatever it is, the other runs continue
                    failed[folder] = f"{type(error).__name__}: {error}"
                on_done(folder)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def _in_own_process(config: RunConfig, folder: Path) -> None:
    # The fork server imports torch once; each process forked from it is fresh and starts at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    try:
        with ProcessPoolExecutor(1, context) as process:
            process.submit(_work, config, folder).result()
    except BrokenProcessPool:
        raise HanmeError("its process was killed, perhaps because memory ran out") from None


def _work(config: RunConfig, folder: Path) -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    runs.train(config, folder, resume=True)


def _exit_with_parent() -> None:
    """End this process when its parent ends, even if the parent is killed.

    Otherwise two processes would write to one folder once the command is started again.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
