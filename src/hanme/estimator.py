"""An estimator as in scikit-learn: ``fit``, ``predict``, ``predict_proba``, ``score``, ``explain``.

>>> graph = hanme.Graph.from_tables("films")
>>> classifier = hanme.Classifier(model="hanme").fit(graph)
>>> classifier.predict_proba(nodes=["Inception"])
"""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch_geometric.data import HeteroData

from hanme.common.html import html_table
from hanme.data import FittedGraph
from hanme.errors import HanmeError, check_choice
from hanme.explain import Explanation, explain
from hanme.graph import Graph
from hanme.graph.defaults import there_and_back, why_none
from hanme.nn.model import Model
from hanme.runs import Prediction, Run, RunConfig, open_run, takes_metapaths, train, with_metapaths
from hanme.runs.config import PYTHON
from hanme.runs.train import finish, held_out, prepare
from hanme.runs.use import (
    all_logits,
    changed,
    check_widths,
    known_ids,
    load_fitting,
    renumber,
    trained_model,
    wide_parts,
)
from hanme.training import Epoch, Settled, Trainer, Wide, as_predicted, settle
from hanme.training.metrics import scores

AnyGraph: TypeAlias = Graph | HeteroData | str | Path
"""A graph, or where there is one: a ``graph.toml`` or its folder."""

Nodes: TypeAlias = Sequence[str | int] | None
"""Target nodes by id, name or number; None for all of them."""


class Classifier(BaseEstimator):  # type: ignore[misc]
    """Classify the nodes of a graph.

    Args:
        model: A model of ``hanme.nn.MODELS``.
        metapaths: Where the model looks (default: the graph's own, else each relation of the target
            there and back).
        options: Options of the model, such as ``{"encoder": "direct", "hidden_channels": 64}``.
        training: Fields of :class:`~hanme.training.TrainingConfig`, such as ``{"epochs": 50}``.
        seed: Draws the weights and the dropout.

    Attributes:
        graph_: The graph it was fitted on.
        model_: The trained model.
        classes_: The labels, in the order of the columns of :meth:`predict_proba`.
        epochs_: What each epoch scored.
    """

    def __init__(
        self,
        model: str = "hanme",
        *,
        metapaths: Sequence[str] | None = None,
        options: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        seed: int = 483,
    ) -> None:
        self.model = model
        self.metapaths = metapaths
        self.options = options
        self.training = training
        self.seed = seed

    def fit(
        self,
        graph: Graph | HeteroData,
        y: None = None,
        *,
        out: str | Path | None = None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    ) -> Self:
        """Train the model.

        Args:
            graph: The graph, which holds the labels and the split. PyG's graphs become one by
                :meth:`Graph.from_hetero <hanme.Graph.from_hetero>`.
            y: Not used; the graph has the labels.
            out: Train into a run folder, with a checkpoint every few epochs.
            on_epoch: Called after each epoch.
        """
        graph = _as_graph(graph)
        if graph.provenance.origin is None:
            graph = graph.with_provenance(fitted=_schema(graph))
        config = self._config(graph)
        if config.training.cross_fitted and out is None:
            self._temporary = TemporaryDirectory(prefix="hanme-")
            out = Path(self._temporary.name) / "run"
        if out is None:
            self._trainer, self._wide = prepare(config, graph)
            epochs: list[Epoch] = []
            self._trainer.run(epochs.append, on_epoch)
            model = self._trainer.model
            self._settled = settle(model, graph, config.training, self._wide)
            self.decision_ = self._settled.model.decision
            self._held_out = held_out(graph, self._settled.model)
            graph = as_predicted(graph, config.training)
            return self._fitted(graph, model, config, [asdict(epoch) for epoch in epochs])
        run = train(config, Path(out), graph=graph, on_epoch=on_epoch)
        self._read(run)
        graph = as_predicted(graph, config.training)
        return self._fitted(graph, trained_model(run, graph), config, run.metrics())

    def on(self, graph: AnyGraph) -> Classifier:
        """Return the same model on another graph of the same schema, such as one that has grown.

        Where nodes have no ids, those of a graph with as many are taken to be the same.

        Args:
            graph: A :class:`Graph`, a ``graph.toml`` or its folder.
        """
        fitted = self._graph.provenance.fitted
        known = None
        if fitted is not None:
            known = FittedGraph.make(fitted | {"widths": self._graph.widths}, "this graph")
        if isinstance(graph, Graph) and graph.provenance.origin is not None:
            graph = str(graph.provenance.origin["name"])
        other = copy.copy(self)
        if isinstance(graph, str | Path):
            here = load_fitting(self.config_, known, graph=graph)
            grown = changed(here, known)
        else:
            here, grown = _relabelled(_as_graph(graph), known), True
        here = as_predicted(here, self.config_.training)
        model = copy.deepcopy(self.model_)
        renumber(model, known_ids(model, self._graph), here)
        if here.targets.ids is None and here.targets.num_nodes != self._graph.targets.num_nodes:
            for part in wide_parts(model):
                part.forget()
        return other._fitted(here, model, self.config_, self.epochs_, grown=grown)

    def predict(self, graph: AnyGraph | None = None, *, nodes: Nodes = None) -> NDArray[Any]:
        """Predict labels.

        Args:
            graph: Another graph of the same schema, such as one that has grown: a :class:`Graph`, a
                ``graph.toml`` or its folder (default: the graph it was fitted on).
            nodes: Target nodes by id, name or number (default: all).

        Returns:
            The name of each node's label, ``[N]``; where nodes have several, a bool matrix
            ``[N, C]`` in the order of ``classes_``.
        """
        found = self.predictions(graph, nodes=nodes)
        several = found.graph.multilabel
        chosen = found.decision.labels(found.chosen_logits, multilabel=several).numpy()
        return chosen if several else self.classes_[chosen.argmax(1)]

    def predict_proba(
        self, graph: AnyGraph | None = None, *, nodes: Nodes = None
    ) -> NDArray[np.float32]:
        """Predict the probability of each label, ``[N, C]``; see :meth:`predict`."""
        found = self.predictions(graph, nodes=nodes)
        several = found.graph.multilabel
        return found.decision.probabilities(found.chosen_logits, multilabel=several).numpy()

    def predictions(self, graph: AnyGraph | None = None, *, nodes: Nodes = None) -> Prediction:
        """Predict labels and probabilities as a table with ids and names; see :meth:`predict`."""
        if graph is not None:
            return self.on(graph).predictions(nodes=nodes)
        here = self._graph
        chosen = None if nodes is None else [here.targets.find(node) for node in nodes]
        logits = all_logits(self.model_, here)
        return Prediction(here, logits, chosen, self.decision_, grown=self._grown)

    def score(self, part: str = "test") -> float:
        """Return micro F1 on a part of the split: ``"train"``, ``"val"`` or ``"test"``."""
        found = self.scores()
        check_choice("part", part, found)
        return found[part]["micro"]

    def scores(self) -> dict[str, dict[str, float]]:
        """Return micro and macro F1 on training, validation and test nodes, from 0 to 1."""
        graph = self._graph
        if self._grown:
            raise HanmeError(
                "the tables have changed since training: training rows may now be test rows"
            )
        masks = {part: mask for part, mask in graph.split.parts().items() if mask.any()}
        logits = all_logits(self.model_, graph)
        found = scores(logits, graph.y, masks, self.decision_)
        # Validation nodes by weights that have not seen them.
        return {part: f1._asdict() for part, f1 in found.items()} | {"val": self._held_out}

    def explain(self, node: str | int, *, top: int = 5) -> Explanation:
        """Explain a prediction by metapath instances, see :func:`hanme.explain.explain`."""
        return explain(self.model_, self._graph, node, top=top, decision=self.decision_)

    def save(self, folder: str | Path) -> None:
        """Write a run folder, which :meth:`load` and the commands of ``hanme`` take.

        A graph made in Python is not part of it: it has to be given to :meth:`load`.
        """
        folder = Path(folder)
        if self._trainer is None:
            assert self._run is not None
            if folder.resolve() != self._run.resolve():
                shutil.copytree(self._run, folder)
            return
        assert self._settled is not None
        run = Run.create(folder, self.config_, self._graph, self._wide)
        run.write_metrics(self.epochs_)
        finish(run, self._trainer, self._settled)

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | HeteroData | None = None) -> Classifier:
        """Load a run folder.

        Args:
            folder: A finished run.
            graph: The graph to use it on (default: that of the run, with tables as they are now).
        """
        run = Run.open(Path(folder))
        config = run.config
        options = dict(config.model.options)
        found = cls(
            config.model.name,
            metapaths=options.pop("metapaths", None),
            options=options,
            training=config.training.model_dump(exclude={"seed"}),
            seed=config.training.seed,
        )
        if graph is None:
            here, model = open_run(run)
        else:
            here = as_predicted(_relabelled(_as_graph(graph), run.fitted()), config.training)
            model = trained_model(run, here)
        found._read(run)
        grown = changed(here, run.fitted())
        return found._fitted(here, model, config, run.metrics(), grown=grown)

    _trainer: Trainer | None = None
    _settled: Settled | None = None
    _held_out: dict[str, float]
    _wide: Wide | None = None
    _run: Path | None = None
    _temporary: TemporaryDirectory[str] | None = None
    _grown: bool = False

    def _read(self, run: Run) -> None:
        """Take what a finished run knows besides its weights."""
        self._trainer, self._run, self.decision_ = None, run.folder, run.decision()
        result = run.result()
        val = result["scores"]["with_fallback"].get("val", {})  # what runs before 0.3 have
        self._held_out = result.get("held_out") or {k: v / 100 for k, v in val.items()}

    def _fitted(
        self,
        graph: Graph,
        model: Model,
        config: RunConfig,
        rows: list[dict[str, float]],
        *,
        grown: bool = False,
    ) -> Self:
        self.graph_, self.model_, self.config_, self.epochs_ = graph, model, config, rows
        self.classes_ = np.array(graph.labels)
        self._grown = grown
        return self

    @property
    def _graph(self) -> Graph:
        if not hasattr(self, "graph_"):
            raise NotFittedError("this Classifier is not fitted yet: call fit first")
        graph: Graph = self.graph_
        return graph

    def _config(self, graph: Graph) -> RunConfig:
        name, options = self.model, dict(self.options or {})
        training = {"recipe": "default", "seed": self.seed, **(self.training or {})}
        if self.metapaths is not None:
            options["metapaths"] = list(self.metapaths)
        elif takes_metapaths(name) and "metapaths" not in options:
            graph = there_and_back(graph)
            name, options = with_metapaths(name, options, graph, recipe=training["recipe"])
            if name != self.model:
                warnings.warn(f"{why_none(graph)}: {name} is trained", stacklevel=3)
            for metapath, why in (
                graph.provenance.left_out_metapaths.items() if graph.metapaths else ()
            ):
                warnings.warn(f"metapath {metapath}: left out, {why}", stacklevel=3)
        values = {
            "data": graph.provenance.origin or {"name": PYTHON, "features": "given"},
            "model": {"name": name, "options": options},
            "training": training,
        }
        return RunConfig.make(values, "Classifier")

    def _repr_html_(self) -> str:
        """Return the scores as a table, for notebooks."""
        if not hasattr(self, "graph_") or self._grown:
            return html_table(["model"], [[self.model]], "")
        rows = [[part, f1["micro"], f1["macro"]] for part, f1 in self.scores().items()]
        return html_table(["nodes", "micro F1", "macro F1"], rows, self.model)


def _schema(graph: Graph) -> dict[str, Any]:
    """Return what a run has to remember of a graph made in Python."""
    return FittedGraph(
        target=graph.target,
        labels=graph.labels,
        multilabel=graph.multilabel,
        relations=graph.edge_types,
        features={kind: {} for kind in graph.node_types},
        trained_on=graph.provenance.digest or "",
    ).learnt()


def _as_graph(graph: Graph | HeteroData) -> Graph:
    return graph if isinstance(graph, Graph) else Graph.from_hetero(graph)


def _relabelled(graph: Graph, fitted: FittedGraph | None) -> Graph:
    """Return a graph with the labels that a model was trained with; refuse another schema."""
    if fitted is None:
        return graph
    for what, mine, theirs in (
        ("target", fitted.target, graph.target),
        ("several labels per node", fitted.multilabel, graph.multilabel),
        ("types", sorted(fitted.features), sorted(graph.node_types)),
        ("relations", sorted(fitted.relations), sorted(graph.edge_types)),
    ):
        if mine != theirs:
            raise HanmeError(
                f"the schema is not that of the graph trained on: {what}: {theirs}, not {mine}"
            )
    names, found = fitted.labels, graph.labels
    if len(found) > len(names) or (graph.multilabel and len(found) < len(names)):
        raise HanmeError(f"{len(found)} labels, but the model was trained with {len(names)}")
    if found not in (names, [str(label) for label in range(len(found))]):
        raise HanmeError(f"labels {found}, but the model was trained with {names}, in this order")
    check_widths(graph, fitted.widths)
    return replace(graph, labels=names)
