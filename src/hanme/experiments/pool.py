"""Many runs, a few processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from hanme.errors import HanmeError
from hanme.training import Run, RunConfig, train

Job = tuple[RunConfig, Path]


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    """The runs that are still to be trained, or to be trained to their end."""
    found = [(job, Run.find(job[1], job[0], resume=True)) for job in jobs]
    return [job for job, run in found if run is None or not run.finished]


def train_all(
    jobs: Sequence[Job], processes: int, on_done: Callable[[Path], None] = lambda folder: None
) -> dict[Path, str]:
    """Trains every configuration into its folder; finished ones are not trained again.

    Each run has a process and one thread to itself, so that neither its result nor its peak of
    memory depends on what runs beside it or ran before it.

    Returns:
        What went wrong, by folder: a run that fails does not keep the others from being trained.
    """
    waiting = unfinished(jobs)
    for folder in {folder for _, folder in jobs} - {folder for _, folder in waiting}:
        on_done(folder)
    failed = {}
    with ThreadPoolExecutor(processes) as pool:
        futures = {pool.submit(_in_a_process, *job): job[1] for job in waiting}
        try:
            for future in as_completed(futures):
                folder = futures[future]
                try:
                    future.result()
                except HanmeError as error:
                    failed[folder] = str(error)
                except Exception as error:  # whatever it is, the other runs go on
                    failed[folder] = f"{type(error).__name__}: {error}"
                on_done(folder)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def _in_a_process(config: RunConfig, folder: Path) -> None:
    # The server imports torch once; a process forked from it is fresh and starts at once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    try:
        with ProcessPoolExecutor(1, context) as process:
            process.submit(_train, config, folder).result()
    except BrokenProcessPool:
        raise HanmeError("its process was killed, perhaps for want of memory") from None


def _train(config: RunConfig, folder: Path) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    train(config, folder, resume=True)


def _leave_with_parent() -> None:
    """Ends this process when the one that started it is gone, however it went.

    Otherwise two would write to a folder once the whole is started again.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
