"""Train a model into a run folder."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hanme.common import device, ranks
from hanme.common.files import lock, remove_on_error
from hanme.common.memory import peak_mb
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.runs.build import build_model, costs, folded, load_graph, notes
from hanme.runs.config import RunConfig
from hanme.runs.curves import draw_curves, draw_reliability
from hanme.runs.folder import Run
from hanme.runs.prediction import Prediction, write_table
from hanme.runs.use import (
    commonest,
    known_ids,
    majority,
    percent,
    refuse_changed,
    score_parts,
    worth,
)
from hanme.training import (
    Answer,
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
from hanme.training.metrics import f1_interval, scores


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
    found, finished = ranks.from_first(lambda: _find(folder, config, resume))
    if found is not None and finished:
        return found
    with (
        remove_on_error(folder) if ranks.is_first() else nullcontext(),
        lock(folder / ".lock", str(folder)) if ranks.is_first() else nullcontext(),
    ):
        # another process may have been here
        found, finished = ranks.from_first(lambda: _find(folder, config, resume))
        if found is not None and finished:
            return found
        graph = folded(load(config, folder, graph, found, on_start), config)
        trainer, wide = prepare(config, graph, ranks.from_first(found.wide) if found else None)
        run = found or ranks.from_first(lambda: Run.create(folder, config, trainer.graph, wide))
        try:
            run.train(trainer, on_epoch)
        except ranks.Lost:
            raise  # torchrun starts the command again
        except HanmeError:
            if found is None and ranks.is_first():
                run.discard()  # nothing to continue: leave the folder as it was
            raise
        on_settle()
        settled = settle(trainer.model, trainer.graph, config.training, wide)
        ranks.from_first(lambda: finish(run, trainer, settled))
        return run


def _find(folder: Path, config: RunConfig, resume: bool) -> tuple[Run | None, bool]:
    """Return the run to continue, if there is one, and whether it is finished.

    torchrun starts the same command again when a process is lost, so a run that is not finished
    goes on under it.
    """
    if ranks.count() > 1 and config.training.batch_size is None:
        raise HanmeError("torchrun shares batches among processes: give a --batch-size")
    result = folder / "result.json"
    resume = resume or (ranks.under_torchrun() and (ranks.restarted() or not result.exists()))
    found = Run.find(folder, config, resume=resume)
    return found, found is not None and found.finished


def load(
    config: RunConfig,
    folder: Path,
    graph: Graph | None,
    found: Run | None,
    on_start: Callable[[list[str]], None] | None,
) -> Graph:
    """Load the graph, refuse what cannot be trained on it, and say what training costs."""
    fitted = ranks.from_first(found.fitted) if found else None
    graph = graph or ranks.first_before_others(lambda: load_graph(config, fitted=fitted))
    refuse_changed(graph, fitted, folder)
    build_model(config.model, graph)  # refuses wrong options before any work
    if on_start is not None:
        on_start([*notes(graph), *costs(config.model, graph)])
    return graph


def prepare(
    config: RunConfig, graph: Graph, wide: Wide | None = None
) -> tuple[Trainer, Wide | None]:
    """Choose the wide part, unless one was chosen already, build the model and draw its weights."""
    training = config.training
    graph.check_trainable()
    if wide is None and (training.wide or config.model.name == "linear"):
        wide = ranks.from_first(lambda: _chosen(graph, training))
    model = build_model(config.model, graph, wide)
    random = draw_weights(model, graph, training.seed)
    if training.start == "odds":
        start_at_odds(model, graph)
    return Trainer(model.to(device.chosen()), graph, training, random=random), wide


def _chosen(graph: Graph, training: TrainingConfig) -> Wide:
    wide = choose_wide(graph, training.seed, labels=training.labels)
    whole = training.batch_size is None and not graph.stored
    beliefs = belief_blocks(graph) if training.beliefs and whole else []
    trees = training.trees and whole and can_grow(graph)
    return wide.model_copy(update={"beliefs": beliefs, "trees": trees})


def finish(run: Run, trainer: Trainer, settled: Settled) -> None:
    """Write predictions, curves, weights and, last of all, the result."""
    graph, config, rows = trainer.graph, run.config, run.metrics()
    answer = settled.model
    found = Prediction(graph, answer.logits, None, answer.decision)
    write_table(found, run.folder / "predictions.parquet")
    best = trainer.progress.best_epoch
    if rows:
        draw_curves({config.model.name: rows}, run.folder / "curves", best=best)
    result = result_of(graph, settled) | {
        "best_epoch": best,
        "epochs": trainer.progress.epoch,
        "seconds_per_epoch": statistics.median([row["seconds"] for row in rows] or [0.0]),
        "peak_memory_mb": peak_mb(),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    draw_reliability(result["probabilities"], run.folder / "reliability")
    run.write_ids(known_ids(trainer.model, graph))
    if config.training.fold is not None:
        run.write_answers(settled)
    run.finish(trainer.model, answer.decision, result)


def result_of(graph: Graph, settled: Settled) -> dict[str, Any]:
    """Return what a model scored, what its probabilities are worth, and what it has to beat."""
    answer = settled.model
    return {
        "scores": held_out_scores(graph, answer),
        "held_out": held_out(graph, answer),
        "expected_f1": _expected_f1(graph, answer),
        "baselines": _baselines(graph, settled),
        "intervals": _intervals(graph, settled),
        "probabilities": {
            part: worth(graph, logits, answer.decision, mask)
            for part, mask, logits in _unseen(graph, answer)
        },
        "slopes": settled.slopes,
    }


def held_out_scores(graph: Graph, answer: Answer) -> dict[str, Any]:
    """Return scores by rule and part; those of validation nodes by weights that saw none."""
    found = score_parts(graph, answer.logits, answer.decision)
    held_out = score_parts(graph, answer.held_out, answer.decision)
    for rule, parts in found.items():
        if "val" in parts:
            parts["val"] = held_out[rule]["val"]
    return found


def held_out(graph: Graph, answer: Answer) -> dict[str, float]:
    """Return F1 on validation nodes, from 0 to 1, by weights that saw none of them."""
    val = {"val": graph.split.val}
    return scores(answer.held_out, graph.y, val, answer.decision)["val"]._asdict()


def _expected_f1(graph: Graph, answer: Answer) -> dict[str, Any]:
    """Return the scores under thresholds of the largest expected F1, whatever the run decides by.

    So models that decide otherwise can be compared with those that decide so.
    """
    decision = answer.decision
    if decision.rule not in ("micro", "macro"):
        val, held_out = graph.split.val, answer.held_out
        everyone = held_out[~graph.split.train if graph.multilabel else val]
        decision = Decision.fit("macro", held_out[val], graph.y[val], everyone)
    return {
        part: percent(scores(logits, graph.y, {part: mask}, decision)[part])
        for part, mask, logits in _unseen(graph, answer)
    }


def _baselines(graph: Graph, settled: Settled) -> dict[str, Any]:
    """Return what the model has to beat, by name and part: majority and, if it was fitted, linear.

    Both are scored on the same nodes, linear with a decision of its own by the same rule.
    """
    parts = [(part, mask) for part, mask, _ in _unseen(graph, settled.model)]
    found: dict[str, Any] = {"majority": {part: majority(graph, mask) for part, mask in parts}}
    if settled.linear is not None:
        found_scores = held_out_scores(graph, settled.linear)
        decided = found_scores.get("decided", found_scores["with_fallback"])
        found["linear"] = {part: decided[part] for part, _ in parts}
    return found


def _intervals(graph: Graph, settled: Settled) -> dict[str, Any]:
    """Return 95 % intervals of the scores in percent, by name, part and average."""
    found: dict[str, Any] = {"model": {}, "linear": {}, "majority": {}}
    for name, answer in (("model", settled.model), ("linear", settled.linear)):
        if answer is None:
            continue
        for part, mask, logits in _unseen(graph, answer):
            said = answer.decision.labels(logits[mask], multilabel=graph.multilabel)
            found[name][part] = _interval(said, graph.labels_given(mask))
    for part, mask, _ in _unseen(graph, settled.model):
        true = graph.labels_given(mask)
        found["majority"][part] = _interval(commonest(graph).expand_as(true), true)
    return found


def _interval(said: Tensor, true: Tensor) -> dict[str, list[float]]:
    return {
        average: [round(100 * bound, 4) for bound in bounds]
        for average, bounds in f1_interval(said, true).items()
    }


def _unseen(graph: Graph, answer: Answer) -> list[tuple[str, Tensor, Tensor]]:
    """Return the parts that weights were not fitted to, with the logits to score them by."""
    given = [("val", graph.split.val, answer.held_out), ("test", graph.split.test, answer.logits)]
    return [(part, mask, logits) for part, mask, logits in given if mask.any()]
