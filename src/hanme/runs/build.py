"""Build what a configuration describes: the graph, and the model for it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from hanme.common.progress import begin_stage
from hanme.data import load
from hanme.data.tables.build.fitted import FittedGraph
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.defaults import why_none
from hanme.nn import ENCODERS, MODELS
from hanme.nn.channels import MetapathChannels
from hanme.nn.model import Model
from hanme.runs.config import PYTHON, ModelConfig, RunConfig, model_options
from hanme.runs.reviewed import with_reviewed

MANY_ROOTS, FEWER = 50_000, 64
"""Above this number of roots, over all default metapaths, HAN-ME gets this hidden size: it halves
the time per epoch."""


def load_graph(
    config: RunConfig, *, source: str | Path | None = None, schema: FittedGraph | None = None
) -> Graph:
    """Load the graph of a run.

    Args:
        config: The configuration of the run.
        source: Another place to load it from (default: ``config.data.source``).
        schema: The schema of the run, by which columns of tables are encoded (default: encode them
            as in a new run).
    """
    data = config.data
    if data.name == PYTHON:
        raise HanmeError("trained on a graph made in Python: pass `graph` to Classifier.load")
    begin_stage("loading")
    graph = load(
        data.name,
        source=source or data.source,
        features=data.features,
        seed=config.training.seed if data.seed is None else data.seed,
        options=data.options,
        fitted=schema,
    )
    return with_reviewed(graph, data.reviewed, skip_unknown=schema is not None)


def schema_of(config: RunConfig, graph: Graph) -> FittedGraph | None:
    """Return the schema that a run stores of its graph; None for a data set with a name."""
    if graph.provenance.fitted is not None:
        return FittedGraph.make(graph.provenance.fitted | {"widths": graph.widths}, "graph")
    if config.data.name != PYTHON:
        return None
    return FittedGraph(
        target=graph.target,
        labels=graph.labels,
        multilabel=graph.multilabel,
        relations=graph.edge_types,
        features={kind: {} for kind in graph.node_types},
        trained_on=digest_of(graph),
        widths=graph.widths,
    )


def digest_of(graph: Graph) -> str:
    """Return a hash of ids, labels and split of a graph's target nodes."""
    if graph.provenance.digest is not None:
        return graph.provenance.digest
    digest = hashlib.sha256()
    for tensor in (graph.y, *graph.split):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def build_network(config: ModelConfig, graph: Graph) -> Model:
    """Build the network of a run for a graph."""
    options = dict(config.options)
    if "in_channels" in _parameters(config.name):
        options["in_channels"] = graph.widths
    if graph.edge_attr and "edge_dim" in _parameters(config.name):
        options["edge_dim"] = {e: prod(x.shape[1:]) for e, x in graph.edge_attr.items()}
    return MODELS[config.name](
        graph.metadata(), target=graph.target, out_channels=len(graph.labels), **options
    )


def metapath_channels(model: Model) -> list[MetapathChannels]:
    """Return the parts of a model that attend to metapath instances."""
    return [part for part in model.modules() if isinstance(part, MetapathChannels)]


def check_metapaths(model: Model, graph: Graph) -> None:
    """Refuse to train a model on a metapath without instances."""
    for metapath in [m for part in metapath_channels(model) for m in part.metapaths]:
        empty = [step for step in metapath.steps if not graph.num_links[step]]
        # Counting the instances of a stored graph would read all of its links.
        if empty or not (graph.stored or graph.chain(metapath).count().any()):
            why = f"; the relation {empty[0]} is empty" if empty else ""
            raise HanmeError(f"metapath {metapath}: it has no instance on this graph{why}")


def is_stacked(config: RunConfig) -> bool:
    """Return whether a run stacks its network with the linear model; else that is a baseline."""
    return config.training.linear and config.model.name == "hanme"


def takes_metapaths(model: str) -> bool:
    """Return whether a model has the option ``metapaths``."""
    return model in MODELS and "metapaths" in _parameters(model)


def with_metapaths(
    model: str, options: dict[str, Any], graph: Graph, *, recipe: str = "default"
) -> tuple[str, dict[str, Any]]:
    """Complete a model and its options with the default metapaths of a graph, if it takes some.

    On a graph without metapaths, the default recipe trains ``linear`` instead of ``hanme``. With
    many roots, it uses half the hidden size.
    """
    if not takes_metapaths(model) or "metapaths" in options:
        return model, options
    by_default = model == "hanme" and recipe == "default"
    if graph.metapaths:
        many = len(graph.metapaths) * graph.targets.num_nodes > MANY_ROOTS and not graph.stored
        size = {"hidden_channels": FEWER} if by_default and many and "heads" not in options else {}
        return model, {"metapaths": graph.metapaths, **size, **options}
    if by_default:
        known = model_options(model)
        for name in options:
            if name not in known and options.get("encoder") in (None, *ENCODERS.builtin):
                raise HanmeError(f"model {model} has no option {name!r}; it has {', '.join(known)}")
        return "linear", {}
    raise HanmeError(f"model {model}: {why_none(graph)}; --model linear needs no metapath")


def notes(graph: Graph) -> list[str]:
    """Describe what was lost of a user's tables: links to unknown ids, repeated rows."""
    return graph.provenance.notes + [
        f"{relation}: {count:,} links to unknown ids dropped"
        for relation, count in graph.provenance.dropped_links.items()
        if count
    ]


def _parameters(model: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(MODELS[model]).parameters
