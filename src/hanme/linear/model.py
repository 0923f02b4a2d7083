"""The linear model: logistic regression on feature blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hanme.common.options import validated
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Walk
from hanme.graph.nodes import Texts
from hanme.linear.aggregates import Column
from hanme.linear.blocks import DesignMatrix, FeatureBlock, parse_block
from hanme.linear.fit import FitData, fit_weights
from hanme.linear.learner import ColumnContributions, Contributions
from hanme.linear.matrices import GraphMatrices, Vector, rows_at
from hanme.linear.selection import LinearSpec, select_blocks

BATCH = 4096
"""Number of nodes of a stored graph to predict at a time."""

BIAS = "bias"


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
        self._source: GraphMatrices | None = None

    @classmethod
    def fit(
        cls,
        graph: Graph,
        *,
        seed: int = 0,
        spec: LinearSpec | None = None,
        columns: Sequence[Column] = (),
    ) -> LinearModel:
        """Select blocks (with aggregates of ``columns``) and fit weights to training nodes."""
        matrices = GraphMatrices(graph)
        spec = spec or select_blocks(graph, seed, matrices, columns)
        return cls.fit_each(graph, spec, [graph.split.train], matrices)[0]

    @classmethod
    def fit_each(
        cls,
        graph: Graph,
        spec: LinearSpec,
        masks: Sequence[Tensor],
        matrices: GraphMatrices,
        start: LinearModel | None = None,
    ) -> list[LinearModel]:
        """Fit a model to each set of labelled nodes ``[N]``, from ``start`` if it is given."""
        blocks = [parse_block(text, graph.metadata(), spec.aggregates) for text in spec.blocks]
        nodes = torch.stack(list(masks)).any(0).nonzero().flatten()
        data = FitData(
            [matrices.block(block) for block in blocks],
            spec.scales,
            spec.strength,
            nodes.numpy(),
            graph.y[nodes],
            len(graph.labels),
            [mask[nodes] for mask in masks],
        )
        initial = None if start is None else torch.cat([*start.weights, start.bias[None]])
        return [cls.on(matrices, spec, blocks, each) for each in fit_weights(data, initial)]

    @classmethod
    def on(
        cls,
        matrices: GraphMatrices,
        spec: LinearSpec,
        blocks: Sequence[FeatureBlock],
        fitted: Tensor,
    ) -> LinearModel:
        """Return the model with given weights and, in the last row, the bias, ``[D + 1, C]``."""
        nodes, designs = matrices.graph.nodes, [matrices.block(block) for block in blocks]
        known = {block.id_type: nodes[block.id_type].ids for block in blocks if block.id_type}
        ids = {kind: Texts.of(texts) for kind, texts in known.items() if texts is not None}
        *weights, bias = torch.split(fitted, [*(each.width for each in designs), 1])
        model = cls(spec, blocks, weights, bias[0], [each.idf for each in designs], ids)
        model._source = matrices
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
        scales = dict(zip(models[0].spec.blocks, models[0].spec.scales, strict=True))
        update = {"blocks": list(blocks), "scales": [scales.get(name, 0.0) for name in blocks]}
        total = cls(models[0].spec.model_copy(update=update), parsed, weights, bias, idfs, ids)
        total._source = models[0]._source
        return total

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        return self.predict_each([self], graph, nodes)[0]

    @staticmethod
    def predict_each(
        models: Sequence[LinearModel], graph: Graph, nodes: Tensor | None = None
    ) -> Tensor:
        """Return the logits of several models with the same blocks, ``[models, n, C]``."""
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        if graph.stored:
            batches = torch.split(nodes, BATCH)
            subgraphs = (graph.subgraph(batch, models[0].walks()) for batch in batches)
            parts = [LinearModel.predict_each(models, sub, sub.roots) for sub in subgraphs]
            return torch.cat(parts, 1)
        logits = torch.cat([model.bias for model in models]).repeat(len(nodes), 1)
        weights = zip(*(model._weights_on(graph) for model in models), strict=True)
        for matrix, each in zip(models[0]._matrices(graph), weights, strict=True):
            logits += matrix.times(nodes.cpu().numpy(), torch.cat(each, 1))
        return torch.stack(logits.chunk(len(models), 1))

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block and the bias add to the logits, ``[n, C]`` by name."""
        nodes = torch.arange(graph.targets.num_nodes) if nodes is None else nodes
        parts = zip(self.spec.blocks, self._matrices(graph), self._weights_on(graph), strict=True)
        logits = {name: each.times(nodes.cpu().numpy(), weight) for name, each, weight in parts}
        return logits | {BIAS: self.bias.expand(len(nodes), -1)}

    def contributions(self, graph: Graph, node: int) -> Contributions:
        """Return what each column adds to the logits of a node; with the bias, the logits."""
        blocks = []
        for block, matrix, weight in zip(
            self.blocks, self._matrices(graph), self._weights_on(graph), strict=True
        ):
            row = matrix.rows(np.array([node]))
            known = row.indices < len(weight)
            columns, values = row.indices[known], row.data[known].astype(np.float64)
            products = values[:, None] * weight.numpy()[columns]
            phrase = partial(block.column, graph)
            blocks.append(ColumnContributions(str(block), columns, products, phrase, block.id_type))
        return Contributions(self.bias.double().numpy(), blocks)

    def walks(self) -> list[Walk]:
        """Return the sequences of relations that the blocks read."""
        return [walk for block in self.blocks for walk in block.walks]

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
            ids[kind], places = Texts.of(here), {text: i for i, text in enumerate(known)}
            numbers = torch.tensor([places.get(t, len(known)) for t in here], dtype=torch.long)
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
        return {"kind": "linear"} | self.spec.model_dump(mode="json"), tensors

    @classmethod
    def from_state(
        cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor], graph: Graph
    ) -> LinearModel:
        """Restore a model from :meth:`state`, aligned to a graph."""
        spec = validated(LinearSpec, dict(values), "linear model")
        blocks = [parse_block(text, graph.metadata(), spec.aggregates) for text in spec.blocks]
        weights = [tensors[f"weight.{i}"] for i in range(len(blocks))]
        if any(each.shape[-1] != len(graph.labels) for each in [*weights, tensors[BIAS]]):
            raise HanmeError(
                f"linear model: its weights are not those of {len(graph.labels)} labels"
            )
        idf = [t.numpy() if (t := tensors.get(f"idf.{i}")) is not None else None
               for i in range(len(blocks))]  # fmt: skip
        ids = {
            kind: Texts(tensors[f"ids.text.{kind}"].numpy(), tensors[f"ids.offsets.{kind}"].numpy())
            for name in tensors
            if (kind := name.removeprefix("ids.text.")) != name
        }
        return cls(spec, blocks, weights, tensors[BIAS], idf, ids).aligned_to(graph)

    def _matrices(self, graph: Graph) -> list[DesignMatrix]:
        if self._source is None or not self._source.belong_to(graph):
            self._source = GraphMatrices(graph)
        pairs = zip(self.blocks, self.idf, strict=True)
        return [self._source.block(block, idf) for block, idf in pairs]

    def _weights_on(self, graph: Graph) -> list[Tensor]:
        """Return the weights of each block's columns on a graph or a subgraph of it."""
        weights = []
        for block, weight in zip(self.blocks, self.weights, strict=True):
            numbers = None if block.id_type is None else graph.nodes[block.id_type].original_ids
            weights.append(weight if numbers is None else rows_at(weight, numbers))
        return weights
