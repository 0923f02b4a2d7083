"""Train a model, in memory or into a run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import torch

from hanme.common import device, ranks
from hanme.common.files import lock
from hanme.common.memory import peak_mb
from hanme.common.progress import begin_stage, listening
from hanme.decision import Costs
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
from hanme.runs.describe import costs
from hanme.runs.folder import CHECKPOINT, LOCK, ProgressFile, Run
from hanme.runs.opened import OpenedRun, require_unchanged, same_encoding
from hanme.runs.results import result_of
from hanme.runs.suspicion import suspicion
from hanme.training import (
    BaseOutputs,
    CallbackError,
    Epoch,
    Progress,
    Trainer,
    ValidationNodes,
    build_seeded,
    finalize,
    fit_base,
    stacking_gain,
    start_at_odds,
)


def train_in_memory(
    config: RunConfig, graph: Graph, on_epoch: Callable[[Epoch], None] = lambda epoch: None
) -> OpenedRun:
    """Train a model without a run folder."""
    trainer = prepare(config, graph)
    base = _fit_base(config, graph, trainer)
    epochs: list[Epoch] = []
    if trainer is not None:
        trainer.run(epochs.append, on_epoch)
    return _finalize(config, graph, trainer, base, [asdict(epoch) for epoch in epochs])


def train(
    config: RunConfig,
    folder: Path,
    *,
    graph: Graph | None = None,
    resume: bool = False,
    on_start: Callable[[list[str]], None] | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Run:
    """Train a model and write a run folder.

    Args:
        config: What to train on what, and how.
        folder: Where to write; created. A folder that holds a run already is refused.
        graph: The graph, if it is loaded already.
        resume: Continue the run in ``folder`` if there is one. A finished one is left as it is.
        on_start: Called with notes on the graph and a line per metapath before anything is fitted.
        on_epoch: Called after each epoch.
    """
    existing, finished = ranks.from_first(lambda: _find(folder, config, resume))
    if existing is not None and finished:
        return existing
    with lock(folder / LOCK, str(folder)) if ranks.is_first() else nullcontext():
        # Another process may have finished it since.
        existing, finished = ranks.from_first(lambda: _find(folder, config, resume))
        if existing is not None and finished:
            return existing
        graph = _load(config, graph, existing)
        trainer = prepare(config, graph)
        if on_start is not None:
            lines = [*notes(graph), *(costs(trainer.model, graph) if trainer else [])]
            if graph.stored and not config.training.linear:
                lines.append(
                    "Linear model and trees are left out; --set training.linear=true fits them"
                )
            on_start(lines)
        run = existing or ranks.from_first(
            lambda: Run.create(folder, config, schema_of(config, graph))
        )
        try:
            with listening(ProgressFile(folder)):
                base = _fit_base(config, graph, trainer)
                if trainer is not None:
                    run.train(trainer, on_epoch)
                opened = _finalize(config, graph, trainer, base, ranks.from_first(run.metrics))
                begin_stage("writing")
        except ranks.Lost:
            raise  # torchrun starts the command again
        except Exception as error:
            refused = isinstance(error, HanmeError) and not isinstance(error, CallbackError)
            kept = not refused and (folder / CHECKPOINT).exists()
            if existing is None and ranks.is_first() and not kept:
                run.discard()  # nothing to continue: leave the folder as it was
            raise
        ranks.from_first(lambda: opened.finish(run))
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


def _load(config: RunConfig, graph: Graph | None, existing: Run | None) -> Graph:
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
    if training.cost is not None:
        Costs.parse(training.cost, graph.labels)  # refuses unknown labels before training
    if config.model.name == LINEAR:
        return None
    model, random = build_seeded(lambda: build_network(config.model, graph), graph, training.seed)
    check_metapaths(model, graph)
    if training.start == "odds":
        start_at_odds(model, graph)
    selection = validation_nodes(config, graph).selection  # the others may be scored
    graph = replace(graph, split=graph.split._replace(val=selection))
    return Trainer(model.to(device.chosen()), graph, training, random=random)


def validation_nodes(config: RunConfig, graph: Graph) -> ValidationNodes:
    """Return what the validation nodes of a run decide."""
    network, stack = config.model.name != LINEAR, is_stacked(config)
    return ValidationNodes.of(graph, config.training, network=network, stack=stack)


def _fit_base(config: RunConfig, graph: Graph, trainer: Trainer | None) -> BaseOutputs | None:
    """Fit the base learners first, so that a network that adds nothing to them is given up."""
    if trainer is None or not is_stacked(config):
        return None
    base = fit_base(graph, config.training)
    if ranks.count() == 1:  # else a rank has the logits of its share only
        val = trainer.graph.split.val
        known, y = base.held_out[val], graph.y[val]
        trainer.gain = lambda logits: stacking_gain(known, logits, y)
    return base


def _finalize(
    config: RunConfig,
    graph: Graph,
    trainer: Trainer | None,
    base: BaseOutputs | None,
    rows: list[dict[str, float]],
) -> OpenedRun:
    """Complete a model after the epochs of its network, and score it."""
    network, progress = (trainer.model, trainer.progress) if trainer else (None, Progress())
    notes = []
    if trainer is not None and not trainer.helps:
        network = None
        notes.append(
            f"The network was dropped after {progress.epoch} epochs: the linear model and trees "
            "predict as well without it."
        )
    nodes, stack = validation_nodes(config, graph), is_stacked(config)
    trained = finalize(network, graph, config.training, base=base, stack=stack, nodes=nodes)
    begin_stage("scoring")
    result = result_of(graph, trained) | {
        "notes": notes,
        "base_notes": list(trained.notes),
        "best_epoch": progress.best_epoch,
        "epochs": progress.epoch,
        "seconds_per_epoch": statistics.median([row["seconds"] for row in rows] or [0.0]),
        "peak_memory_mb": peak_mb(),
        "parameters": trained.model.num_parameters,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    result["suspicion"] = suspicion(graph, config.training, result)
    return OpenedRun(
        config,
        graph,
        trained.model,
        decision=trained.outputs.decision,
        result=result,
        metrics=rows,
        schema=schema_of(config, graph),
        trained=trained,
    )
