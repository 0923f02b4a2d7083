"""The linear model: logistic regression on feature blocks."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hanme.common.options import validated
from hanme.errors import HanmeError
from hanme.graph import Graph
from hanme.graph.metapath import Walk
from hanme.graph.nodes import Texts
from hanme.linear.aggregates import Column
from hanme.linear.blocks import (
    AggregatedRows,
    FeatureBlock,
    Standardised,
    parse_block,
)
from hanme.linear.fit import TrainingRows
from hanme.linear.learner import Contributions
from hanme.linear.matrices import DesignMatrix, GraphMatrices, Vector
from hanme.linear.selection import LinearSpec, select_blocks

BATCH = 4096
"""Number of nodes of a stored graph to predict at a time."""

BIAS = "bias"


class WeightedBlock(NamedTuple):
    """A block, the weights of its columns ``[D, C]``, and their inverse document frequencies."""

    block: FeatureBlock
    weight: Tensor
    idf: Vector | None = None  # if it is a unit block of features


class LinearModel:
    """Logistic regression on sparse feature blocks of target nodes.

    Args:
        blocks: The blocks and their weights.
        bias: ``[C]``.
        ids: Ids of the nodes that have weights, by node type, where the graph has ids.
        matrices: Matrices of the graph at hand, if they are known.
    """

    def __init__(
        self,
        blocks: Sequence[WeightedBlock],
        bias: Tensor,
        ids: Mapping[str, Texts] | None = None,
        matrices: GraphMatrices | None = None,
    ) -> None:
        self.blocks, self.bias, self.ids = list(blocks), bias, dict(ids or {})
        self._matrices = matrices

    @classmethod
    def fit(
        cls,
        graph: Graph,
        *,
        seed: int = 0,
        columns: Sequence[Column] = (),
        added: Sequence[str | dict[str, Any]] = (),
    ) -> LinearModel:
        """Select blocks, see :func:`select_blocks`, and fit weights to training nodes."""
        matrices, masks = GraphMatrices(graph), [graph.split.train]
        (spec,) = select_blocks(graph, masks, seed, matrices, [columns], added)
        return cls.fit_each(graph, spec, masks, matrices)[0]

    @classmethod
    def fit_each(
        cls, graph: Graph, spec: LinearSpec, masks: Sequence[Tensor], matrices: GraphMatrices
    ) -> list[LinearModel]:
        """Fit a model to each set of labelled nodes ``[N]``."""
        nodes = torch.stack(list(masks)).any(0).nonzero().flatten()
        designs = [block.on(matrices) for block in spec.blocks]
        rows = TrainingRows(designs, spec.scales, nodes.numpy(), graph.y[nodes], len(graph.labels))
        fitted = rows.fit_each([mask[nodes] for mask in masks], spec.strength)
        return [cls.on(matrices, spec.blocks, each) for each in fitted]

    @classmethod
    def on(
        cls, matrices: GraphMatrices, blocks: Sequence[FeatureBlock], weights: Tensor
    ) -> LinearModel:
        """Return the model with given weights and, in the last row, the bias, ``[D + 1, C]``."""
        widths = [block.on(matrices).width for block in blocks]
        *parts, bias = torch.split(weights, [*widths, 1])
        weighted, ids = [], dict[str, Texts]()
        for block, weight in zip(blocks, parts, strict=True):
            is_tfidf = block.kind == "features" and block.scaling == "unit"
            idf = matrices.idf[block.end(matrices.graph)] if is_tfidf else None
            weighted.append(WeightedBlock(block, weight, idf))
            texts = matrices.graph.nodes[block.id_type].ids if block.id_type else None
            if block.id_type and texts is not None:
                ids[block.id_type] = Texts.of(texts)
        return cls(weighted, bias[0], ids, matrices)

    @classmethod
    def weighted_sum(cls, models: Sequence[LinearModel], slopes: Sequence[float]) -> LinearModel:
        """Return the model whose logits are a weighted sum of those of models on one graph."""
        blocks: dict[Hashable, WeightedBlock] = {}
        bias, ids = torch.zeros_like(models[0].bias), dict[str, Texts]()
        for model, slope in zip(models, slopes, strict=True):
            bias, ids = bias + slope * model.bias, ids | model.ids
            for block, weight, idf in model.blocks:
                before = blocks[block.key].weight if block.key in blocks else 0
                blocks[block.key] = WeightedBlock(block, before + slope * weight, idf)
        return cls(list(blocks.values()), bias, ids, models[0]._matrices)

    def predict(self, graph: Graph, nodes: Tensor | None = None) -> Tensor:
        """Return the logits of some target nodes (default: all), ``[n, C]``."""
        numbers = torch.arange(graph.targets.num_nodes) if nodes is None else nodes.cpu()
        if graph.stored:
            parts = (graph.subgraph(some, self.walks()) for some in torch.split(numbers, BATCH))
            return torch.cat([self.predict(part, part.roots) for part in parts])
        logits = self.bias.repeat(len(numbers), 1)
        for _, design, weight in self._on(graph):
            logits += design.times(numbers.numpy(), weight)
        return logits

    def block_logits(self, graph: Graph, nodes: Tensor | None = None) -> dict[str, Tensor]:
        """Return what each block and the bias add to the logits, ``[n, C]`` by name."""
        numbers = np.arange(graph.targets.num_nodes) if nodes is None else nodes.cpu().numpy()
        logits = {str(block): rows.times(numbers, w) for block, rows, w in self._on(graph)}
        return logits | {BIAS: self.bias.expand(len(numbers), -1)}

    def contributions(
        self, graph: Graph, node: int, missing: Collection[Column] = ()
    ) -> Contributions:
        """Return what neighbours, aggregates and own features add to the logits of a node."""
        matrices, parts = self._matrices_of(graph), []
        for block, weight, _ in self.blocks:
            on_graph = _weights_on(graph, block, weight).double().numpy()
            parts.append(block.contributions(matrices, node, on_graph, missing))
        return Contributions(self.bias.double().numpy(), parts)

    def walks(self) -> list[Walk]:
        """Return the sequences of relations that the blocks read."""
        return [walk for each in self.blocks for walk in each.block.walks]

    def frozen(self, graph: Graph) -> LinearModel:
        """Return a copy without the matrices of a graph; it reads nothing beyond its walks."""
        return LinearModel(self.blocks, self.bias, self.ids)

    def aligned_to(self, graph: Graph) -> LinearModel:
        """Return the model with its weights in the order of a graph's nodes, matched by id."""
        blocks, ids = list(self.blocks), dict(self.ids)
        for kind, known in self.ids.items():
            here = graph.nodes[kind].ids
            if here is None or (len(here) == len(known) and Texts.of(here) == known):
                continue
            ids[kind], places = Texts.of(here), {text: i for i, text in enumerate(known)}
            numbers = torch.tensor([places.get(t, len(known)) for t in here], dtype=torch.long)
            for i, (block, weight, _) in enumerate(self.blocks):
                if block.id_type == kind:
                    blocks[i] = WeightedBlock(block, rows_at(weight, numbers))
        return LinearModel(blocks, self.bias, ids)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the names of the blocks for JSON, and all tensors."""
        values: dict[str, Any] = {"kind": "linear", "blocks": [str(b) for b, *_ in self.blocks]}
        tensors = {BIAS: self.bias}
        for i, (block, weight, idf) in enumerate(self.blocks):
            tensors[f"weight.{i}"] = weight
            if idf is not None:  # a copy: blocks share it, and safetensors takes no shared memory
                tensors[f"idf.{i}"] = torch.tensor(idf)
            if isinstance(block, AggregatedRows):
                values["aggregates"] = [each.model_dump(mode="json") for each in block.columns]
        for kind, texts in self.ids.items():
            tensors[f"ids.text.{kind}"] = torch.tensor(texts.text)
            tensors[f"ids.offsets.{kind}"] = torch.tensor(texts.offsets.astype("int64"))
        return values, tensors

    @classmethod
    def from_state(
        cls, values: Mapping[str, Any], tensors: Mapping[str, Tensor], graph: Graph
    ) -> LinearModel:
        """Restore a model from :meth:`state`, aligned to a graph."""
        aggregates = [
            validated(Standardised, each, "linear model") for each in values.get("aggregates", ())
        ]
        blocks = []
        for i, text in enumerate(values["blocks"]):
            block = parse_block(text, graph.metadata(), aggregates, values.get("options", {}))
            idf = tensors.get(f"idf.{i}")
            known = None if idf is None else idf.numpy()
            blocks.append(WeightedBlock(block, tensors[f"weight.{i}"], known))
        sizes = {each.shape[-1] for each in (*(b.weight for b in blocks), tensors[BIAS])}
        if sizes != {len(graph.labels)}:
            raise HanmeError(
                f"linear model: its weights are not those of {len(graph.labels)} labels"
            )
        ids = {
            kind: Texts(tensors[f"ids.text.{kind}"].numpy(), tensors[f"ids.offsets.{kind}"].numpy())
            for name in tensors
            if (kind := name.removeprefix("ids.text.")) != name
        }
        return cls(blocks, tensors[BIAS], ids).aligned_to(graph)

    def _matrices_of(self, graph: Graph) -> GraphMatrices:
        matrices = self._matrices  # another thread may put those of its graph there
        if matrices is None or not matrices.belong_to(graph):
            idf = {b.end(graph): known for b, _, known in self.blocks if known is not None}
            self._matrices = matrices = GraphMatrices(graph, idf)
        return matrices

    def _on(self, graph: Graph) -> Iterator[tuple[FeatureBlock, DesignMatrix, Tensor]]:
        """Yield each block with its rows on a graph, and a weight for each of their columns."""
        matrices = self._matrices_of(graph)
        for block, weight, _ in self.blocks:
            yield block, block.on(matrices), _weights_on(graph, block, weight)


def _weights_on(graph: Graph, block: FeatureBlock, weight: Tensor) -> Tensor:
    """Return the weights of a block's columns on a graph or a subgraph of it."""
    if block.id_type is None:
        return weight
    nodes = graph.nodes[block.id_type]
    if nodes.original_ids is not None:
        return rows_at(weight, nodes.original_ids)
    same = nodes.num_nodes == len(weight)
    return weight if same else rows_at(weight, torch.arange(nodes.num_nodes))


def rows_at(weight: Tensor, numbers: Tensor) -> Tensor:
    """Return some rows of a matrix, and zeros for numbers beyond its end."""
    known = numbers < len(weight)
    rows = weight.new_zeros(numbers.numel(), weight.size(1))
    rows[known] = weight[numbers[known]]
    return rows
