"""Find columns and relations that predict the label almost perfectly by themselves.

They may be known only once the label is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from hanme.common.progress import begin_stage
from hanme.errors import HanmeError
from hanme.graph import EdgeType, Graph
from hanme.graph.features import feature_names, to_scipy, to_torch
from hanme.linear.alone import Alone, Source, alone, both_ways
from hanme.runs.results import result_of
from hanme.training import TrainingConfig, finalize
from hanme.training.final import MAX_IN_MEMORY

PERFECT = 0.99
"""ROC-AUC of a model above which it is almost perfect."""

NEARLY = 0.005
"""A source reaches nearly as much as the model if its ROC-AUC is at most this much smaller."""

MIN_MEASURED = 100
"""Minimum number of scored rows: of fewer, a perfect score is uncertain by several percent."""

MAX_NAMED = 5
"""Maximum number of sources that are named; all of them are left out of the second score."""


def suspicion(graph: Graph, config: TrainingConfig, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``result.json`` says of sources that reach nearly as much as a model alone.

    Empty, at no cost, unless the model is almost perfect on rows that nothing was fitted to; and if
    no source alone is. Without these sources, linear model and trees are fitted again.
    """
    reached, measured = _reached(result)
    size = sum(graph.num_links.values()) + sum(graph.sizes.values())
    if reached <= PERFECT or measured < MIN_MEASURED or (graph.stored and size > MAX_IN_MEMORY):
        return {}
    begin_stage("single columns")
    graph, scores = graph.in_memory(), dict[str, float]()
    found = suspects(graph, alone(graph, config.seed), reached - NEARLY)
    if not found:
        return {}
    rest = without(graph, [one.source for one in found])
    with suppress(HanmeError):  # no column and no link is left
        parts = result_of(rest, finalize(None, rest, config))["probabilities"]
        scores = parts.get("val", parts.get("oof", {}))
    return {
        "roc_auc": reached,
        "sources": [
            {"name": one.name, "roc_auc": one.roc_auc, "remedy": remedy(one.source, graph)}
            for one in found[:MAX_NAMED]
        ],
        "without": {name: scores[name] for name in ("roc_auc", "log_loss") if name in scores},
    }


def _reached(result: Mapping[str, Any]) -> tuple[float, int]:
    """Return the ROC-AUC of the model and its number of rows, else of linear model and trees."""
    models = {
        "model": result["probabilities"],
        "linear": result.get("baselines", {}).get("linear", {}),
    }
    for part in ("val", "oof"):
        for name, parts in models.items():
            if part in parts:
                return parts[part].get("roc_auc", 0.0), result["counts"][name][part]["nodes"]
    return 0.0, 0


def suspicion_lines(found: Mapping[str, Any]) -> list[str]:
    """Return what :func:`suspicion` has found in sentences: fact and question, score, remedy."""
    sources = found.get("sources", [])
    if not sources:
        return []
    it, asked = ("it", "is it") if len(sources) == 1 else ("them", "are they")
    facts = "; ".join(f"{one['name']} alone reaches {one['roc_auc']:.3f}" for one in sources)
    rest = found["without"].get("roc_auc")
    score = (
        "nothing is left to learn from" if rest is None else f"the base learners reach {rest:.3f}"
    )
    remedies = "; ".join(dict.fromkeys(one["remedy"] for one in sources))
    return [
        f"ROC AUC is {found['roc_auc']:.3f} on rows that nothing was fitted to, and {facts}: "
        f"{asked} known when you predict?",
        f"Without {it}, {score}. To leave {it} out: {remedies}.",
    ]


def suspects(graph: Graph, found: Sequence[Alone], least: float) -> list[Alone]:
    """Return the sources that reach a score alone, each once.

    Columns of linked rows are left out if a relation to these rows reaches it by itself.
    """
    best, relations = dict[object, Alone](), set[EdgeType]()
    found = [one for one in found if one.roc_auc >= least]
    for one in found:
        if one.source.relation is not None:
            relations.update(both_ways(graph, one.source.relation))
    for one in found:
        if one.source.relation is not None or not relations.intersection(one.walk):
            best.setdefault(one.source.key, one)
    return list(best.values())


def remedy(source: Source, graph: Graph) -> str:
    """Return how to leave a source out."""
    own_tables = graph.provenance.fitted is not None
    if source.field is None:
        assert source.relation is not None
        if own_tables:
            return f"delete [relations.{source.relation[1]}] from graph.toml"
        return f"leave the relation {source.relation} out of the graph"
    if own_tables:
        return f"delete {source.field.name} from [nodes.{source.node_type}.features] in graph.toml"
    return f"leave {source.field.name} out of x of node type {source.node_type}"


def without(graph: Graph, sources: Sequence[Source]) -> Graph:
    """Return a graph in which columns are 0, and relations have no links in either direction.

    Means of a column, which types without columns of their own have, are 0 as well.
    """
    nodes, links = dict(graph.nodes), dict(graph.links)
    dropped = dict[str, set[int]]()
    for source in sources:
        if source.relation is not None:
            for edge_type in both_ways(graph, source.relation):
                links[edge_type] = links[edge_type][:, :0]
            continue
        assert source.field is not None
        start, end = source.field.start, source.field.start + source.field.width
        names = feature_names(graph, source.node_type)[start:end]
        means = {f"mean {name} of {source.node_type}" for name in names}
        for kind in nodes:
            found = [i for i, name in enumerate(feature_names(graph, kind)) if name in means]
            dropped.setdefault(kind, set()).update(found)
        dropped.setdefault(source.node_type, set()).update(range(start, end))
    for kind, columns in dropped.items():
        x = nodes[kind].x
        if columns and x is not None:
            nodes[kind] = replace(nodes[kind], x=_without_columns(x, sorted(columns)))
    edge_attr = {e: x[: links[e].size(1)] for e, x in graph.edge_attr.items()}
    return replace(graph, nodes=nodes, links=links, edge_attr=edge_attr)


def _without_columns(x: Tensor, columns: list[int]) -> Tensor:
    kept = torch.ones(x.size(1))
    kept[columns] = 0
    if x.layout == torch.strided:
        return x * kept
    product = csr_array(to_scipy(x) @ diags_array(kept.numpy(), format="csr"))
    product.eliminate_zeros()
    return to_torch(product)
