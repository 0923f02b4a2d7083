"""Many runs, a few processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from hanme.training import Run, RunConfig, train


def train_all(
    jobs: Sequence[tuple[RunConfig, Path]],
    processes: int,
    on_done: Callable[[Path], None] = lambda folder: None,
) -> list[Run]:
    """Trains every configuration into its folder; finished ones are not trained again.

    Each process uses one thread, so that a run's result does not depend on how many run beside it.
    """
    waiting = []
    for config, folder in jobs:
        run = Run.find(folder, config, resume=True)
        if run is not None and run.finished:
            on_done(folder)
        else:
            waiting.append((config, folder))
    context = multiprocessing.get_context("spawn")  # forking a process that has threads is unsafe
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        futures = {pool.submit(_train, config, folder): folder for config, folder in waiting}
        try:
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [Run.open(folder) for _, folder in jobs]


def _train(config: RunConfig, folder: Path) -> None:
    train(config, folder, resume=True)
