"""Wide channels: a linear function of what each root is, whom it meets, and what they are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hanme.graph.cache import GraphCache
from hanme.graph.chain import checked_roots
from hanme.graph.metapath import EdgeType
from hanme.nn.batch import Batch
from hanme.nn.channels.base import Channels, Task
from hanme.nn.channels.blocks import Block, Rows, Vector
from hanme.nn.channels.forest import Forest


class WideChannels(Channels):
    """A channel per block of rows: logits, the rows times a matrix of their own.

    The matrices are not trained with the rest of a model but fitted by themselves
    (:func:`hanme.training.fit_wide`): until then they have no columns and add nothing.

    Args:
        task: What they are made for.
        out_channels: Not used: wide channels give logits.
        blocks: The blocks, such as ``["features:plain", "movie-actor:ids:unit"]``. Those that read
            beliefs come last, and count once :meth:`believe` has given them weights; that of trees
            comes before them, and counts once there are ``trees``.
    """

    wide = True

    def __init__(self, task: Task, out_channels: int = 0, *, blocks: Sequence[str]) -> None:
        super().__init__(task, out_channels)
        self.target, self.labels = task.target, task.labels
        self.blocks = [Block.parse(text, task.metadata) for text in blocks]
        self.weight = nn.ParameterList(
            nn.Parameter(torch.zeros(0, task.labels), requires_grad=False) for _ in self.blocks
        )
        self.rarity = nn.ParameterList(
            nn.Parameter(torch.zeros(0), requires_grad=False) for _ in self.blocks
        )
        self.bias = nn.Parameter(torch.zeros(task.labels), requires_grad=False)
        self.beliefs: Tensor
        self.register_buffer("beliefs", torch.zeros(0, task.labels))
        self.trees: Tensor
        self.register_buffer("trees", Forest.table([]))
        self._graph: GraphCache[list[Rows]] = GraphCache()
        self._labels: GraphCache[list[Rows]] = GraphCache()
        self._paths: GraphCache[list[Rows]] = GraphCache()
        self._beliefs: GraphCache[list[Rows]] = GraphCache()

    @property
    def active(self) -> list[Block]:
        """The blocks that count: all but trees not grown and beliefs that are not trusted."""
        grown = {"trees": len(self.trees) > 0}
        return [
            block
            for block, weight in zip(self.blocks, self.weight, strict=True)
            if grown.get(block.read, block.read != "beliefs" or len(weight))
        ]

    @property
    def names(self) -> list[str]:  # type: ignore[override]
        """What each channel is called."""
        return [str(block) for block in self.active]

    def rows(self, batch: Batch) -> list[Rows]:
        """Return the rows of active blocks on a graph, made when graph and labels are first seen.

        Blocks of beliefs are walked when these are first asked for.
        """
        used = [*batch.x_dict.values(), *batch.edge_index_dict.values()]
        labels = [] if batch.labels is None else [batch.labels]
        reads = ("features", "pairs", "trees", "ids")
        fixed = iter(self._graph.get([*used, self.trees], lambda: self._rows(batch, *reads)))
        seen = iter(self._labels.get([*used, *labels], lambda: self._rows(batch, "labels")))
        found = [
            next(seen if block.read == "labels" else fixed)
            for block in self.active
            if block.read != "beliefs"
        ]
        if len(found) == len(self.active):
            return found
        return found + self._beliefs.get(
            [*used, self.beliefs], lambda: self.reading(batch, self.beliefs)
        )

    def reading(self, batch: Batch, beliefs: Tensor) -> list[Rows]:
        """Return the rows of the blocks of beliefs: what is believed of others along each path.

        Args:
            batch: The graph.
            beliefs: What is believed of each target node, ``[N, labels]``.
        """
        used = [*batch.x_dict.values(), *batch.edge_index_dict.values()]
        walked = self._paths.get(used, lambda: self._rows(batch, "beliefs"))
        size = batch.x_dict[self.target].size(0)
        numbers = (
            torch.arange(size) if batch.original_ids is None else batch.original_ids[self.target]
        )
        return [rows.reading(_rows_of(beliefs, numbers)) for rows in walked]

    def _rows(self, batch: Batch, *reads: str) -> list[Rows]:
        sizes = {kind: x.size(0) for kind, x in batch.x_dict.items()}
        given = (batch.x_dict, batch.edge_index_dict, sizes)
        numbers = None if batch.original_ids is None else batch.original_ids[self.target]
        active = self.active
        shared: dict[Any, Any] = {}
        return [
            Rows(
                block,
                self.target,
                *given,
                _known(rarity),
                batch.labels,
                numbers,
                shared,
                Forest(self.trees) if block.read == "trees" else None,
            )
            for block, rarity in zip(self.blocks, self.rarity, strict=True)
            if block.read in reads
            and (block in active or (block.read == "beliefs" and not len(self.beliefs)))
        ]

    @torch.no_grad()
    def fill(self, weights: Sequence[Tensor], bias: Tensor, rows: Sequence[Rows]) -> None:
        """Take fitted matrices, and what the rows were scaled by."""
        for i, (weight, made) in enumerate(zip(weights, rows, strict=True)):
            self.weight[i] = nn.Parameter(weight.contiguous(), requires_grad=False)
            if made.rarity is not None:  # a copy: blocks share it, and stored weights may not
                self.rarity[i] = nn.Parameter(torch.tensor(made.rarity), requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)

    @torch.no_grad()
    def believe(self, beliefs: Tensor, slopes: Sequence[float]) -> None:
        """Add what is believed of others along paths to the same labels' logits.

        Args:
            beliefs: What is believed of each target node, ``[N, labels]``.
            slopes: What the mean along the path of each block of beliefs is multiplied by.
        """
        self.beliefs = beliefs
        places = [i for i, block in enumerate(self.blocks) if block.read == "beliefs"]
        for i, slope in zip(places, slopes, strict=True):
            if slope > 0:
                self.weight[i] = nn.Parameter(slope * torch.eye(self.labels), requires_grad=False)
        self._paths = GraphCache()  # less is walked from now on

    def forget(self) -> None:
        """Believe nothing of any node, as on a graph of other nodes."""
        self.beliefs = torch.zeros_like(self.beliefs)

    @property
    def id_types(self) -> list[str]:
        """The node types whose ids have weights, or that beliefs are of."""
        read = ("ids", "beliefs")
        ends = [b.path.node_types[-1] for b in self.active if b.path and b.read in read]
        return list(dict.fromkeys(ends))

    def weights(self, ids: Mapping[str, Tensor] | None = None) -> list[Tensor]:
        """Return the matrix of each block.

        Args:
            ids: By type, the numbers of a piece's nodes in the whole graph: the rows of ids are
                then theirs.
        """
        active = self.active
        ends = [b.path.node_types[-1] if b.path and b.read == "ids" else None for b in active]
        weights = [w for b, w in zip(self.blocks, self.weight, strict=True) if b in active]
        return [
            weight if ids is None or end is None else _rows_of(weight, ids[end])
            for weight, end in zip(weights, ends, strict=True)
        ]

    def walks(self) -> list[tuple[EdgeType, ...]]:
        """Return the metapaths of the blocks."""
        return [block.path.steps for block in self.active if block.path]

    @torch.no_grad()
    def renumber(self, node_type: str, numbers: Tensor, size: int) -> None:
        """Move the weights of a type's ids to a graph that numbers its nodes otherwise.

        Args:
            node_type: The type.
            numbers: For each node that has weights its number on that graph, or -1.
            size: How many nodes of the type that graph has.
        """
        there = numbers >= 0
        if node_type == self.target and len(self.beliefs):
            beliefs = self.beliefs.new_zeros(size, self.labels)
            beliefs[numbers[there]] = self.beliefs[there.nonzero().flatten()]
            self.beliefs = beliefs
        for i, block in enumerate(self.blocks):
            if block.path and block.read == "ids" and block.path.node_types[-1] == node_type:
                before = self.weight[i]
                after = before.new_zeros(size, self.labels)
                after[numbers[there]] = before[there.nonzero().flatten()]
                self.weight[i] = nn.Parameter(after, requires_grad=False)

    @torch.no_grad()
    def scale(self, slope: float, bias: Tensor) -> None:
        """Multiply the logits and add a bias."""
        for weight in self.weight:
            weight.mul_(slope)
        self.bias.mul_(slope).add_(bias)

    @torch.no_grad()
    def forward(self, batch: Batch) -> list[Tensor]:
        """Return the logits that each block adds, ``[R, labels]``; the bias is with the first."""
        x_dict, roots = batch.x_dict, batch.roots
        size, device = x_dict[self.target].size(0), self.bias.device
        chosen = np.arange(size) if roots is None else checked_roots(roots, size).cpu().numpy()
        if not any(len(weight) for weight in self.weight):  # not fitted yet
            return [torch.zeros(len(chosen), self.labels, device=device)]
        found = [
            rows.times(chosen, weight).to(device)
            for rows, weight in zip(self.rows(batch), self.weights(batch.original_ids), strict=True)
        ]
        return [found[0] + self.bias, *found[1:]]

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take weights of any number of columns: what was fitted says how many there are."""
        beliefs = state.setdefault(f"{prefix}beliefs", self.beliefs)  # runs before had none
        trees = state.setdefault(f"{prefix}trees", self.trees)
        if trees.dim() == 2 and trees.size(1) == self.trees.size(1):
            self.trees = torch.empty_like(trees)
        if beliefs.dim() == 2 and beliefs.size(1) == self.labels:
            self.beliefs = torch.empty_like(beliefs)
        for i in range(len(self.blocks)):
            for part, shape in ((self.weight, (-1, self.labels)), (self.rarity, (-1,))):
                name = "weight" if part is self.weight else "rarity"
                value = state.get(f"{prefix}{name}.{i}")
                if value is not None and value.dim() == len(shape) and value.size(-1) != 0:
                    part[i] = nn.Parameter(torch.empty_like(value), requires_grad=False)
        super()._load_from_state_dict(state, prefix, *rest)


def _known(rarity: Tensor) -> Vector | None:
    return rarity.detach().cpu().numpy() if len(rarity) else None


def _rows_of(weight: Tensor, nodes: Tensor) -> Tensor:
    """Return the rows of some nodes; zeros for those that have none."""
    known = nodes < len(weight)
    found = weight.new_zeros(nodes.numel(), weight.size(1))
    found[known] = weight[nodes[known]]
    return found
