"""The linear model: logistic regression on feature blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hanme.common.options import validated
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.features import feature_names
from hanme.graph.metapath import EdgeType
from hanme.graph.nodes import Texts
from hanme.linear.blocks import DesignMatrix, FeatureBlock, FeatureNames, parse_block
from hanme.linear.fit import FitData, fit_weights
from hanme.linear.learner import ColumnContributions, Contributions
from hanme.linear.matrices import GraphMatrices, Vector, rows_at
from hanme.linear.selection import LinearSpec, select_blocks

BATCH = 4096
"""Number of nodes of a stored graph to predict at a time."""

BIAS = "bias"


class Design:
    """The design matrix of some feature blocks on a graph."""

    def __init__(
        self,
        source: GraphMatrices,
        blocks: Sequence[FeatureBlock],
        matrices: Sequence[DesignMatrix],
    ) -> None:
        self.source, self.blocks, self.matrices = source, blocks, matrices
        self.widths = [matrix.width for matrix in matrices]

    @classmethod
    def on(
        cls,
        source: GraphMatrices,
        blocks: Sequence[FeatureBlock],
        idf: Sequence[Vector | None] | None = None,
    ) -> Design:
        """Return the design matrix of blocks, with the column weights of an earlier fit, if any."""
        pairs = zip(blocks, idf or [None] * len(blocks), strict=True)
        return cls(source, blocks, [block.matrix(source, each) for block, each in pairs])

    def extended(self, blocks: Sequence[FeatureBlock], idf: Sequence[Vector | None]) -> Design:
        """Return the design matrix of more blocks on the same graph."""
        known = dict(zip(map(str, self.blocks), self.matrices, strict=True))
        matrices = [
            known[str(block)] if str(block) in known else block.matrix(self.source, each)
            for block, each in zip(blocks, idf, strict=True)
        ]
        return Design(self.source, blocks, matrices)

    @cached_property
    def names(self) -> FeatureNames:
        """The names of features by node type."""
        graph = self.source.graph
        return {kind: feature_names(graph, kind) for kind in graph.nodes}


class LinearModel:
    """Logistic regression on sparse feature blocks of target nodes.

    Args:
        spec: The blocks, their scales and the strength of the penalty.
        blocks: The same blocks, parsed.
        weights: Weights of the columns of each block, ``[D, C]``.
        bias: ``[C]``.
        idf: Inverse document frequencies of the columns of each block; None where not used.
        ids: Ids of the nodes that have weights, by node type, where the graph has ids.
    """

    def __init__(
        self,
        spec: LinearSpec,
        blocks: Sequence[FeatureBlock],
        weights: Sequence[Tensor],
        bias: Tensor,
        idf: Sequence[Vector | None],
        ids: Mapping[str, Texts],
    ) -> None:
        self.spec, self.blocks = spec, list(blocks)
        self.weights, self.bias, self.idf, self.ids = list(weights), bias, list(idf), dict(ids)
        self._design: Design | None = None

    @classmethod
    def fit(
        cls,
        graph: Graph,
        nodes: Tensor | None = None,
        *,
        seed: int = 0,
        spec: LinearSpec | None = None,
    ) -> LinearModel:
        """Select blocks on the training nodes, and fit weights.

        Args:
            graph: The graph.
            nodes: Mask ``[N]`` of the labelled nodes to fit to (default: the training nodes).
            seed: Seed of the sample that selects blocks.
            spec: The blocks (default: selected).
        """
        mask = graph.split.train if nodes is None else nodes
        matrices = GraphMatrices(graph)
        spec = spec or select_blocks(graph, seed, matrices)
        (model,) = cls.fit_each(graph, spec, [mask], matrices)
        return model

    @classmethod
    def fit_each(
        cls,
        graph: Graph,
        spec: LinearSpec,
        masks: Sequence[Tensor],
        matrices: GraphMatrices | None = None,
        start: LinearModel | None = None,
    ) -> list[LinearModel]:
        """Fit a model to each of several sets of labelled nodes, given as masks ``[N]``.

        Args:
            graph: The graph.
            spec: The blocks.
            masks: The sets of nodes.
            matrices: Matrices of the graph to reuse.
            start: A model to start from, fitted to the same blocks.
        """
        blocks = [parse_block(text, graph.metadata()) for text in spec.blocks]
        design = Design.on(matrices or GraphMatrices(graph), blocks)
        nodes = torch.stack(list(masks)).any(0).nonzero().flatten()
        data = FitData(
            design.matrices,
            spec.scales,
            spec.strength,
            nodes.numpy(),
            graph.y[nodes],
            len(graph.labels),
            [mask[nodes] for mask in masks],
        )
        initial = None if start is None else torch.cat([*start.weights, start.bias[None]])
        return [cls.on(design, spec, weights) for weights in fit_weights(data, initial)]

    @classmethod
    def on(cls, design: Design, spec: LinearSpec, fitted: Tensor) -> LinearModel:
        """Return the model with given weights and, in the last row, the bias, ``[D + 1, C]``."""
        nodes = design.source.graph.nodes
        ends = dict.fromkeys(block.id_type for block in design.blocks if block.id_type)
        known = {kind: nodes[kind].ids for kind in ends}
        ids = {kind: Texts.of(texts) for kind, texts in known.items() if texts is not None}
        *weights, bias = torch.split(fitted, [*design.widths, 1])
        idf = [matrix.idf for matrix in design.matrices]
        model = cls(spec, design.blocks, weights, bias[0], idf, ids)
        model._design = design
        return model

    @classmethod
    def weighted_sum(cls, models: Sequence[LinearModel], slopes: Sequence[float]) -> LinearModel:
        """Return the model whose logits are a weighted sum of those of models on one graph."""
        blocks: dict[str, tuple[FeatureBlock, Tensor, Vector | None]] = {}
        bias, ids = torch.zeros_like(models[0].bias), dict[str, Texts]()
        for model, slope in zip(models, slopes, strict=True):
            bias, ids = bias + slope * model.bias, ids | model.ids
            for block, weight, idf in zip(model.blocks, model.weights, model.idf, strict=True):
                before = blocks[str(block)][1] if str(block) in blocks else 0
                blocks[str(block)] = block, before + slope * weight, idf
        parsed, weights, idfs = zip(*blocks.values(), strict=True)
        spec = models[0].spec.extended(list(blocks))
        total = cls(spec, parsed, weights, bias, idfs, ids)
        if (design := models[0]._design) is not None:
            total._design = design.extended(parsed, idfs)
        return total

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        return self.predict_each([self], graph, nodes)[0]

    @staticmethod
    def predict_each(
        models: Sequence[LinearModel], graph: Graph, nodes: Tensor | None = None
    ) -> Tensor:
        """Return the logits of several models with the same blocks, ``[models, n, C]``.

        This computes the design matrix once.
        """
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        if graph.stored:
            batches = torch.split(nodes, BATCH)
            subgraphs = (graph.subgraph(batch, models[0].walks()) for batch in batches)
            parts = [LinearModel.predict_each(models, sub, sub.roots) for sub in subgraphs]
            return torch.cat(parts, 1)
        logits = torch.cat([model.bias for model in models]).repeat(len(nodes), 1)
        weights = zip(*(model._weights_on(graph) for model in models), strict=True)
        for matrix, each in zip(models[0]._on(graph).matrices, weights, strict=True):
            logits += matrix.times(nodes.cpu().numpy(), torch.cat(each, 1))
        return torch.stack(logits.chunk(len(models), 1))

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block and the bias add to the logits, ``[n, C]`` by name."""
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        parts = zip(
            self.spec.blocks, self._on(graph).matrices, self._weights_on(graph), strict=True
        )
        logits = {name: each.times(nodes.cpu().numpy(), weight) for name, each, weight in parts}
        return logits | {BIAS: self.bias.expand(len(nodes), -1)}

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node; with the bias, the logits."""
        design = self._on(graph)
        blocks = []
        for block, matrix, weight in zip(
            self.blocks, design.matrices, self._weights_on(graph), strict=True
        ):
            row = matrix.rows(np.array([node]))
            known = row.indices < len(weight)
            columns, values = row.indices[known], row.data[known].astype(np.float64)
            products = values[:, None] * weight.numpy()[columns]
            phrase = partial(block.column, graph, design.names)
            blocks.append(ColumnContributions(str(block), columns, products, phrase, block.id_type))
        return Contributions(self.bias.double().numpy(), blocks)

    def columns(self, graph: Graph) -> list[str]:
        """Return each column of the design matrix in words, such as ``actor: Leila Holm``."""
        design = self._on(graph)
        return [
            block.column(graph, design.names, number)
            for block, width in zip(self.blocks, design.widths, strict=True)
            for number in range(width)
        ]

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return the metapaths of the blocks as sequences of relations."""
        return [block.path.steps for block in self.blocks if block.path]

    def frozen(self, graph: Graph) -> LinearModel:
        """Return a copy without the matrices of a graph; it reads nothing beyond its walks."""
        return LinearModel(self.spec, self.blocks, self.weights, self.bias, self.idf, self.ids)

    def aligned_to(self, graph: Graph) -> LinearModel:
        """Return the model with its weights in the order of a graph's nodes, matched by id."""
        weights, ids = list(self.weights), dict(self.ids)
        for kind, known in self.ids.items():
            here = graph.nodes[kind].ids
            if here is None or (len(here) == len(known) and Texts.of(here) == known):
                continue
            ids[kind] = Texts.of(here)
            places = {text: i for i, text in enumerate(known)}
            numbers = torch.tensor(
                [places.get(text, len(known)) for text in here], dtype=torch.long
            )
            for i, block in enumerate(self.blocks):
                if block.id_type == kind:
                    weights[i] = rows_at(self.weights[i], numbers)
        return LinearModel(self.spec, self.blocks, weights, self.bias, self.idf, ids)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the spec for JSON, and all tensors."""
        tensors = {f"weight.{i}": weight for i, weight in enumerate(self.weights)}
        tensors |= {BIAS: self.bias}
        for i, idf in enumerate(self.idf):
            if idf is not None:  # a copy: blocks share it, and safetensors takes no shared memory
                tensors[f"idf.{i}"] = torch.tensor(idf)
        for kind, texts in self.ids.items():
            tensors[f"ids.text.{kind}"] = torch.tensor(texts.text)
            tensors[f"ids.offsets.{kind}"] = torch.tensor(texts.offsets.astype("int64"))
        return {"kind": "linear"} | self.spec.model_dump(), tensors

    @classmethod
    def from_state(
        cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor], graph: Graph
    ) -> LinearModel:
        """Restore a model from :meth:`state`, aligned to a graph."""
        spec = validated(LinearSpec, dict(values), "linear model")
        blocks = [parse_block(text, graph.metadata()) for text in spec.blocks]
        labels = len(graph.labels)
        weights = [tensors[f"weight.{i}"] for i in range(len(blocks))]
        if any(w.shape[1:] != (labels,) for w in weights) or tensors[BIAS].shape != (labels,):
            raise HanmeError(f"linear model: its weights are not those of {labels} labels")
        idf = [
            tensors[name].numpy() if (name := f"idf.{i}") in tensors else None
            for i in range(len(blocks))
        ]
        ids = {
            kind: Texts(tensors[f"ids.text.{kind}"].numpy(), tensors[f"ids.offsets.{kind}"].numpy())
            for name in tensors
            if (kind := name.removeprefix("ids.text.")) != name
        }
        return cls(spec, blocks, weights, tensors[BIAS], idf, ids).aligned_to(graph)

    def _on(self, graph: Graph) -> Design:
        design = self._design
        if design is None or not design.source.belong_to(graph):
            design = self._design = Design.on(GraphMatrices(graph), self.blocks, self.idf)
        return design

    def _weights_on(self, graph: Graph) -> list[Tensor]:
        """Return the weights of each block's columns on a graph or a subgraph of it."""
        weights = []
        for block, weight in zip(self.blocks, self.weights, strict=True):
            numbers = None if block.id_type is None else graph.nodes[block.id_type].original_ids
            weights.append(weight if numbers is None else rows_at(weight, numbers))
        return weights
