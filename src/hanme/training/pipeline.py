"""From a configuration to a finished run folder, and back to its scores."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import HeteroData

from hanme.chain import Chain
from hanme.datasets import FittedGraph, default_metapaths, load, tables_name
from hanme.errors import HanmeError
from hanme.files import claiming
from hanme.memory import peak_mb
from hanme.metapath import Metapath
from hanme.nn import MODELS, HANMEConv
from hanme.ops import choose_backend
from hanme.ops.cost import memory, readable
from hanme.training.config import DataConfig, ModelConfig, RunConfig
from hanme.training.curves import draw_curves
from hanme.training.metrics import scores
from hanme.training.predictions import write_predictions
from hanme.training.run import Run, load_into
from hanme.training.trainer import Epoch, Trainer


def load_data(
    config: DataConfig,
    seed: int,
    source: str | Path | None = None,
    fitted: FittedGraph | None = None,
) -> HeteroData:
    """The graph of a run; ``source`` overrides where its files are, ``fitted`` is what a run has
    learnt of their columns."""
    return load(
        config.name,
        source=source or config.source,
        features=config.features,
        seed=seed if config.seed is None else config.seed,
        options=config.options,
        fitted=fitted,
    )


def build_model(config: ModelConfig, data: HeteroData) -> Any:
    """The model of a run, fitting a graph."""
    for spec in config.options.get("metapaths", []):
        _refuse_empty(Metapath.of(spec, data.metadata()), data)
    labels = len(data[data.target].label_names)
    model = MODELS[config.name]
    return model(data.metadata(), target=data.target, out_channels=labels, **config.options)


def takes_metapaths(model: str) -> bool:
    """Whether a model has the option ``metapaths``."""
    return model in MODELS and "metapaths" in inspect.signature(MODELS[model]).parameters


def with_metapaths(model: str, data_set: str, options: dict[str, Any]) -> dict[str, Any]:
    """A model's options; metapaths, where it takes some and none are given, are the data set's."""
    return (
        {"metapaths": default_metapaths(data_set), **options} if takes_metapaths(model) else options
    )


def costs(model: Any, data: HeteroData) -> list[str]:
    """How many instances a model attends to, with which backend and in about what memory."""
    if not isinstance(getattr(model, "conv", None), HANMEConv):
        return []
    conv = model.conv
    backend = choose_backend(conv.backend, data[data.target].y.device)
    lines = []
    for chain in conv.chains(data.x_dict, data.edge_index_dict):
        needed = readable(memory(backend, chain, conv.heads, conv.out_channels // conv.heads))
        instances = int(chain.count().sum())
        lines.append(
            f"{chain.metapath}: {instances:,} instances, backend {backend}, about {needed}"
        )
    return lines


def _refuse_empty(metapath: Metapath, data: HeteroData) -> None:
    sizes = {t: data[t].num_nodes for t in data.node_types}
    if not Chain.build(metapath, data.edge_index_dict, sizes).count().any():
        empty = [step for step in metapath.steps if not data[step].edge_index.numel()]
        why = f"; the relation {empty[0]} is empty" if empty else ""
        raise HanmeError(f"metapath {metapath}: it has no instance on this graph{why}")


def train(
    config: RunConfig,
    folder: Path,
    *,
    resume: bool = False,
    on_start: Callable[[list[str]], None] = lambda costs: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Run:
    """Trains a model and leaves a run folder.

    Args:
        config: What to train on what, and how.
        folder: Where to; created. A folder that holds a run already is refused.
        resume: Go on with the run in ``folder`` if there is one. A finished one is left as it is.
        on_start: Called before any work with what it will cost, a line per metapath.
        on_epoch: Called after each epoch.
    """
    found = Run.find(folder, config, resume=resume)
    if found is not None and found.finished:
        return found
    new = not folder.exists()
    try:
        with claiming(folder / ".lock", str(folder)):
            return _train(config, folder, resume, on_start, on_epoch)
    except BaseException:
        with suppress(OSError):  # which is raised where there is something in it
            if new:
                folder.rmdir()
        raise


def _train(
    config: RunConfig,
    folder: Path,
    resume: bool,
    on_start: Callable[[list[str]], None],
    on_epoch: Callable[[Epoch], None],
) -> Run:
    found = Run.find(folder, config, resume=resume)  # another process may have been here
    if found is not None and found.finished:
        return found
    fitted = found.fitted() if found else None
    data = load_data(config.data, config.training.seed, fitted=fitted)
    refuse_other_tables(data, fitted, folder)
    model = build_model(config.model, data)
    on_start([*losses(data), *costs(model, data)])
    trainer = Trainer(model, data, config.training)
    run = found or Run.create(folder, config, data)
    try:
        run.train(trainer, on_epoch)
    except HanmeError:
        if found is None:  # nothing to go on with: the folder is as it was
            run.discard()
        raise
    logits = trainer.logits()
    write_predictions(
        data, logits, folder / "predictions.parquet", fallback=config.training.fallback
    )
    best = trainer.progress.best_epoch
    draw_curves({config.model.name: run.metrics()}, folder / "curves", best=best)
    run.finish(trainer, _result(trainer, run, logits))
    return run


def evaluate(folder: Path, *, source: str | Path | None = None) -> dict[str, Any]:
    """Loads a finished run's weights and scores them again."""
    run = Run.open(folder)
    fitted = run.fitted()
    data = load_data(run.config.data, run.config.training.seed, source, fitted)
    refuse_other_tables(data, fitted, folder)
    trainer = Trainer(build_model(run.config.model, data), data, run.config.training)
    weights = run.weights()
    load_into(lambda: trainer.model.load_state_dict(weights), folder / "model.safetensors")
    return _scores(trainer, trainer.logits())


def open_run(
    run: Run, source: str | Path | None = None, graph: str | Path | None = None
) -> tuple[HeteroData, Any]:
    """The graph of a finished run, or another one of the same schema, and the trained model.

    Args:
        run: The run.
        source: Where the files of its graph are.
        graph: Another ``graph.toml``, such as one whose tables have grown.
    """
    weights, fitted = run.weights(), run.fitted()
    data = load_fitting(run.config, fitted, source=source, graph=graph)
    model = build_model(run.config.model, data).train(False)
    with torch.no_grad():
        model(data)  # gives lazy weights their sizes
    load_into(lambda: model.load_state_dict(weights), run.folder / "model.safetensors")
    return data, model


def load_fitting(
    config: RunConfig,
    fitted: FittedGraph | None,
    *,
    source: str | Path | None = None,
    graph: str | Path | None = None,
) -> HeteroData:
    """The graph of a trained model, or another ``graph.toml`` of the same schema."""
    if graph is not None and fitted is None:
        raise HanmeError(f"{graph}: the run was trained on {config.data.name}, not on a graph.toml")
    if graph is not None and source is not None:
        raise HanmeError(f"--data {source}: --graph {graph} says already where the tables are")
    if graph is not None:
        source = tables_name(graph)
    data = load_data(config.data, config.training.seed, source, fitted)
    if fitted is not None:
        check_widths(data, fitted.widths)
    return data


def losses(data: HeteroData) -> list[str]:
    """How many links to unknown ids a user's own tables have, where they are dropped."""
    dropped: dict[str, int] = data.dropped if "dropped" in data else {}
    return [
        f"{relation}: {count:,} links to unknown ids dropped"
        for relation, count in dropped.items()
        if count
    ]


def other_tables(data: HeteroData, fitted: FittedGraph | None) -> bool:
    """Whether a graph's ids, labels or split are not those that a run was trained on."""
    return fitted is not None and data.digest != fitted.trained_on


def refuse_other_tables(data: HeteroData, fitted: FittedGraph | None, folder: Path) -> None:
    if other_tables(data, fitted):
        raise HanmeError(
            f"{folder}: ids, labels or split of its tables have changed since it was trained, so "
            "what was for training may now be for test; hanme predict and explain NODE work on them"
        )


def _scores(trainer: Trainer, logits: torch.Tensor) -> dict[str, Any]:
    """Scores by decision rule and split, in percent; a split without nodes has none."""
    masks = {name: mask for name, mask in trainer.masks.items() if mask.any()}
    return {
        rule: {
            name: {"micro": round(100 * f1.micro, 4), "macro": round(100 * f1.macro, 4)}
            for name, f1 in scores(logits, trainer.y, masks, fallback=fallback).items()
        }
        for rule, fallback in (("with_fallback", True), ("without_fallback", False))
    }


def _result(trainer: Trainer, run: Run, logits: torch.Tensor) -> dict[str, Any]:
    rows = run.metrics()
    return {
        "scores": _scores(trainer, logits),
        "best_epoch": trainer.progress.best_epoch,
        "epochs": trainer.progress.epoch,
        "seconds_per_epoch": statistics.median(row["seconds"] for row in rows),
        "peak_memory_mb": peak_mb(),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def check_widths(data: HeteroData, widths: dict[str, int]) -> None:
    """Refuses a graph whose nodes have not as many features as those trained on."""
    for kind, width in widths.items():
        if data[kind].x.size(1) != width:
            raise HanmeError(
                f"node type {kind}: {data[kind].x.size(1)} features, but the run was trained with "
                f"{width}; if they are one for each of its nodes, it cannot grow without training "
                "again"
            )
