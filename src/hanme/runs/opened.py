"""Open a run: the single entry point for predicting, scoring and explaining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hanme.common.files import save_tensors, whole
from hanme.data.tables.build.fitted import FittedGraph
from hanme.decision import Decision
from hanme.errors import HanmeError
from hanme.explain import Explainer, Explanation, Fidelity, fidelity
from hanme.graph import Graph
from hanme.runs.build import digest_of, load_graph
from hanme.runs.config import RunConfig
from hanme.runs.folder import Run
from hanme.runs.prediction import Prediction
from hanme.runs.results import score_parts
from hanme.training import Stacked, TrainingResult, as_predicted
from hanme.training.batches import stands_alone


@dataclass(eq=False)
class OpenedRun:
    """A trained model on a graph, with its decision and its result.

    All interfaces use it, so they agree. Make one with :meth:`open`; a fitted
    :class:`~hanme.Classifier` holds one that was never in a folder.

    Args:
        config: The configuration.
        graph: The graph; the final model sees the labels of validation nodes if it was refitted.
        model: The trained model.
        decision: Turns its logits into probabilities and labels.
        result: What ``result.json`` holds.
        metrics: A row per scored epoch.
        schema: The schema of the graph it was trained on; None for a data set with a name.
        folder: The run folder, if there is one.
        trained: All outputs of a model that was trained in this process.
    """

    config: RunConfig
    graph: Graph
    model: Stacked
    decision: Decision
    result: dict[str, Any]
    metrics: list[dict[str, float]]
    schema: FittedGraph | None = None
    folder: Path | None = None
    trained: TrainingResult | None = None

    def __post_init__(self) -> None:
        self.graph = as_predicted(self.graph, self.config.training)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        graph: Graph | str | Path | None = None,
        source: str | Path | None = None,
    ) -> OpenedRun:
        """Open a finished run.

        Args:
            folder: The run folder.
            graph: Another graph of the same schema, used as passed; or the path of a
                ``graph.toml`` or a store, whose columns are encoded as in training (default: the
                graph of the run, with its tables as they are now).
            source: Another place to load the run's own graph from.
        """
        run = Run.open(Path(folder))
        result = run.result()  # refuses an unfinished run before its graph is loaded
        schema = run.fitted()
        loaded = load_like(run.config, schema, graph, source)
        model, decision, metrics = run.model(loaded), run.decision(), run.metrics()
        return cls(run.config, loaded, model, decision, result, metrics, schema, run.folder)

    def save(self, folder: Path) -> None:
        """Write a run folder; refuse one that holds a run."""
        run = Run.create(folder, self.config, self.schema)
        run.write_metrics(self.metrics)
        self.finish(run)

    def finish(self, run: Run) -> None:
        """Write logits, predictions, weights and, last, the result to the folder of a run."""
        if self.trained is not None:
            outputs = self.trained.outputs
            tensors = {"held_out": outputs.held_out, "final": outputs.logits}
            tensors = {name: x.clone().contiguous() for name, x in tensors.items()}
            save_tensors(run.folder / "logits.safetensors", tensors, {})
        self.predict().write_here(run.folder / "predictions.parquet")
        run.finish(self.model, self.decision, self.result)

    def with_graph(self, graph: Graph | str | Path) -> OpenedRun:
        """Return the same model on another graph of the same schema, see :meth:`open`.

        Nodes without ids are the same nodes if the graph has the same number of target nodes.
        """
        loaded = load_like(self.config, self.schema, graph)
        return replace(self, graph=loaded, model=self.model.aligned_to(loaded), trained=None)

    @property
    def differs_from_training(self) -> bool:
        """Whether ids, labels or split of the graph differ from those of training."""
        return self.schema is not None and digest_of(self.graph) != self.schema.trained_on

    def require_training_graph(self) -> None:
        """Refuse to score nodes whose part of the split is unknown."""
        require_unchanged(self.graph, self.schema, self.folder or "this run")

    @cached_property
    def _all_logits(self) -> Tensor:
        return self.trained.outputs.logits if self.trained else self.model.predict(self.graph)

    def logits(self, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[R, C]``.

        A node's logits do not depend on which other nodes are requested. Of a stored graph, only
        what the nodes reach is read.
        """
        if nodes is None:
            return self._all_logits
        network = self.model.network
        if self.model.needs_subgraph(self.graph) and (network is None or stands_alone(network)):
            return self.model.predict(self.graph, nodes)
        return self._all_logits[nodes]

    def predict(self, nodes: Sequence[str | int] | None = None) -> Prediction:
        """Predict labels of target nodes, each by id, else name, else number (default: all)."""
        if nodes is None:
            numbers, logits = torch.arange(self.graph.targets.num_nodes), self.logits()
        else:
            numbers = self._numbers(nodes)
            logits = self.logits(numbers)
        return Prediction(self.graph, numbers, logits, self.decision, self.differs_from_training)

    def embed(self, nodes: Sequence[str | int] | None = None) -> Tensor:
        """Return the network's embeddings of target nodes, ``[n, H]``; see :meth:`predict`."""
        return self.model.embed(self.graph, None if nodes is None else self._numbers(nodes))

    def _numbers(self, nodes: Sequence[str | int]) -> Tensor:
        if isinstance(nodes, str):
            raise HanmeError(f"Expected `nodes` to be a list, such as [{nodes!r}], but got a text")
        return torch.tensor([self.graph.targets.find(node) for node in nodes], dtype=torch.long)

    def evaluate(self) -> dict[str, Any]:
        """Return micro and macro F1 in percent by decision rule and part of the split.

        Scores of validation or out-of-fold nodes are those measured in training, by what was not
        fitted to them.
        """
        self.require_training_graph()
        by_rule = score_parts(self.graph, self.logits(), self.decision)
        for rule, parts in self.result["scores"].items():
            if rule in by_rule:
                by_rule[rule] |= {part: parts[part] for part in ("val", "oof") if part in parts}
        return by_rule

    @cached_property
    def explainer(self) -> Explainer:
        """The explainer of this model on this graph."""
        return Explainer(self.model, self.graph, self.decision)

    def explain(self, node: str | int, **options: Any) -> Explanation:
        """Explain the prediction of a node, see :meth:`Explainer.explain`."""
        return self.explainer.explain(node, **options)

    def fidelity(self, **options: Any) -> Fidelity:
        """Measure explanations, see :func:`hanme.explain.fidelity`."""
        self.require_training_graph()
        return fidelity(self.explainer, **options)


def load_like(
    config: RunConfig,
    schema: FittedGraph | None,
    graph: Graph | str | Path | None = None,
    source: str | Path | None = None,
) -> Graph:
    """Load the graph of a run, or another one of its schema, see :meth:`OpenedRun.open`."""
    if isinstance(graph, Graph):
        loaded = graph if schema is None else _checked(graph, schema)
    else:
        if graph is not None and schema is None:
            name = config.data.name
            raise HanmeError(f"{graph}: the run was trained on {name}, not on a graph.toml")
        if graph is not None and source is not None:
            raise HanmeError(f"--data {source}: --graph {graph} already names the tables")
        if graph is not None:
            source = whole(graph)
        loaded = load_graph(config, source=source, schema=schema)
    for kind, width in (schema.widths if schema else {}).items():
        if (here := loaded.widths.get(kind, 0)) != width:
            raise HanmeError(
                f"node type {kind}: {here} features, but the run was trained with {width}; "
                "one-hot ids cannot grow without training again"
            )
    return loaded


def require_unchanged(graph: Graph, schema: FittedGraph | None, where: object) -> None:
    """Refuse a graph whose ids, labels or split differ from those that a run was trained on."""
    if schema is not None and digest_of(graph) != schema.trained_on:
        raise HanmeError(
            f"{where}: ids, labels or split of its tables have changed since it was trained, so "
            "training rows may now be test rows; hanme predict and explain NODE still work"
        )


def same_encoding(graph: Graph, schema: FittedGraph) -> bool:
    """Return whether the columns of a graph are encoded as those of a run."""
    fitted = graph.provenance.fitted
    return fitted is None or fitted["features"] == schema.learnt()["features"]


def _checked(graph: Graph, schema: FittedGraph) -> Graph:
    """Return a graph with the label names of training; refuse one of another schema."""
    for what, mine, theirs in (
        ("target", schema.target, graph.target),
        ("multilabel", schema.multilabel, graph.multilabel),
        ("types", sorted(schema.features), sorted(graph.node_types)),
        ("relations", sorted(schema.relations), sorted(graph.edge_types)),
    ):
        if mine != theirs:
            raise HanmeError(
                f"the schema is not that of the graph trained on: {what}: {theirs}, not {mine}"
            )
    if not same_encoding(graph, schema):
        raise HanmeError(
            "the columns of this graph are encoded by its own values, not as in training: pass the "
            "path of its graph.toml instead, so that they are encoded as in training"
        )
    names, labels = schema.labels, graph.labels
    if labels == names:
        return graph
    unnamed = labels == [str(label) for label in range(len(labels))]
    if not unnamed or len(labels) > len(names) or (graph.multilabel and len(labels) < len(names)):
        raise HanmeError(f"labels {labels}, but the model was trained with {names}, in this order")
    return replace(graph, labels=names)
