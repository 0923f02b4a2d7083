"""From a configuration to a graph and a model."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from hanme.common.numbers import lasting, short
from hanme.data import FittedGraph, load
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.chain import Chain
from hanme.graph.defaults import instances, why_none
from hanme.graph.metapath import Metapath
from hanme.graph.splits import without_fold
from hanme.nn import MODELS
from hanme.nn.model import ChannelModel, Model
from hanme.ops import choose_backend
from hanme.ops.cost import memory, readable
from hanme.runs.config import PYTHON, ModelConfig, RunConfig
from hanme.runs.pace import seconds_per_epoch
from hanme.training import Wide

MANY_ROOTS, FEWER = 50_000, 64
"""With more roots, over all default metapaths, HAN-ME has so many channels: half the time."""

TRIED = 8
"""About how many metapaths at most are tried to say how long an epoch takes."""


def load_graph(
    config: RunConfig, *, source: str | Path | None = None, fitted: FittedGraph | None = None
) -> Graph:
    """Load the graph of a run, from another ``source`` than the configuration says if one is given.

    Columns of tables become features as a run has ``fitted`` them.
    """
    data = config.data
    if data.name == PYTHON:
        raise HanmeError("trained on a graph made in Python: give `graph` to Classifier.load")
    return load(
        data.name,
        source=source or data.source,
        features=data.features,
        seed=config.training.seed if data.seed is None else data.seed,
        options=data.options,
        fitted=fitted,
    )


def folded(graph: Graph, config: RunConfig) -> Graph:
    """Return the graph that a run trains on: one without a fold trains on all labels but those."""
    training = config.training
    if training.fold is None:
        return graph
    split = without_fold(graph.split, graph.y, training.fold, training.folds, seed=training.seed)
    return replace(graph, split=split)


def build_model(config: ModelConfig, graph: Graph, wide: Wide | None = None) -> Model:
    """Build the model of a run, with weights of the sizes that a graph asks for.

    A model that takes a ``wide`` part gets the one that training chose.
    """
    for spec in config.options.get("metapaths", []):
        _refuse_empty(Metapath.of(spec, graph.metadata()), graph)
    make = MODELS[config.name]
    sizes = {"in_channels": graph.widths} if "in_channels" in _parameters(config.name) else {}
    return make(
        graph.metadata(),
        target=graph.target,
        out_channels=len(graph.labels),
        **sizes,
        **config.options | ({"blocks": wide.channels} if wide and takes_wide(config.name) else {}),
    )


def takes_wide(model: str) -> bool:
    """Return whether a model can have a wide part."""
    return model in MODELS and "blocks" in _parameters(model)


def takes_metapaths(model: str) -> bool:
    """Return whether a model has the option ``metapaths``."""
    return model in MODELS and "metapaths" in _parameters(model)


def with_metapaths(
    model: str, options: dict[str, Any], graph: Graph, *, recipe: str = "paper"
) -> tuple[str, dict[str, Any]]:
    """Return a model and its options, with a graph's metapaths where it takes some and has none.

    On a graph without any, all that the default recipe leaves of ``hanme`` is its wide part: the
    model is ``linear``. With many roots, ``hanme`` has half as many channels by this recipe.
    """
    if not takes_metapaths(model) or "metapaths" in options:
        return model, options
    ours = model == "hanme" and recipe == "default"
    if graph.metapaths:
        many = len(graph.metapaths) * graph.targets.num_nodes > MANY_ROOTS and not graph.stored
        size = {"hidden_channels": FEWER} if ours and many and "heads" not in options else {}
        return model, {"metapaths": graph.metapaths, **size, **options}
    if ours:
        return "linear", {}
    raise HanmeError(f"model {model}: {why_none(graph)}; --model linear needs no metapath")


def notes(graph: Graph) -> list[str]:
    """Say what a user's own tables lost: links to unknown ids, repeated rows, rare labels."""
    return graph.provenance.notes + [
        f"{relation}: {count:,} links to unknown ids dropped"
        for relation, count in graph.provenance.dropped_links.items()
        if count
    ]


def costs(config: ModelConfig, graph: Graph) -> list[str]:
    """Say how many instances a model attends to and about what memory that takes, by metapath.

    Where these are the default metapaths, those that were left out are said, too. The last line is
    how long an epoch takes. It is not known of a stored graph, which is not read for it, nor where
    instances are drawn.
    """
    if not takes_metapaths(config.name):
        return []
    options = config.options
    backend = choose_backend(options.get("backend", "auto"), graph.y.device)
    heads, lines = options["heads"], []
    for spec in options["metapaths"] if not graph.stored else ():
        chain = _chain(Metapath.of(spec, graph.metadata()), graph)
        needed = readable(memory(backend, chain, heads, options["hidden_channels"] // heads))
        instances = short(int(chain.count().sum()))
        lines.append(f"{chain.metapath}: {instances} instances, backend {backend}, about {needed}")
    if options["metapaths"] == graph.metapaths:
        lines += [
            f"{metapath}: left out, {why}; -m names the metapaths to use, such as this one"
            for metapath, why in graph.provenance.left_out_metapaths.items()
        ]
    if graph.stored or options.get("per_root"):
        return lines
    return [*lines, f"An epoch takes about {lasting(pace(config, graph))} on this machine"]


def pace(config: ModelConfig, graph: Graph) -> float:
    """Estimate how many seconds an epoch of a model with metapaths takes on this machine.

    Of many metapaths some are tried, from the smallest to the largest.
    """
    every = [Metapath.of(spec, graph.metadata()) for spec in config.options["metapaths"]]
    step = -(-len(every) // TRIED)
    tried = every if step == 1 else sorted(every, key=lambda m: instances(m, graph))
    tried = tried[(step - 1) // 2 :: step]
    options = config.options | {"metapaths": [m.text for m in tried]}
    model = build_model(config.model_copy(update={"options": options}), graph)
    assert isinstance(model, ChannelModel)
    return seconds_per_epoch(model, graph) * len(every) / len(tried)


def _parameters(model: str) -> Any:
    return inspect.signature(MODELS[model]).parameters


def _chain(metapath: Metapath, graph: Graph) -> Chain:
    return Chain.build(metapath, graph.links, graph.sizes)


def _refuse_empty(metapath: Metapath, graph: Graph) -> None:
    if graph.stored and all(graph.num_links[step] for step in metapath.steps):
        return  # counting would pass over all links
    if not _chain(metapath, graph).count().any():
        empty = [step for step in metapath.steps if not graph.links[step].numel()]
        why = f"; the relation {empty[0]} is empty" if empty else ""
        raise HanmeError(f"metapath {metapath}: it has no instance on this graph{why}")
