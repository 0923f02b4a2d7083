"""Use a finished run: its scores, and predictions on its own graph or one that has grown since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hanme.common import device, ranks
from hanme.data import FittedGraph, is_store, tables_name
from hanme.decision import Decision, quality
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.texts import Texts
from hanme.nn.batch import Batch
from hanme.nn.channels import WideChannels
from hanme.nn.model import MeanModel, Model, needs_subgraph, subgraph_of
from hanme.runs.build import build_model, folded, load_graph
from hanme.runs.config import RunConfig
from hanme.runs.folder import Run, load_weights
from hanme.runs.prediction import Prediction
from hanme.training import as_predicted, size_weights
from hanme.training.batches import SHARED, logits_of, stands_alone
from hanme.training.metrics import F1, f1, scores


def open_run(
    run: Run, *, source: str | Path | None = None, graph: str | Path | None = None
) -> tuple[Graph, Model]:
    """Open the graph of a finished run, or another one of the same schema, and the trained model.

    Args:
        run: The run.
        source: Where the files of its graph are.
        graph: Another ``graph.toml``, such as one whose tables have grown.
    """
    run.result()  # a run that is not finished is refused before its graph is loaded
    loaded = load_fitting(run.config, run.fitted(), source=source, graph=graph)
    loaded = as_predicted(loaded, run.config.training)
    return loaded, trained_model(run, loaded)


def trained_model(run: Run, graph: Graph) -> Model:
    """Build a run's model for a graph and give it the weights of the run, or of its folds."""
    if run.folds:
        return MeanModel([trained_model(fold, graph) for fold in run.folds]).eval()
    model = build_model(run.config.model, graph, run.wide())
    size_weights(model, graph)
    load_weights(model, run.weights(), run.folder / "model.safetensors")
    model.train(False)
    renumber(model, run.ids(), graph)
    return model


def wide_parts(model: Model) -> list[WideChannels]:
    """Return the wide channels of a model, or of all that it is the mean of."""
    return [part for part in model.modules() if isinstance(part, WideChannels)]


def known_ids(model: Model, graph: Graph) -> dict[str, Texts]:
    """Return the ids that a model has weights for, by node type, where the graph has ids."""
    kinds = dict.fromkeys(kind for part in wide_parts(model) for kind in part.id_types)
    found = {kind: graph.nodes[kind].ids for kind in kinds}
    return {kind: Texts.of(ids) for kind, ids in found.items() if ids is not None}


def renumber(model: Model, known: Mapping[str, Texts], graph: Graph) -> None:
    """Fit the weights of ids to a graph that may have other nodes, or in another order."""
    parts = wide_parts(model)
    for kind, ids in known.items():
        here = graph.nodes[kind].ids
        if here is None or not parts:
            continue
        if len(here) == len(ids) and Texts.of(here) == ids:
            continue
        places = {text: i for i, text in enumerate(here)}
        numbers = torch.tensor([places.get(text, -1) for text in ids])
        for part in parts:
            part.renumber(kind, numbers, len(here))


def all_logits(model: Model, graph: Graph, batch_size: int | None = None) -> Tensor:
    """Return a trained model's logits of all target nodes, of so many at a time where it can."""
    if ranks.count() > 1:
        batch_size = batch_size or SHARED
    model = model.to(device.chosen())
    logits = logits_of(model, graph, batch_size=batch_size if stands_alone(model) else None)
    model.to(torch.device("cpu"))
    return logits


def evaluate(folder: Path, *, source: str | Path | None = None) -> dict[str, Any]:
    """Load a finished run's weights and score them again."""
    run = Run.open(folder)
    graph, model = open_run(run, source=source)
    refuse_changed(graph, run.fitted(), folder)
    training = run.config.training
    found = score_parts(graph, all_logits(model, graph, training.batch_size), run.decision())
    if training.refit or training.cross_fitted:  # the weights have seen validation nodes since
        for rule, parts in run.result()["scores"].items():
            if rule in found and "val" in parts:
                found[rule]["val"] = parts["val"]
            if training.cross_fitted:  # all that is labelled was in some fold
                found[rule].pop("train", None)
    return found


def predict(
    folder: Path,
    *,
    nodes: Sequence[str | int] | None = None,
    graph: str | Path | None = None,
    source: str | Path | None = None,
) -> Prediction:
    """Predict labels with a finished run.

    A node's prediction depends on the graph, not on the others asked for.

    Args:
        folder: The run.
        nodes: Target nodes by id, else by name, else by number (default: all).
        graph: Another ``graph.toml`` of the same schema, such as one whose tables have grown.
        source: Where the files of a benchmark graph are.
    """
    run = Run.open(folder)
    loaded, model = open_run(run, source=source, graph=graph)
    chosen = None if nodes is None else [loaded.targets.find(node) for node in nodes]
    if chosen is not None and needs_subgraph(model, loaded) and stands_alone(model):
        return predict_some(run, model, loaded, chosen)
    logits = all_logits(model, loaded, run.config.training.batch_size)
    return Prediction(loaded, logits, chosen, run.decision(), changed(loaded, run.fitted()))


@torch.no_grad()
def predict_some(run: Run, model: Model, graph: Graph, nodes: list[int]) -> Prediction:
    """Predict labels of some nodes of a graph, of which only what they touch is read."""
    subgraph = subgraph_of(model, graph, torch.tensor(nodes))
    roots = subgraph.roots
    logits = torch.zeros(subgraph.targets.num_nodes, len(graph.labels))
    logits[roots] = model(Batch.of(subgraph, roots)).cpu()
    grown = changed(graph, run.fitted())
    return Prediction(subgraph, logits, roots.tolist(), run.decision(), grown)


def load_fitting(
    config: RunConfig,
    fitted: FittedGraph | None,
    *,
    source: str | Path | None = None,
    graph: str | Path | None = None,
) -> Graph:
    """Load the graph of a trained model, or another ``graph.toml`` of the same schema."""
    if graph is not None and fitted is None:
        raise HanmeError(f"{graph}: the run was trained on {config.data.name}, not on a graph.toml")
    if graph is not None and source is not None:
        raise HanmeError(f"--data {source}: --graph {graph} says already where the tables are")
    if graph is not None:
        source = graph if is_store(graph) else tables_name(graph)
    loaded = folded(load_graph(config, source=source, fitted=fitted), config)
    if fitted is not None:
        check_widths(loaded, fitted.widths)
    return loaded


def changed(graph: Graph, fitted: FittedGraph | None) -> bool:
    """Return whether ids, labels or split of a graph differ from those a run was trained on."""
    return fitted is not None and graph.provenance.digest != fitted.trained_on


def refuse_changed(graph: Graph, fitted: FittedGraph | None, folder: Path) -> None:
    """Refuse to score or to resume a run on tables that have changed."""
    if changed(graph, fitted):
        raise HanmeError(
            f"{folder}: ids, labels or split of its tables have changed since it was trained, so "
            "training rows may now be test rows; hanme predict and explain NODE still work"
        )


def check_widths(graph: Graph, widths: dict[str, int]) -> None:
    """Refuse a graph whose nodes have another number of features than those trained on."""
    for kind, width in widths.items():
        if (here := graph.widths.get(kind, 0)) != width:
            raise HanmeError(
                f"node type {kind}: {here} features, but the run was trained with {width}; "
                "features that are one for each node cannot grow without training again"
            )


def score_parts(graph: Graph, logits: Tensor, decision: Decision | None = None) -> dict[str, Any]:
    """Return scores by decision rule and part of the split, in percent; empty parts have none.

    The scores under the run's own decision come first.
    """
    masks = {part: mask for part, mask in graph.split.parts().items() if mask.any()}
    rules = {
        "decided": decision,
        "with_fallback": Decision(rule="fallback"),
        "without_fallback": Decision(rule="half"),
    }
    return {
        rule: {part: percent(f1) for part, f1 in scores(logits, graph.y, masks, decide).items()}
        for rule, decide in rules.items()
        if decide is not None and (rule != "decided" or decide.rule in ("micro", "macro"))
    }


def worth(graph: Graph, logits: Tensor, decision: Decision, part: Tensor) -> dict[str, Any]:
    """Return what probabilities of some nodes are worth: Brier score, calibration error, bins."""
    p = decision.probabilities(logits[part], multilabel=graph.multilabel)
    return quality(p, graph.labels_given(part))._asdict()


def majority(graph: Graph, part: Tensor) -> dict[str, float]:
    """Return the scores of the commonest labels of training nodes, the same for every node."""
    true = graph.labels_given(part)
    return percent(f1(commonest(graph).expand_as(true), true))


def commonest(graph: Graph) -> Tensor:
    """Return the commonest labels of training nodes, bool, ``[C]``.

    Where nodes have several labels, that is those with the best micro F1 on training nodes.
    """
    train, labels = graph.split.train, len(graph.labels)
    train = train if train.any() else graph.split.labelled  # all are validated on, with folds
    y = graph.y[train]
    given = (y > 0).sum(0) if graph.multilabel else torch.bincount(y[y >= 0], minlength=labels)
    order = given.argsort(descending=True)
    k = torch.arange(1, labels + 1 if graph.multilabel else 2)
    micro = 2 * given[order].cumsum(0)[: len(k)] / (k * len(y) + given.sum())
    chosen = torch.zeros(labels, dtype=torch.bool)
    chosen[order[: int(micro.argmax()) + 1]] = True
    return chosen


def percent(found: F1) -> dict[str, float]:
    """Return micro and macro F1 in percent."""
    return {"micro": round(100 * found.micro, 4), "macro": round(100 * found.macro, 4)}
