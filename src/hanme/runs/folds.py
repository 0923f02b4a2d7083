"""Cross-fitting: a model without each fold of the labelled nodes, all in one run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from hanme.common import ranks
from hanme.common.files import lock, remove_leftovers, remove_on_error
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import notes, schema_of
from hanme.runs.config import PYTHON, RunConfig
from hanme.runs.curves import draw_curves, draw_reliability
from hanme.runs.folder import Run, fold_folder
from hanme.runs.pool import train_all
from hanme.runs.prediction import Prediction, write_table
from hanme.runs.results import result_of
from hanme.runs.train import load_to_train, train_one
from hanme.training import Epoch, cross_fitted


def train(
    config: RunConfig,
    folder: Path,
    *,
    graph: Graph | None = None,
    resume: bool = False,
    processes: int = 1,
    on_start: Callable[[list[str]], None] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_finalize: Callable[[], None] = lambda: None,
    on_fold: Callable[[int], None] = lambda done: None,
) -> Run:
    """Train a model, or one for each fold, and write a run folder.

    Args:
        config: What to train on what, and how.
        folder: Where to write; created. A folder that holds a run already is refused.
        graph: The graph, if it is loaded already.
        resume: Continue the run in ``folder`` if there is one. A finished one is left as it is.
        processes: How many folds to train at a time, each in a process of its own.
        on_start: Called before the first epoch with its cost, a line per metapath and one with the
            time of an epoch, which is only measured for this.
        on_epoch: Called after each epoch, of folds only where they are trained one by one.
        on_finalize: Called when the epochs are over, before the linear model is fitted.
        on_fold: Called after each fold with the number of those done.
    """
    if not config.training.cross_fitted:
        return train_one(
            config,
            folder,
            graph=graph,
            resume=resume,
            on_start=on_start,
            on_epoch=on_epoch,
            on_finalize=on_finalize,
        )
    if ranks.under_torchrun():
        raise HanmeError("torchrun shares one training: give no folds, or train them without it")
    found = Run.find(folder, config, resume=resume)
    if found is not None and found.finished:
        return found
    with remove_on_error(folder), lock(folder / ".lock", str(folder)):
        found = Run.find(folder, config, resume=resume)  # another process may have been here
        if found is not None and found.finished:
            return found
        remove_leftovers(folder)
        graph = load_to_train(config, graph, found)
        if on_start is not None:
            on_start(notes(graph))
        run = found or Run.create(folder, config, schema_of(config, graph))
        jobs = [
            (config.of_fold(fold), fold_folder(folder, fold))
            for fold in range(1, config.training.folds + 1)
        ]
        try:
            if processes > 1 and config.data.name != PYTHON:
                done = iter(range(1, len(jobs) + 1))
                failed = train_all(jobs, processes, lambda _: on_fold(next(done)))
                if failed:
                    where, why = next(iter(failed.items()))
                    raise HanmeError(f"{where}: {why}")
            else:
                for number, (part, where) in enumerate(jobs, start=1):
                    train_one(part, where, graph=graph, resume=True, on_epoch=on_epoch)
                    on_fold(number)
        except HanmeError:
            if not any(where.exists() for _, where in jobs):
                run.discard()
            raise
        _finish(run, graph, run.folds)
        return run


def _finish(run: Run, graph: Graph, folds: list[Run]) -> None:
    """Put the folds together and write predictions, curves and, last of all, the result."""
    whole, trained = cross_fitted(graph, run.config.training, [each.outputs() for each in folds])
    results = [each.result() for each in folds]
    slopes = {
        part: statistics.fmean(result["slopes"][part] for result in results)
        for part in results[0]["slopes"]
    }
    trained = replace(trained, slopes=slopes)
    outputs = trained.outputs
    table = Prediction(graph, torch.arange(len(outputs.logits)), outputs.logits, outputs.decision)
    write_table(table, run.folder / "predictions.parquet")
    rows = {each.folder.name: each.metrics() for each in folds}
    if any(rows.values()):
        draw_curves(rows, run.folder / "curves")
    result: dict[str, Any] = result_of(whole, trained) | {
        "folds": len(folds),
        "best_epoch": statistics.median_low(each["best_epoch"] for each in results),
        "epochs": max(each["epochs"] for each in results),
        "seconds_per_epoch": statistics.median(each["seconds_per_epoch"] for each in results),
        "peak_memory_mb": max(each["peak_memory_mb"] for each in results),
        "parameters": sum(each["parameters"] for each in results),
        "threads": results[0]["threads"],
        "torch": results[0]["torch"],
    }
    draw_reliability(result["probabilities"], run.folder / "reliability")
    run.finish(None, outputs.decision, result)
