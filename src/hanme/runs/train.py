"""Train a model, in memory or into a run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hanme.common import device, ranks
from hanme.common.files import lock, remove_on_error
from hanme.common.memory import peak_mb
from hanme.data.tables.build.fitted import FittedGraph
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import (
    build_network,
    check_metapaths,
    is_stacked,
    load_graph,
    notes,
    schema_of,
)
from hanme.runs.config import LINEAR, RunConfig
from hanme.runs.curves import draw_curves, draw_reliability
from hanme.runs.describe import costs
from hanme.runs.folder import Run
from hanme.runs.opened import OpenedRun, require_unchanged, same_encoding
from hanme.runs.prediction import Prediction
from hanme.runs.results import result_of
from hanme.training import (
    Epoch,
    Progress,
    Trainer,
    TrainingResult,
    ValidationHalves,
    draw_weights,
    finalize,
    start_at_odds,
)


@dataclass(frozen=True)
class Trained:
    """A trained model that is not in a run folder.

    Args:
        config: Its configuration.
        graph: Its graph.
        trained: The model and its outputs.
        progress: How many epochs were trained.
        metrics: A row per scored epoch.
    """

    config: RunConfig
    graph: Graph
    trained: TrainingResult
    progress: Progress
    metrics: list[dict[str, float]]

    @property
    def schema(self) -> FittedGraph | None:
        """The schema of its graph."""
        return schema_of(self.config, self.graph)

    def opened(self) -> OpenedRun:
        """Return the same as opening the folder that :meth:`save` writes."""
        return OpenedRun(
            self.config,
            self.graph,
            self.trained.model,
            decision=self.trained.outputs.decision,
            result=_result(self.graph, self.trained, self.progress, self.metrics),
            metrics=self.metrics,
            schema=self.schema,
        )

    def save(self, folder: Path) -> None:
        """Write a run folder; refuse one that holds a run."""
        run = Run.create(folder, self.config, self.schema)
        run.write_metrics(self.metrics)
        _finish(run, self.graph, self.trained, self.progress)


def train_in_memory(
    config: RunConfig, graph: Graph, on_epoch: Callable[[Epoch], None] = lambda epoch: None
) -> Trained:
    """Train one model without a run folder."""
    trainer = prepare(config, graph)
    epochs: list[Epoch] = []
    if trainer is not None:
        trainer.run(epochs.append, on_epoch)
    trained = _finalize(trainer, graph, config)
    rows = [asdict(epoch) for epoch in epochs]
    return Trained(config, graph, trained, trainer.progress if trainer else Progress(), rows)


def train(
    config: RunConfig,
    folder: Path,
    *,
    graph: Graph | None = None,
    resume: bool = False,
    on_start: Callable[[list[str]], None] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_finalize: Callable[[], None] = lambda: None,
) -> Run:
    """Train a model and write a run folder.

    Args:
        config: What to train on what, and how.
        folder: Where to write; created. A folder that holds a run already is refused.
        graph: The graph, if it is loaded already.
        resume: Continue the run in ``folder`` if there is one. A finished one is left as it is.
        on_start: Called before the first epoch with its cost, a line per metapath and one with the
            time of an epoch, which is only measured for this.
        on_epoch: Called after each epoch.
        on_finalize: Called when the epochs are over, before the linear model is fitted.
    """
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
        graph = load_to_train(config, graph, existing)
        trainer = prepare(config, graph)
        if on_start is not None:
            on_start([*notes(graph), *(costs(trainer.model, graph) if trainer else [])])
        run = existing or ranks.from_first(
            lambda: Run.create(folder, config, schema_of(config, graph))
        )
        try:
            if trainer is not None:
                run.train(trainer, on_epoch)
            on_finalize()
            trained = _finalize(trainer, graph, config)
        except ranks.Lost:
            raise  # torchrun starts the command again
        except HanmeError:
            if existing is None and ranks.is_first():
                run.discard()  # nothing to continue: leave the folder as it was
            raise
        progress = trainer.progress if trainer else Progress()
        ranks.from_first(lambda: _finish(run, graph, trained, progress))
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


def prepare(config: RunConfig, graph: Graph) -> Trainer | None:
    """Build the network and draw its weights; return None for ``linear``, which has none."""
    training = config.training
    graph.check_trainable()
    if config.model.name == LINEAR:
        return None
    model = build_network(config.model, graph)
    check_metapaths(model, graph)
    random = draw_weights(model, graph, training.seed)
    if training.start == "odds":
        start_at_odds(model, graph)
    if is_stacked(config):  # the other half of the validation nodes fits the slopes
        selection, _ = ValidationHalves.of(graph, training.seed)
        graph = replace(graph, split=graph.split._replace(val=selection))
    return Trainer(model.to(device.chosen()), graph, training, random=random)


def _finalize(trainer: Trainer | None, graph: Graph, config: RunConfig) -> TrainingResult:
    network = None if trainer is None else trainer.model
    return finalize(network, graph, config.training, stack=is_stacked(config))


def _finish(run: Run, graph: Graph, trained: TrainingResult, progress: Progress) -> None:
    """Write predictions, pictures, weights and, last, the result."""
    outputs, rows = trained.outputs, run.metrics()
    result = _result(graph, trained, progress, rows)
    table = Prediction(graph, torch.arange(len(outputs.logits)), outputs.logits, outputs.decision)
    table.write_here(run.folder / "predictions.parquet")
    if rows:
        curves = {run.config.model.name: rows}
        draw_curves(curves, run.folder / "curves", best=result["best_epoch"])
    draw_reliability(result["probabilities"], run.folder / "reliability")
    run.finish(trained.model, outputs.decision, result)


def _result(
    graph: Graph, trained: TrainingResult, progress: Progress, rows: list[dict[str, float]]
) -> dict[str, Any]:
    return result_of(graph, trained) | {
        "best_epoch": progress.best_epoch,
        "epochs": progress.epoch,
        "seconds_per_epoch": statistics.median([row["seconds"] for row in rows] or [0.0]),
        "peak_memory_mb": peak_mb(),
        "parameters": trained.model.num_parameters,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
