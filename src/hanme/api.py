"""The whole way in a few lines: a graph, ``fit``, ``predict``, ``explain``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import HeteroData

from hanme.datasets import FittedGraph, default_features, default_metapaths, load, tables_name
from hanme.datasets.features import fill_features
from hanme.datasets.nodes import find
from hanme.datasets.splits import stratified_split
from hanme.errors import HanmeError
from hanme.explain import explain
from hanme.metapath import metapaths_between
from hanme.notebook import html_table
from hanme.training.config import RunConfig
from hanme.training.describe import describe
from hanme.training.metrics import as_matrix, scores
from hanme.training.pipeline import (
    build_model,
    check_widths,
    load_fitting,
    open_run,
    other_tables,
    takes_metapaths,
    train,
)
from hanme.training.predict import Prediction
from hanme.training.run import Run
from hanme.training.trainer import Epoch, Trainer


class Graph:
    """A graph to classify the nodes of.

    Args:
        data: A graph of your own. Its target needs ``y``: ``[N]`` with -1 for unlabelled nodes, or
            multi-hot ``[N, C]``, where a row of zeros is an unlabelled node. What else is missing
            is made up: masks by a stratified split (60 / 20 / 20 %), features as the mean of a
            node's neighbours', names of nodes and labels as numbers.
        target: The node type to classify, if ``data.target`` does not say so.
        seed: Draws the split where there is none.
    """

    def __init__(self, data: HeteroData, target: str | None = None, *, seed: int = 483) -> None:
        self.data = _completed(data, target, seed)
        self.seed = seed
        self.name: str | None = None
        self.features = "given"

    @classmethod
    def from_tables(
        cls, path: str | Path, *, features: str | None = None, seed: int = 483
    ) -> Graph:
        """A graph from tables of your own, described by a ``graph.toml`` (see docs/tables.md).

        Args:
            path: The file, or its folder.
            features: What node types other than the target get, see :func:`hanme.datasets.load`.
            seed: Draws the split where the tables have none.
        """
        name = tables_name(path)
        features = features or default_features(name)
        graph = cls(load(name, features=features, seed=seed), seed=seed)
        graph.name, graph.features = name, features
        return graph

    @property
    def metapaths(self) -> list[str]:
        """What :meth:`fit` takes by default: those of the data set, else all there and back."""
        if self.name is not None:
            return default_metapaths(self.name)
        data = self.data
        return [m.text for m in metapaths_between(data.metadata(), data.target, 2)]

    def inspect(self, hops: int = 4) -> dict[str, Any]:
        """Types, relations, labels, and metapaths with what they cost; see ``hanme inspect``."""
        return describe(self.data, hops, 128, 8)

    def fit(
        self,
        *,
        model: str = "hanme",
        metapaths: Sequence[str] | None = None,
        out: str | Path | None = None,
        on_epoch: Callable[[Epoch], None] = lambda epoch: None,
        training: dict[str, Any] | None = None,
        **options: Any,
    ) -> Classifier:
        """Trains a model.

        Args:
            model: A model of ``hanme.nn.MODELS``.
            metapaths: Where it looks.
            out: Also leave a run folder; of tables only.
            on_epoch: Called after each epoch.
            training: Fields of :class:`~hanme.training.TrainingConfig`, such as ``epochs``.
            **options: Options of the model, such as ``encoder`` or ``hidden_channels``.
        """
        values = {
            "data": {
                "name": self.name or "HeteroData",
                "features": self.features,
                "seed": self.seed,
            },
            "model": {
                "name": model,
                "options": options | self._metapaths_for(model, metapaths),
            },
            "training": {"seed": self.seed, **(training or {})},
        }
        config = RunConfig.make(values, "fit")
        if out is not None:
            if self.name is None:
                raise HanmeError("`out` is for graphs of tables only: a run reads them again")
            run = train(config, Path(out), on_epoch=on_epoch)
            self.data, trained = open_run(run)
            return Classifier(self.data, trained, config)
        trainer = Trainer(build_model(config.model, self.data), self.data, config.training)
        trainer.run(on_epoch)
        return Classifier(self.data, trainer.model.train(False), config)

    def _metapaths_for(self, model: str, given: Sequence[str] | None) -> dict[str, list[str]]:
        """The option, as given; where it is not, for models that take it."""
        wanted = given or (self.metapaths if takes_metapaths(model) else None)
        return {} if wanted is None else {"metapaths": list(wanted)}

    def __repr__(self) -> str:
        data = self.data
        nodes = ", ".join(f"{data[t].num_nodes:,} {t}" for t in data.node_types)
        links = sum(data[e].edge_index.size(1) for e in data.edge_types)
        labels = ", ".join(map(str, data[data.target].label_names))
        return f"Graph({nodes}; {links:,} links; {data.target}: {labels})"

    def _repr_html_(self) -> str:
        """Node types and relations as a table, for notebooks."""
        data = self.data
        rows = [["nodes", t, data[t].num_nodes] for t in data.node_types]
        rows += [["links", "-".join(e), data[e].edge_index.size(1)] for e in data.edge_types]
        labels = ", ".join(map(str, data[data.target].label_names))
        return html_table(["", "type", "number"], rows, f"labels of {data.target}: {labels}")


class Classifier:
    """A trained model on a graph.

    Args:
        data: The graph.
        model: The model, trained.
        config: How it was trained, and on what.
        grown: Whether the graph is not the one it was trained on: then nothing can be scored.
    """

    def __init__(
        self, data: HeteroData, model: Any, config: RunConfig, *, grown: bool = False
    ) -> None:
        self.data = data
        self.model = model
        self.config = config
        self.grown = grown

    @classmethod
    def open(cls, folder: str | Path) -> Classifier:
        """The model of a finished run folder, on its tables as they are now."""
        run = Run.open(Path(folder))
        data, model = open_run(run)
        grown = other_tables(data, run.fitted())
        return cls(data, model, run.config, grown=grown)

    def on(self, graph: Graph | str | Path) -> Classifier:
        """The same model on another graph of the same schema, such as one that has grown.

        Args:
            graph: A ``graph.toml``, its folder, or a :class:`Graph` of your own.
        """
        if isinstance(graph, HeteroData):
            raise HanmeError("Expected a graph.toml, its folder or a Graph: Graph(data) makes one")
        if isinstance(graph, Graph) and graph.name is None:
            data = _labelled_as(self.data, graph.data)
            check_widths(data, self._widths)
            return Classifier(data, self.model, self.config, grown=True)
        fitted = None
        if "fitted" in self.data:
            fitted = FittedGraph.make(self.data.fitted | {"widths": self._widths}, "this graph")
        path = str(graph.name if isinstance(graph, Graph) else graph)
        data = load_fitting(self.config, fitted, graph=path)
        return Classifier(data, self.model, self.config, grown=other_tables(data, fitted))

    @property
    def _fallback(self) -> bool:
        return self.config.training.fallback

    @property
    def _widths(self) -> dict[str, int]:
        return {kind: self.data[kind].x.size(1) for kind in self.data.node_types}

    @torch.no_grad()
    def predict(self, nodes: Sequence[str | int] | str | int | None = None) -> Prediction:
        """Labels of all target nodes, or of one or some by id, name or number."""
        if isinstance(nodes, str | int):
            nodes = [nodes]
        chosen = (
            None if nodes is None else [find(self.data, self.data.target, node) for node in nodes]
        )
        logits = self.model(self.data)
        return Prediction(self.data, logits, chosen, self._fallback, grown=self.grown)

    def explain(self, node: str | int, *, top: int = 5) -> Any:
        """Which metapath instances made a prediction, see :func:`hanme.explain.explain`."""
        return explain(self.model, self.data, node, top=top, fallback=self._fallback)

    @torch.no_grad()
    def scores(self) -> dict[str, dict[str, float]]:
        """Micro and macro F1 on training, validation and test nodes, from 0 to 1."""
        if self.grown:
            raise HanmeError(
                "the tables have changed since training: what was for training may now be for test"
            )
        store = self.data[self.data.target]
        masks = {p: store[f"{p}_mask"] for p in ("train", "val", "test")}
        masks = {p: mask for p, mask in masks.items() if mask.any()}
        found = scores(self.model(self.data), store.y, masks, fallback=self._fallback)
        return {part: f1._asdict() for part, f1 in found.items()}

    def __repr__(self) -> str:
        found = {} if self.grown else self.scores()
        parts = (f"; {p} micro F1 {f1['micro']:.2f}" for p, f1 in found.items())
        return f"Classifier({type(self.model).__name__}{''.join(parts)})"

    def _repr_html_(self) -> str:
        """Scores as a table, for notebooks."""
        found = {} if self.grown else self.scores()
        rows = [[part, f1["micro"], f1["macro"]] for part, f1 in found.items()]
        return html_table(["nodes", "micro F1", "macro F1"], rows, type(self.model).__name__)


def _labelled_as(trained: HeteroData, other: HeteroData) -> HeteroData:
    """A copy with the labels that a model was trained with; another schema is refused."""
    for what, mine, theirs in (
        ("target", trained.target, other.target),
        ("several labels per node", trained.multilabel, other.multilabel),
        ("types", sorted(trained.node_types), sorted(other.node_types)),
        ("relations", sorted(trained.edge_types), sorted(other.edge_types)),
    ):
        if mine != theirs:
            raise HanmeError(
                f"the schema is not that of the graph trained on: {what}: {theirs}, not {mine}"
            )
    other = copy.copy(other)
    names, y = trained[trained.target].label_names, other[other.target].y
    labels = y.size(1) if other.multilabel else int(y.max()) + 1
    if labels > len(names) or (other.multilabel and labels < len(names)):
        raise HanmeError(f"{labels} labels, but the model was trained with {len(names)}")
    theirs = other[other.target].label_names
    if theirs not in (names, _numbered(len(theirs))):
        raise HanmeError(f"labels {theirs}, but the model was trained with {names}, in this order")
    other[other.target].label_names = names
    return other


def _numbered(labels: int) -> list[str]:
    """What labels without names are called."""
    return [str(label) for label in range(labels)]


def _check_tensors(data: HeteroData) -> None:
    """Refuses features and links that no model could take."""
    for kind in data.node_types:
        if "x" not in data[kind]:
            continue
        x = data[kind].x
        if x.dim() != 2 or x.size(0) != data[kind].num_nodes or not x.is_floating_point():
            raise HanmeError(f"node type {kind}: expected x of floats, [N, F] for N nodes")
        if not (x if x.layout == torch.strided else x.values()).isfinite().all():
            raise HanmeError(f"node type {kind}: x has a value that is NaN or infinite")
    for edge_type in data.edge_types:
        links = data[edge_type].edge_index
        sizes = torch.tensor([[data[t].num_nodes] for t in (edge_type[0], edge_type[2])])
        if links.dim() != 2 or links.size(0) != 2 or links.is_floating_point():
            raise HanmeError(f"relation {edge_type}: expected edge_index of integers, [2, E]")
        if ((links < 0) | (links.cpu() >= sizes).to(links.device)).any():
            raise HanmeError(f"relation {edge_type}: edge_index names a node that is not there")


def _completed(data: HeteroData, target: str | None, seed: int) -> HeteroData:
    """A copy with all that training, predictions and explanations need."""
    target = target or str(data.target if "target" in data else "")
    if target not in data.node_types:
        raise HanmeError(f"Expected `target` to be one of {data.node_types}, but got {target!r}")
    _check_tensors(data)
    data = copy.copy(data)
    for kind in data.node_types:
        if "x" in data[kind]:
            data[kind].x = data[kind].x.float()  # as the models' weights
    data = fill_features(data, target, "given")
    data.target = target
    store = data[target]
    if "y" not in store or store.y.size(0) != store.num_nodes or store.y.dim() not in (1, 2):
        raise HanmeError(f"node type {target}: expected y of shape [N] or [N, C] for N nodes")
    data.multilabel = store.y.dim() == 2
    if not data.multilabel and store.y.is_floating_point():
        raise HanmeError(f"node type {target}: expected integers in y of shape [N]")
    if data.multilabel and not ((store.y == 0) | (store.y == 1)).all():
        raise HanmeError(f"node type {target}: expected 0 and 1 in y of shape [N, C]")
    labels = store.y.size(1) if data.multilabel else int(store.y.max()) + 1
    if "label_names" not in store:
        store.label_names = _numbered(labels)
    for kind in data.node_types:
        if "name" not in data[kind]:
            data[kind].name = [str(i) for i in range(data[kind].num_nodes)]
    if not any(f"{part}_mask" in store for part in ("train", "val", "test")):
        given = as_matrix(store.y, max(1, labels)).numpy()
        rarity = np.where(given, given.sum(0), np.iinfo(np.int64).max)
        stratum = np.where(given.any(1), rarity.argmin(1), -1)
        store.train_mask, store.val_mask, store.test_mask = stratified_split(
            stratum, val_share=0.2, test_share=0.2, seed=seed
        )
    return data
