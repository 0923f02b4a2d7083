"""An estimator as in scikit-learn: ``fit``, ``predict``, ``score``, and ``explain``."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from hanme.errors import check_choice
from hanme.explain import Explanation
from hanme.graph import Graph
from hanme.graph.defaults import why_none
from hanme.runs import (
    OpenedRun,
    Prediction,
    Run,
    RunConfig,
    load_graph,
    resolve,
    takes_metapaths,
    train,
)
from hanme.runs.results import rule_name
from hanme.runs.suspicion import suspicion_lines
from hanme.runs.train import train_in_memory
from hanme.training import Epoch

if TYPE_CHECKING:  # importing PyG takes seconds
    from torch_geometric.data import HeteroData

    AnyGraph: TypeAlias = Graph | HeteroData | str | Path
    """A graph, a PyG graph, or the name or path of a data set, see :func:`hanme.data.load`."""

Nodes: TypeAlias = Sequence[str | int] | None
"""Target nodes by id, name or number; None for all of them."""


class Classifier(BaseEstimator):  # type: ignore[misc]
    """Classify the nodes of a graph.

    Args:
        model: A model of ``hanme.nn.MODELS``.
        metapaths: The metapaths of the model (default: the graph's own, else each relation of the
            target there and back).
        options: Options of the model, such as ``{"encoder": "direct", "hidden_channels": 64}``.
        training: Fields of :class:`~hanme.training.TrainingConfig`, such as ``{"epochs": 50}``.
        seed: Draws weights and dropout; also the split, of a data set that :meth:`fit` loads.

    Once fitted, ``run_`` is the trained model as an :class:`~hanme.runs.OpenedRun`.
    """

    def __init__(
        self,
        model: str = "hanme",
        *,
        metapaths: Sequence[str] | None = None,
        options: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.model, self.metapaths, self.options = model, metapaths, options
        self.training, self.seed = training, seed

    def fit(
        self,
        graph: AnyGraph,
        y: None = None,
        *,
        out: str | Path | None = None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    ) -> Self:
        """Train the model.

        Args:
            graph: A graph, which holds labels and split; or the name or path of a data set, see
                :func:`hanme.data.load`. PyG's graphs are converted.
            y: Ignored; the graph holds the labels.
            out: Train into a run folder, with a checkpoint every few epochs.
            on_epoch: Called after each epoch.
        """
        config, loaded = self._resolve(graph)
        if out is None:
            self.run_ = train_in_memory(config, loaded, on_epoch)
        else:
            run = train(config, Path(out), graph=loaded, on_epoch=on_epoch)
            self.run_ = OpenedRun.open(run.folder, graph=loaded)
        if doubts := suspicion_lines(self.run_.result.get("suspicion", {})):
            warnings.warn(" ".join(doubts), stacklevel=2)
        return self

    def with_graph(self, graph: AnyGraph) -> Classifier:
        """Return the same model on another graph of the same schema, such as newer tables.

        A graph is used as passed; the columns of a ``graph.toml`` are encoded as in training.
        Nodes without ids are the same nodes if the graph has the same number of target nodes.
        """
        return self._holding(self._run.with_graph(_as_graph(graph)))

    def predict(self, graph: AnyGraph | None = None, *, nodes: Nodes = None) -> NDArray[Any]:
        """Predict labels of nodes, by id, name or number, of this graph or another one.

        Returns:
            The name of each node's label, ``[N]``; for multi-label targets, a bool matrix
            ``[N, C]`` in the order of ``classes_``.
        """
        table = self.predictions(graph, nodes=nodes)
        predicted = table.predicted.numpy()
        return predicted if table.graph.multilabel else self.classes_[predicted.argmax(1)]

    def predict_proba(
        self, graph: AnyGraph | None = None, *, nodes: Nodes = None
    ) -> NDArray[np.float32]:
        """Predict the probability of each label, ``[N, C]``; see :meth:`predict`."""
        return self.predictions(graph, nodes=nodes).probabilities.numpy()

    def predictions(self, graph: AnyGraph | None = None, *, nodes: Nodes = None) -> Prediction:
        """Predict labels and probabilities as a table with ids and names; see :meth:`predict`."""
        run = self._run if graph is None else self._run.with_graph(_as_graph(graph))
        return run.predict(nodes)

    def transform(
        self, graph: AnyGraph | None = None, *, nodes: Nodes = None
    ) -> NDArray[np.float32]:
        """Return the network's embedding of each node, ``[N, H]``; see :meth:`predict`.

        It is the fused vector that the head of the network turns into logits. Rows are in the order
        of ``nodes``, by default that of the graph. A model without a network, such as ``"linear"``,
        has none, and neither have ``"gat"`` and ``"magna"``, whose last layer reads the graph.
        """
        run = self._run if graph is None else self._run.with_graph(_as_graph(graph))
        return run.embed(nodes).numpy()

    def score(self, part: str = "test") -> float:
        """Return micro F1 on a part of the split, see :meth:`scores`."""
        scores = self.scores()
        check_choice("part", part, scores)
        return scores[part]["micro"]

    def scores(self) -> dict[str, dict[str, float]]:
        """Return scores on training nodes, ``"train"``, and on nodes that nothing was fitted to.

        These are ``"test"`` and ``"val"``, validation nodes that selected nothing; where these are
        few, a model without a network has ``"oof"``, out-of-fold scores of training nodes. Micro
        and macro F1, from 0 to 1; but on training nodes also ``log_loss``, ``roc_auc``,
        ``average_precision`` and ``lift`` of the tenth with the largest probabilities.
        """
        parts = self._run.evaluate()[rule_name(self._run.decision)]
        found = {part: {k: v / 100 for k, v in f1.items()} for part, f1 in parts.items()}
        for part, scores in self._run.result["probabilities"].items():
            names = ("log_loss", "roc_auc", "average_precision", "lift")
            found[part] |= {name: scores[name] for name in names if name in scores}
        return found

    def explain(self, node: str | int, **options: Any) -> Explanation:
        """Explain a prediction, see :meth:`hanme.explain.Explainer.explain`."""
        return self._run.explain(node, **options)

    def save(self, folder: str | Path) -> None:
        """Write a run folder, which :meth:`load` and the commands of ``hanme`` open.

        A graph made in Python is not part of it: pass it to :meth:`load`.
        """
        folder, trained_in = Path(folder), self._run.folder
        if trained_in is None:
            self._run.save(folder)
        elif folder.resolve() != trained_in.resolve():
            Run.find(folder, self._run.config, resume=False)  # refuses all but a new or empty one
            shutil.copytree(trained_in, folder, dirs_exist_ok=True)

    @classmethod
    def load(cls, folder: str | Path, graph: AnyGraph | None = None) -> Classifier:
        """Load a finished run, on its own tables as they are now or on another graph."""
        run = OpenedRun.open(folder, graph=None if graph is None else _as_graph(graph))
        options, training = dict(run.config.model.options), run.config.training
        classifier = cls(
            run.config.model.name,
            metapaths=options.pop("metapaths", None),
            options=options,
            training=training.model_dump(exclude={"seed"}),
            seed=training.seed,
        )
        return classifier._holding(run)

    def _holding(self, run: OpenedRun) -> Classifier:
        """Return a copy with another opened run."""
        other = type(self)(**self.get_params())
        other.run_ = run
        return other

    @property
    def _run(self) -> OpenedRun:
        check_is_fitted(self, "run_")
        run: OpenedRun = self.run_
        return run

    @property
    def classes_(self) -> NDArray[np.str_]:
        """The labels, in the order of the columns of :meth:`predict_proba`."""
        return np.array(self._run.graph.labels)

    def _resolve(self, graph: AnyGraph) -> tuple[RunConfig, Graph]:
        """Return the configuration for a graph, as ``hanme train`` makes it, and the graph."""
        options = dict(self.options or {})
        if self.metapaths is not None:
            options["metapaths"] = list(self.metapaths)
        values: dict[str, Any] = {
            "model": {"name": self.model, "options": options},
            "training": {"seed": self.seed, **(self.training or {})},
        }
        if isinstance(graph, str | Path):
            config, found = resolve(values | {"data": {"name": str(graph)}}, "Classifier")
        else:
            config, found = resolve(values, "Classifier", graph=_as_graph(graph))
        loaded = load_graph(config) if found is None else found
        if "metapaths" not in options and takes_metapaths(self.model):
            if config.model.name != self.model:
                warnings.warn(f"{why_none(loaded)}: {config.model.name} is trained", stacklevel=3)
            left_out = loaded.provenance.left_out_metapaths
            for metapath, why in left_out.items() if loaded.metapaths else ():
                warnings.warn(f"metapath {metapath}: left out, {why}", stacklevel=3)
        return config, loaded


def _as_graph(graph: Any) -> Any:
    """Convert a PyG graph; return graphs, names and paths as they are."""
    return graph if isinstance(graph, Graph | str | Path) else Graph.from_hetero(graph)
