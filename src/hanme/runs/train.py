"""Train a model, in memory or into a run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from hanme.common import device, ranks
from hanme.common.files import lock, remove_on_error
from hanme.common.memory import peak_mb
from hanme.data import FittedGraph
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import (
    build_model,
    check_metapaths,
    known_ids,
    load_graph,
    notes,
    schema_of,
    without_fold_of,
)
from hanme.runs.config import RunConfig
from hanme.runs.curves import draw_curves, draw_reliability
from hanme.runs.describe import costs
from hanme.runs.folder import Run
from hanme.runs.opened import OpenedRun, require_unchanged, same_encoding
from hanme.runs.prediction import Prediction, write_table
from hanme.runs.results import result_of
from hanme.training import (
    Epoch,
    Settled,
    Trainer,
    TrainingConfig,
    Wide,
    belief_blocks,
    can_grow,
    choose_wide,
    draw_weights,
    settle,
    start_at_odds,
)


@dataclass(frozen=True)
class Trained:
    """A trained model that is not in a run folder.

    Args:
        config: Its configuration.
        trainer: Trainer, model and graph.
        wide: The wide part that was chosen.
        settled: The final outputs.
        metrics: A row per scored epoch.
    """

    config: RunConfig
    trainer: Trainer
    wide: Wide | None
    settled: Settled
    metrics: list[dict[str, float]]

    @property
    def schema(self) -> FittedGraph | None:
        """The schema of its graph."""
        return schema_of(self.config, self.trainer.graph)

    def opened(self) -> OpenedRun:
        """Return the same as opening the folder that :meth:`save` writes."""
        return OpenedRun(
            self.config,
            self.trainer.graph,
            self.trainer.model,
            decision=self.settled.model.decision,
            result=_result(self.trainer, self.settled, self.metrics),
            metrics=self.metrics,
            schema=self.schema,
        )

    def save(self, folder: Path) -> None:
        """Write a run folder; refuse one that holds a run."""
        run = Run.create(folder, self.config, self.schema, self.wide)
        run.write_metrics(self.metrics)
        _finish(run, self.trainer, self.settled)


def train_in_memory(
    config: RunConfig, graph: Graph, on_epoch: Callable[[Epoch], None] = lambda epoch: None
) -> Trained:
    """Train one model without a run folder."""
    trainer, wide = prepare(config, graph)
    epochs: list[Epoch] = []
    trainer.run(epochs.append, on_epoch)
    settled = settle(trainer.model, graph, config.training, wide)
    return Trained(config, trainer, wide, settled, [asdict(epoch) for epoch in epochs])


def train_one(
    config: RunConfig,
    folder: Path,
    *,
    graph: Graph | None = None,
    resume: bool = False,
    on_start: Callable[[list[str]], None] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_settle: Callable[[], None] = lambda: None,
) -> Run:
    """Train one model and write a run folder, see :func:`hanme.runs.train`."""
    existing, finished = ranks.from_first(lambda: _find(folder, config, resume))
    if existing is not None and finished:
        return existing
    with (
        remove_on_error(folder) if ranks.is_first() else nullcontext(),
        lock(folder / ".lock", str(folder)) if ranks.is_first() else nullcontext(),
    ):
        # Another process may have finished it since.
        existing, finished = ranks.from_first(lambda: _find(folder, config, resume))
        if existing is not None and finished:
            return existing
        graph = without_fold_of(load_to_train(config, graph, existing), config)
        wide = ranks.from_first(existing.wide) if existing else None
        trainer, wide = prepare(config, graph, wide)
        if on_start is not None:
            on_start([*notes(graph), *costs(trainer.model, graph)])
        run = existing or ranks.from_first(
            lambda: Run.create(folder, config, schema_of(config, graph), wide)
        )
        try:
            run.train(trainer, on_epoch)
        except ranks.Lost:
            raise  # torchrun starts the command again
        except HanmeError:
            if existing is None and ranks.is_first():
                run.discard()  # nothing to continue: leave the folder as it was
            raise
        on_settle()
        settled = settle(trainer.model, trainer.graph, config.training, wide)
        ranks.from_first(lambda: _finish(run, trainer, settled))
        return run


def _find(folder: Path, config: RunConfig, resume: bool) -> tuple[Run | None, bool]:
    """Return the run to continue, if there is one, and whether it is finished.

    torchrun starts the same command again when a process is lost, so it continues an unfinished
    run.
    """
    if ranks.count() > 1 and config.training.batch_size is None:
        raise HanmeError("torchrun shares batches among processes: set --batch-size")
    result = folder / "result.json"
    resume = resume or (ranks.under_torchrun() and (ranks.restarted() or not result.exists()))
    existing = Run.find(folder, config, resume=resume)
    return existing, existing is not None and existing.finished


def load_to_train(config: RunConfig, graph: Graph | None, existing: Run | None) -> Graph:
    """Return the graph to train on: the one passed, unless a run to resume encodes it otherwise."""
    schema = ranks.from_first(existing.fitted) if existing else None
    if graph is None or (schema is not None and not same_encoding(graph, schema)):
        graph = ranks.first_before_others(lambda: load_graph(config, schema=schema))
    if existing is not None:
        require_unchanged(graph, schema, existing.folder)
    return graph


def prepare(
    config: RunConfig, graph: Graph, wide: Wide | None = None
) -> tuple[Trainer, Wide | None]:
    """Choose the wide part, unless one is passed, build the model and draw its weights."""
    training = config.training
    graph.check_trainable()
    if wide is None and (training.wide or config.model.name == "linear"):
        wide = ranks.from_first(lambda: _choose_wide(graph, training))
    model = build_model(config.model, graph, wide)
    check_metapaths(model, graph)
    random = draw_weights(model, graph, training.seed)
    if training.start == "odds":
        start_at_odds(model, graph)
    return Trainer(model.to(device.chosen()), graph, training, random=random), wide


def _choose_wide(graph: Graph, training: TrainingConfig) -> Wide:
    wide = choose_wide(graph, training.seed, labels=training.labels)
    whole = training.batch_size is None and not graph.stored
    beliefs = belief_blocks(graph) if training.beliefs and whole else []
    trees = training.trees and whole and can_grow(graph)
    return wide.model_copy(update={"beliefs": beliefs, "trees": trees})


def _finish(run: Run, trainer: Trainer, settled: Settled) -> None:
    """Write predictions, pictures, weights and, last, the result."""
    graph, answer, rows = trainer.graph, settled.model, run.metrics()
    result = _result(trainer, settled, rows)
    table = Prediction(graph, torch.arange(len(answer.logits)), answer.logits, answer.decision)
    write_table(table, run.folder / "predictions.parquet")
    if rows:
        curves = {run.config.model.name: rows}
        draw_curves(curves, run.folder / "curves", best=result["best_epoch"])
    draw_reliability(result["probabilities"], run.folder / "reliability")
    run.write_ids(known_ids(trainer.model, graph))
    if run.config.training.fold is not None:
        run.write_answers(settled)
    run.finish(trainer.model, answer.decision, result)


def _result(trainer: Trainer, settled: Settled, rows: list[dict[str, float]]) -> dict[str, Any]:
    return result_of(trainer.graph, settled) | {
        "best_epoch": trainer.progress.best_epoch,
        "epochs": trainer.progress.epoch,
        "seconds_per_epoch": statistics.median([row["seconds"] for row in rows] or [0.0]),
        "peak_memory_mb": peak_mb(),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
