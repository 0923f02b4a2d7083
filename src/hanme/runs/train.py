"""Train a model into a run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from hanme.common.files import claiming
from hanme.common.memory import peak_mb
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import build_model, costs, load_graph, notes
from hanme.runs.config import RunConfig
from hanme.runs.curves import draw_curves
from hanme.runs.folder import Run
from hanme.runs.predictions import write_predictions
from hanme.runs.use import refuse_changed, score_parts
from hanme.training import Epoch, Trainer, draw_weights


def train(
    config: RunConfig,
    folder: Path,
    *,
    graph: Graph | None = None,
    resume: bool = False,
    on_start: Callable[[list[str]], None] = lambda costs: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Run:
    """Train a model and write a run folder.

    Args:
        config: What to train on what, and how.
        graph: The graph, if it is loaded already.
        folder: Where to write; created. A folder that holds a run already is refused.
        resume: Continue the run in ``folder`` if there is one. A finished one is left as it is.
        on_start: Called before any work with what it will cost, a line per metapath.
        on_epoch: Called after each epoch.
    """
    found = Run.find(folder, config, resume=resume)
    if found is not None and found.finished:
        return found
    new = not folder.exists()
    try:
        with claiming(folder / ".lock", str(folder)):
            found = Run.find(folder, config, resume=resume)  # another process may have been here
            if found is not None and found.finished:
                return found
            trainer = make_trainer(config, folder, graph, found, on_start)
            run = found or Run.create(folder, config, trainer.graph)
            try:
                run.train(trainer, on_epoch)
            except HanmeError:
                if found is None:  # nothing to continue: leave the folder as it was
                    run.discard()
                raise
            finish(run, trainer)
            return run
    except BaseException:
        with suppress(OSError):  # raised where the folder is not empty
            if new:
                folder.rmdir()
        raise


def make_trainer(
    config: RunConfig,
    folder: Path,
    graph: Graph | None,
    found: Run | None,
    on_start: Callable[[list[str]], None],
) -> Trainer:
    """Load the graph, build the model and draw its weights."""
    fitted = found.fitted() if found else None
    graph = graph or load_graph(config, fitted=fitted)
    refuse_changed(graph, fitted, folder)
    model = build_model(config.model, graph)
    on_start([*notes(graph), *costs(config.model, graph)])
    random = draw_weights(model, graph, config.training.seed)
    return Trainer(model, graph, config.training, random=random)


def finish(run: Run, trainer: Trainer) -> None:
    """Write predictions, curves, weights and, last of all, the result."""
    graph, config, rows = trainer.graph, run.config, run.metrics()
    logits = trainer.logits()
    predictions = run.folder / "predictions.parquet"
    write_predictions(graph, logits, predictions, fallback=config.training.fallback)
    best = trainer.progress.best_epoch
    draw_curves({config.model.name: rows}, run.folder / "curves", best=best)
    result: dict[str, Any] = {
        "scores": score_parts(graph, logits),
        "best_epoch": best,
        "epochs": trainer.progress.epoch,
        "seconds_per_epoch": statistics.median(row["seconds"] for row in rows),
        "peak_memory_mb": peak_mb(),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    run.finish(trainer.model, result)
